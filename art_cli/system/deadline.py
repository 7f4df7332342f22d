"""Calls with a deadline, which holds whatever the called code does."""

from __future__ import annotations

import asyncio
import contextlib
import dis
import functools
import inspect
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from types import CodeType
from typing import Any, TypeVar

from art_cli.errors import AgentError, ArtError, EnvError, LLMError, UsageError

T = TypeVar("T")
MAX_STUCK = 256  # abandoned threads at the same time

SHORTEST_LOOK = 0.05  # seconds between checks of a paused limit
LONG = 2**15  # characters: a few milliseconds of work
LONG_TIMEOUT = 600.0  # seconds
UNCOUNTED = contextlib.nullcontext()
OF_CALL = (UsageError, LLMError, AgentError)  # errors that concern this call only
Guard = Callable[[], contextlib.AbstractContextManager[Any]]


def is_debugged() -> bool:
    """Return whether a debugger is attached: time at a breakpoint must not count."""
    return "pydevd" in sys.modules


class DeadlineError(Exception):
    """A call did not return in time. The message names the call and its limit."""


@contextlib.contextmanager
def user_code() -> Iterator[None]:
    """Run the user's code: an exception that would end the program becomes a RuntimeError.

    These are SystemExit, and any of art's errors that concern more than this call. An error with
    `ends_run` was raised by art itself within the call, and passes through.
    """
    try:
        yield
    except (SystemExit, ArtError) as e:
        if isinstance(e, ArtError) and (e.ends_run or isinstance(e, OF_CALL)):
            raise
        raise RuntimeError(f"raised {e!r}").with_traceback(e.__traceback__) from e


class Limit:
    """The seconds that a call has left. The clock stops while the call is paused."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds
        self._paused_at: list[float] = []  # start times of the pauses in progress

    @property
    def left(self) -> float:
        """The seconds left."""
        return self._ends - (self._paused_at[0] if self._paused_at else time.monotonic())

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock inside this context."""
        self._paused_at.append(time.monotonic())
        try:
            yield
        finally:
            began = self._paused_at.pop(0)
            self._ends += (self._paused_at[0] if self._paused_at else time.monotonic()) - began

    async def wait_for(self, *futures: asyncio.Future[Any]) -> bool:
        """Return whether one of the futures is done within the limit."""
        while True:
            seconds = None if is_debugged() else max(self.left, SHORTEST_LOOK)
            done, _ = await asyncio.wait(
                futures, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if done or self.left <= 0:
                return bool(done)

    def task(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Return a task that runs a coroutine. `paused` in the coroutine pauses this limit."""
        token = _limit.set(self)
        try:
            return asyncio.ensure_future(coroutine)
        finally:
            _limit.reset(token)


_limit: ContextVar[Limit | None] = ContextVar("limit", default=None)


def paused() -> contextlib.AbstractContextManager[None]:
    """Stop the clock of the call that this task runs for, while art does its own work in it."""
    limit = _limit.get()
    return limit.paused() if limit else contextlib.nullcontext()


async def call(
    function: Callable[..., Any],
    *args: Any,
    seconds: float,
    what: str,
    counting: contextlib.AbstractContextManager[Any] = UNCOUNTED,
    guard: Guard = user_code,
) -> Any:
    """Return the result of a plain or async function. `counting` is entered while it runs.

    A plain function runs in a thread. A call that misses its deadline is abandoned: an async
    function is cancelled but not awaited, and a thread is left behind (a daemon, which cannot block
    the exit). An async function that awaits nothing cannot be abandoned, so it runs without its own
    task.

    Raises DeadlineError, EnvError if too many threads are left behind, or the function's error as
    converted by `guard`.
    """
    if awaits_nothing(function):
        try:
            with counting:
                return await _survive(guard, function, *args)
        except asyncio.CancelledError:
            raise RuntimeError(f"{what} was cancelled from within") from None
    limit = Limit(seconds)
    if inspect.iscoroutinefunction(function):
        waiting: asyncio.Future[Any] = limit.task(_survive(guard, function, *args))
    else:
        job = functools.partial(function, *args)
        waiting = _threads.submit(job, f"{what}{_place(function)}", guard)
    try:
        with counting:
            is_done = await limit.wait_for(waiting)
    except asyncio.CancelledError:
        waiting.cancel()
        raise
    if not is_done:
        waiting.cancel()
        _threads.check()
        raise DeadlineError(f"{what} did not return within {seconds:.3g} s")
    if waiting.cancelled():
        raise RuntimeError(f"{what} was cancelled from within")
    return waiting.result()


async def run_here(function: Callable[..., Any], *args: Any, what: str) -> Any:
    """Return the result of a function. An async one runs in this task, a plain one in a thread.

    There is no deadline. The caller must cancel the task in time and call `check_stuck`.
    """
    if inspect.iscoroutinefunction(function):
        return await _survive(user_code, function, *args)
    job = functools.partial(function, *args)
    return await _threads.submit(job, f"{what}{_place(function)}", user_code)


def awaits_nothing(function: Callable[..., Any]) -> bool:
    """Return whether it is an async function without any await, which runs in one go."""
    code = _code_of(function) if inspect.iscoroutinefunction(function) else None
    return code is not None and not _awaits(code)


def check_stuck() -> None:
    """Raise EnvError if too many threads are left behind in calls."""
    _threads.check()


async def beside(size: int, function: Callable[..., T], *args: Any) -> T:
    """Return the result of a plain function that reads `size` characters of input.

    Short input is processed at once. Long input would block other episodes, so it is processed in a
    thread. Raises DeadlineError, or the function's error.
    """
    if size < LONG:
        return function(*args)
    what = f"reading {size} characters"
    return await call(
        function, *args, seconds=LONG_TIMEOUT, what=what, guard=contextlib.nullcontext
    )


def within(
    seconds: float, function: Callable[[], T], more: Callable[[], bool] = lambda: False
) -> T:
    """Return the result of a function within this many seconds, for code without an event loop.

    When the time is over, `more` decides whether to wait as long again. SystemExit becomes a
    RuntimeError. Raises DeadlineError, or the function's error.
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


async def _survive(guard: Guard, function: Callable[..., Any], *args: Any) -> Any:
    with guard():
        return await function(*args)


def _place(function: Callable[..., Any]) -> str:
    """Return ` (file:line)` of the function's definition, if it is written in Python."""
    code = _code_of(function, is_inner=True)
    return f" ({code.co_filename}:{code.co_firstlineno})" if code else ""


def _code_of(function: Callable[..., Any], is_inner: bool = False) -> CodeType | None:
    """Return a Python function's code, or None. `is_inner` unwraps decorators first."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(inspect.unwrap(function) if is_inner else function, "__code__", None)


@functools.cache
def _awaits(code: CodeType) -> bool:
    return any(i.opname == "SEND" for i in dis.get_instructions(code))


class _DaemonThreads:
    """A thread pool that tolerates stuck threads.

    concurrent.futures would join them at exit and hang, and a pool of fixed size would run out of
    threads.
    """

    def __init__(self) -> None:
        self._called: dict[asyncio.Future[Any], str] = {}  # calls in progress, with descriptions
        self._jobs: queue.SimpleQueue[
            tuple[Callable[[], Any], asyncio.Future[Any], asyncio.AbstractEventLoop, Guard]
        ] = queue.SimpleQueue()
        self._idle = 0
        self._lock = threading.Lock()

    def submit(self, job: Callable[[], Any], what: str, guard: Guard) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            self._called[future] = what
            if self._idle:
                self._idle -= 1
            else:
                threading.Thread(target=self._work, name="art-env", daemon=True).start()
        self._jobs.put((job, future, loop, guard))
        return future

    def check(self) -> None:
        """Raise EnvError if too many abandoned calls are still running."""
        with self._lock:
            stuck = Counter(what for future, what in self._called.items() if future.cancelled())
        if stuck.total() > MAX_STUCK:
            [(worst, times)] = stuck.most_common(1)
            raise EnvError(
                f"{stuck.total()} calls of the env missed their deadline and still have not come "
                f"back; each holds a thread. {times} of them are {worst}. Give whatever it waits "
                "for a timeout of its own, or make it an `async def`, which can be cancelled."
            ).ending_run()

    def _work(self) -> None:
        while True:
            self._do(*self._jobs.get())

    def _do(
        self,
        job: Callable[[], Any],
        future: asyncio.Future[Any],
        loop: asyncio.AbstractEventLoop,
        guard: Guard,
    ) -> None:
        """Run one job. An idle thread keeps no reference to it, as arguments may be megabytes."""
        try:
            with guard():
                outcome = (future.set_result, job())
        except BaseException as error:
            # A future refuses StopIteration, and KeyboardInterrupt would end the program.
            if isinstance(error, StopIteration) or not isinstance(error, Exception):
                error = RuntimeError(f"raised {error!r}")
            outcome = (future.set_exception, error)
        with self._lock:
            del self._called[future]
            self._idle += 1
        with contextlib.suppress(RuntimeError):  # the loop has closed, so no caller waits
            loop.call_soon_threadsafe(_settle, future, *outcome)
        del outcome  # an error's traceback holds this frame, which would hold the error


def _settle(future: asyncio.Future[Any], settle: Callable[[Any], None], outcome: Any) -> None:
    if not future.done():  # it may have been abandoned
        settle(outcome)


_threads = _DaemonThreads()
