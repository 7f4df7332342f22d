"""The policy itself behind each framework: tokens and log-probabilities are those of the model.

A tiny model has learned two cases of the order desk by heart, and plays them by sampling.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_contract import assert_exact
from integration.clients.conftest import Command
from integration.clients.stage import (
    Played,
    Recorded,
    Task,
    assert_recorded,
    perform,
)

from art_cli.chat.render import Conversation, Renderer
from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.engines.build import make_engine
from art_cli.engines.embedded.engine import TransformersEngine
from art_cli.models.policy import Policy
from art_cli.rollout.rollout import play
from art_cli.types import Completion

SAMPLING = SamplingConfig(max_tokens=64)
FIRST = "openai_chat.py"
SAME = [  # whose prompts are the env's own: their play is the same to the token
    "agents_sdk.py",
    "agents_sdk_chat.py",
    "litellm_chat.py",
    "langchain_agent.py",
    "langgraph_agent.py",
    "ag2_agent.py",
    "mcp_client.py",
    "openai.mjs",
    "ai_sdk.mjs",
    "ai_sdk_anthropic.mjs",
    "anthropic.mjs",
    "mcp.mjs",
    "curl.sh",
]
OTHERS = [
    "smolagents_agent.py",  # these two write a prompt around it
    "crewai_agent.py",
    "pydantic_ai_agent.py",  # and these write results anew
    "autogen_agent.py",
    "ai_sdk_compatible.mjs",
]


@pytest.fixture(scope="session")
def learned(policy: Policy, desk: list[Task]) -> Policy:
    """The policy after some steps on the right play."""
    sequences = [_right(policy, task) for task in desk]
    optimizer = torch.optim.AdamW(policy.model.parameters(), 1e-2)
    for _ in range(300):
        loss = 0.0
        for ids, mask in sequences:
            logits: Any = policy.model(input_ids=ids[None]).logits[0, :-1]
            losses = torch.nn.functional.cross_entropy(logits, ids[1:], reduction="none")
            (losses * mask[1:]).sum().backward()
            loss += float((losses.detach() * mask[1:]).sum())
        optimizer.step()
        optimizer.zero_grad()
        if loss < 0.5:
            return policy
    raise AssertionError(f"it has not learned two cases by heart: {loss}")


def _right(policy: Policy, task: Task) -> tuple[torch.Tensor, torch.Tensor]:
    renderer, new = Renderer(policy.tokenizer, task.tools), []
    talk = Conversation(renderer)
    env = task.env(task.scenario, task.settings)
    gold = env.gold()
    assert gold is not None
    for message in play(env, gold.__next__):
        if message["role"] != "assistant":
            new.append(message)
            continue
        talk.add_messages(new)
        said = [*renderer.encode(message["content"]), *renderer.encode(renderer.end_of_turn)]
        talk.add_completion(
            Completion(
                token_ids=said,
                logprobs=[0.0] * len(said),
                finish_reason="stop",
                policy_version=0,
            )
        )
        new = []
    [sequence] = talk.sequences
    return torch.tensor(sequence.ids), torch.tensor(sequence.mask)


@pytest.fixture(scope="session")
def first(
    desk: list[Task], command: Command, learned: Policy, tmp_path_factory: pytest.TempPathFactory
) -> Played:
    """The play that the others are compared with."""
    return _sampled(desk[0], learned, command(FIRST), tmp_path_factory.mktemp("logs"))


def _sampled(task: Task, policy: Policy, command: list[str], logs: Path) -> Played:
    async def go() -> Played:
        stops = Renderer(policy.tokenizer).stop_ids
        engine = await make_engine(policy, EngineConfig(), SAMPLING, stops, logs=logs)
        assert isinstance(engine, TransformersEngine)
        recorded = Recorded(engine)
        trajectory = await perform(task, policy, recorded, command, 4096, seed=5)
        await engine.close()
        return Played(trajectory, recorded.asked)

    return asyncio.run(go())


@pytest.mark.parametrize("program", SAME)
def test_the_same_play_is_the_same_tokens_in_every_framework(
    program: str, desk: list[Task], first: Played, command: Command, learned: Policy, tmp_path: Path
) -> None:
    played = _sampled(desk[0], learned, command(program), tmp_path)
    assert_recorded(played)
    mine, theirs = played.trajectory, first.trajectory
    assert mine.sequences[0].ids == theirs.sequences[0].ids, played.printed
    assert mine.sequences == theirs.sequences, played.printed
    assert mine.reward == theirs.reward


def test_the_first_play_is_one_with_tools_and_words(first: Played, learned: Policy) -> None:
    """Else the tests above would compare nothing; what they compare with is exact."""
    assert [bool(step.tool) for step in first.trajectory.steps] == [True, True, False]
    assert first.trajectory.reward == 1.0
    assert_recorded(first)
    assert_exact(learned, first.trajectory.sequences)


@pytest.mark.parametrize("program", OTHERS)
def test_log_probabilities_are_those_of_the_model(
    program: str, desk: list[Task], command: Command, learned: Policy, tmp_path: Path
) -> None:
    played = _sampled(desk[0], learned, command(program), tmp_path)
    assert_recorded(played)
    assert_exact(learned, played.trajectory.sequences)
