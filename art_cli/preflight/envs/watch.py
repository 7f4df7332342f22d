"""Run an env's code in threads that cannot block the program, and locate where it hangs."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from art_cli.preflight.check_result import short
from art_cli.system.starvation import FairClock, starved

Result = TypeVar("Result")

LOOK_EVERY = 0.05  # seconds
LIVELY = 2.0  # seconds within which a responsive event loop runs its callbacks
STALL = 0.25  # seconds of a blocked event loop that count as a stall


class Stuck(Exception):
    """The env's code did not return. `where` is the line in the env's own file, if known."""

    def __init__(self, what: str, where: str, todo: str) -> None:
        super().__init__(what)
        self.where, self.todo = where, todo


@dataclass(slots=True, kw_only=True)
class Stall:
    """An `async def` of the env that blocked the event loop."""

    where: str
    function: str
    seconds: float  # of computing or sleeping, without waiting for a processor


class Watch:
    """Runs each piece of work in a thread of its own, while the calling thread monitors it."""

    def __init__(self, files: set[str], seconds: float) -> None:
        """`files` are the env's own source files. `seconds` is the time limit of `close`."""
        self.stalls: dict[str, Stall] = {}  # by function, since `stalls` was last reset
        self._files = files
        self._seconds = seconds
        self._beat: tuple[float, float] | None = None  # when, and seconds starved by then
        self._stands: tuple[tuple[float, float], str, str] | None = None  # (beat, function, line)
        self._loop = asyncio.Runner()  # one loop for all episodes, like in a run
        weakref.finalize(self, _forget, self._loop.get_loop())

    def run(self, work: Callable[[], Result], limit: float, what: str) -> Result:
        """Return the result of `work`, within `limit` seconds. Messages call the work `what`.

        Time in which the machine has no processor for it does not count. Raises the errors of
        `work`, and Stuck.
        """
        outcome: Future[Result] = Future()

        def target() -> None:
            try:
                outcome.set_result(work())
            except BaseException as e:  # includes SystemExit, which would be lost
                error = e if isinstance(e, Exception) else RuntimeError(f"raised {e!r}")
                outcome.set_exception(error)

        self._beat = None
        thread = threading.Thread(target=target, name="art-envcheck", daemon=True)
        thread.start()
        clock = FairClock(min(1.0, limit / 8))
        while thread.is_alive():
            thread.join(LOOK_EVERY)
            self._look(thread)
            if thread.is_alive() and clock.seconds() > limit:
                raise self._stuck(thread, limit, what)
        return outcome.result()

    def run_async(
        self, work: Callable[[], Coroutine[Any, Any, Result]], limit: float, what: str
    ) -> Result:
        """Run a coroutine like `run`, on the event loop that all calls share."""

        async def beating() -> Result:
            loop = asyncio.get_running_loop()

            def tick() -> None:
                self._count_standstill()
                self._beat = time.monotonic(), starved(threading.get_native_id())
                nonlocal handle
                handle = loop.call_later(LOOK_EVERY / 2, tick)

            handle = loop.call_soon(tick)
            try:
                return await work()
            finally:
                handle.cancel()
                self._count_standstill()
                self._beat = None

        return self.run(lambda: self._loop.run(beating()), limit, what)

    def close(self) -> None:
        """Close the event loop and what episodes left open in it, unless the env hangs there."""
        if not self._loop.get_loop().is_running():
            with suppress(Stuck):
                self.run(self._loop.close, self._seconds, "the end")

    def _look(self, thread: threading.Thread) -> None:
        """Record the line that blocks a thread's event loop, if it is in the env's own files."""
        beat = self._beat
        if beat is None or time.monotonic() - beat[0] < STALL:
            return
        frame = self._own_frame(sys._current_frames().get(thread.ident or 0))
        if frame is not None:
            self._stands = beat, frame.f_code.co_qualname, _line(frame)

    def _count_standstill(self) -> None:
        """Record a stall if the loop was blocked since its last beat. Called in its own thread.

        Only that thread can tell how long it had no processor, because the system counts such time
        when it is over.
        """
        if self._beat is None or self._stands is None or self._stands[0] is not self._beat:
            return
        (when, before), function, where = self._stands
        lost = starved(threading.get_native_id()) - before
        seconds = time.monotonic() - when - lost
        if seconds >= STALL:
            known = self.stalls.get(function)
            longest = max(seconds, known.seconds if known else 0.0)
            self.stalls[function] = Stall(where=where, function=function, seconds=longest)

    def _stuck(self, thread: threading.Thread, limit: float, what: str) -> Stuck:
        """Return the error of a blocking call, or of a deadline that passed while the loop ran."""
        if self._beat is not None and time.monotonic() - self._beat[0] < min(LIVELY, limit / 2):
            frame = next(filter(None, map(self._own_frame, self._waiting())), None)
            at = f"; {frame.f_code.co_qualname} waits" if frame else ""
            text = f"{what} did not end within {limit:.3g} s{at}"
            return Stuck(text, _line(frame) if frame else "", "wait for less, or raise --timeout")
        frames = sys._current_frames()
        candidates = [frames.pop(thread.ident or 0, None), *frames.values()]
        todo = "every call must end by itself"
        for frame in filter(None, map(self._own_frame, candidates)):
            text = f"{frame.f_code.co_qualname} did not come back within {limit:.3g} s"
            return Stuck(text, _line(frame), todo)
        return Stuck(f"{what} did not end within {limit:.3g} s", "", todo)

    def _waiting(self) -> Iterator[FrameType]:
        """Yield the innermost frame of each task of the event loop, if possible in own files."""
        for task in asyncio.all_tasks(self._loop.get_loop()):
            frame, coroutine = None, task.get_coro()
            while (inner := getattr(coroutine, "cr_frame", None)) is not None:
                # A frame of a waiting coroutine has no f_back, so its callers are found first.
                if self._own_frame(inner) is not None or frame is None:
                    frame = inner
                coroutine = getattr(coroutine, "cr_await", None)
            if frame is not None:
                yield frame

    def _own_frame(self, frame: FrameType | None) -> FrameType | None:
        """Return the innermost frame in the env's own files."""
        while frame and str(Path(frame.f_code.co_filename).absolute()) not in self._files:
            frame = frame.f_back
        return frame


def _forget(loop: asyncio.AbstractEventLoop) -> None:
    """Close a loop at garbage collection, which may happen anywhere, even inside another loop."""
    if not loop.is_running():
        loop.close()


def _line(frame: FrameType) -> str:
    return f"{short(frame.f_code.co_filename)}:{frame.f_lineno}"
