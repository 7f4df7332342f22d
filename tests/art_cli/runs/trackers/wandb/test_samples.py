"""Which trajectories a person gets to read, and as what."""

from __future__ import annotations

from typing import Any

from art_cli.runs.trackers.shorten import LONGEST
from art_cli.runs.trackers.wandb.samples import COLUMNS, conversation, held_out, siblings


def row(reward: float | None, group: int = 0, **changes: Any) -> dict[str, Any]:
    return {
        "step": 3,
        "group": group,
        "scenario_id": f"s-{group}",
        "reward": reward,
        "stop_reason": "env",
        "error": None,
        "logs": [],
        "reward_parts": {},
        "messages": [{"role": "user", "content": "go"}],
    } | changes


def rewards(table: list[list[Any]]) -> list[float | None]:
    return [cells[COLUMNS.index("reward")] for cells in table]


def test_the_group_with_the_widest_rewards_is_shown_best_first() -> None:
    narrow, wide = [row(0.9), row(0.8)], [row(0.1, 1), row(0.7, 1), row(None, 1), row(0.5, 1)]
    assert rewards(siblings([*narrow, *wide])) == [0.7, 0.5, 0.1, None]


def test_of_a_large_group_both_ends_are_shown() -> None:
    table = siblings([row(n / 20) for n in range(20)])
    assert rewards(table) == [0.95, 0.9, 0.85, 0.8, 0.15, 0.1, 0.05, 0.0]


def test_of_an_evaluation_the_first_ones_are_shown() -> None:
    assert rewards(held_out([row(float(n), n) for n in range(20)])) == list(range(8))
    assert held_out([]) == siblings([]) == []


def test_a_row_says_how_it_ended_and_what_the_judge_said() -> None:
    error = "env: KeyError: 'a'\nTraceback: ..."
    failed = row(None, stop_reason="error", error=error, reward_parts={"explanation": "it gave up"})
    ((*_, ended, said, judge),) = held_out([failed])
    assert ended == "error: env: KeyError: 'a'"
    assert (said, judge) == ("[user] go", "it gave up")


def test_a_conversation_is_text_and_a_very_long_one_loses_its_middle() -> None:
    short = [{"role": "user", "content": "go"}, {"role": "assistant", "content": None}]
    assert conversation(short) == "[user] go\n\n[assistant] "
    text = conversation([{"role": "tool", "content": "a" * LONGEST + "end"}])
    assert "[... 10 characters left out ...]" in text and text.endswith("end")
    assert len(text) < LONGEST + 50
