"""Calls of someone else that print while they wait, perhaps for ever: who listens notices."""

from __future__ import annotations

import io
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SILENCE = 1800.0  # seconds without a line


class StallError(Exception):
    """Nothing was printed for so long that nobody waits any more."""


class _Wake(BaseException):
    """As KeyboardInterrupt is: nobody on the way up takes it for an error of his own."""


class _Heard(io.TextIOBase):
    """Standard output, and when it was last written to."""

    def __init__(self) -> None:
        self.at = time.monotonic()

    def write(self, text: str) -> int:
        self.at = time.monotonic()
        return sys.stdout.write(text)

    def flush(self) -> None:
        sys.stdout.flush()


@contextmanager
def listening(goes_on: Callable[[], bool]) -> Iterator[io.TextIOBase]:
    """A stream for the call that is made within. After each `SILENCE` on it, `goes_on` is asked, in
    a thread, whether to wait on. For the main thread: the call is interrupted by a signal, the one
    way to end one that waits for a socket, and its spinners stay. It is not that of Ctrl-C, which
    is ignored in what a shell has started with `&`.

    Raises StallError, or what `goes_on` raises.
    """
    heard, over, lock = _Heard(), threading.Event(), threading.Lock()
    why: list[Exception] = []

    def watch() -> None:
        while not over.wait(max(0.0, heard.at + SILENCE - time.monotonic())):
            if heard.at + SILENCE > time.monotonic():
                continue
            try:
                if goes_on():
                    heard.at = time.monotonic()
                    continue
                error: Exception = StallError()
            except Exception as e:
                error = e
            with lock:
                if not over.is_set():
                    why.append(error)
                    main = threading.main_thread().ident
                    assert main is not None
                    signal.pthread_kill(main, signal.SIGUSR1)
            return

    def wake(*_: object) -> None:
        raise _Wake

    before = signal.signal(signal.SIGUSR1, wake)
    threading.Thread(target=watch, name="art-listen", daemon=True).start()
    try:
        yield heard
    except _Wake:
        raise why[0] from None
    finally:
        with lock:
            over.set()
        signal.signal(signal.SIGUSR1, before)
