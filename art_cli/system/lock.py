"""File locks between processes."""

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
    """Close held locks in a forked worker, which may outlive its killed parent."""
    for fd in _held:
        os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_release_in_child)


@contextmanager
def hold(file: Path, seconds: float, refusal: Callable[[], ArtError]) -> Iterator[int]:
    """Lock `file` inside this context, and yield its descriptor.

    The kernel releases the lock when the process dies, even by kill -9. Raises the error from
    `refusal` if another live process holds the lock for `seconds`, PreflightError if the file
    cannot be locked.
    """
    try:
        # No link, because the owner of a lock writes into it. O_NONBLOCK avoids waiting at a pipe.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(file, flags, 0o644)
    except OSError as error:
        raise PreflightError(f"cannot open {file}: {error.strerror}.") from error
    try:
        _acquire(fd, file, seconds, refusal)
        if not _is_there(fd, file):  # its owner has removed the file meanwhile
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
    """Return whether a live process holds the lock. False if the file cannot be a lock."""
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
