"""What the page is given, of whole, old, half-written and damaged runs."""

from __future__ import annotations

import json
import statistics
import threading
from pathlib import Path
from typing import Any

import pytest
from shown_runs import add_step, make_run, trajectory, write_step

from art_cli.errors import PreflightError, UsageError
from art_cli.runs.directory import RunDir
from art_cli.view.collection import PATIENCE, Collection, ShownRun
from art_cli.why.evidence import Evidence, read_evidence


def shown(run: Path) -> ShownRun:
    return Collection([run]).runs()[0]


def test_the_curves_are_those_of_the_metrics(tmp_path: Path) -> None:
    run = shown(make_run(tmp_path / "p" / "r"))
    run.judge()
    found = run.overview()[1]
    curves = found["curves"]
    assert curves["val/reward"] == {
        "step": [0, 4],
        "row": [0, 5],
        "y": [0.4, 0.44],
        "ci": [0.05] * 2,
    }
    assert len(curves["signal"]["y"]) == 4 and all(0 <= y <= 1 for y in curves["signal"]["y"])
    assert found["x"]["seconds"] == [0, 2, 4, 6, 8, 8] and found["x"]["tokens"][-1] == 16000
    assert found["x"]["dollars"][-1] == pytest.approx(0.04)
    assert found["damaged"] == [] and found["findings"] == []


def test_a_group_has_its_advantages_and_its_index_row_says_the_same(tmp_path: Path) -> None:
    run = shown(make_run(tmp_path / "p" / "r"))
    (part,) = [p for p in run.index()["parts"] if (p["split"], p["step"]) == ("train", 2)]
    group = run.group("train", 2, 1)
    rewards = [e["reward"] for e in group["episodes"]]
    stored = [reward - statistics.fmean(rewards) for reward in rewards]
    assert [e["advantage"] for e in group["episodes"]] == stored
    rows = [n for n, g in enumerate(part["columns"]["group"]) if g == 1]
    assert [part["columns"]["reward"][n] for n in rows] == rewards
    assert [part["columns"]["advantage"][n] for n in rows] == stored
    assert group["episodes"][0]["seed"] == str(2**62 + 1)  # JavaScript cannot hold the number
    assert run.group("val", 4, 3)["episodes"][0]["advantage"] is None


def test_only_what_is_new_is_read_again(tmp_path: Path) -> None:
    root = make_run(tmp_path / "p" / "r")
    run = shown(root)
    first, stamp = run.index(), run.stamp()
    assert run.index(first["revision"])["parts"] == [] and run.stamp() == stamp
    add_step(root, 5)
    assert run.stamp() != stamp
    assert [(p["split"], p["step"]) for p in run.index(first["revision"])["parts"]] == [
        ("train", 5)
    ]
    RunDir(root).trajectory_file(5, "train").unlink()
    assert "train-5" not in run.index()["files"]


def test_only_what_is_new_is_told(tmp_path: Path) -> None:
    found = Collection([make_run(tmp_path / "p" / name) for name in "ab"])
    for run in found.runs():
        run.judge()
    first = found.news()
    assert first and [run["begin"] for run in first["runs"]] == [0, 0]
    assert found.news(first["stamp"]) is None
    add_step(tmp_path / "p" / "a", 5)
    second = found.news(first["stamp"])
    assert second and second["runs"][1] == {"key": "p/b"}
    changed = second["runs"][0]
    assert changed["begin"] == 6 and changed["x"]["step"] == [5] and changed["step"] == 5
    assert (
        changed["curves"]["train/reward"]["step"] == [5] and "val/reward" not in changed["curves"]
    )
    RunDir(tmp_path / "p" / "a").truncate_metrics(2)  # what a resume does
    third = found.news(second["stamp"])
    assert third and third["runs"][0]["begin"] == 0
    assert third["runs"][0]["curves"]["train/reward"]["step"] == [1, 2]
    assert found.news("of another server")["runs"][1]["begin"] == 0  # type: ignore[index]


def test_text_waits_for_no_episodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Collection([make_run(tmp_path / "p" / "r")])
    may_read = threading.Event()

    def evidence(*args: Any) -> Evidence:
        may_read.wait(300)
        return read_evidence(*args)

    monkeypatch.setattr("art_cli.view.collection.read_evidence", evidence)
    first = found.news()
    assert first and first["runs"][0]["verdict"] == "Finished at step 4. "
    may_read.set()
    for expected in ({"verdict"}, {"verdict", "findings"}):  # the verdict comes first
        found._judging.join(300)
        assert found.runs()[0]._judgement.keys() == expected
        second = found.news(first["stamp"])
        assert second and "Held-out reward" in second["runs"][0]["verdict"]


def test_a_long_run_is_told_in_parts_the_newest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("art_cli.view.collection.AT_ONCE", 0.0)
    run, seen, since = shown(make_run(tmp_path / "p" / "r")), [], 0
    while True:
        found = run.index(since)
        seen += [(part["step"], part["split"]) for part in found["parts"]]
        since = found["revision"]
        if not found["more"]:
            break
    assert seen == [(4, "val"), (4, "train"), (3, "train"), (2, "train"), (1, "train"), (0, "val")]


def test_reading_new_episodes_disturbs_a_run_that_goes_on_for_a_known_share_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0

    def clock() -> float:
        nonlocal now
        now += 0.01  # whatever is read takes some
        return now

    root = make_run(tmp_path / "p" / "r")
    run = shown(root)
    monkeypatch.setattr(RunDir, "state", lambda self: "running")
    monkeypatch.setattr("art_cli.view.collection.time.monotonic", clock)
    found = run.index()
    assert len(found["parts"]) == 6 and (found["more"], found["later"]) == (False, 0)
    for step in (5, 6, 7):
        add_step(root, step)

    def read() -> tuple[list[int], int]:
        nonlocal found
        found = run.index(found["revision"])
        assert not found["more"]
        return [part["step"] for part in found["parts"]], found["later"]

    assert read() == ([7], 2)  # the newest
    began = now
    while (steps := read()) == ([], 2):
        pass
    assert steps == ([6], 1) and now - began > 0.01 * PATIENCE - 1e-6
    monkeypatch.setattr(RunDir, "state", lambda self: "done")
    assert read() == ([5], 0)


def test_tokens_have_the_advantage_of_their_turn(tmp_path: Path) -> None:
    root = make_run(tmp_path / "p" / "r")
    sequences = [
        {"ids": [1, 2, 3, 4], "mask": [0, 1, 0, 1], "engine_logprobs": [0.0] * 4, "begins": [1, 3]},
        {"ids": [1, 5], "mask": [0, 1], "engine_logprobs": [0.0] * 2, "begins": [1]},
    ]
    rows = [
        trajectory(7, "train", 0, 0, turn_advantages=[0.5, -1.0, 0.2], sequences=sequences),
        trajectory(7, "train", 0, 1),
    ]
    write_step(root, 7, "train", rows)
    first, second = shown(root).group("train", 7, 0)["episodes"]
    assert [s["turns"] for s in first["sequences"]] == [[(1, 0.5), (3, -1.0)], [(1, 0.2)]]
    assert [s["turns"] for s in second["sequences"]] == [[]]


def test_damage_is_said_and_the_rest_is_shown(tmp_path: Path) -> None:
    root = make_run(tmp_path / "p" / "r")
    path = RunDir(root).trajectory_file(1, "train")
    path.write_bytes(path.read_bytes()[:-80])  # torn by a kill
    RunDir(root).trajectory_file(2, "train").write_bytes(b"no gzip")
    write_step(root, 3, "train", [trajectory(3, "train", 0, 0), ["a list"], {}])  # type: ignore[list-item]
    (root / "status.json").write_text("{")
    with open(root / "metrics.jsonl", "a") as file:
        file.write('{"training_step": 5, "train/reward": null, "x": NaN, "y": "text"}\n{"torn": ')
    (root / "config.yaml").unlink()
    run = shown(root)
    found = run.overview()[1]
    assert any("status.json" in line for line in found["damaged"])
    assert any("config.yaml" in line for line in found["damaged"])
    parts = {(p["split"], p["step"]): p for p in run.index()["parts"]}
    assert (
        "is damaged" in parts["train", 1]["damage"] and "is damaged" in parts["train", 2]["damage"]
    )
    assert "gz:2 is damaged and left out: it is no object" in parts["train", 3]["damage"]
    assert len(parts["train", 3]["columns"]["group"]) == 2
    assert parts["train", 4]["damage"] == ""
    json.dumps(run.group("train", 3, 0), allow_nan=False)


def test_an_old_row_may_lack_anything_or_hold_something_else(tmp_path: Path) -> None:
    root = make_run(tmp_path / "p" / "r")
    names = trajectory(1, "train", 0, 0).keys()
    rows = [{k: v for k, v in trajectory(9, "train", 0, 0).items() if k != n} for n in names]
    whole = trajectory(9, "train", 0, 0)
    rows += [whole | {name: junk} for name in names for junk in (None, "x", [1])]
    write_step(root, 9, "train", rows)
    run = shown(root)
    assert run.index()["parts"]
    json.dumps(run.group("train", 9, 0))
    assert run.search("shop")["hits"]


def test_a_search_finds_messages_judges_words_and_errors(tmp_path: Path) -> None:
    root = make_run(tmp_path / "p" / "r")
    rows = [
        trajectory(7, "train", 0, 0, reward_parts={"explanation": "Curt"}),
        trajectory(7, "train", 0, 1, error="BOOM"),
    ]
    write_step(root, 7, "train", rows)
    run = shown(root)
    assert run.search("CURT")["hits"] == [["train", 7, 0, 0]]
    assert run.search("boom")["hits"] == [["train", 7, 0, 1]]
    assert run.search("nobody said this")["hits"] == []


def test_a_folder_of_runs_shows_all_and_finds_new_ones(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "p" / "a")
    found = Collection([tmp_path / "runs"])
    assert [r.key for r in found.runs()] == ["p/a"]
    make_run(tmp_path / "runs" / "p" / "b")
    assert [r.key for r in found.runs()] == ["p/a", "p/b"]


def test_runs_of_the_same_name_stay_apart(tmp_path: Path) -> None:
    roots = [make_run(tmp_path / x / "p" / "a") for x in "12"]
    assert [r.key for r in Collection(roots).runs()] == ["p/a", "p/a (2)"]


def test_what_is_no_run_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    for name, words in (
        ("nowhere", "no such run"),
        ("file", "is a file"),
        ("empty", "holds no run"),
    ):
        with pytest.raises(UsageError, match=words):
            Collection([tmp_path / name])
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(PreflightError, match="may not be read"):
        Collection([tmp_path / "empty"])
