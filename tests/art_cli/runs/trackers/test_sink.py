"""A place that is dead, hangs or refuses costs the run little, and lacks nothing after a resume."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import art_cli.runs.trackers.sink as mirror_file
from art_cli.runs.directory import RunDir
from art_cli.runs.trackers.sink import SinkTracker, SinkTrackers, finite


class Shelf:
    """Keeps rows; it fails or hangs where it is told to."""

    def __init__(self) -> None:
        self.rows: list[Mapping[str, Any]] = []
        self.states: list[str] = []
        self.fails: Exception | None = None
        self.works = threading.Event()
        self.works.set()
        self.tried = 0

    def take(self, row: Mapping[str, Any]) -> None:
        self.tried += 1
        self.works.wait()
        if self.fails:
            raise self.fails
        self.rows.append(row)

    def close(self, state: str) -> None:
        self.states.append(state)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_file, "PATIENCE_SECONDS", 0.2)


def steps(*numbers: int) -> Iterator[dict[str, Any]]:
    for number in numbers:
        yield {"training_step": number, "train/reward": 0.5}
        yield {"training_step": number, "val/reward": 0.5}


def mirrored(run: RunDir, shelf: Shelf, *numbers: int, state: str = "done") -> list[str]:
    said: list[str] = []
    mirror = SinkTracker("Shelf", run, lambda: shelf, said.append)
    for row in steps(*numbers):
        mirror.log(row)
    assert mirror._background.catches_up(60)
    mirror.finish(state)
    return said


def test_a_row_is_sent_once_whatever_the_number_of_sessions(run: RunDir) -> None:
    shelf = Shelf()
    assert mirrored(run, shelf, 1, 2, state="interrupted") == []
    assert mirrored(run, shelf, 1, 2, 3) == []
    assert shelf.rows == list(steps(1, 2, 3)) and shelf.states == ["interrupted", "done"]


def test_what_a_dead_place_lacks_is_told_once_and_sent_by_the_next_session(run: RunDir) -> None:
    shelf = Shelf()
    shelf.fails = ConnectionError("no\nroute")
    said = mirrored(run, shelf, 1, 2)
    assert said == [
        "Shelf: no route. The run goes on, and tries again later",
        "Shelf lacks 4 rows of the run: no route. --resume sends what is missing",
    ]
    assert shelf.tried == 4 + 1, "one more try at the end is enough"
    shelf.fails = None
    assert mirrored(run, shelf, 1, 2, 3) == []
    assert shelf.rows == list(steps(1, 2, 3))


def test_a_place_that_comes_back_gets_all_of_it_in_order(run: RunDir) -> None:
    shelf, said = Shelf(), []
    mirror = SinkTracker("Shelf", run, lambda: shelf, said.append)
    shelf.fails = ConnectionError("no route")
    for row in steps(1):
        mirror.log(row)
    assert mirror._background.catches_up(60)
    shelf.fails = None
    for row in steps(2):
        mirror.log(row)
    mirror.finish("done")
    assert shelf.rows == list(steps(1, 2)) and len(said) == 1


def test_a_place_that_hangs_is_left_behind(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_file, "PATIENCE_SECONDS", 0.5)
    shelf, said = Shelf(), []
    shelf.works.clear()
    mirror = SinkTracker("Shelf", run, lambda: shelf, said.append)
    for row in steps(1):
        mirror.log(row)
    mirror.finish("done")
    assert said == [
        "Shelf lacks 2 rows of the run: it takes too long. --resume sends what is missing"
    ]
    shelf.works.set()


def test_a_package_that_takes_long_to_import_is_waited_for(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before patience begins, which is for what a sink does."""
    shelf, said, opened = Shelf(), [], []

    def open_shelf() -> Shelf:
        time.sleep(1)
        opened.append(shelf)
        return shelf

    mirror = SinkTracker("Shelf", run, open_shelf, said.append)
    catches_up = mirror._background.catches_up

    def patience(seconds: float) -> bool:
        assert opened
        return catches_up(60)

    monkeypatch.setattr(mirror._background, "catches_up", patience)
    for row in steps(1):
        mirror.log(row)
    mirror.finish("done")
    assert said == [] and shelf.rows == list(steps(1))


def test_a_package_whose_import_hangs_is_left_behind(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_file, "OPENING_SECONDS", 0.2)
    said, imported = [], threading.Event()

    def open_shelf() -> Shelf:
        imported.wait()
        return Shelf()

    mirror = SinkTracker("Shelf", run, open_shelf, said.append)
    for row in steps(1):
        mirror.log(row)
    mirror.finish("done")
    imported.set()
    assert said == [
        "Shelf lacks 2 rows of the run: it takes too long. --resume sends what is missing"
    ]


def test_several_that_hang_cost_what_one_does(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_file, "PATIENCE_SECONDS", 0.5)
    shelf, said = Shelf(), []
    shelf.works.clear()
    mirrors = SinkTrackers(
        [SinkTracker(str(n), run, lambda: shelf, said.append) for n in range(40)]
    )
    for row in steps(1):
        mirrors.log(row)
    began = time.monotonic()
    mirrors.finish("done")
    assert time.monotonic() - began < 10 < 40 * 0.5 and len(said) == 40
    shelf.works.set()


def test_what_ends_the_program_or_cannot_be_opened_ends_nothing(run: RunDir) -> None:
    def leave() -> Shelf:
        raise SystemExit("good bye")

    said: list[str] = []
    mirror = SinkTracker("Shelf", run, leave, said.append)
    for row in steps(1):
        mirror.log(row)
    mirror.finish("done")
    assert said[-1].startswith("Shelf lacks 2 rows of the run: good bye")


def test_numbers_that_are_not_finite_are_left_out() -> None:
    row = json.loads('{"training_step": 3, "a": 1, "b": null, "c": NaN, "d": Infinity}')
    assert finite(row) == {"a": 1}
