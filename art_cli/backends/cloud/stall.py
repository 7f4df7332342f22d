"""Detection of calls to external code that print while they wait, and may wait forever."""

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
    """The call has printed nothing for SILENCE seconds, so it was given up."""


class _Wake(BaseException):
    """A BaseException, like KeyboardInterrupt, so that no caller handles it as its own error."""


class _Heard(io.TextIOBase):
    """Standard output that records the time of the last write."""

    def __init__(self) -> None:
        self.at = time.monotonic()

    def write(self, text: str) -> int:
        self.at = time.monotonic()
        return sys.stdout.write(text)

    def flush(self) -> None:
        sys.stdout.flush()


@contextmanager
def listening(goes_on: Callable[[], bool]) -> Iterator[io.TextIOBase]:
    """Yield a stream for the call inside this context to print to.

    After each `SILENCE` seconds without output, `goes_on` is called in a thread and decides whether
    to keep waiting. Only for the main thread: a signal interrupts the call, because nothing else
    ends a call that waits for a socket. The signal is not that of Ctrl-C, which is ignored in
    programs that a shell has started with `&`.

    Raises StallError, or the error of `goes_on`.
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
