"""Whatever else an agent asks, and whatever becomes of its history: perfect play earns exactly 1."""

from __future__ import annotations

import pytest

from art_cli.models.policy import Policy
from integration.clients.conftest import Command
from integration.clients.stage import Played, Task, assert_perfect, play_perfectly

STYLES = [
    *("plain", "stream", "logprobs", "parallel"),
    *("guardrail", "title", "planner", "answer_file", "final_tool", "subagent"),
    *("wordless", "forgetful", "windowed", "spaced"),
]


def play(style: str, task: Task, policy: Policy, command: Command) -> Played:
    words = command("styles.py", style)
    return play_perfectly(task, policy, words, parallel=style == "parallel")


@pytest.mark.parametrize("style", STYLES)
def test_perfect_play_earns_one(
    style: str, desk: list[Task], retail: list[Task], command: Command, policy: Policy
) -> None:
    for task in [*desk, *retail]:
        assert_perfect(play(style, task, policy, command))


def test_an_agent_that_compacts_its_history_goes_on(
    retail: list[Task], command: Command, policy: Policy
) -> None:
    [task, *_] = retail
    words = command("styles.py", "compaction")
    whole = play_perfectly(task, policy, words)
    longest = max(len(asked.ids) for asked in whole.asked)
    played = play_perfectly(task, policy, words, room=longest - 20)
    assert "compacted" in played.printed
    assert_perfect(played)


def test_histories_of_other_shapes_hold_what_they_were_made_for(
    retail: list[Task], command: Command, policy: Policy
) -> None:
    """Else the test above would test nothing."""
    [task, *_] = retail
    num = {style: len(play(style, task, policy, command).trajectory.sequences) for style in STYLES}
    assert all(num[style] == 1 for style in ("plain", "stream", "logprobs", "spaced", "parallel"))
    assert all(num[style] > 1 for style in ("guardrail", "planner", "subagent", "windowed"))
