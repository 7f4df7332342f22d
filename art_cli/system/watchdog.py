"""Ending of the process if blocked code makes deadlines useless."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from art_cli.system.deadline import is_debugged
from art_cli.terminal.text import say


@contextlib.contextmanager
def last_resort(seconds: float, what: str, owner: Path, exit_code: int) -> Iterator[None]:
    """End the process if the code inside takes longer, and report the line at which it hangs.

    The code may be a user's file being imported, which no exception stops reliably. The line is the
    innermost one in the file `owner`, or else in a module being imported.
    """
    over = threading.Event()
    watched = threading.get_ident()

    def watch() -> None:
        if over.wait(seconds) or is_debugged():
            return
        frames = traceback.extract_stack(sys._current_frames().get(watched))
        own = [f for f in frames if Path(f.filename).absolute() == owner.absolute()]
        at = (own or [f for f in frames if f.name == "<module>"] or frames)[-1]
        say(
            f"error: {what} did not end within {seconds:g} s; it hangs at "
            f"{at.filename}:{at.lineno}: {at.line}",
            file=sys.stderr,
        )
        os._exit(exit_code)

    threading.Thread(target=watch, name="art-last-resort", daemon=True).start()
    try:
        yield
    finally:
        over.set()


@contextlib.contextmanager
def watchdog(seconds: float, what: str) -> Iterator[None]:
    """End the process if the event loop is blocked for this many seconds.

    No deadline on the loop can fire while an `async def` blocks it (or a forward pass never
    returns), so this watchdog waits in a thread. A run writes all files atomically, so the last
    checkpoint stays valid. The process prints where it was blocked and ends with exit code 1.
    """
    beat = time.monotonic()
    over = threading.Event()
    loop = asyncio.get_running_loop()

    def tick() -> None:
        nonlocal beat, handle
        beat = time.monotonic()
        handle = loop.call_later(interval, tick)

    def watch() -> None:
        while not over.wait(interval):
            if time.monotonic() - beat > seconds and not is_debugged():
                say(
                    f"\nerror: {what} blocked the program for {seconds:g} s; stopping. It hung "
                    "here (an `async def` of an env must not block: use a plain `def`):",
                    file=sys.stderr,
                )
                faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
                os._exit(1)

    interval = min(1.0, seconds / 4)
    handle = loop.call_later(interval, tick)
    threading.Thread(target=watch, name="art-watchdog", daemon=True).start()
    try:
        yield
    finally:
        over.set()
        handle.cancel()
