"""Start the processes of `art run` on one node of a cluster.

    python -m art_cli.backends.cloud.node CONFIG --run PROJECT/NAME --runs-dir DIR ...

SKYPILOT_* tell which node this is. Each process gets RANK, WORLD_SIZE etc., as from torchrun. The
last `--engine-nodes` nodes do not train: they are engine hosts (engines/vllm/host.py) until node 0
ends the run. Node 0 has the run directory. It records the exit code there, which SkyPilot does not
report, and copies the run to storage if there is any.
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
import threading
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import httpx

from art_cli.backends.cloud import snapshots
from art_cli.engines.base import HOSTS, TOKEN
from art_cli.runs.directory import RunDir
from art_cli.terminal.text import say

LOOK = 1.0  # seconds between checks of the processes
BEAT = 10.0  # seconds between beats to an engine host
HOST_SECONDS = 10.0  # seconds for its answer
END_SECONDS = 60.0  # seconds to tell all hosts that the run is over
GRACE = 30.0  # seconds for the other processes to end once one has failed
SIOCGIFADDR = 0x8915  # linux: the address of a network interface


@dataclass(frozen=True, slots=True, kw_only=True)
class ThisNode:
    """This node's place in the cluster."""

    rank: int
    ips: tuple[str, ...]  # of all nodes, by rank
    num_serving: int  # number of serving nodes, the last ones

    @classmethod
    def here(cls, num_serving: int = 0) -> ThisNode:
        """Return this node from SkyPilot's variables; outside SkyPilot, the only node."""
        ips = tuple(os.environ.get("SKYPILOT_NODE_IPS", "127.0.0.1").split())
        rank = int(os.environ.get("SKYPILOT_NODE_RANK", "0"))
        return cls(rank=rank, ips=ips, num_serving=num_serving)

    @property
    def num_training(self) -> int:
        """Number of nodes that run the trainer's processes."""
        return len(self.ips) - self.num_serving

    @property
    def serves(self) -> bool:
        """True if this node only serves vLLM."""
        return self.rank >= self.num_training

    def hosts(self, port: int) -> list[str]:
        """Return the URLs of the serving nodes."""
        return [f"http://{ip}:{port}" for ip in self.ips[self.num_training :]]

    def places(self, num_processes: int, port: int) -> list[dict[str, str]]:
        """Return the environment variables of each process on this node; {} on a single node."""
        if self.num_training == 1:
            return [{}]  # `art run` itself starts more processes on one machine
        each = num_processes // self.num_training
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
    """Return the network interface with this address, or None.

    gloo would resolve the machine's name instead, which on Debian gives a loopback address.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(asking, SIOCGIFADDR, request)
            except OSError:  # no address
                continue
            if socket.inet_ntoa(answer[20:24]) == ip:
                return name
    return None


class Keeper:
    """Copies the run to storage after each checkpoint."""

    def __init__(self, run: RunDir, storage: Path | None) -> None:
        """Restore the run that an earlier machine left on the storage. Without storage, do nothing.

        The local disk may hold half of a run from a preempted machine, so only complete snapshots
        on the storage are used.
        """
        self._run = run
        self._storage = storage
        self._kept: list[int] = []
        if storage:
            shutil.rmtree(run.root, ignore_errors=True)
        if storage and snapshots.restore(storage, run.root):
            self._kept = run.checkpoint_steps()
            say(f"going on after step {self._kept[-1] if self._kept else 0}")

    def look(self, *, now: bool = False) -> None:
        """Copy the run if it has a new checkpoint, or with `now` in any case."""
        steps = self._run.checkpoint_steps()
        if self._storage and (now or steps[-1:] != self._kept[-1:]):
            try:
                snapshots.save(self._run.root, self._storage)
            except OSError as error:  # the run goes on; the next checkpoint tries again
                say(f"warning: cannot write to {self._storage}: {error}")
                return
            self._kept = steps


class Serving:
    """Keeps the engine hosts alive from node 0 while open, then ends them."""

    def __init__(self, urls: list[str], token: str) -> None:
        self._urls = urls
        self._asking = httpx.Client(
            headers={"Authorization": f"Bearer {token}"}, timeout=HOST_SECONDS, trust_env=False
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="art-beat", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        deadline = time.monotonic() + END_SECONDS  # a host may still be starting
        for url in self._urls:
            while (status := self._tell(url, "end")) is None and time.monotonic() < deadline:
                time.sleep(LOOK)
            if status != HTTPStatus.OK:
                say(f"warning: {url} was not told that the run is over ({status})")

    def _beat(self) -> None:
        while not self._over.wait(BEAT):
            for url in self._urls:
                self._tell(url, "beat")

    def _tell(self, url: str, what: str) -> int | None:
        """Return the HTTP status of the host's answer, or None."""
        with suppress(httpx.HTTPError):
            return self._asking.post(f"{url}/{what}").status_code
        return None


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the processes of this node to their end. Exit with the first nonzero code, or 0."""
    args = _parser().parse_args(arguments)
    node = ThisNode.here(args.engine_nodes)
    # The whole process group gets the signal. The training processes save first; this one waits.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    port = 20000 + zlib.crc32(os.environ.get("SKYPILOT_TASK_ID", "").encode()) % 10000
    if node.serves:
        command = [
            sys.executable,
            "-m",
            "art_cli.engines.vllm.host",
            node.ips[node.rank],
            str(port + 1),
        ]
        os.execv(sys.executable, command)
    hosts = node.hosts(port + 1)
    with Serving(hosts if node.rank == 0 else [], os.environ.get(TOKEN, "")):
        run = RunDir(args.runs_dir / args.run)
        keeper = Keeper(run, args.storage / args.run if args.storage else None)
        if run.exit.exists() and node.rank == 0:
            run.exit.unlink()  # from an earlier start, not the result of this one
            keeper.look(now=True)
        art = str(Path(sys.executable).with_name("art"))
        command = [art, "run", str(args.config), "--runs-dir", str(args.runs_dir)]
        command += ["--resume"] * args.resume + ["--accept-changes"] * args.accept_changes
        environment = os.environ | {HOSTS: " ".join(hosts)}
        processes = [
            subprocess.Popen(command, env=environment | place, preexec_fn=_heed_signals)
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
    """Stop ignoring signals, which child processes would inherit."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="art_cli.backends.cloud.node")
    parser.add_argument("config", type=Path)
    parser.add_argument("--run", required=True, help="project/name")
    parser.add_argument("--runs-dir", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=1, help="of all nodes")
    parser.add_argument("--engine-nodes", type=int, default=0, help="the last ones, for vLLM alone")
    parser.add_argument("--storage", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--accept-changes", action="store_true")
    return parser


if __name__ == "__main__":
    main()
