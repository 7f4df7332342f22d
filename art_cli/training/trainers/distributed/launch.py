"""Start, connect and stop the processes that share an update.

On one machine, `art run` starts the other processes itself. They meet at a file in a folder that
only this user can open, and read commands from standard input.

On a cluster, the launcher (torchrun, srun) starts `art run` everywhere and sets RANK, WORLD_SIZE,
MASTER_ADDR and MASTER_PORT. The processes then meet at a torch store at that address and read
commands from it. The store does not authenticate its clients, so commands are JSON, which cannot
run code.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import torch
from torch._C._distributed_c10d import FileStore, Store  # public as torch.distributed.FileStore
from torch.distributed import DistStoreError
from torch.distributed.rendezvous import rendezvous

from art_cli.errors import EXIT_FAILED, PreflightError, UsageError
from art_cli.keys import MaskedOutput
from art_cli.terminal.text import say

JOIN_TIMEOUT = timedelta(minutes=5)  # for all ranks to reach the store
LOOK = timedelta(seconds=60)  # for one poll of the command
COLLECTIVE_TIMEOUT = timedelta(minutes=15)  # a slower rank counts as lost
GRACE = 20.0  # seconds for an error caused by a dead worker to be raised by itself
LAST_LINES = 15  # of a dead worker's log
WORKER = "art_cli.training.trainers.distributed.ranks"


@dataclass(frozen=True, slots=True)
class ThisRank:
    """This process's rank, as set by a cluster's launcher."""

    rank: int
    world_size: int


def launched() -> ThisRank | None:
    """Return this process's rank if a launcher started it among others, else None."""
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if any(name not in os.environ for name in names):
        return None
    place = ThisRank(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    return place if place.world_size > 1 else None


def check_world_size(place: ThisRank, num_processes: int) -> None:
    """Raise UsageError if launcher and config disagree on the number of processes."""
    if place.world_size != num_processes:
        raise UsageError(
            f"train.num_processes is {num_processes}, but the launcher started "
            f"{place.world_size} processes (WORLD_SIZE); set train.num_processes="
            f"{place.world_size}"
        )


def check_devices(num_processes: int, device: str) -> None:
    """Raise PreflightError if this machine has fewer GPUs than processes."""
    devices = torch.cuda.device_count()
    if device != "cpu" and 0 < devices < num_processes:
        raise PreflightError(
            f"train.num_processes is {num_processes}, but torch sees {devices} CUDA "
            f"{'device' if devices == 1 else 'devices'} and each process needs one of its own"
        )


class WorkerDied(Exception):
    """A worker ended too early. The message shows its last lines."""


class Crew:
    """The other processes, as seen by rank 0.

    This class handles processes that a launcher started. The launcher stops them if one fails.
    """

    def __init__(self) -> None:
        self.store = join()
        self._told = 0

    def tell(self, command: str) -> None:
        """Send a command to all workers."""
        self.store.set(f"command/{self._told}", command)
        self._told += 1

    def meet(self, num_processes: int) -> None:
        """Wait until all workers are ready. Raises WorkerDied."""
        names = [ready(rank) for rank in range(1, num_processes)]
        deadline = time.monotonic() + JOIN_TIMEOUT.total_seconds()
        while not self.store.check(names):
            self.check()
            if time.monotonic() > deadline:
                raise WorkerDied(f"not all of {num_processes} processes came within {JOIN_TIMEOUT}")
            time.sleep(0.05)

    def check(self) -> None:
        """Raise WorkerDied if a worker has ended."""

    def working(self) -> AbstractContextManager[None]:
        """Mark this process as inside a collective operation."""
        return nullcontext()

    def why(self) -> str:
        """Return the reason why a collective operation failed, if a worker caused it, or ""."""
        return ""

    def close(self, *, now: bool = False) -> None:
        """Wait for the workers to end, which were told to close. With `now`, kill them."""


class LocalCrew(Crew):
    """Workers on this machine, children of this process."""

    def __init__(self, num_processes: int, logs: Path) -> None:
        """Start the workers. Their output goes to `logs`/rank-N.log."""
        self._folder = Path(tempfile.mkdtemp(prefix="art-ranks-"))  # of mode 0700
        self.store = FileStore(str(self._folder / "store"), num_processes)
        self._busy = False
        self._closing = False
        _use_loopback()
        logs.mkdir(parents=True, exist_ok=True)
        self._logs = {rank: logs / f"rank-{rank}.log" for rank in range(1, num_processes)}
        for log in self._logs.values():
            log.write_bytes(b"")
        self._printed: dict[int, MaskedOutput] = {}
        self._workers = {
            rank: self._start(rank, num_processes, log) for rank, log in self._logs.items()
        }
        threading.Thread(target=self._watch, daemon=True).start()

    def _start(self, rank: int, num_processes: int, log: Path) -> subprocess.Popen[bytes]:
        place = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(num_processes),
        }
        worker = subprocess.Popen(
            [sys.executable, "-m", WORKER, str(self._folder / "store")],
            env=os.environ | place,
            stdin=subprocess.PIPE,  # closes when this process ends, even if it is killed
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches this process only, which stops them
        )
        assert worker.stdout
        self._printed[rank] = MaskedOutput(worker.stdout, partial(_append, log))
        return worker

    def tell(self, command: str) -> None:
        for worker in self._workers.values():
            assert worker.stdin
            with suppress(BrokenPipeError):  # the worker has ended; `check` reports it
                worker.stdin.write(f"{command}\n".encode())
                worker.stdin.flush()

    def check(self) -> None:
        if message := self._death():
            raise WorkerDied(message)

    @contextmanager
    def working(self) -> Iterator[None]:
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def why(self) -> str:
        deadline = time.monotonic() + GRACE / 2
        while time.monotonic() < deadline:  # a worker's connections close before its process ends
            if message := self._death():
                return message
            time.sleep(0.1)
        return ""

    def close(self, *, now: bool = False) -> None:
        self._closing = True
        for worker in self._workers.values():
            try:
                worker.wait(0 if now else GRACE / 2)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
            assert worker.stdin
            with suppress(BrokenPipeError):  # the worker died before it read a command
                worker.stdin.close()
        for printed in self._printed.values():
            printed.join(GRACE / 4)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _death(self) -> str:
        for rank, worker in self._workers.items():
            code = worker.poll()
            if code is not None:
                self._printed[rank].join(GRACE / 4)
                lines = self._logs[rank].read_text(errors="replace").splitlines()[-LAST_LINES:]
                how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
                return (
                    f"the training process of rank {rank} ended {how}; its last lines "
                    f"({self._logs[rank]}):\n" + "\n".join(f"  {line}" for line in lines)
                )
        return ""

    def _watch(self) -> None:
        """Exit when a worker dies: a GPU collective would wait for that rank until it times out."""
        while not self._closing:
            time.sleep(1.0)
            if self._busy and not self._closing and (message := self._death()):
                time.sleep(GRACE / 4)  # usually the collective raises by itself
                if self._busy and not self._closing:
                    say(f"error: {message}", file=sys.stderr)
                    time.sleep(GRACE)
                    os._exit(EXIT_FAILED)


def _append(log: Path, printed: bytes) -> None:
    with log.open("ab") as file:
        file.write(printed)


def ready(rank: int) -> str:
    """Return the key that a rank sets in the store once it is ready."""
    return f"ready/{rank}"


def join() -> Store:
    """Join the store given by the environment, where all processes meet. Raises RuntimeError."""
    store, _, _ = next(rendezvous("env://", timeout=JOIN_TIMEOUT))
    return store


def commands_in(store: Store) -> Iterator[str]:
    """Yield the commands that `Crew.tell` writes to the store."""
    number = 0
    while True:
        key = f"command/{number}"
        with suppress(DistStoreError):  # nothing yet: rollouts may take hours
            store.wait([key], LOOK)
            yield store.get(key).decode(errors="replace")
            number += 1


def commands_of_parent(folder: Path) -> Iterator[str]:
    """Iterate over the commands that `LocalCrew.tell` writes to this worker's standard input.

    When the parent is gone, the pipe closes. This process then removes `folder` and ends.
    """
    commands: SimpleQueue[str] = SimpleQueue()

    def read() -> None:
        with open(0, encoding="utf-8", closefd=False) as pipe:
            for command in pipe:
                commands.put(command)
        # Ends this process even if torch, which polls for its store's file, keeps the GIL.
        signal.alarm(1)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(EXIT_FAILED)

    threading.Thread(target=read, daemon=True).start()
    return iter(commands.get, "")


def end_with(store: Store) -> None:
    """End this process when the store is gone, and with it rank 0 or its launcher."""
    own = store.clone()  # type: ignore[attr-defined]  # the other connection may be waiting

    def watch() -> None:
        while True:
            time.sleep(2.0)
            try:
                own.check(["alive"])
            except RuntimeError:
                os._exit(EXIT_FAILED)

    threading.Thread(target=watch, daemon=True).start()


def _use_loopback() -> None:
    """Make gloo and NCCL listen on this machine only, overriding settings for several machines.

    gloo would also resolve this machine's host name, which fails on some machines.
    """
    for _, name in socket.if_nameindex():
        if name in ("lo", "lo0"):
            os.environ.update(GLOO_SOCKET_IFNAME=name, NCCL_SOCKET_IFNAME=name)
