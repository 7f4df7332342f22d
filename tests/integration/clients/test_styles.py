"""Whatever else an agent asks, and whatever becomes of its history: perfect play earns 1."""

from __future__ import annotations

import pytest
from integration.clients.conftest import Command
from integration.clients.stage import Task, assert_perfect, play_perfectly

from art_cli.models.policy import Policy

# The style, and whether each of its calls goes on where an earlier one ended.
STYLES = {
    "plain": True,
    "stream": True,
    "logprobs": True,
    "parallel": True,
    "spaced": True,
    "final_tool": True,
    "guardrail": False,
    "title": False,
    "planner": False,
    "answer_file": False,
    "subagent": False,
    "wordless": False,
    "forgetful": False,
    "windowed": False,
}


@pytest.mark.parametrize("style", STYLES)
def test_perfect_play_earns_one(
    style: str, desk: list[Task], retail: Task, command: Command, policy: Policy
) -> None:
    words = command("styles.py", style)
    for task in (desk[1], retail):  # see test_frameworks.py
        played = play_perfectly(task, policy, words, parallel=style == "parallel")
        assert_perfect(played)
    assert (len(played.trajectory.sequences) == 1) == STYLES[style]


def test_an_agent_that_compacts_its_history_goes_on(
    retail: Task, command: Command, policy: Policy
) -> None:
    words = command("styles.py", "compaction")
    whole = play_perfectly(retail, policy, words)
    longest = max(len(asked.ids) for asked in whole.asked)
    played = play_perfectly(retail, policy, words, room=longest - 20)
    assert "compacted" in played.printed
    assert_perfect(played)
