"""The processes that serve an env.

Threads write requests, read answers and store output, so an env that hangs or prints without end
does not block this process.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib.util
import json
import queue
import shutil
import subprocess
import threading
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary

from art_cli.errors import EnvError, RemoteError, UsageError
from art_cli.keys import MaskedOutput
from art_cli.rollout.env_worker.wire import error_of, line_of
from art_cli.system.deadline import DeadlineError
from art_cli.system.guard import guarded

READY_SECONDS = 120.0  # to import the env
GRACE = 5.0  # seconds for the process to exit
CANCEL_SECONDS = 10.0  # seconds to cancel a call; a process that does not is stuck and killed
MOST_KILLERS = 8  # scenarios that kill the process in a row before the env is given up
MOST_LOGGED, SHOWN = 2**24, 2**12  # bytes of output in the log, and in an error
BOOT = """
import importlib.util, sys
if sys.version_info < (3, 11) or importlib.util.find_spec("pydantic") is None:
    sys.exit("env.python needs Python 3.11 or newer with pydantic, and what the env imports")
for name, folder in (pair.split("=", 1) for pair in sys.argv[2:]):
    if name == "art_cli" or importlib.util.find_spec(name) is None:
        spec = importlib.util.spec_from_file_location(
            name, folder + "/__init__.py", submodule_search_locations=[folder])
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
from art_cli.rollout.env_worker.serve import main
main(sys.argv[1])
"""


class WorkerDiedError(RemoteError):
    """The process that played an episode has died. The text has its exit and its last output."""


class ServedEpisode(Protocol):
    """An episode in one process, whose env may ask a model."""

    loop: asyncio.AbstractEventLoop | None

    async def answer(self, told: dict[str, Any]) -> None:
        """Ask the model and send its answer to the process."""
        ...


class EnvWorker:
    """One env in one interpreter: the serving process, and a second one to try episodes in."""

    def __init__(self, python: str, use: str) -> None:
        """Raise UsageError if the interpreter does not exist."""
        if shutil.which(python) is None:
            raise UsageError(f"env.python: there is no program {python!r} (seen from {Path.cwd()})")
        self.python = python
        self.use = use
        self.log: Path | None = None  # receives the output
        self._process: WorkerProcess | None = None
        self._aside: WorkerProcess | None = None
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )
        self._killers: set[str] = set()
        self._lock = threading.Lock()
        atexit.register(self.close)

    def process(self) -> WorkerProcess:
        """Return the serving process. Starts a new one if it has died."""
        with self._lock:
            if self._process is None or self._process.death:
                self._process = WorkerProcess(self)
            return self._process

    def aside(self) -> tuple[WorkerProcess, bool]:
        """Return a process without running episodes, and whether it has never played one."""
        is_new = self._aside is None or bool(self._aside.death)
        if self._aside is None or is_new:
            self._aside = WorkerProcess(self)
        return self._aside, is_new

    def turn(self) -> asyncio.Lock:
        """Return the lock to hold while using the process of `aside`."""
        return self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())

    def works(self) -> None:
        """Record that the env has answered."""
        self._killers.clear()

    def convict(self, scenario: str, died: WorkerDiedError) -> None:
        """Record that a scenario killed a process. Raises EnvError at `MOST_KILLERS` in a row."""
        self._killers.add(scenario)
        if len(self._killers) >= MOST_KILLERS:
            raise EnvError(
                f"{self.use} is no use: each of {len(self._killers)} scenarios, one after another, "
                f"ended its process, and no episode came to its end in between; the last: {died}"
            ).ending_run()

    def keep(self, log: Path) -> None:
        """Write further output, and the end of the output so far, to a log file."""
        if log != self.log:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("ab") as file:
                file.write(self._process.tail if self._process else b"")
            self.log = log

    def now(self, do: str, seconds: float, **more: Any) -> Any:
        """Return the answer of the process to a request, for code without an event loop.

        If the process dies while it has episodes, which may be the cause, retries in a new one.
        """
        while True:
            process = self.process()
            try:
                return process.now(do, seconds, **more)
            except WorkerDiedError:
                if not len(process.served):
                    raise

    def close(self) -> None:
        """Close the processes."""
        processes, self._process, self._aside = (self._process, self._aside), None, None
        for process in filter(None, processes):
            process.close()


class WorkerProcess:
    """One process, with its requests by number."""

    def __init__(self, worker: EnvWorker) -> None:
        self.death = ""  # how it ended, as the rest of a sentence
        self._is_ready = False
        self.served: WeakValueDictionary[int, ServedEpisode] = WeakValueDictionary()
        self.episodes = count(1)
        self._worker = worker
        self._numbers = count(1)
        self._pending: dict[int, Future[Any]] = {}
        self._given_up: dict[int, threading.Timer] = {}
        self._lock = threading.Lock()
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.tail, self._num_logged = b"", 0  # the end of its output
        self._killed = ""  # the reason if we killed it
        self._process = subprocess.Popen(
            guarded([worker.python, "-c", BOOT, worker.use, *_lent(worker.use)], grace=GRACE),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C goes to the run, which ends the process itself
        )
        assert self._process.stderr
        self._printed = MaskedOutput(self._process.stderr, self._keep)
        self._threads = [
            threading.Thread(target=work, name="art-env-worker", daemon=True)
            for work in (self._write, self._read)
        ]
        for thread in self._threads:
            thread.start()

    def tell(self, do: str, **more: Any) -> None:
        """Send a message that has no answer."""
        self._lines.put(line_of({"do": do, **more}))

    def begin(self, do: str, **more: Any) -> None:
        """Send a request without waiting for its answer."""
        with suppress(WorkerDiedError):
            self._send(do, more)

    async def ready(self) -> None:
        """Wait until the env is imported. Raises the import's exception, WorkerDiedError."""
        if not self._is_ready:
            await self.ask("ready")
            self._is_ready = True

    async def ask(self, do: str, **more: Any) -> Any:
        """Return the answer to a request. Cancelling the caller cancels the request.

        Raises the env's exceptions, WorkerDiedError.
        """
        number, future = self._send(do, more)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self._give_up(number)
            raise

    def now(self, do: str, seconds: float, **more: Any) -> Any:
        """Return the answer to a request, for code without an event loop.

        Raises like `ask`, and DeadlineError after `seconds`.
        """
        number, future = self._send(do, more)
        try:
            return future.result(seconds)
        except TimeoutError:
            self._give_up(number)
            raise DeadlineError(f"{do}() did not return within {seconds:.3g} s") from None

    def close(self) -> None:
        """Let the process exit, or kill it."""
        self._lines.put(None)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(2 * GRACE)
        self._kill("was closed")
        for thread in (*self._threads, self._printed):
            thread.join(GRACE)

    def _send(self, do: str, more: dict[str, Any]) -> tuple[int, Future[Any]]:
        number, future = next(self._numbers), Future[Any]()
        line = line_of({"id": number, "do": do, **more})
        with self._lock:
            if self.death:
                raise WorkerDiedError(f"the env's process {self.death}")
            self._pending[number] = future
        self._lines.put(line)
        return number, future

    def _give_up(self, number: int) -> None:
        """Cancel a call. Kill the process if it does not answer within `CANCEL_SECONDS`."""
        why = f"stood still for {CANCEL_SECONDS:g} s beyond a deadline and was ended"
        timer = threading.Timer(CANCEL_SECONDS, self._kill, [why])
        timer.daemon = True
        with self._lock:
            if number not in self._pending:
                return
            self._given_up[number] = timer
            timer.start()
        self.tell("cancel", of=number)

    def _kill(self, why: str) -> None:
        self._killed = why
        with suppress(ProcessLookupError):
            self._process.terminate()
        self._lines.put(None)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(2 * GRACE)
            return
        self._process.kill()  # the guard; the kernel then kills the guarded processes

    def _write(self) -> None:
        assert self._process.stdin
        with suppress(OSError), self._process.stdin as stdin:
            while (line := self._lines.get()) is not None:
                stdin.write(line)
                stdin.flush()

    def _keep(self, printed: bytes) -> None:
        """Store output: its end in `tail`, its beginning in the log."""
        self.tail = (self.tail + printed)[-SHOWN:]
        if (log := self._worker.log) and self._num_logged < MOST_LOGGED:
            self._num_logged += len(printed)
            with log.open("ab") as file:
                file.write(printed)

    def _read(self) -> None:
        assert self._process.stdout
        with self._process.stdout as lines:
            try:
                for line in lines:
                    self._take(json.loads(line))
            except Exception as e:  # the env may have written anything to this descriptor
                self._kill(f"wrote what is no line of the protocol ({e!r:.200}) and was ended")
        code = self._process.wait()
        self._printed.join(GRACE)
        said = self.tail.decode(errors="replace").strip() or "(nothing)"
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        with self._lock:
            self.death = f"{self._killed or how}; it printed:\n{said}"
            pending, timers = list(self._pending.values()), list(self._given_up.values())
            self._pending.clear()
            self._given_up.clear()
        self._lines.put(None)
        for timer in timers:
            timer.cancel()
        for future in pending:
            with suppress(InvalidStateError):
                future.set_exception(WorkerDiedError(f"the env's process {self.death}"))

    def _take(self, told: dict[str, Any]) -> None:
        """Process a line of the protocol. Any exception means that the line is invalid."""
        if "ask" in told:
            self._answer(told)
            return
        number = told["id"]
        error = error_of(told["error"]) if "error" in told else None
        value = None if error else told["value"]
        with self._lock:
            future = self._pending.pop(number, None)
            timer = self._given_up.pop(number, None)
        if timer:
            timer.cancel()
        if future:
            with suppress(InvalidStateError):  # its caller has stopped waiting
                future.set_exception(error) if error else future.set_result(value)

    def _answer(self, told: dict[str, Any]) -> None:
        served: ServedEpisode | None = self.served.get(told["episode"])
        if served is not None and served.loop:
            with suppress(RuntimeError):  # its event loop has ended
                asyncio.run_coroutine_threadsafe(served.answer(told), served.loop)


def _lent(use: str) -> list[str]:
    """Return the packages that the process imports from here, as `name=folder`."""
    names = ["art_cli"] + ([] if ".py:" in use else [use.partition(":")[0].partition(".")[0]])
    specs = {name: importlib.util.find_spec(name) for name in names if name}
    return [
        f"{name}={folder}"
        for name, spec in specs.items()
        for folder in list((spec and spec.submodule_search_locations) or ())[:1]
    ]
