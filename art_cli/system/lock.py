"""Files that one process at a time may hold."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from art_cli.errors import ArtError, PreflightError

LOOK_EVERY = 0.02  # seconds

_held: set[int] = set()  # file descriptors


def _release_in_child() -> None:
    """Close held locks in a forked worker: it may outlive its killed parent."""
    for fd in _held:
        os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_release_in_child)


@contextmanager
def hold(file: Path, seconds: float, refusal: Callable[[], ArtError]) -> Iterator[int]:
    """Hold `file`, whose descriptor is yielded, from now until the end.

    The kernel lets go of it when the process dies, kill -9 included. Raises what `refusal` makes
    where another live process goes on holding it for so many seconds; PreflightError where there
    can be no lock.
    """
    try:
        # No link: who holds a lock writes into it. Nothing waits for the other end of a pipe.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(file, flags, 0o644)
    except OSError as error:
        raise PreflightError(f"cannot open {file}: {error.strerror}.") from error
    try:
        _acquire(fd, file, seconds, refusal)
        if not _is_there(fd, file):  # its holder has removed it: this is the lock of nothing
            raise refusal()
        _held.add(fd)
        yield fd
    finally:
        _held.discard(fd)
        os.close(fd)


def _acquire(fd: int, file: Path, seconds: float, refusal: Callable[[], ArtError]) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise refusal() from None
            time.sleep(LOOK_EVERY)
        except OSError as error:
            raise PreflightError(
                f"cannot lock {file}: {error.strerror}. "
                "Choose a runs folder on a file system that has locks."
            ) from error


def _is_there(fd: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(file))
    except FileNotFoundError:
        return False


def is_held(file: Path) -> bool:
    """Return whether a live process holds it. What no process can have made is not held."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return False
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
