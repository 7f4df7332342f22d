"""Copy run directories from a cluster to this machine. Repeated copies transfer only changes."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from art_cli.errors import PreflightError
from art_cli.runs.directory import RunDir
from art_cli.runs.maker import is_own, mark_own
from art_cli.system.files import make_folder
from art_cli.system.lock import hold

SSH = "ssh -o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=10 -o LogLevel=ERROR"
SILENT_SECONDS = 60  # without any data before a transfer counts as failed
LONGEST_SECONDS = 3600.0  # seconds for one transfer
LOCK_SECONDS = LONGEST_SECONDS  # seconds to wait for another process's transfer
NOT_THERE = {23, 24}  # rsync's codes: no such folder (yet), a file has vanished
TRIES, PAUSE = 3, 2.0  # attempts if a connection fails; seconds between them
EVERY = 20.0  # seconds between copies of a running run


def check_rsync() -> None:
    """Raise PreflightError if rsync or ssh is missing."""
    for program in ("rsync", "ssh"):
        if not shutil.which(program):
            raise PreflightError(f"{program} is missing, which brings runs back; install it")


def bring_back(host: str, remote: str, run: RunDir) -> bool:
    """Mirror the run directory `remote` on `host` into `run`. Return whether it exists.

    Checkpoints appear atomically. Raises PreflightError if the connection fails.
    """
    with alone(run):
        was_own = is_own(run)
        flat = ["--exclude=/checkpoints", "--exclude=/run.lock", "--exclude=.*"]
        if _transfer(*flat, f"{host}:{remote}/", f"{run.root}/") is None:
            return False
        if was_own:  # the config comes from a machine of this account
            mark_own(run)
        _bring_checkpoints(host, remote, run)
    return True


@contextmanager
def alone(run: RunDir) -> Iterator[None]:
    """Lock the local copy: a watching and a cancelling process may both fetch it.

    Raises PreflightError if another process holds the lock for too long.
    """
    busy = (
        f"another process has been bringing {run.root} back for more than {LOCK_SECONDS:g} s; end "
        "it (`art run --attach` or `art cancel`), and try again"
    )
    make_folder(run.root)
    with hold(run.root / ".bringing.lock", LOCK_SECONDS, lambda: PreflightError(busy)):
        yield


def _bring_checkpoints(host: str, remote: str, run: RunDir) -> None:
    there = _steps(host, f"{remote}/checkpoints/")
    here = set(run.checkpoint_steps())
    for step in sorted(there - here):
        beside = run.checkpoints / f".coming-{step}"
        beside.mkdir(parents=True, exist_ok=True)
        # The checkpoint may be removed there at any time; then it is not wanted here either.
        if _transfer(f"{host}:{remote}/checkpoints/{step}/", f"{beside}/") is None:
            shutil.rmtree(beside)
        else:
            os.replace(beside, run.checkpoint(step))
    for step in here - there if there else ():
        shutil.rmtree(run.checkpoint(step))


def copy(host: str, folder: str, here: Path) -> bool:
    """Copy a folder of `host` into a local one. Return whether it exists.

    Raises PreflightError if the connection fails.
    """
    return _transfer(f"{host}:{folder}/", f"{here}/") is not None


def _steps(host: str, folder: str) -> set[int]:
    listed = _rsync("--list-only", f"{host}:{folder}") or ""
    names = [line.split()[-1] for line in listed.splitlines() if line.split()]
    return {int(name) for name in names if name.isdecimal()}


def _transfer(*arguments: str) -> str | None:
    return _rsync("-rltz", *arguments)


def _rsync(*arguments: str) -> str | None:
    """Return rsync's output, or None if the path does not exist there.

    Raises PreflightError if the connection fails repeatedly.
    """
    for more in reversed(range(TRIES)):
        done = _run(*arguments)
        if done.returncode in NOT_THERE:
            return None
        if done.returncode == 0:
            return done.stdout
        if more:
            time.sleep(PAUSE)
    last = (done.stderr.strip().splitlines() or [f"rsync ended with {done.returncode}"])[-1]
    raise PreflightError(f"cannot bring the run back: {last}")


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["rsync", "-e", SSH, f"--timeout={SILENT_SECONDS}", *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_SECONDS)
    except subprocess.TimeoutExpired:
        raise PreflightError(
            f"cannot bring the run back: more than {LONGEST_SECONDS:g} s for {arguments[-2]}"
        ) from None


class Bringing:
    """Copies a run here periodically while it is running, in a thread."""

    def __init__(self, bring: Callable[[], object]) -> None:
        self._bring = bring
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="art-bring", daemon=True)

    def __enter__(self) -> Bringing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(SILENT_SECONDS)

    def _work(self) -> None:
        while not self._over.wait(EVERY):
            try:
                self._bring()
            except PreflightError:  # temporary failure; only the final copy must succeed
                continue
