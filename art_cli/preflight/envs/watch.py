"""Runs an env's code where it cannot hold up the program, and sees where it stands still."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from art_cli.preflight.finding import short

Result = TypeVar("Result")

LOOK_EVERY = 0.05  # seconds
STALL = 0.25  # seconds that the event loop may stand still, before it counts


class Stuck(Exception):
    """The env did not come back; `where` it stands, if that is in its own file."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(what)
        self.where = where


@dataclass(slots=True, kw_only=True)
class Stall:
    """An `async def` of the env kept the event loop from everybody else."""

    where: str
    function: str
    seconds: float
    times: int = 1


class Watch:
    """A thread for each piece of work; this one only looks on."""

    def __init__(self, files: set[str], seconds: float) -> None:
        """`files` are the env's own; a piece of work may take so many seconds."""
        self.stalls: dict[str, Stall] = {}  # by function
        self._files = files
        self._seconds = seconds
        self._beat: float | None = None
        self._counted = 0.0  # the beat whose standstill was counted already
        self._loop = asyncio.Runner()  # one for all, as in a run: what episodes share stays open
        weakref.finalize(self, _forget, self._loop.get_loop())

    def run(self, work: Callable[[], Result], patience: float = 1.0) -> Result:
        """Return what `work` returns, within `patience` times the limit.

        Raises what it raises, Stuck.
        """
        limit = patience * self._seconds
        outcome: Future[Result] = Future()

        def target() -> None:
            try:
                outcome.set_result(work())
            except BaseException as e:  # SystemExit too: it must not go unseen
                error = e if isinstance(e, Exception) else RuntimeError(f"raised {e!r}")
                outcome.set_exception(error)

        self._beat = None
        thread = threading.Thread(target=target, name="art-envcheck", daemon=True)
        thread.start()
        began = time.monotonic()
        while thread.is_alive():
            thread.join(LOOK_EVERY)
            self._look(thread)
            if thread.is_alive() and time.monotonic() - began > limit:
                raise self._stuck(thread, limit)
        return outcome.result()

    def run_async(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Run a coroutine likewise, on the event loop of all of them."""

        async def beating() -> Result:
            loop = asyncio.get_running_loop()

            def tick() -> None:
                self._beat = time.monotonic()
                nonlocal handle
                handle = loop.call_later(LOOK_EVERY / 2, tick)

            handle = loop.call_soon(tick)
            try:
                return await work()
            finally:
                handle.cancel()
                self._beat = None

        return self.run(lambda: self._loop.run(beating()))

    def close(self) -> None:
        """End what episodes have left open, unless the env is stuck in it."""
        if not self._loop.get_loop().is_running():
            with suppress(Stuck):
                self.run(self._loop.close)

    def _look(self, thread: threading.Thread) -> None:
        beat = self._beat
        if beat is None or time.monotonic() - beat < STALL:
            return
        frame = self._own_frame(sys._current_frames().get(thread.ident or 0))
        if frame is None:
            return
        seconds, function = time.monotonic() - beat, frame.f_code.co_qualname
        known = self.stalls.get(function)
        if known is None:
            self.stalls[function] = Stall(where=_line(frame), function=function, seconds=seconds)
        else:
            known.times += beat != self._counted
            known.seconds = max(known.seconds, seconds)
        self._counted = beat

    def _stuck(self, thread: threading.Thread, limit: float) -> Stuck:
        frames = sys._current_frames()
        candidates = [frames.pop(thread.ident or 0, None), *frames.values()]
        for frame in filter(None, map(self._own_frame, candidates)):
            what = f"{frame.f_code.co_qualname} did not come back within {limit:g} s"
            return Stuck(what, _line(frame))
        return Stuck(f"no answer within {limit:g} s", "")

    def _own_frame(self, frame: FrameType | None) -> FrameType | None:
        """Return the innermost frame in the env's own files."""
        while frame and str(Path(frame.f_code.co_filename).absolute()) not in self._files:
            frame = frame.f_back
        return frame


def _forget(loop: asyncio.AbstractEventLoop) -> None:
    """Close what nobody has closed: this may be called anywhere, also within another loop."""
    if not loop.is_running():
        loop.close()


def _line(frame: FrameType) -> str:
    return f"{short(frame.f_code.co_filename)}:{frame.f_lineno}"
