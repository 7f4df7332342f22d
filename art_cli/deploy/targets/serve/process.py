"""The process of a server: its guard, which ends with `art deploy`, or is let go of and stays.

The guard locks a file in the folder of the deployment. A copy of that folder has a file of its own,
which nothing locks, and the lock ends with its holder: a locked file says that this deployment is
served, whatever the record says. The process itself is known by its id and by when it started, so
that no other one is taken for it which has that id on another machine, or got it later.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from art_cli.deploy.base import Deployment
from art_cli.errors import ArtError
from art_cli.system.guard import guarded
from art_cli.system.lock import is_held

LOCK = "server.lock"  # in the folder of a deployment
LOG = "server.log"
STOP_TIMEOUT = 15.0  # seconds between asking to end, killing, and giving up
START_TIMEOUT = 15.0  # until a guard has its lock
LOOK = 0.05  # seconds


class ServerProcess:
    """A server that this process has started."""

    def __init__(self, words: list[str], variables: Mapping[str, str], deployment: Deployment):
        """Start it, and note in `deployment.made` which process it is. Raises ArtError."""
        home = Path(deployment.home)
        stdin, self._held = os.pipe()  # a plain descriptor: only our own end closes it
        try:
            with (home / LOG).open("wb") as printed:
                self._guard = subprocess.Popen(
                    guarded(words, hold=str(home / LOCK)),
                    env={**os.environ, **variables},  # a command line is seen by all
                    stdin=stdin,
                    stdout=printed,
                    stderr=printed,
                    start_new_session=True,  # Ctrl-C is for the command, which ends it itself
                )
        finally:
            os.close(stdin)
        deployment.made |= {"pid": self._guard.pid, "started": _started(self._guard.pid) or ""}
        deadline = time.monotonic() + START_TIMEOUT
        while self.runs and not is_held(home / LOCK):
            if time.monotonic() > deadline:
                os.close(self._held)  # which ends it
                raise ArtError(f"{home / LOCK} is not locked after {START_TIMEOUT:g} s")
            time.sleep(LOOK)

    @property
    def runs(self) -> bool:
        """True if the process is still there."""
        return self._guard.poll() is None

    def let_go(self) -> None:
        """Let the server outlive this process."""
        os.write(self._held, b".")
        self.forget()

    def forget(self) -> None:
        """Do not warn that the server outlives this object."""
        self._guard.returncode = 0


def is_alive(deployment: Deployment) -> bool:
    """Return whether a process serves this deployment, on whatever machine."""
    return is_held(Path(deployment.home) / LOCK)


def end_process(deployment: Deployment) -> None:
    """End the process that serves a deployment, if there is one.

    Raises ArtError where it is not a process of this machine that the record names, or does not
    end.
    """
    made = deployment.made
    pid, started = made.get("pid"), made.get("started")
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
        if not is_alive(deployment):
            break
        if not isinstance(pid, int) or pid <= 1 or not started or _started(pid) != started:
            raise ArtError(
                f"{deployment.name} is served, by a process that is not one of this machine, or of "
                f"this container, that its record names: {Path(deployment.home) / LOCK} is locked. "
                "End it where it was started"
            )
        _signal(pid, number)
        deadline = time.monotonic() + STOP_TIMEOUT
        while is_alive(deployment) and time.monotonic() < deadline:
            time.sleep(LOOK)
    if is_alive(deployment):
        raise ArtError(f"process {pid}, which serves {deployment.name}, does not end")
    for key in ("pid", "started", "stays"):
        made.pop(key, None)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended at this instant
        try:
            os.kill(pid, number)
        except PermissionError:
            raise ArtError(f"process {pid} is of another user, who has to end it") from None


def _started(pid: int) -> str | None:
    """Return when a process started, in the words of its system; None where there is none."""
    if sys.platform == "linux":
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                return file.read().rpartition(b")")[2].split()[19].decode()
        except (OSError, IndexError):
            return None
    asked = ["ps", "-o", "lstart=", "-p", str(pid)]
    return subprocess.run(asked, capture_output=True, text=True).stdout.strip() or None
