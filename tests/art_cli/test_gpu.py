"""The same path on a CUDA device; skipped where there is none."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import random
from pathlib import Path
from typing import Literal

import pytest
import torch
from batches import (
    SAMPLING,
    MakePolicy,
    config,
    distance,
    gradient_of,
    make_groups,
    step,
)
from colours import colours_model

import art_cli as art
from art_cli.models.forward import kv_cache, token_tree
from art_cli.models.forward import tree_attention as flex
from art_cli.models.forward.attention import Look
from art_cli.models.forward.kv_cache import KVCache
from art_cli.models.loading import load_policy
from art_cli.models.policy import Policy
from art_cli.training.algorithm.packing import TrainSequence, pack
from art_cli.training.trainers.distributed.ranks import RanksTrainer
from art_cli.training.trainers.grpo import GRPOTrainer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # Of torch's compiler; and of bitsandbytes, whose quick kernel takes no matrix this small.
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore:inner dimension:UserWarning"),
]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("adapter", [None, art.AdapterConfig(rank=8)])
def test_a_step_on_a_gpu_is_on_policy(
    tmp_path: Path, dtype: str, adapter: art.AdapterConfig | None
) -> None:
    """`train` raises where engine and trainer disagree, and so does the canary of the sync."""
    model = colours_model(0, adapter=adapter)
    on_gpu = dataclasses.replace(model.experiment.model, device="cuda", dtype=dtype)
    model.experiment = dataclasses.replace(model.experiment, model=on_gpu)

    async def go() -> dict[str, float]:
        async with art.LocalBackend(tmp_path) as backend:
            await model.register(backend)
            scenarios = art.scenarios_of(model, "train")[:8]
            return await model.train(await art.gather_trajectory_groups(model, scenarios))

    metrics = asyncio.run(go())
    assert metrics["loss/logprob_gap"] < (1e-4 if dtype == "float32" else 5e-2)


CUDA = torch.device("cuda")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("heads", "kv_heads", "width"), [(4, 2, 64), (16, 8, 128), (8, 8, 64)])
def test_the_fused_kernel_is_right(
    dtype: torch.dtype, heads: int, kv_heads: int, width: int
) -> None:
    assert flex.works(heads, kv_heads, width, dtype, CUDA)


def test_the_fused_kernel_serves_trees_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the layout's own blocks, forward and backward; lengths change from call to call."""
    rng = random.Random(0)
    for num in (40, 300, 77, 1500):
        prompt = [rng.randrange(50) for _ in range(num)]
        rows = [prompt + [rng.randrange(50) for _ in range(n)] for n in (30, 150, 1, num)]
        batch = pack([TrainSequence(ids=r, mask=[0] * len(r), engine_logprobs=[]) for r in rows])
        made = [torch.randn(1, h, batch.ids.shape[1], 64, device=CUDA) for h in (4, 2, 2)]
        results = []
        for fused in (True, False):
            monkeypatch.setattr(token_tree, "works", lambda *_, fused=fused: fused)
            leaves = [x.to(torch.bfloat16).requires_grad_() for x in made]
            o = batch.layout.attend(0, leaves[0], leaves[1], leaves[2], Look(scale=0.125))
            (o.float() ** 2).sum().backward()
            results.append([o, *(x.grad for x in leaves)])
        for a, b in zip(*results, strict=True):
            assert a is not None and b is not None
            assert (a.float() - b.float()).norm() < 2e-2 * b.float().norm()


def test_recomputed_layers_give_the_same_gradient_and_take_less_memory(
    make_policy: MakePolicy,
) -> None:
    gradients, peaks = [], []
    for setting in ("off", "on"):
        policy = make_policy(4)
        policy.model.to(CUDA)
        policy.recompute_layers(setting)
        groups = make_groups_on(policy)
        torch.cuda.reset_peak_memory_stats()
        gradients.append(step(policy, groups)[0])
        peaks.append(torch.cuda.max_memory_allocated())
    assert distance(gradients[1], gradients[0]) < 1e-4
    assert peaks[1] <= peaks[0]


def make_groups_on(policy: Policy) -> list[art.TrajectoryGroup]:
    """Of the same weights on the CPU."""
    policy.model.to("cpu")
    groups = make_groups(policy, noise=0)
    policy.model.to(CUDA)
    return groups


def test_a_step_that_does_not_fit_is_taken_in_smaller_parts(make_policy: MakePolicy) -> None:
    """The card has little memory left for this process."""
    whole = make_policy(4)
    whole.model.to(CUDA)
    groups = make_groups_on(whole)
    for t in (t for g in groups for t in g.trajectories):
        for s in t.sequences:  # long enough to matter
            more = 60 * len(s.ids)
            s.ids += [i % 250 for i in range(more)]
            s.mask += [0] * more
            s.engine_logprobs += [0.0] * more
    gradient, _ = step(whole, groups, microbatch_tokens=2048)
    measured = make_policy(4)
    measured.model.to(CUDA)
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step(measured, groups, microbatch_tokens=10**6)
    takes = torch.cuda.max_memory_allocated() - held
    torch.cuda.empty_cache()
    policy = make_policy(4)
    policy.model.to(CUDA)
    said: list[str] = []
    trainer = GRPOTrainer(policy, config(microbatch_tokens=10**6), SAMPLING, said.append)
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + takes / 2) / total)
    try:
        trainer.step(groups, 0)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert said and trainer.budget.tokens < 10**6
    assert distance(gradient_of(policy.model), gradient) < 1e-3


@pytest.mark.parametrize("rank", [0, 4], ids=["full", "lora"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_steps_are_recorded_and_read_the_same(
    make_policy: MakePolicy, rank: int, dtype: torch.dtype
) -> None:
    policy = make_policy(rank)
    policy.model.to(CUDA)
    policy.base.to(dtype)  # pyright: ignore[reportArgumentType]
    called, recorded = (KVCache(policy, 3, 300, quick=True) for _ in range(2))
    called._replayed = None
    rng, rows = random.Random(0), [0, 1, 2]
    lengths = [200, 250, 120]
    text = [[rng.randrange(50) for _ in range(n)] for n in lengths]
    for cache in (called, recorded):
        for row in rows:
            cache.read([row], [text[row]], [0], None)
    for i in range(10):  # keys beyond 256, so that there are two recordings
        tokens, starts = [[rng.randrange(50)] for _ in rows], [n + i for n in lengths]
        mine, true = (c.read(rows, tokens, starts, None).clone() for c in (recorded, called))
        assert distance(mine, true) < (1e-5 if dtype == torch.float32 else 2e-2)
    replayed = recorded._replayed
    assert replayed and len(replayed._known) == 2 and all(replayed._known.values())


def test_an_engine_samples_what_it_would_without_recordings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole episodes, whose rows come and go."""

    def sampled(name: str) -> list[list[int]]:
        model = colours_model(0)
        on_gpu = dataclasses.replace(model.experiment.model, device="cuda", dtype="float32")
        model.experiment = dataclasses.replace(model.experiment, model=on_gpu)

        async def go() -> list[list[int]]:
            async with art.LocalBackend(tmp_path / name) as backend:
                await model.register(backend)
                scenarios = art.scenarios_of(model, "train")[:8]
                groups = await art.gather_trajectory_groups(model, scenarios)
                return [s.ids for g in groups for t in g.trajectories for s in t.sequences]

        return asyncio.run(go())

    with_recordings = sampled("recorded")
    monkeypatch.setattr(kv_cache, "can_be_recorded", lambda _: False)
    assert sampled("called") == with_recordings


@pytest.mark.parametrize("bits", ["4bit", "8bit"])
def test_an_adapter_on_a_quantized_base_learns_and_the_base_stays(
    make_policy: MakePolicy, tmp_path: Path, bits: Literal["4bit", "8bit"]
) -> None:
    pytest.importorskip("bitsandbytes")
    make_policy().save(tmp_path)
    policy = load_policy(art.ModelConfig(base=str(tmp_path), quantize=bits), [], 0)
    policy.add_adapter(art.AdapterConfig(rank=4), 0)
    ids = torch.arange(40, device=CUDA)[None]
    before = policy.hidden(ids, ids).detach()
    assert all(p.dtype == torch.float32 for p in policy.trainable)
    assert policy.dtype == torch.bfloat16
    policy.hidden(ids, ids).float().sum().backward()
    assert all(p.grad is not None for p in policy.trainable)
    for p in policy.trainable:
        p.data += 0.1
    assert not torch.equal(policy.hidden(ids, ids), before)
    with policy.model.disable_adapter():  # type: ignore[operator]
        assert torch.equal(policy.hidden(ids, ids), before)


def test_the_8_bit_optimizer_goes_on_from_a_checkpoint(
    make_policy: MakePolicy, tmp_path: Path
) -> None:
    pytest.importorskip("bitsandbytes")
    policy = make_policy()
    policy.model.to(CUDA)
    cfg = config(optimizer="adamw_8bit")
    trainer = GRPOTrainer(policy, cfg, SAMPLING)
    trainer.step(make_groups_on(policy), 0)
    trainer.save(tmp_path / "optimizer.pt")
    again = GRPOTrainer(Policy(copy.deepcopy(policy.base), policy.tokenizer), cfg, SAMPLING)
    again.load(tmp_path / "optimizer.pt")
    groups = make_groups_on(policy)
    for one in (trainer, again):
        one.step(groups, 1)
    pairs = zip(policy.trainable, again._policy.trainable, strict=True)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in pairs)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize("rank", [0, 4], ids=["full", "lora"])
def test_two_gpus_do_what_one_does(make_policy: MakePolicy, tmp_path: Path, rank: int) -> None:
    alone, together = make_policy(rank), make_policy(rank)
    groups = make_groups(alone, noise=0)
    for policy in (alone, together):
        policy.model.to(CUDA)
    cfg = config(num_processes=2, microbatch_tokens=200, learning_rate=1e-4)
    one = GRPOTrainer(alone, cfg, SAMPLING)
    adapter = art.AdapterConfig(rank=rank, alpha=2 * rank) if rank else None
    two = RanksTrainer(together, "cuda", adapter, cfg, SAMPLING, tmp_path)
    try:
        for i in range(3):
            mine, theirs = two.step(groups, i), one.step(groups, i)
            assert mine == pytest.approx(theirs, rel=1e-2, abs=1e-4)
    finally:
        two.close()
    pairs = zip(alone.trainable, together.trainable, strict=True)
    assert max(float((a - b).detach().abs().max()) for a, b in pairs) < 1e-4
