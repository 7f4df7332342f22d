"""What runs on each node of a cluster: the processes of `art run` that belong to it.

    python -m art_cli.backends.node CONFIG --run PROJECT/NAME --runs-dir DIR ...

SkyPilot says in SKYPILOT_* which of the nodes this is; each process gets RANK, WORLD_SIZE and the
like, as torchrun would give them. Node 0 has the run directory: it notes there how the run ended,
since SkyPilot tells no exit codes, and keeps it on storage where there is some.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from art_cli.backends import snapshots
from art_cli.rundir import RunDir

LOOK = 1.0  # seconds between two looks at the processes
GRACE = 30.0  # seconds that the other processes have, once one has failed
SIOCGIFADDR = 0x8915  # linux: the address of a network interface


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Which of the nodes this is."""

    rank: int
    ips: tuple[str, ...]  # of all nodes, by rank

    @classmethod
    def here(cls) -> Node:
        """As SkyPilot says; outside of it, the only one."""
        ips = tuple(os.environ.get("SKYPILOT_NODE_IPS", "127.0.0.1").split())
        return cls(rank=int(os.environ.get("SKYPILOT_NODE_RANK", "0")), ips=ips)

    def places(self, num_processes: int, port: int) -> list[dict[str, str]]:
        """The variables of each process here; none for one process that needs no other node."""
        if len(self.ips) == 1:
            return [{}]  # `art run` starts the other processes of its machine by itself
        each = num_processes // len(self.ips)
        common = {
            "WORLD_SIZE": str(num_processes),
            "LOCAL_WORLD_SIZE": str(each),
            "MASTER_ADDR": self.ips[0],
            "MASTER_PORT": str(port),
        }
        if interface := interface_of(self.ips[self.rank]):
            common["GLOO_SOCKET_IFNAME"] = interface
        return [
            common | {"RANK": str(self.rank * each + local), "LOCAL_RANK": str(local)}
            for local in range(each)
        ]


def interface_of(ip: str) -> str | None:
    """The network interface with this address. gloo would look the machine's name up instead,
    which on Debian leads back to the machine itself."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(asking, SIOCGIFADDR, request)
            except OSError:  # it has none
                continue
            if socket.inet_ntoa(answer[20:24]) == ip:
                return name
    return None


class Keeper:
    """Keeps the run on storage after each checkpoint."""

    def __init__(self, run: RunDir, storage: Path | None) -> None:
        """Brings back what an earlier machine has left there. Without storage, does nothing.

        What is on this disk may be half of a run, left by a machine that was taken away: only what
        the storage has whole is believed.
        """
        self._run = run
        self._storage = storage
        self._kept: list[int] = []
        if storage:
            shutil.rmtree(run.root, ignore_errors=True)
        if storage and snapshots.restore(storage, run.root):
            self._kept = run.checkpoint_steps()
            print(f"going on after step {self._kept[-1] if self._kept else 0}", flush=True)

    def look(self, *, now: bool = False) -> None:
        """Keep the run if it has a new checkpoint, or in any case `now`."""
        steps = self._run.checkpoint_steps()
        if self._storage and (now or steps[-1:] != self._kept[-1:]):
            try:
                snapshots.save(self._run.root, self._storage)
            except OSError as error:  # the run is not at fault; the next checkpoint tries again
                print(f"warning: cannot write to {self._storage}: {error}", flush=True)
                return
            self._kept = steps


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the processes of this node to their end. Exits with the code of rank 0 or the first that
    failed."""
    args = _parser().parse_args(arguments)
    node = Node.here()
    # The whole process group gets the signal; those that train save first, and this one waits.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run = RunDir(args.runs_dir / args.run)
    keeper = Keeper(run, args.storage / args.run if args.storage else None)
    run.exit.unlink(missing_ok=True)
    art = str(Path(sys.executable).with_name("art"))
    command = [art, "run", str(args.config), "--runs-dir", str(args.runs_dir)]
    command += ["--resume"] if args.resume else []
    port = 20000 + zlib.crc32(os.environ.get("SKYPILOT_TASK_ID", "").encode()) % 10000
    processes = [
        subprocess.Popen(command, env=os.environ | place, preexec_fn=_heed_signals)
        for place in node.places(args.processes, port)
    ]
    code = _wait(processes, keeper if node.rank == 0 else None)
    if node.rank == 0:
        run.write_exit(code)
        keeper.look(now=True)
    sys.exit(code)


def _wait(processes: list[subprocess.Popen[bytes]], keeper: Keeper | None) -> int:
    while True:
        codes = [process.poll() for process in processes]
        if failed := [code for code in codes if code]:
            _end(processes)
            return failed[0] if failed[0] > 0 else 128 - failed[0]
        if None not in codes:
            return 0
        if keeper:
            keeper.look()
        time.sleep(LOOK)


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + GRACE
    while any(p.poll() is None for p in processes) and time.monotonic() < deadline:
        time.sleep(LOOK)
    for process in processes:
        process.kill()
        process.wait()


def _heed_signals() -> None:
    """An ignored signal would stay ignored in the processes that are started."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="art_cli.backends.node")
    parser.add_argument("config", type=Path)
    parser.add_argument("--run", required=True, help="project/name")
    parser.add_argument("--runs-dir", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=1, help="of all nodes")
    parser.add_argument("--storage", type=Path)
    parser.add_argument("--resume", action="store_true")
    return parser


if __name__ == "__main__":
    main()
