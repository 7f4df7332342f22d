"""The processes that share an update: who starts them, how they meet, and how they end together.

`art run` on one machine starts the others itself; they meet at a file in a folder that only this
user can open, and are told what to do over their standard input. A cluster's launcher (torchrun,
srun) starts `art run` everywhere and says in RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT who is
who: a store of torch at that address, which asks nobody who they are, is where those meet and read
what to do. What they read there is JSON, which runs no code.
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

JOIN_TIMEOUT = timedelta(minutes=5)  # to meet at the store
LOOK = timedelta(seconds=60)  # how long a worker waits for a command before it looks up
COLLECTIVE_TIMEOUT = timedelta(minutes=15)  # a rank that answers so late is lost
GRACE = 20.0  # seconds in which what a dead worker leaves behind should have raised by itself
LAST_LINES = 15  # of a dead worker's log
WORKER = "art_cli.training.trainers.distributed.ranks"


@dataclass(frozen=True, slots=True)
class ThisRank:
    """This process among all, as a cluster's launcher has said."""

    rank: int
    world_size: int


def launched() -> ThisRank | None:
    """Return where a launcher started this process among others; None where nobody did."""
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if any(name not in os.environ for name in names):
        return None
    place = ThisRank(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    return place if place.world_size > 1 else None


def check_world_size(place: ThisRank, num_processes: int) -> None:
    """Raises UsageError where launcher and config disagree."""
    if place.world_size != num_processes:
        raise UsageError(
            f"train.num_processes is {num_processes}, but the launcher started "
            f"{place.world_size} processes (WORLD_SIZE); set train.num_processes="
            f"{place.world_size}"
        )


def check_devices(num_processes: int, device: str) -> None:
    """Raises PreflightError where this machine has fewer GPUs than processes."""
    devices = torch.cuda.device_count()
    if device != "cpu" and 0 < devices < num_processes:
        raise PreflightError(
            f"train.num_processes is {num_processes}, but torch sees {devices} CUDA "
            f"{'device' if devices == 1 else 'devices'} and each process needs one of its own"
        )


class WorkerDied(Exception):
    """A worker has ended before its time; the message shows its last lines."""


class Crew:
    """The other processes, to rank 0. This one: those that a launcher started, and stops if one
    of them fails."""

    def __init__(self) -> None:
        self.store = join()
        self._told = 0

    def tell(self, command: str) -> None:
        """Say to all what to do next."""
        self.store.set(f"command/{self._told}", command)
        self._told += 1

    def meet(self, num_processes: int) -> None:
        """Wait until all are there. Raises WorkerDied."""
        names = [ready(rank) for rank in range(1, num_processes)]
        deadline = time.monotonic() + JOIN_TIMEOUT.total_seconds()
        while not self.store.check(names):
            self.check()
            if time.monotonic() > deadline:
                raise WorkerDied(f"not all of {num_processes} processes came within {JOIN_TIMEOUT}")
            time.sleep(0.05)

    def check(self) -> None:
        """Raises WorkerDied."""

    def working(self) -> AbstractContextManager[None]:
        """Note, within, that this process is in something that all ranks do."""
        return nullcontext()

    def why(self) -> str:
        """Return what happened to the others, after something that all ranks do has failed here."""
        return ""

    def close(self, *, now: bool = False) -> None:
        """See that the others end: they have been told to, or must `now`."""


class LocalCrew(Crew):
    """Workers on this machine, children of this process."""

    def __init__(self, num_processes: int, logs: Path) -> None:
        """Start them; their output goes to `logs`/rank-N.log."""
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
            stdin=subprocess.PIPE,  # it ends when this process does, however that ends
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for this process, which tells them
        )
        assert worker.stdout
        self._printed[rank] = MaskedOutput(worker.stdout, partial(_append, log))
        return worker

    def tell(self, command: str) -> None:
        for worker in self._workers.values():
            assert worker.stdin
            with suppress(BrokenPipeError):  # it has ended: `check` tells
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
        while time.monotonic() < deadline:  # its connections close before it has ended
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
            with suppress(BrokenPipeError):  # of a command that it did not live to read
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
        """End with a dead rank: a collective on a GPU would wait for it until it times out."""
        while not self._closing:
            time.sleep(1.0)
            if self._busy and not self._closing and (message := self._death()):
                time.sleep(GRACE / 4)  # most often this process finds out by itself
                if self._busy and not self._closing:
                    say(f"error: {message}", file=sys.stderr)
                    time.sleep(GRACE)
                    os._exit(EXIT_FAILED)


def _append(log: Path, printed: bytes) -> None:
    with log.open("ab") as file:
        file.write(printed)


def ready(rank: int) -> str:
    """Return what a rank sets in the store once it is there."""
    return f"ready/{rank}"


def join() -> Store:
    """Return the store where all processes meet, as the environment says. Raises RuntimeError."""
    store, _, _ = next(rendezvous("env://", timeout=JOIN_TIMEOUT))
    return store


def commands_in(store: Store) -> Iterator[str]:
    """Yield what `Crew.tell` is told, as a launcher's rank hears it."""
    number = 0
    while True:
        key = f"command/{number}"
        with suppress(DistStoreError):  # nothing yet: rollouts may take hours
            store.wait([key], LOOK)
            yield store.get(key).decode(errors="replace")
            number += 1


def commands_of_parent(folder: Path) -> Iterator[str]:
    """Return what `LocalCrew.tell` is told, as a worker hears it.

    This process ends when the one that started it is gone, whose `folder` it then removes: their
    pipe closes.
    """
    commands: SimpleQueue[str] = SimpleQueue()

    def read() -> None:
        with open(0, encoding="utf-8", closefd=False) as pipe:
            for command in pipe:
                commands.put(command)
        signal.alarm(
            1
        )  # ends this process even where torch, which looks for its file, keeps the GIL
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(EXIT_FAILED)

    threading.Thread(target=read, daemon=True).start()
    return iter(commands.get, "")


def end_with(store: Store) -> None:
    """End this process when the store, and so rank 0 or its launcher, is gone."""
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
    """Let gloo and NCCL listen on this machine alone, whatever they are told to use among several.

    gloo would also look this machine's name up, which not every machine can.
    """
    for _, name in socket.if_nameindex():
        if name in ("lo", "lo0"):
            os.environ.update(GLOO_SOCKET_IFNAME=name, NCCL_SOCKET_IFNAME=name)
