"""A run directory comes back from a cluster, which here is the same machine behind another ssh."""

import shutil
from pathlib import Path

import pytest

from art_cli.backends.cloud import fetch
from art_cli.backends.cloud.fetch import alone, bring_back
from art_cli.errors import PreflightError
from art_cli.runs.directory import RunDir

SSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift 2; done  # its options
[ "$1" = there ] || { echo "no host $1" >&2; exit 255; }
shift
exec sh -c "$*"
"""
pytestmark = pytest.mark.skipif(not shutil.which("rsync"), reason="rsync is not installed")


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run on the cluster."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ssh").write_text(SSH)
    (tmp_path / "bin" / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    run = tmp_path / "remote"
    for name in ("metrics.jsonl", "run.lock", "trajectories/a.gz", ".metrics.tmp"):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(name)
    checkpoint(run, 2)
    checkpoint(run, 4)
    return run


def checkpoint(run: Path, step: int) -> None:
    (run / "checkpoints" / str(step)).mkdir(parents=True)
    (run / "checkpoints" / str(step) / "model").write_text(str(step))


def test_it_comes_back_and_again_when_it_has_moved_on(tmp_path: Path, remote: Path) -> None:
    here = RunDir(tmp_path / "runs" / "p" / "n")
    assert bring_back("there", str(remote), here)
    found = sorted(str(p.relative_to(here.root)) for p in here.root.rglob("[!.]*") if p.is_file())
    checkpoints = ["checkpoints/2/model", "checkpoints/4/model"]
    assert found == [*checkpoints, "metrics.jsonl", "trajectories/a.gz"]
    (remote / "metrics.jsonl").write_text("longer than it was")
    checkpoint(remote, 6)
    shutil.rmtree(remote / "checkpoints" / "2")
    here.cloud.write_text("{}")
    assert bring_back("there", str(remote), here)
    assert here.metrics.read_text() == "longer than it was" and here.cloud.exists()
    assert here.checkpoint_steps() == [4, 6]


def test_a_run_that_has_not_begun_is_no_error(tmp_path: Path, remote: Path) -> None:
    assert not bring_back("there", str(remote / "none"), RunDir(tmp_path / "run"))


@pytest.mark.parametrize("number", [1, 2, 3])  # files, the list of checkpoints, a checkpoint
def test_a_connection_that_fails_once_is_made_again(
    number: int, tmp_path: Path, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "PAUSE", 0)
    asked = tmp_path / "asked"
    lines = f'echo >>"{asked}"; [ $(wc -l <"{asked}") != {number} ] || exit 255\n'
    (tmp_path / "bin" / "ssh").write_text(SSH.replace("\n", f"\n{lines}", 1))
    run = RunDir(tmp_path / "run")
    assert bring_back("there", str(remote), run)
    assert run.metrics.exists() and run.checkpoint_steps() == [2, 4]


def test_a_connection_that_fails_is_told(
    tmp_path: Path, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "PAUSE", 0)
    with pytest.raises(PreflightError, match="cannot bring the run back: "):
        bring_back("elsewhere", str(remote), RunDir(tmp_path / "run"))


def test_another_process_that_never_ends_is_not_waited_for(
    tmp_path: Path, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "LOCK_SECONDS", 0.3)
    run = RunDir(tmp_path / "run")
    with alone(run), pytest.raises(PreflightError, match=r"another process has been .* than 0.3 s"):
        bring_back("there", str(remote), run)
    assert bring_back("there", str(remote), run)
