"""A run whose vLLM serves on another node: two nodes on this machine's loopback, as SkyPilot would
start them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ART = Path(sys.executable).with_name("art")
TOKEN = "only-for-this-test"
SMALL = [
    *(
        "sft.num_demonstrations=400",
        "sft.epochs=4",
        "sft.batch_size=8",
        "train.steps=3",
        "train.warmup_steps=1",
    ),
    *("eval.episodes=16", "eval.every=3", "engine.use=vllm", "engine.max_model_len=1024"),
    *("engine.extra={enforce_eager: true}", "engine.nodes=1", "name=small"),
]
SILENCE = 20  # seconds, where the run's node is killed


class Nodes:
    """The processes of two nodes, and what they print."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = folder / "runs" / "default" / "small"
        self.config = folder / "config.yaml"
        self._processes: list[subprocess.Popen[bytes]] = []

    def write(self, config: str, *overrides: str) -> None:
        words = [ART, "run", ROOT / "configs" / config, *SMALL, *overrides, "--dry-run"]
        printed = subprocess.run(
            words, cwd=self.folder, capture_output=True, text=True, timeout=600
        )
        self.config.write_text(printed.stdout)

    def start(self, rank: int, *, silence: float = 300, token: str = TOKEN) -> subprocess.Popen:
        """The module as a cluster runs it, each node with a process group of its own."""
        places = {"SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.2", "SKYPILOT_NODE_RANK": str(rank)}
        task = {"SKYPILOT_TASK_ID": self.folder.name, "ART_ENGINE_TOKEN": token}
        if rank == 1 and silence < 300:
            script = f"from art_cli.engines.vllm import host; host.SILENCE = {silence}; host.main()"
            words = ["-c", script, "127.0.0.2", str(port_of(self.folder.name))]
        else:
            words = ["-m", "art_cli.backends.cloud.node", self.config, "--run", "default/small"]
            words += ["--runs-dir", self.folder / "runs", "--engine-nodes", "1"]
        with self.said(rank).open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=self.folder,
                env=os.environ | places | task,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def said(self, rank: int) -> Path:
        return self.folder / f"node-{rank}.log"

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def port_of(task: str) -> int:
    import zlib

    return 20000 + zlib.crc32(task.encode()) % 10000 + 1


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path)
    yield made
    made.close()


def eventually(condition: Callable[[], object], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(0.1)


def children(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True)
    pairs = [tuple(map(int, line.split())) for line in listed.stdout.splitlines()]
    own = [child for child, parent in pairs if parent == pid]
    return own + [c for child in own for c in children(child)]


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("config", ["quickstart.yaml", "quickstart-lora.yaml"])
def test_a_run_samples_on_another_node_whose_server_is_killed(nodes: Nodes, config: str) -> None:
    nodes.write(config)
    host, head = nodes.start(1), nodes.start(0)
    metrics = nodes.run / "metrics.jsonl"

    def has_trained() -> bool:
        assert head.poll() is None, nodes.said(0).read_text()
        return metrics.exists() and "loss/logprob_gap" in metrics.read_text()

    eventually(has_trained, 900, "a step is done")
    guard, server, *_ = children(host.pid)
    os.kill(server, signal.SIGKILL)
    assert head.wait(900) == 0, nodes.said(0).read_text()
    assert host.wait(300) == 0, nodes.said(1).read_text()
    assert "vLLM ended with exit code 137; starting it again" in nodes.said(0).read_text()
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    steps = [row for row in rows if "loss/logprob_gap" in row]
    assert [row["training_step"] for row in steps] == [1, 2, 3]
    assert all(row["loss/logprob_gap"] < 1e-4 for row in steps)
    assert all(row["data/trajectories_failed"] == 0 for row in steps)
    log = (nodes.run / "logs" / "engine-0.log").read_text()
    assert len(set(re.findall(r"APIServer pid=(\d+)", log))) == 2, log  # both lives
    assert TOKEN not in "".join(p.read_text(errors="ignore") for p in nodes.run.rglob("*.*"))
    assert not is_there(guard) and not list(Path("/dev/shm").glob("art-weights-*"))


def test_a_node_that_hears_nothing_more_ends_and_takes_vllm_along(nodes: Nodes) -> None:
    nodes.write("quickstart-lora.yaml", "train.steps=1000")
    host, head = nodes.start(1, silence=SILENCE), nodes.start(0)
    log = nodes.run / "metrics.jsonl"
    eventually(lambda: log.exists() and log.read_text(), 900, "it is under way")
    family = children(host.pid)
    assert len(family) >= 3  # a guard, the server, its engine
    os.killpg(head.pid, signal.SIGKILL)  # the whole node is gone
    killed = time.monotonic()
    assert host.wait(SILENCE + 300) == 1
    assert time.monotonic() - killed > SILENCE / 2
    assert "no request from the run for 20 s" in nodes.said(1).read_text()
    eventually(lambda: not any(map(is_there, family)), 300, "nothing of vLLM is left")


def test_a_run_that_shows_another_token_is_refused(nodes: Nodes) -> None:
    nodes.write("quickstart-lora.yaml")
    nodes.start(1)
    head = nodes.start(0, token="another")
    said = nodes.said(0)
    assert head.wait(900) == 3, said.read_text()
    assert "the engine's node 127.0.0.2: " in said.read_text()
    assert "wrong token" in said.read_text()
