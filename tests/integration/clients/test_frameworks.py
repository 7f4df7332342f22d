"""Agents as their users write them, each with its framework: perfect play earns exactly 1.

The programs are the recipes of docs/your-agent.md.
"""

from __future__ import annotations

import pytest
from integration.clients.conftest import Command
from integration.clients.stage import Task, assert_perfect, play_perfectly

from art_cli.models.policy import Policy

PROGRAMS = [
    "openai_chat.py",
    "openai_responses.py",
    "agents_sdk.py",
    "agents_sdk_chat.py",
    "pydantic_ai_agent.py",
    "pydantic_ai_agent.py openai-chat:gpt-5-mini",
    "pydantic_ai_agent.py anthropic:claude-sonnet-4-6",
    "anthropic_agent.py",
    "smolagents_agent.py",
    "ag2_agent.py",
    "litellm_chat.py",
    "langchain_agent.py",
    "langchain_agent.py anthropic:claude-sonnet-4-6",
    "langgraph_agent.py",
    "autogen_agent.py",
    "crewai_agent.py",
    "mcp_client.py",
    "openai.mjs",
    "anthropic.mjs",
    "ai_sdk.mjs",
    "ai_sdk_compatible.mjs",
    "ai_sdk_anthropic.mjs",
    "mcp.mjs",
    "curl.sh",
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_perfect_play_earns_one(
    program: str, desk: list[Task], retail: Task, command: Command, policy: Policy
) -> None:
    # Of the desk what is refused: what is granted is a shorter play than retail's.
    for task in (desk[1], retail):
        assert_perfect(play_perfectly(task, policy, command(*program.split())))
