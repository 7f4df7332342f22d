"""Faults of every kind, all the while, from env, program and judge; nothing is lost, nothing grows.

Two runs side by side, each of 64 episodes at once: one that plays turn by turn, and one of programs
that talk to the gateway. Then episodes of an env in an interpreter of its own (`env.python`), 24 at
once, of which every third is cancelled, at once or later. ART_SOAK_MINUTES says for how long each
of the two tests goes on (a quarter of a minute, unless given).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import signal
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hostile import worker_env
from hostile.env import FAILING, PATIENCE, kind_of
from loopback_judge import Answer, Ask, LoopbackJudge, dying, refused, says, scored
from short_run import Art, at_work_in

from art_cli.rollout.agent import TurnAgent
from art_cli.rollout.env_class import env_in
from art_cli.rollout.env_worker.process import WorkerProcess
from art_cli.rollout.rollout import rollout
from art_cli.types import Message, Scenario, Trajectory

HOSTILE = Path(__file__).parents[1] / "hostile"
MINUTES = float(os.environ.get("ART_SOAK_MINUTES", "0.25"))
SAMPLE = 2.0  # seconds between two looks at the processes
SETTLED = 0.4  # of the time, from which on nothing may grow
CONFIG = """
project: test
name: short
env: {{use: "{env}:Hostile"}}
agent: {agent}
model: {{base: tiny, adapter: null, tiny: {{hidden_size: 32, num_layers: 1, vocab_size: 300}}}}
sft: {{num_demonstrations: 100}}
engine: {{max_model_len: 512}}
sampling: {{max_tokens: 8}}
judge: {{model: "{model}", api_base: "{api_base}", retries: 1, on_failure: env, cache: false}}
reward: {{env: 1.0, judge: 0.5}}
train: {{steps: 1000000, scenarios_per_step: 8, group_size: 8, learning_rate: 1.0e-5}}
eval: {{every: 20, episodes: 16}}
checkpoint: {{every: 10, keep: 2}}
"""
BUILTIN = "{use: builtin}"
PROGRAM = "{{use: program, command: [sh, -c, '{command}; true'], concurrency: 64}}"
DEEP = "[" * 900 + "]" * 900
WRONG = (
    *(refused(500), refused(400), dying),
    *(says(t) for t in ("", "<html>", "[]", "\ud800", DEEP, '{"scores": ' + DEEP + "}")),
    scored(lambda _: float("1e999")),
    scored(change=lambda found: [*found, *found]),
    says('{"scores": [{"trajectory_id": "1", "score": ' + "9" * 5000 + "}]}"),
)
pytestmark = pytest.mark.timeout(0)  # it lasts as long as it is told to


def test_nothing_is_lost_and_nothing_grows(tmp_path: Path) -> None:
    with LoopbackJudge(then=sometimes_wrong(random.Random(0))) as judge:
        plain = start(tmp_path / "plain", BUILTIN, judge)
        # Behind a shell that outlives it, so that its end is the shell's.
        command = f"{sys.executable} -I -S {HOSTILE / 'agent.py'}"
        hosted = start(tmp_path / "hosted", PROGRAM.format(command=command), judge)
        seen = watch([plain, hosted])
        for art in (plain, hosted):
            art.signal(signal.SIGINT)
        codes = [art.wait(10 * PATIENCE) for art in (plain, hosted)]
    assert codes == [130, 130], plain.output + hosted.output
    check_episodes(plain)
    check_episodes(hosted)
    for art, samples in zip((plain, hosted), seen, strict=True):
        check_flat(art.folder.name, samples)
        assert "Traceback" not in art.output, art.output
        assert list((art.folder / "tmp").glob("art-*")) == []  # no folder of an episode
    assert at_work_in(tmp_path) == []


def sometimes_wrong(rng: random.Random) -> Any:
    """A judge of whose answers a quarter cannot be used."""
    good = scored()

    def answer(ask: Ask) -> Answer:
        wrong = not ask.is_first_question and rng.random() < 0.25
        return (rng.choice(WRONG) if wrong else good)(ask)

    return answer


def start(folder: Path, agent: str, judge: LoopbackJudge) -> Art:
    (folder / "tmp").mkdir(parents=True)
    config = CONFIG.format(
        env=HOSTILE / "env.py", agent=agent, model=judge.model, api_base=judge.api_base
    )
    (folder / "config.yaml").write_text(config)
    return Art(folder, "config.yaml", env={"TMPDIR": str(folder / "tmp")})


def watch(arts: list[Art]) -> list[list[dict[str, int]]]:
    """What the runs hold, every so often, until the time is over."""
    seen: list[list[dict[str, int]]] = [[] for _ in arts]
    begins = time.monotonic() + 600
    while not all(art.run.metrics.exists() and art.run.trajectory_steps("train") for art in arts):
        assert all(art.is_alive() for art in arts), "".join(art.output for art in arts)
        assert time.monotonic() < begins, "no first step"
        time.sleep(SAMPLE)
    end = time.monotonic() + 60 * MINUTES
    while time.monotonic() < end:
        for art, samples in zip(arts, seen, strict=True):
            assert art.is_alive(), art.output
            samples.append(held(art.pid))
        time.sleep(SAMPLE)
    return seen


def held(pid: int) -> dict[str, int]:
    """Memory in MB, threads and descriptors of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    return {
        "memory": int(fields["VmRSS"].split()[0]) // 1024,
        "threads": int(fields["Threads"]),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
    }


def check_flat(name: str, samples: list[dict[str, int]]) -> None:
    """The last of the samples are as high as those in the middle, once there are enough of them."""
    settled = samples[int(SETTLED * len(samples)) :]
    half = len(settled) // 2
    for what, allowed in (("memory", 40), ("threads", 40), ("descriptors", 60)):
        before = statistics.median(s[what] for s in settled[:half])
        after = statistics.median(s[what] for s in settled[half:])
        print(f"{name}: {what} {before:g} -> {after:g}, at most {max(s[what] for s in samples)}")
        if MINUTES >= 5:  # else it has hardly begun
            assert after <= before + allowed, f"{name}: {what} {before:g} -> {after:g}"


def check_episodes(art: Art) -> None:
    """Each step has all of its episodes; those failed that had to, and no others."""
    steps = [row["training_step"] for row in art.run.read_metrics() if "data/groups" in row]
    assert steps == list(range(1, len(steps) + 1))
    failed: Counter[str] = Counter()
    played: Counter[str] = Counter()
    for step in steps:
        rows = art.run.read_trajectories(step, "train")
        assert len(rows) == 64
        for row in rows:
            kind = kind_of(row["seed"])
            played[kind] += 1
            failed[kind] += row["reward"] is None
            assert (row["reward"] is None) == (kind in FAILING), (step, kind, row["error"])
            json.dumps(row, ensure_ascii=False).encode()  # no lone surrogate
    print(f"{art.folder.name}: {len(steps)} steps, {played.total()} episodes, {dict(failed)}")
    assert played["nothing"]


GO = '<tool_call>{"name": "go", "arguments": {}}</tool_call>'


class Calls(TurnAgent):
    """Calls the tool three times."""

    num_said = 0

    async def act(self, messages: list[Message]) -> str:
        self.num_said += 1
        await asyncio.sleep(0)
        return (
            "done"
            if self.num_said > 3
            else '<tool_call>{"name": "go", "arguments": {}}</tool_call>'
        )

    def record(self, trajectory: Trajectory) -> None: ...


def test_processes_of_envs_outlive_every_fault_and_cancellation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # its processes are found by this
    env: Any = env_in(f"{HOSTILE / 'worker_env.py'}:Faulty", sys.executable)
    why_ended: list[str] = []
    kill = WorkerProcess._kill

    def ended(process: WorkerProcess, why: str) -> None:
        why_ended.append(why)
        kill(process, why)

    monkeypatch.setattr(WorkerProcess, "_kill", ended)
    played, samples = asyncio.run(play_for(60 * MINUTES, env))
    env.worker.close()
    failed = {kind for kind, reward in played if reward is None}
    print(f"{len(played)} episodes, {dict(Counter(kind for kind, _ in played))}")
    assert failed <= set(worker_env.FAILING) and len(played) > len(failed)
    assert all("no line of the protocol" in why or why == "was closed" for why in why_ended)
    check_flat("workers", samples)
    monkeypatch.undo()
    assert at_work_in(tmp_path) == []


async def play_for(
    seconds: float, env: Any
) -> tuple[list[tuple[str, float | None]], list[dict[str, int]]]:
    """Play episodes side by side; return what came of those that were not cancelled."""
    played: list[tuple[str, float | None]] = []
    samples: list[dict[str, int]] = []
    rng, seeds, end = random.Random(0), itertools.count(), time.monotonic() + seconds

    async def player() -> None:
        while time.monotonic() < end:
            seed = next(seeds)
            scenario = Scenario(id=f"train-{seed}", split="train", seed=seed)
            episode = asyncio.ensure_future(rollout(env, env.Config(), scenario, Calls()))
            if rng.random() < 1 / 3:
                for _ in range(rng.randrange(8)):
                    await asyncio.sleep(0)
                if rng.random() < 0.5:
                    await asyncio.sleep(rng.random() / 10)
                episode.cancel()
                await asyncio.wait({episode})
                continue
            t, kind = await episode, worker_env.kind_of(seed)
            wanted = None if kind in worker_env.FAILING else worker_env.reward_of(seed)
            assert t.reward == wanted, (kind, t.reward, t.error)
            played.append((kind, t.reward))

    async def watch() -> None:
        while time.monotonic() < end:
            samples.append(held(os.getpid()))
            await asyncio.sleep(SAMPLE / 4)

    async with asyncio.TaskGroup() as group:
        for _ in range(24):
            group.create_task(player())
        group.create_task(watch())
    return played, samples
