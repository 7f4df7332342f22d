"""Every architecture is computed as transformers computes it, or refused.

Tiny models with random weights (tests/architectures.py) against their own eager forward: what an
update reads of siblings, its gradient, and what the engine reads over three turns and a fork.
"""

from __future__ import annotations

import asyncio
import random

import pytest
import torch
from architectures import NAMES, chatml_tokenizer, make_architecture
from torch import Tensor
from transformers import PreTrainedModel

from art_cli.config.schema import EngineConfig, SamplingConfig
from art_cli.engines.embedded.engine import TransformersEngine
from art_cli.errors import UsageError
from art_cli.models.policy import Policy
from art_cli.training.algorithm.packing import TrainSequence, pack
from art_cli.training.trainers.forward import Forward

EVERY = [name for names in NAMES.values() for name in names]
# One of each way of reading; the others are slow tests.
QUICK = ("qwen2:window", "gpt_oss", "gemma2", "deepseek_v3", "qwen3_5_text", "stablelm", "jamba")
# Rope that depends on the longest sequence of a forward: beyond the length that it was made for no
# prefix can be shared, and no cache kept.
REFUSED = {"llama:dynamic", "phi3:longrope"}
# How it is read, where that is not a tree in one forward and one batch of the engine.
WAYS = {
    **dict.fromkeys(("stablelm", "nemotron", "phimoe", "bloom", "falcon", "mpt"), ("nodes", "row")),
    **dict.fromkeys(("llama4_text", "zamba2"), ("nodes", "row")),
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), ("nodes", "batch")),
    **dict.fromkeys(("olmo_hybrid", "kimi_linear", "granitemoehybrid"), ("nodes", "batch")),
    **dict.fromkeys(("nemotron_h", "bamba", "falcon_h1", "mamba2"), ("nodes", "batch")),
    **dict.fromkeys(("lfm2", "lfm2_moe", "qwen3_5", "qwen3_5_moe"), ("nodes", "batch")),
    **dict.fromkeys(("minimax", "jamba", "recurrent_gemma", "falcon_mamba"), ("rows", "anew")),
    "xglm": ("rows", "row"),
}
# |log-probability - transformers'| of any token, and the relative difference of a gradient.
EXACT, GRADIENT = 1e-5, 2e-4
# Recurrences are computed in chunks on one path, token by token on the other; and these families'
# eager and fused attention differ as much.
ROUNDED, ROUNDED_GRADIENT = 5e-5, 1e-3
ROUGH = {"gemma4_text", "gemma4_text:shared", "jetmoe", "minicpm3"}


def each_architecture() -> list[object]:
    slow = pytest.mark.slow
    return [pytest.param(n, marks=[] if n in QUICK else slow) for n in EVERY if n not in REFUSED]


def loaded(name: str) -> tuple[Policy, PreTrainedModel]:
    """Return an architecture as art reads it, and the same by transformers' eager attention."""
    theirs = make_architecture(name)
    theirs.set_attn_implementation("eager")
    return Policy(make_architecture(name), chatml_tokenizer()), theirs


def siblings(vocab: int) -> list[list[int]]:
    """Return sequences that share a prompt, and two of them a turn more; one is alone."""
    rng = random.Random(3)
    draw = lambda n: [rng.randrange(3, vocab) for _ in range(n)]  # noqa: E731
    prompt = draw(40)
    turn = prompt + draw(36)
    return [turn + draw(9), turn + draw(14), prompt + draw(1), prompt + draw(21), draw(30)]


def their_logprobs(model: PreTrainedModel, ids: list[int]) -> Tensor:
    """Return log p of each token but the first."""
    logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()
    return logits[:-1].log_softmax(-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


@pytest.mark.parametrize("name", each_architecture())
def test_an_update_and_the_engine_compute_what_transformers_does(name: str) -> None:
    policy, theirs = loaded(name)
    assert (policy.ways.update, policy.ways.engine) == WAYS.get(name, ("tree", "batch"))
    exact = policy.ways.update == "tree" and name not in ROUGH
    bound = EXACT if exact else 1e-4 if name == "zamba2" else ROUNDED
    check_update(policy, theirs, bound)
    asyncio.run(check_engine(policy, theirs, bound))


def check_update(policy: Policy, theirs: PreTrainedModel, bound: float) -> None:
    ids = siblings(512)
    rng = torch.Generator().manual_seed(0)
    weights = [torch.randn(len(s) - 1, generator=rng) for s in ids]
    expected = [their_logprobs(theirs, s) for s in ids]
    torch.stack([(x * w).sum() for x, w in zip(expected, weights, strict=True)]).sum().backward()

    batch = pack(
        [
            TrainSequence(ids=s, mask=[0] + [1] * (len(s) - 1), engine_logprobs=[0.0] * len(s))
            for s in ids
        ],
        policy.ways.shares,
    )
    total = sum(map(len, ids))
    assert batch.ids.shape[1] == total if not policy.ways.shares else batch.ids.shape[1] < total
    weight = torch.zeros(len(batch.row))
    for i, w in enumerate(weights):
        weight[batch.unit == i] = w  # in order: those of one sequence ascend

    def objective(logprobs: Tensor, rows: slice) -> Tensor:
        return (logprobs[batch.row] * weight).sum()

    loss, logprobs = Forward(policy, 1.0)(batch, objective, by_row=False)
    loss.backward()
    for i, mine in enumerate(expected):
        gap = (logprobs[batch.row][batch.unit == i] - mine.detach()).abs().max()
        assert gap < bound, gap
    check_gradients(policy, theirs)


def check_gradients(policy: Policy, theirs: PreTrainedModel) -> None:
    true = dict(theirs.named_parameters())
    bound = GRADIENT if policy.ways.update == "tree" else ROUNDED_GRADIENT
    norms = [p.grad.norm() for p in true.values() if p.grad is not None]
    rounding = 1e-6 * torch.stack(norms).norm()  # a key's bias has no gradient but that
    for name, p in policy.base.named_parameters():
        want, mine = true[name].grad, p.grad
        if want is None:
            assert mine is None or mine.norm() < rounding, name
            continue
        assert mine is not None, name
        assert (mine - want).norm() < bound * want.norm() + rounding, name


async def check_engine(policy: Policy, theirs: PreTrainedModel, bound: float) -> None:
    """Four episodes of three turns, two of which fork in the second."""
    cfg, sampling = EngineConfig(max_model_len=200), SamplingConfig(max_tokens=7)
    engine = TransformersEngine(policy, cfg, sampling, frozenset())
    rng = random.Random(5)
    draw = lambda n: [rng.randrange(3, 512) for _ in range(n)]  # noqa: E731
    prompt = draw(40)
    seen: list[tuple[list[int], int, list[float]]] = []

    async def play(number: int, ids: list[int], said: list[list[int]]) -> None:
        session = engine.open(number)
        for turn in range(3):
            answer = await session.generate(ids)
            seen.append((ids + answer.token_ids, len(ids), answer.logprobs))
            kept = len(ids) - 4 if turn == 1 and number < 2 else len(ids) + len(answer.token_ids)
            ids = (ids + answer.token_ids)[:kept] + said[turn]
        session.close()

    begins = [prompt + draw(5 * i + 1) for i in range(4)]
    replies = [[draw(6 + i) for _ in range(3)] for i in range(4)]
    await asyncio.gather(*(play(i, begins[i], replies[i]) for i in range(4)))
    await engine.close()
    assert len(seen) == 12
    with torch.no_grad():
        for ids, num, logprobs in seen:
            want = their_logprobs(theirs, ids)[num - 1 :]
            gap = (torch.tensor(logprobs) - want).abs().max()
            assert gap < bound, gap


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_cannot_be_computed_exactly_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"cannot be read exactly here .*off by"):
        Policy(make_architecture(name), chatml_tokenizer())
