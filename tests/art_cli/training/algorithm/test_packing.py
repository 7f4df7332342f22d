from __future__ import annotations

import copy
import itertools
import random
from typing import Any

import pytest
import torch
from cases import slow_but
from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from art_cli.models.policy import Policy
from art_cli.training.algorithm import packing as pack
from art_cli.training.algorithm.packing import (
    Masks,
    Microbatch,
    TrainSequence,
    num_packed,
    partition,
)

SIZE: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.2,
    "max_position_embeddings": 512,
}
MODELS = {
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**SIZE, head_dim=16)),
    "llama": (LlamaForCausalLM, LlamaConfig(**SIZE, attention_bias=True)),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**SIZE, tie_word_embeddings=True)),
}
RNG = random.Random(0)


def ids(num: int) -> list[int]:
    return [RNG.randrange(50) for _ in range(num)]


A, B, C = ids(80), ids(80), ids(30)
SHAPES = {
    "one": [ids(30)],
    "nothing_shared": [ids(20), ids(35), ids(20)],
    "a_prompt": [A + ids(10), A + ids(25), A + ids(3)],
    "identical": [A + C, A + C, A + C],
    "one_is_a_prefix": [A, A + B, A + B + C],
    "nested": [A + B + ids(9), A + B + ids(5), A + ids(40), A + ids(7), ids(15), ids(90)],
    "two_groups": [A + ids(9), A + ids(9), B + ids(70), B + ids(70), B + A[:3], B],
    "too_little_shared": [C[:20] + ids(9), C[:20] + ids(9), C[:20] + ids(30)],
    "very_unequal": [A + ids(1), A + ids(250), *(A + ids(2) for _ in range(9))],
}


def sequences(rows: list[list[int]]) -> list[TrainSequence]:
    """Every third token was not sampled, nor was the first; each has its own advantage."""
    return [
        TrainSequence(
            ids=row,
            mask=[int(t > 0 and t % 3 != i % 3) for t in range(len(row))],
            engine_logprobs=[-0.01 * t for t in range(len(row))],
            advantages=1.0 + i,
            weight=0.1,
        )
        for i, row in enumerate(rows)
    ]


@pytest.fixture(params=MODELS)
def models(request: pytest.FixtureRequest, make_policy: Any) -> tuple[Policy, Any]:
    """A policy, and transformers' own model with the same weights."""
    kind, config = MODELS[request.param]
    torch.manual_seed(0)
    model = kind(copy.deepcopy(config)).eval()
    own = copy.deepcopy(model)
    own.set_attn_implementation("sdpa")
    return Policy(model, make_policy().tokenizer), own


def packed_logprobs(policy: Policy, batch: Microbatch) -> tuple[Tensor, Tensor]:
    """-> (hidden states that predict [S, D], log-probability of each sampled token [T])"""
    hidden = policy.hidden(batch.ids, batch.positions, batch.layout, batch.hidden_at)
    logprobs = policy.head.logits(hidden).log_softmax(-1)
    return hidden, logprobs.gather(1, batch.targets[:, None])[:, 0][batch.row]


def plain_logprobs(model: Any, s: TrainSequence) -> Tensor:
    """Log-probabilities of the sampled tokens of one sequence, by transformers alone."""
    logprobs = model(input_ids=torch.tensor([s.ids])).logits[0, :-1].log_softmax(-1)
    chosen = logprobs.gather(1, torch.tensor(s.ids[1:])[:, None])[:, 0]
    return chosen[torch.tensor(s.mask[1:]).bool()]


def in_order(batch: Microbatch, values: Tensor, num: int) -> list[Tensor]:
    """[T] of a microbatch, by sequence."""
    return [values[batch.unit == i] for i in range(num)]


@pytest.mark.parametrize("shape", SHAPES)
def test_packed_is_the_same_as_one_sequence_at_a_time(models: Any, shape: str) -> None:
    policy, own = models
    rows = sequences(SHAPES[shape])
    batch = pack.pack(rows)
    _, logprobs = packed_logprobs(policy, batch)
    for s, mine in zip(rows, in_order(batch, logprobs, len(rows)), strict=True):
        assert torch.allclose(mine, plain_logprobs(own, s), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", slow_but(("nested",), SHAPES))
def test_gradients_of_packed_are_those_of_one_sequence_at_a_time(models: Any, shape: str) -> None:
    """The shared tokens collect what all who descend from them send back."""
    policy, own = models
    rows = sequences(SHAPES[shape])
    batch = pack.pack(rows)
    _, logprobs = packed_logprobs(policy, batch)
    (logprobs * batch.advantages * torch.exp(batch.engine_logprobs)).sum().backward()
    for s in rows:
        engine = torch.tensor([e for e, m in zip(s.engine_logprobs, s.mask, strict=True) if m])
        (plain_logprobs(own, s) * s.advantages * torch.exp(engine)).sum().backward()
    for mine, true in zip(policy.base.parameters(), own.parameters(), strict=True):
        assert mine.grad is not None and true.grad is not None
        assert (mine.grad - true.grad).norm() <= 2e-6 * true.grad.norm() + 1e-6


@pytest.mark.parametrize("shape", SHAPES)
def test_a_state_is_the_same_whether_all_are_asked_for_or_some(models: Any, shape: str) -> None:
    policy, _ = models
    batch = pack.pack(sequences(SHAPES[shape]))
    everything = policy.hidden(batch.ids, batch.positions, batch.layout)[0]
    for wanted in (batch.hidden_at, batch.hidden_at[-1:], torch.arange(len(everything))):
        some = policy.hidden(batch.ids, batch.positions, batch.layout, wanted)
        assert torch.allclose(some, everything[wanted], rtol=1e-5, atol=1e-5)


def test_hidden_states_of_the_tree_are_the_plain_ones(models: Any) -> None:
    policy, own = models
    rows = sequences(SHAPES["nested"])
    batch = pack.pack(rows)
    hidden, _ = packed_logprobs(policy, batch)
    for i, s in enumerate(rows):
        plain = own.model(input_ids=torch.tensor([s.ids])).last_hidden_state[0]
        mine = hidden[batch.row[batch.unit == i]]
        at = [t - 1 for t, m in enumerate(s.mask) if m]
        assert torch.allclose(mine, plain[at], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("rows", "tokens"),
    [
        ([A + C, A + C, A + C], 110),  # identical: once
        ([A, A + B, A + B + C], 190),  # each the other's prefix: the longest alone
        ([A + C, A + B], 190),  # a shared prompt
        ([C + A, C + B], 220),  # 30 tokens shared by two are not worth a split
        ([C + A, C + B, C + B, C], 30 + 80 + 80),  # by four, they are
        ([A, B], 160),
    ],
)
def test_what_is_shared_is_computed_once(rows: list[list[int]], tokens: int) -> None:
    assert num_packed(rows) == tokens
    assert pack.pack(sequences(rows)).ids.shape == (1, tokens)


def test_a_sampled_token_shared_by_two_gets_the_gradient_of_both(models: Any) -> None:
    policy, own = models
    shared = TrainSequence(ids=A, mask=[0] * 70 + [1] * 10, engine_logprobs=[0.0] * 80)
    rows = [copy.copy(shared), copy.copy(shared)]
    rows[0].advantages, rows[1].advantages = 2.0, -0.5
    batch = pack.pack(rows)
    assert len(batch.targets) == 10 and len(batch.row) == 20
    _, logprobs = packed_logprobs(policy, batch)
    (logprobs * batch.advantages).sum().backward()
    (plain_logprobs(own, shared) * 1.5).sum().backward()
    for mine, true in zip(policy.base.parameters(), own.parameters(), strict=True):
        assert mine.grad is not None and true.grad is not None
        assert (mine.grad - true.grad).norm() <= 2e-6 * true.grad.norm() + 1e-6


def test_one_prompt_with_two_next_tokens_predicts_both() -> None:
    """Siblings that differ in their first sampled token share the state that predicts it."""
    rows = [
        TrainSequence(ids=[*A, x], mask=[0] * 80 + [1], engine_logprobs=[0.0] * 81, advantages=x)
        for x in (3, 7)
    ]
    batch = pack.pack(rows)
    assert batch.hidden_at[0] == batch.hidden_at[1] and batch.targets.tolist() == [3, 7]
    assert batch.advantages.tolist() == [3.0, 7.0]


def test_a_microbatch_of_two_siblings_by_hand() -> None:
    """After the prompt both said 5, one of them under a grammar; then 6 and 7. An own advantage
    for each token of the first, one for all of the second."""
    rows = [
        TrainSequence(
            ids=[*A, 5, 6, 9],
            mask=[0] * 80 + [1, 1, 0],
            engine_logprobs=[0.0] * 80 + [-0.1, -0.2, 0.0],
            advantages=[0.0] * 80 + [1.0, 2.0, 0.0],
            weight=0.5,
        ),
        TrainSequence(
            ids=[*A, 5, 7],
            mask=[0] * 80 + [1, 1],
            engine_logprobs=[0.0] * 80 + [-0.3, -0.4],
            advantages=-1.0,
            weight=0.25,
        ),
    ]
    bits = torch.zeros(3, 2, dtype=torch.int32)
    batch = pack.pack(rows, masks=Masks(bits, [{}, {80: 2}]))
    assert batch.ids.tolist() == [[*A, 5, 6, 9, 7]]
    assert batch.positions.tolist() == [[*range(83), 81]]
    assert batch.hidden_at.tolist() == [79, 79, 80, 80]
    assert batch.targets.tolist() == [5, 5, 6, 7]
    assert batch.row.tolist() == [0, 1, 2, 3] and batch.unit.tolist() == [0, 1, 0, 1]
    assert torch.equal(batch.engine_logprobs, torch.tensor([-0.1, -0.3, -0.2, -0.4]))
    assert batch.advantages.tolist() == [1.0, -1.0, 2.0, -1.0]
    assert batch.weights.tolist() == [0.5, 0.25, 0.5, 0.25]
    assert batch.repeats.tolist() == [2] * 81 + [1] * 3
    assert batch.allowed is not None
    assert batch.allowed.which.tolist() == [1] and batch.allowed.mask.tolist() == [2]


def test_every_sampled_token_keeps_its_own_numbers() -> None:
    rows = sequences(SHAPES["nested"])
    batch = pack.pack(rows)
    assert batch.row.tolist() == sorted(batch.row.tolist())
    for i, s in enumerate(rows):
        mine = batch.unit == i
        assert set(batch.advantages[mine].tolist()) == {s.advantages}
        wanted = [t for t, m in enumerate(s.mask) if m]
        assert sorted(batch.engine_logprobs[mine].tolist()) == pytest.approx(
            sorted(s.engine_logprobs[t] for t in wanted)
        )
        got = batch.targets[batch.row[mine]].tolist()
        assert sorted(got) == sorted(s.ids[t] for t in wanted)


def grouped(seed: int) -> list[list[TrainSequence]]:
    """Groups of siblings of random sizes, each sequence marked by its advantage."""
    rng, number = random.Random(seed), itertools.count()
    groups = []
    for _ in range(6):
        prompt = [rng.randrange(50) for _ in range(rng.randrange(1, 120))]
        rows = [prompt + [rng.randrange(50)] * rng.randrange(1, 90) for _ in range(5)]
        group = sequences(rows)
        for s in group:
            s.advantages = float(next(number))
        groups.append(group)
    return groups


@pytest.mark.parametrize("budget", [64, 150, 400, 1000, 10**6])
def test_microbatches_keep_the_budget_and_lose_and_split_nothing(budget: int) -> None:
    for seed in range(5):
        groups = grouped(seed)
        batches = [pack.pack(p) for p in partition(groups, budget)]
        longest = max(len(s.ids) for group in groups for s in group)
        assert all(b.ids.shape[1] <= max(budget, longest) for b in batches)
        found = [a for b in batches for a in sorted(set(b.advantages.tolist()))]
        assert found == [float(i) for i in range(30)]
        assert sum(len(b.row) for b in batches) == sum(sum(s.mask) for g in groups for s in g)


def test_a_group_stays_together_where_it_fits() -> None:
    groups = grouped(0)
    sizes = [num_packed([s.ids for s in group]) for group in groups]
    batches = [pack.pack(p) for p in partition(groups, max(sizes))]
    of = {a: i for i, b in enumerate(batches) for a in b.advantages.tolist()}
    assert len(batches) > 1
    for group in groups:
        assert len({of[s.advantages] for s in group}) == 1


@pytest.mark.parametrize("budget", [64, 150])
def test_a_trajectory_with_one_ratio_stays_in_one_microbatch(budget: int) -> None:
    """Of the five sequences of a group, the first two and the next two are of one trajectory."""
    for seed in range(5):
        groups = grouped(seed)
        for i, group in enumerate(groups):
            for s, of in zip(group, (0, 0, 1, 1, 2), strict=True):
                s.trajectory = 3 * i + of
        batches = [pack.pack(p) for p in partition(groups, budget)]
        assert len(batches) > len(groups)  # groups were split
        found = [
            set(b.advantages[b.unit == unit].tolist())
            for b in batches
            for unit in sorted(set(b.unit.tolist()))
        ]
        assert found == [s for i in range(0, 30, 5) for s in ({i, i + 1}, {i + 2, i + 3}, {i + 4})]


def test_a_sequence_longer_than_the_budget_gets_its_own_microbatch() -> None:
    batches = [pack.pack(p) for p in partition([sequences([ids(10), ids(500), ids(10)])], 100)]
    assert sorted(b.ids.shape[1] for b in batches) in ([10, 10, 500], [20, 500])
    assert partition([], 100) == [] and partition([[]], 100) == []
