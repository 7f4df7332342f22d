"""Servers of vLLM under weights that change, and when something goes wrong with them."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_contract import PROMPTS, SHARED, Start, assert_exact, play
from vllm_servers import EXTRA

from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.engines.vllm.engine import VLLMEngine
from art_cli.errors import EngineError, PreflightError
from art_cli.models.policy import Policy
from art_cli.training.canary import Canary
from art_cli.training.trainers.grpo import GRPOTrainer
from art_cli.types import Sequence

SAMPLING = SamplingConfig(max_tokens=24)
MakePolicy = Callable[..., Policy]


def change(policy: Policy, by: float = 0.05) -> None:
    for p in policy.trainable:
        p.data += by * torch.randn_like(p)


def canary_of(policy: Policy) -> Canary:
    trainer = GRPOTrainer(policy, TrainConfig(steps=1), SAMPLING)
    return Canary(policy, trainer, SAMPLING, 1024)


@pytest.fixture
def saved_policy(make_policy: MakePolicy, tmp_path: Path) -> MakePolicy:
    """As make_policy, with the base in a folder that a server of its own can load."""

    def make(rank: int = 0) -> Policy:
        folder = tmp_path / "base"
        make_policy().save(folder)
        policy = make_policy(rank)
        policy.base.name_or_path = str(folder)
        return policy

    return make


def test_thirty_syncs_under_load_each_proven_by_the_canary(
    start: Start, make_policy: MakePolicy
) -> None:
    policy = make_policy(rank=4)
    engine = start(policy, max_tokens=24)
    canary = canary_of(policy)
    played = [asyncio.Event() for _ in range(31)]  # by version: whether a turn was sampled from it

    async def player(i: int) -> list[int]:
        versions: list[int] = []
        while not played[30].is_set():
            session = engine.open(i)
            done = await session.generate(PROMPTS["some_share_one"][i % 12])
            versions.append(done.policy_version)
            played[done.policy_version].set()
        return versions

    async def trainer() -> None:
        for version in range(1, 31):
            change(policy, 0.01)
            await engine.sync(version)
            await canary.check(engine, version)
            await played[version].wait()

    async def both() -> list[Any]:
        return await asyncio.gather(*(player(i) for i in range(16)), trainer())

    *players, _ = asyncio.run(asyncio.wait_for(both(), 900))
    assert all(versions == sorted(versions) for versions in players)


@pytest.mark.parametrize("sync", ["merged", "auto"])
def test_an_adapter_may_be_merged_and_served_beside_the_base_again(
    start: Start, make_policy: MakePolicy, monkeypatch: pytest.MonkeyPatch, sync: str
) -> None:
    monkeypatch.setattr("art_cli.engines.vllm.engine.LEAST_TOKENS", 10)
    policy = make_policy(rank=4)
    engine: Any = start(policy, max_tokens=8, sync=sync)
    ways = set()
    for version in range(1, 6):
        change(policy)
        asyncio.run(engine.sync(version))
        ways.add(engine._choice.way)
        assert_exact(policy, play(engine, PROMPTS["a_shared_prefix"]))
    assert ways == ({"merged"} if sync == "merged" else {"adapter", "merged"})
    engine._choice.way = "adapter"  # whatever was quicker: the way back must be there
    change(policy)
    asyncio.run(engine.sync(6))
    assert_exact(policy, play(engine, PROMPTS["a_shared_prefix"]))


@pytest.mark.parametrize("rank", [0, 4])
def test_the_canary_finds_weights_that_were_not_delivered(
    start: Start, make_policy: MakePolicy, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    policy = make_policy(rank=rank)
    engine: Any = start(policy, max_tokens=8)
    canary = canary_of(policy)
    asyncio.run(canary.check(engine, 0))
    change(policy)  # nor is any embedding zero now: behind a norm, such a one is all noise
    asyncio.run(engine.sync(1))
    asyncio.run(canary.check(engine, 1))

    monkeypatch.setattr(
        Policy, "save_weights", lambda p, folder: shutil.copytree(old, folder, dirs_exist_ok=True)
    )
    old = engine._weights.with_name("old")
    shutil.copytree(engine._weights, old)
    change(policy, 1e-4)  # far less than any bound on log-probabilities
    asyncio.run(engine.sync(2))
    with pytest.raises(EngineError, match=r"after the sync to version 2 .* to the bit"):
        asyncio.run(canary.check(engine, 2))


def test_the_canary_finds_an_adapter_that_was_loaded_under_the_old_name(
    start: Start, make_policy: MakePolicy
) -> None:
    """vLLM's prefix cache goes by the name: keys and values of the old weights stay in use."""
    policy = make_policy(rank=4)
    engine: Any = start(policy, max_tokens=8)
    canary = canary_of(policy)
    asyncio.run(canary.check(engine, 0))
    change(policy, 0.2)
    policy.save_weights(engine._weights)
    body = {
        "lora_name": engine._weights.name,
        "lora_path": str(engine._weights),
        "load_inplace": True,
    }
    [replica] = engine._replicas
    asyncio.run(engine._post(replica, "/v1/load_lora_adapter", body))
    engine._versions[engine._weights.name] = 1
    with pytest.raises(EngineError, match=r"after the sync to version 1 .* differ by"):
        asyncio.run(canary.check(engine, 1))


def test_a_server_that_is_killed_in_the_middle_loses_nothing(
    saved_policy: MakePolicy, tmp_path: Path
) -> None:
    policy = saved_policy(rank=4)
    cfg = EngineConfig(use="vllm", max_model_len=1024, extra=EXTRA)
    told: list[str] = []

    async def run() -> tuple[list[Any], list[Any]]:
        engine = await VLLMEngine.start(
            policy,
            cfg,
            SAMPLING,
            frozenset(),
            logs=tmp_path,
            say=told.append,
        )
        try:
            change(policy)
            await engine.sync(1)

            async def episode(i: int) -> Sequence:
                sequence = Sequence()
                sequence.extend_prompt(SHARED[: 4 + i])
                session = engine.open(i)
                for _ in range(4):
                    sequence.extend_sampled(await session.generate(list(sequence.ids)))
                return sequence

            undisturbed = await asyncio.gather(*(episode(i) for i in range(8)))
            jobs = [asyncio.ensure_future(episode(i)) for i in range(8)]
            await asyncio.sleep(0.05)
            server = engine._replicas[0].server
            assert server and not any(job.done() for job in jobs)
            kill_children(server._process.pid)
            return list(undisturbed), list(await asyncio.gather(*jobs))
        finally:
            await engine.close()

    undisturbed, disturbed = asyncio.run(asyncio.wait_for(run(), 900))
    assert [s.ids for s in disturbed] == [s.ids for s in undisturbed]
    assert_exact(policy, disturbed)
    assert any("vLLM ended with exit code 137; starting it again" in text for text in told)


def test_it_ends_without_an_orphan_when_the_run_is_killed(
    saved_policy: MakePolicy, tmp_path: Path
) -> None:
    script = f"""
import asyncio
from pathlib import Path
from art_cli.config.sections.engine import EngineConfig
from art_cli.engines.vllm import server as vllm_server
from art_cli.models.loading import load_policy
from art_cli.config.sections.model import ModelConfig
async def hold():
    base = {str(tmp_path / "base")!r}
    policy = load_policy(ModelConfig(base=base, adapter=None), [], 0)
    cfg = EngineConfig(use="vllm", max_model_len=256, extra={EXTRA})
    options = vllm_server.options_of(policy, cfg)
    server = await vllm_server.start(options, [0], Path({str(tmp_path / "log")!r}))
    print(server._process.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(hold())
"""
    saved_policy()
    holder = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert holder.stdout
    guard = int(holder.stdout.readline())
    family = [guard, *children(guard)]
    assert len(family) >= 3  # the guard, the server, its engine
    holder.send_signal(signal.SIGKILL)
    holder.communicate(timeout=300)
    deadline = time.monotonic() + 300
    while any(map(is_there, family)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_there, family))


def test_a_server_that_dies_at_its_start_shows_its_last_lines(
    saved_policy: MakePolicy, tmp_path: Path
) -> None:
    policy = saved_policy()
    cfg = EngineConfig(use="vllm", max_model_len=256, extra={"kv_cache_dtype": "nonsense"})
    with pytest.raises(PreflightError, match=r"(?s)ended with exit code \d.*nonsense"):
        asyncio.run(VLLMEngine.start(policy, cfg, SAMPLING, frozenset(), logs=tmp_path))


def children(pid: int) -> list[int]:
    listed = subprocess.run(
        ["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True
    ).stdout.split()[2:]
    pairs = list(zip(map(int, listed[::2]), map(int, listed[1::2]), strict=True))
    own = [child for child, parent in pairs if parent == pid]
    return own + [c for child in own for c in children(child)]


def kill_children(guard: int) -> None:
    """The server alone, without a chance to tell its engine."""
    [server, *_] = children(guard)
    os.kill(server, signal.SIGKILL)


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
