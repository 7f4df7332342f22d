"""Calls that end by a deadline, whatever the code that is called does."""

from __future__ import annotations

import asyncio
import contextlib
import dis
import faulthandler
import functools
import inspect
import os
import queue
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar

from art_cli.errors import EnvError
from art_cli.printed import say

T = TypeVar("T")
MAX_STUCK = 256  # threads that were left behind in calls, all at the same time

LONG = 2**15  # characters: a few milliseconds of work
LONG_TIMEOUT = 600.0  # seconds
UNCOUNTED = contextlib.nullcontext()


def is_debugged() -> bool:
    """Return whether a debugger is attached: who looks at a breakpoint is not late."""
    return "pydevd" in sys.modules


class DeadlineError(Exception):
    """A call did not return in time; says which, and how long it was waited for."""


async def call(
    function: Callable[..., Any],
    *args: Any,
    seconds: float,
    what: str,
    counting: contextlib.AbstractContextManager[Any] = UNCOUNTED,
) -> Any:
    """Return the result of a plain or async function; `counting` is entered while it runs.

    A plain function runs in a thread. What misses its deadline is abandoned: an async function is
    cancelled but not waited for, a thread is left behind (it is a daemon and cannot hold up exit).
    An async function that awaits nothing cannot be left, and so needs no task of its own.

    Raises DeadlineError, EnvError where too many threads are left behind, or whatever the function
    raises.
    """
    if awaits_nothing(function):
        try:
            with counting:
                return await _survive(function, *args)
        except asyncio.CancelledError:
            raise RuntimeError(f"{what} was cancelled from within") from None
    if inspect.iscoroutinefunction(function):
        waiting: asyncio.Future[Any] = asyncio.ensure_future(_survive(function, *args))
    else:
        job = functools.partial(function, *args)
        waiting = _threads.submit(job, f"{what}{_place(function)}")
    with counting:
        done, _ = await asyncio.wait({waiting}, timeout=None if is_debugged() else seconds)
    if not done:
        waiting.cancel()
        _threads.check()
        raise DeadlineError(f"{what} did not return within {seconds:.3g} s")
    if waiting.cancelled():
        raise RuntimeError(f"{what} was cancelled from within")
    return waiting.result()


async def run_here(function: Callable[..., Any], *args: Any, what: str) -> Any:
    """Return what a function returns: an async one runs in this very task, a plain one in a thread.

    There is no deadline; who cancels the task sees to that, and calls `check_stuck`.
    """
    if inspect.iscoroutinefunction(function):
        return await _survive(function, *args)
    return await _threads.submit(functools.partial(function, *args), f"{what}{_place(function)}")


def awaits_nothing(function: Callable[..., Any]) -> bool:
    """Return whether it is an async function that goes from beginning to end in one go."""
    code = _code_of(function) if inspect.iscoroutinefunction(function) else None
    return code is not None and not _awaits(code)


def check_stuck() -> None:
    """Raise EnvError where too many threads are left behind in calls."""
    _threads.check()


async def beside(size: int, function: Callable[..., T], *args: Any) -> T:
    """Return the result of a plain function over `size` characters that somebody sent.

    What is short is done at once. What is long would hold up every other episode, and so it is done
    in a thread. Raises DeadlineError, or whatever the function raises.
    """
    if size < LONG:
        return function(*args)
    return await call(function, *args, seconds=LONG_TIMEOUT, what=f"reading {size} characters")


def within(
    seconds: float, function: Callable[[], T], more: Callable[[], bool] = lambda: False
) -> T:
    """Return what a function returns within so many seconds, for code without an event loop.

    SystemExit becomes a RuntimeError.

    When the time is over, `more` is asked whether there is as much again, and so on.

    Raises DeadlineError, or whatever the function raises.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, name="art-within", daemon=True)
    thread.start()
    thread.join(seconds)
    while thread.is_alive() and more():
        thread.join(seconds)
    if results:
        return results[0]
    if not errors:
        raise DeadlineError(f"no answer after {seconds:.3g} s")
    if isinstance(errors[0], Exception):
        raise errors[0]
    raise RuntimeError(f"{type(errors[0]).__name__}: {errors[0]}") from errors[0]


async def _survive(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function, and raise its SystemExit as a RuntimeError: it would end the program."""
    try:
        return await function(*args)
    except SystemExit as error:
        raise RuntimeError(f"raised {error!r}") from error


def _place(function: Callable[..., Any]) -> str:
    """Return ` (file:line)` of where the function is defined, if it is written in Python."""
    code = _code_of(function, is_inner=True)
    return f" ({code.co_filename}:{code.co_firstlineno})" if code else ""


def _code_of(function: Callable[..., Any], is_inner: bool = False) -> CodeType | None:
    """Return the code of a function, if it is written in Python; of what it wraps if `is_inner`."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(inspect.unwrap(function) if is_inner else function, "__code__", None)


@functools.cache
def _awaits(code: CodeType) -> bool:
    return any(i.opname == "SEND" for i in dis.get_instructions(code))


class _DaemonThreads:
    """A thread pool whose stuck threads cost nothing but themselves.

    concurrent.futures would join them at exit, and so hang; a pool of fixed size would run dry.
    """

    def __init__(self) -> None:
        self._called: dict[asyncio.Future[Any], str] = {}  # what goes on, and what it is
        self._jobs: queue.SimpleQueue[
            tuple[Callable[[], Any], asyncio.Future[Any], asyncio.AbstractEventLoop]
        ] = queue.SimpleQueue()
        self._idle = 0
        self._lock = threading.Lock()

    def submit(self, job: Callable[[], Any], what: str) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            self._called[future] = what
            if self._idle:
                self._idle -= 1
            else:
                threading.Thread(target=self._work, name="art-env", daemon=True).start()
        self._jobs.put((job, future, loop))
        return future

    def check(self) -> None:
        """Raise EnvError where too many calls go on that nobody waits for any more."""
        with self._lock:
            stuck = Counter(what for future, what in self._called.items() if future.cancelled())
        if stuck.total() > MAX_STUCK:
            [(worst, times)] = stuck.most_common(1)
            raise EnvError(
                f"{stuck.total()} calls of the env missed their deadline and still have not come "
                f"back; each holds a thread. {times} of them are {worst}. Give whatever it waits "
                "for a timeout of its own, or make it an `async def`, which can be cancelled."
            )

    def _work(self) -> None:
        while True:
            self._do(*self._jobs.get())

    def _do(
        self, job: Callable[[], Any], future: asyncio.Future[Any], loop: asyncio.AbstractEventLoop
    ) -> None:
        """Do one job. An idle thread holds nothing of it: its arguments may be megabytes."""
        try:
            outcome = (future.set_result, job())
        except BaseException as error:
            # A future refuses StopIteration, and SystemExit would end the program.
            if isinstance(error, StopIteration) or not isinstance(error, Exception):
                error = RuntimeError(f"raised {error!r}")
            outcome = (future.set_exception, error)
        with self._lock:
            del self._called[future]
            self._idle += 1
        with contextlib.suppress(RuntimeError):  # the loop closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, future, *outcome)
        del outcome  # an error's traceback holds this frame, which would hold the error


def _settle(future: asyncio.Future[Any], settle: Callable[[Any], None], outcome: Any) -> None:
    if not future.done():  # it may have been abandoned
        settle(outcome)


_threads = _DaemonThreads()


@contextlib.contextmanager
def last_resort(seconds: float, what: str, owner: Path, exit_code: int) -> Iterator[None]:
    """End the process where the code within takes longer, and say the line that it stands at.

    It may be a user's file that is being imported, which no exception ends for certain. The line is
    the innermost in the file `owner`, or else of a module that is being imported.
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
            f"error: {what} did not end within {seconds:g} s; it stands at "
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
    """End the process if the event loop stands still for so long.

    No deadline on the loop can fire while an `async def` blocks it (or a forward pass never
    returns), so this one waits in a thread. All that a run writes is atomic: the last checkpoint
    stays good, and the process ends with exit code 1 after saying where it stood.
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
                    f"\nerror: {what} blocked the program for {seconds:g} s; stopping. It stood "
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
