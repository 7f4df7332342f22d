"""Every architecture is computed as transformers computes it, or refused.

Tiny models with random weights (tests/architectures.py) against their own eager forward: what an
update reads of siblings, its gradient, and what the engine reads over three turns and a fork.
"""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path

import pytest
import torch
from architectures import NAMES, chatml_tokenizer, make_architecture
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.engines.embedded.engine import TransformersEngine
from art_cli.errors import UsageError
from art_cli.models.forward.attention import Causal
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
    **dict.fromkeys(("llama4_text", "llama4", "zamba2"), ("nodes", "row")),
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


def test_the_page_of_architectures_says_how_each_is_read() -> None:
    page = (Path(__file__).parents[4] / "docs" / "architectures.md").read_text()
    update = {"a tree, in one forward": "tree", "a tree, node by node": "nodes"}
    engine = {"all rows at once": "batch", "row by row": "row"}
    said = {}
    for row in re.findall(r"^\| .* \|$", page, re.M)[1:]:
        _, names, updates, engines = row.strip("| ").split(" | ")
        ways = update.get(updates, "rows"), engine.get(engines, "anew")
        said |= dict.fromkeys(re.findall(r"`(.+?)`", names), ways)
    assert said == {n: WAYS.get(n, ("tree", "batch")) for n in EVERY if n not in REFUSED}


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


@pytest.mark.parametrize("name", ["qwen3", "gpt_oss", "lfm2", "stablelm", "jamba"])
def test_layers_that_are_run_again_give_the_same_gradient(name: str) -> None:
    """train.gradient_checkpointing, in each way of reading."""
    policy, _ = loaded(name)
    batch = pack(
        [
            TrainSequence(ids=s, mask=[0] + [1] * (len(s) - 1), engine_logprobs=[0.0] * len(s))
            for s in siblings(512)
        ],
        policy.ways.shares,
    )
    found: list[list[Tensor]] = []
    num_kept: list[int] = []
    for policy.recomputes in (False, True):
        policy.base.zero_grad()
        num_kept.append(0)

        def count(x: Tensor) -> Tensor:
            num_kept[-1] += 1
            return x

        with torch.autograd.graph.saved_tensors_hooks(count, lambda x: x):
            loss, _ = Forward(policy, 1.0)(batch, lambda logprobs, rows: -logprobs.sum())
        loss.backward()
        found.append([p.grad for p in policy.trainable if p.grad is not None])
    assert num_kept[1] < num_kept[0] / 2  # else nothing is saved
    for once, again in zip(*found, strict=True):
        assert torch.allclose(once, again, rtol=1e-4, atol=1e-5 * float(once.abs().max()))


def test_dropout_stays_off_while_layers_are_run_again() -> None:
    policy, _ = loaded("opt")
    layers = [m for m in policy.base.modules() if isinstance(m, GradientCheckpointingLayer)]
    seen: list[bool] = []
    for layer in layers:
        layer.register_forward_pre_hook(lambda module, _: seen.append(module.training))
    policy.recomputes = True
    ids = torch.tensor([siblings(512)[0]])
    policy.hidden(ids, torch.arange(ids.shape[1])[None]).sum().backward()
    assert len(seen) >= 2 * len(layers) and not any(seen)
    assert not any(layer.training for layer in layers)


def test_an_argument_of_attention_that_is_not_known_is_an_error() -> None:
    policy, _ = loaded("qwen3")
    ids = torch.tensor([[1, 2, 3]])
    decoder = policy.base.get_decoder()
    for name, value in {"position_bias": torch.zeros(3, 3), "indices": torch.zeros(3)}.items():
        with pytest.raises(UsageError, match=f"attention with {name}, which is not implemented"):
            decoder(input_ids=ids, layout=Causal(), **{name: value})
