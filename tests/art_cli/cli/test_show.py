"""`art show`: whole at any width, harmless whoever speaks, and clear where there is nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shown_runs import add_step, make_run, trajectory, write_step
from typer.testing import CliRunner

from art_cli.cli.main import app
from art_cli.errors import ArtError, UsageError

CALL = '<tool_call>{"name": "cancel", "arguments": {"order": "W7"}}</tool_call>'
ESCAPE = "\x1b]0;mine\x07"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "runs" / "test" / "made", steps=2, groups=3, size=4)


def show(*words: object, width: int = 80) -> str:
    result = CliRunner().invoke(app, ["show", *map(str, words)], env={"COLUMNS": str(width)})
    if isinstance(result.exception, ArtError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def spoken(run: Path, *messages: Any, **changes: Any) -> None:
    """Add a step with one group, whose second sibling fails."""
    told = [{"role": "user", "content": "please"}, *messages]
    rows = [trajectory(3, "train", 0, i, messages=told, reward=0.5, **changes) for i in range(2)]
    rows[1] |= {"reward": None, "error": f"it broke{ESCAPE}", "stop_reason": "error"}
    rows[1] |= {"traceback": "Traceback"}
    write_step(run, 3, "train", rows)


@pytest.mark.parametrize("width", [60, 80])
def test_the_groups_of_a_step_are_a_table_that_fits(run: Path, width: int) -> None:
    lines = show(run, 2, width=width).splitlines()
    assert lines[0] == "step 2, train: 3 groups" and max(map(len, lines[:-1])) <= width
    assert [line.split()[1] for line in lines[2:5]] == ["train-0", "train-1", "train-2"]
    assert lines[-1].startswith(("Read the widest:  art show", "Read one of them:  art show"))


def test_the_newest_step_is_shown_where_none_is_named(run: Path) -> None:
    assert show(run).startswith("step 2, train: 3 groups")


def test_the_siblings_of_a_group_are_shown_the_best_first(run: Path) -> None:
    rows = json.loads(show(run, 1, 2, "--json"))
    rewards = [row["reward"] for row in rows]
    assert len(rows) == 4 and rewards == sorted(rewards, reverse=True)
    text = show(run, 1, 2)
    assert show(run, 1, "train-2") == text
    order = [text.index(f"sibling{s}") for s in (f" {rows[0]['index']}", f" {rows[-1]['index']}")]
    assert order == sorted(order) and text.count("You are a shop assistant.") == 1


def test_calls_are_readable_and_thinking_and_long_results_are_folded(run: Path) -> None:
    result = {"role": "tool", "name": "cancel", "content": "x" * 700, "is_error": True}
    said = {"role": "assistant", "content": f"<think>let me see</think>Well. {CALL}"}
    spoken(run, said | {"tool_calls": [{}]}, result)
    text, full = show(run, 3, 0), show(run, 3, 0, "--full")
    assert 'cancel(order="W7")' in text and "<tool_call>" not in text
    assert "(thinking, 10 characters: --full)" in text and "let me see" not in text
    assert "[100 more characters: --full]" in " ".join(text.split())
    assert "let me see" in full and full.count("x") >= 700 > text.count("x")


def test_what_looks_like_a_call_and_was_none_is_shown_as_it_was_said(run: Path) -> None:
    spoken(run, {"role": "assistant", "content": CALL})
    assert CALL in " ".join(show(run, 3, 0, width=200).split())


def test_nobody_who_speaks_moves_the_terminal(run: Path) -> None:
    spoken(
        run,
        {"role": f"tool{ESCAPE}", "name": ESCAPE, "content": f"[red]{ESCAPE}"},
        {"role": "assistant", "content": f"<tool_call>{ESCAPE}", "tool_calls": []},
        reward_parts={"explanation": f"good{ESCAPE}"},
        scenario_id=f"s{ESCAPE}",
    )
    text = show(run, 3, 0, "--full") + show(run, 3)
    assert "\x1b" not in text and r"\u001b]0;mine\u0007" in text
    assert "[red]" in text and "judge" in text and "unreadable call" in text


def test_siblings_that_did_the_same_are_told_once(run: Path) -> None:
    spoken(run, {"role": "assistant", "content": "bye"})
    text = show(run, 3, 0)
    assert text.count("please") == 1 and "failed      it broke" in text and "Traceback" not in text
    add_step(run, 4, groups=1)
    messages = [{"role": "user", "content": "hello"}]
    same = [trajectory(4, "train", 0, i, messages=messages, reward=1.0) for i in range(3)]
    write_step(run, 4, "train", [row | {"advantage": 0.0} for row in same])
    assert "siblings 0, 1, 2: reward 1.00" in show(run, 4, 0)


def test_what_another_judge_said_stands_beside_the_sibling_that_it_judged(run: Path) -> None:
    spoken(run, {"role": "assistant", "content": "bye"})
    said = {"step": 3, "scenario_id": "train-0", "scores": [0.25], "explanations": ["so so"]}
    (run / "judgements").mkdir()
    (run / "judgements" / "o3.jsonl").write_text(json.dumps(said) + "\n")
    assert show(run, 3, 0).index("0.25  so so") < show(run, 3, 0).index("it broke")


def test_mistakes_say_what_there_is(run: Path) -> None:
    with pytest.raises(UsageError, match=r"train has 1, 2, val has 0, 2 \(--split val\)"):
        show(run, 0)
    with pytest.raises(UsageError, match=r"there are 0 to 2, .* Did you mean 'train-1'\?"):
        show(run, 1, "train-11")
    with pytest.raises(UsageError, match=r"expected train, val or test\. Did you mean 'train'\?"):
        show(run, 1, "--split", "trian")
    with pytest.raises(UsageError, match=r"Did you mean '.*runs/test/made'\?"):
        show(run.parents[1] / "tset" / "made")


def test_a_damaged_file_shows_what_can_be_read(run: Path) -> None:
    file = run / "trajectories" / "train-000002.jsonl.gz"
    file.write_bytes(file.read_bytes()[:-200])
    result = CliRunner().invoke(app, ["show", str(run), "2"])
    assert result.exit_code == 0 and "is damaged" in result.stderr and "train-0" in result.stdout


def test_a_turn_has_its_own_advantage_where_turns_have(run: Path) -> None:
    talk = [{"role": "assistant", "content": said} for said in ("first", "second")]
    spoken(run, talk[0], {"role": "user", "content": "and?"}, talk[1], turn_advantages=[0.5, -1.0])
    lines = [" ".join(line.split()) for line in show(run, 3, 0).splitlines()]
    assert lines[lines.index("assistant first") + 1] == "advantage +0.50"
    assert lines[lines.index("assistant second") + 1] == "advantage -1.00"
    spoken(run, *talk, turn_advantages=[0.5])  # of an agent whose messages are not the turns
    assert "advantage +0.50\n" not in show(run, 3, 0)
