"""`art logs`: what a run and its processes have said, as lines that any terminal can show."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from shown_runs import make_run
from typer.testing import CliRunner, Result

from art_cli.cli.main import app
from art_cli.errors import ArtError, UsageError
from art_cli.inspection import logs as reading
from art_cli.runs.directory import RunDir
from art_cli.runs.trackers.console import Console
from art_cli.runs.trackers.run_log import LoggedConsole
from art_cli.terminal.screen import Screen


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = make_run(tmp_path / "runs" / "test" / "made", steps=1, groups=1, size=1)
    (run / "logs").mkdir()
    (run / "logs" / "run.log").write_text("one\ntwo\nthree\n")
    (run / "logs" / "engine-0.log").write_bytes(
        b"\x1b[36mblue\x1b[0m\n10%\r20%\r100%\n\x1b]0;t\x07\n"
    )
    return run


def logs(*words: object) -> Result:
    result = CliRunner().invoke(app, ["logs", *map(str, words)])
    if isinstance(result.exception, ArtError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def test_the_runs_own_lines_are_printed_and_the_other_logs_named(run: Path) -> None:
    result = logs(run)
    assert result.stdout == "one\ntwo\nthree\n" and result.stderr == "other logs: engine-0\n"
    assert logs(run, "--last", 1).stdout == "three\n"


def test_colours_and_progress_bars_of_an_engine_are_left_out(run: Path) -> None:
    assert logs(run, "engine-0").stdout == "blue\n100%\n\\u001b]0;t\\u0007\n"


def test_a_log_that_is_not_there_is_told_with_those_that_are(run: Path) -> None:
    with pytest.raises(UsageError, match=r"there are run, engine-0. Did you mean 'engine-0'\?"):
        logs(run, "engine0")
    (run / "logs" / "run.log").unlink()
    (run / "logs" / "engine-0.log").unlink()
    with pytest.raises(UsageError, match="there is none"):
        logs(run)


def test_following_a_run_that_has_ended_ends(run: Path) -> None:
    result = logs(run, "--follow")
    assert result.stdout == "one\ntwo\nthree\n" and "it is over: done, step 1 of 1" in result.stderr


def test_what_is_added_is_followed_to_the_end(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, added = run / "logs" / "run.log", iter(["", "fo", "ur\nfive\n", "si", "x"])
    monkeypatch.setattr(reading, "PAUSE", 0.0)

    def goes_on() -> bool:
        text = next(added, None)
        with open(file, "a") as log:
            log.write(text or "")
        return text is not None

    lines = list(reading.lines_of_log(file, 1, goes_on))
    assert lines == ["three", "four", "five", "six"]


def test_a_run_elsewhere_is_followed_there(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run / "cloud.json").write_text('{"job": 7, "cluster": "far"}')
    followed: list[object] = []
    monkeypatch.setattr("art_cli.backends.cloud.skypilot.follow", lambda *job: followed.append(job))
    assert "art run CONFIG --attach" in logs(run, "--follow").stderr
    assert followed == [("far", 7)]
    assert logs(run).stdout == "one\ntwo\nthree\n"  # what was brought back


def test_the_console_of_a_run_is_kept_from_its_begin(tmp_path: Path) -> None:
    shown = io.StringIO()
    console = LoggedConsole(Console(2, "head", console=Screen(file=shown, width=80)), 2, "head")
    console.say("warning: early")
    console.keep(tmp_path / "logs")
    console.log({"training_step": 1, "train/reward": 0.5})
    console.note("error: only here")
    console.finish("failed")
    lines = (tmp_path / "logs" / "run.log").read_text().splitlines()
    said = [line.split("  ", 1)[1] for line in lines]
    assert said[1:3] == ["head", "warning: early"] and said[-2] == "error: only here"
    assert any(line.startswith("step 1/2  reward 0.50") for line in said)
    assert said[-1].startswith("failed at step 1/2")
    assert "warning: early" in shown.getvalue() and "only here" not in shown.getvalue()


def test_a_disk_that_keeps_no_log_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file in its place")
    screen = Screen(file=io.StringIO(), width=80)
    console = LoggedConsole(Console(2, "head", console=screen), 2, "head")
    console.keep(tmp_path / "logs")
    console.say("on it goes")
    assert RunDir(tmp_path).read_status() is None
