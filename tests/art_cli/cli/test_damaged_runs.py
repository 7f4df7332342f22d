"""Run directories from elsewhere: what is damaged has its line, and all else is shown."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from damaged_runs import FILES, Damage, contents, kinds, make_good
from typer.testing import CliRunner

from art_cli.cli.main import app
from art_cli.errors import ArtError
from art_cli.terminal.screen import WIDE
from art_cli.view.collection import Collection
from art_cli.view.episodes import read_step, step_files
from art_cli.view.frame import as_json

SECONDS = 100  # until what hangs has failed; 20 times as long as the slowest takes
CONTENTS = contents()


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDE))


@contextlib.contextmanager
def deadline(what: str) -> Iterator[None]:
    def fail(*_: object) -> None:
        raise AssertionError(f"{what} hangs")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def said(*words: object) -> str:
    """Return what a command prints. It ends by itself, or with an error of art's own."""
    with deadline(f"art {words[0]}"):
        began = time.monotonic()
        result = CliRunner().invoke(app, [str(word) for word in words])
        took = time.monotonic() - began
    if isinstance(result.exception, ArtError):
        assert len(str(result.exception)) < 20_000
        return f"error: {result.exception}"
    if result.exception and not isinstance(result.exception, SystemExit):
        raise AssertionError(f"art {words[0]} ({took:.1f} s)") from result.exception
    assert len(result.output) < 3_000_000
    return result.output


def read_all(folder: Path) -> dict[str, str]:
    """Return what every command that reads runs says of `p/bad`, beside the good run `p/good`."""
    bad, good = folder / "p" / "bad", folder / "p" / "good"
    told = {
        "runs": said("runs", "--runs-dir", folder),
        "runs --json": said("runs", "--runs-dir", folder, "--json"),
        "runs RUN": said("runs", bad),
        "plot": said("runs", bad, "--plot", "train/reward", "--plot", "x/own"),
        "why": said("why", bad),
        "why --json": said("why", bad, "--json"),
        "show": said("show", bad),
        "show val": said("show", bad, "--split", "val"),
        "show 2 0": said("show", bad, "2", "0", "--full"),
        "show --json": said("show", bad, "2", "0", "--json"),
        "diff": said("diff", bad, good),
        "logs": said("logs", bad, "--last", "3"),
        "deployments": said("deployments", "--runs-dir", folder),
    }
    assert "p/good" in told["runs"] and "p/bad" in told["runs"]
    assert len(json.loads(told["runs --json"].strip().splitlines()[-1])) == 2
    with deadline("art view"):
        show(folder, told)
    return told


def show(folder: Path, told: dict[str, str]) -> None:
    """Ask for all that a page asks the server for."""
    runs = Collection([folder]).runs()
    for shown in runs:
        shown.judge()
        overview, index = shown.overview()[1], shown.index()
        if shown.run.root.name == "good":
            assert len(overview["curves"]["train/reward"]["y"]) == 8
        else:
            files = [file for file in step_files(shown.run) if file.step in (0, 2)]
            groups = [shown.groups(file, read_step(file)) for file in files]
            found = [overview, index, groups, shown.search("order")]
            told["view"] = strict(as_json(found))


def strict(text: str) -> str:
    """Return JSON. Fail where a browser would not read it."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} in what a browser reads")

    json.loads(text, parse_constant=refuse)
    return text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_good(tmp_path / "p" / "good")
    make_good(tmp_path / "p" / "bad")
    return tmp_path


def test_a_good_run_has_no_warnings(folder: Path) -> None:
    told = read_all(folder)
    told.pop("plot")  # it has no x/own
    wrong = ("warning:", "error:", '"damaged": ["', "damaged (")
    assert not [(name, text) for name, text in told.items() if any(w in text for w in wrong)]


@pytest.mark.slow
@pytest.mark.parametrize("damage", CONTENTS.values(), ids=CONTENTS)
def test_a_wrong_value_is_left_out_and_all_else_is_shown(folder: Path, damage: Damage) -> None:
    damage(folder / "p" / "bad")
    read_all(folder)


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_whatever_stands_in_place_of_a_file_no_command_hangs(file: str, tmp_path: Path) -> None:
    for n, (name, damage) in enumerate(kinds(file)):
        folder = tmp_path / str(n)
        make_good(folder / "p" / "good")
        make_good(folder / "p" / "bad")
        damage(folder / "p" / "bad")
        try:
            read_all(folder)
        except AssertionError as e:
            raise AssertionError(name) from e
