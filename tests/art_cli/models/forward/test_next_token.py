"""One token of each row, with joined matrices: the same states as by the layers themselves."""

from __future__ import annotations

import pytest
import torch
from architectures import chatml_tokenizer, make_architecture
from torch import Tensor

from art_cli.config.sections.model import AdapterConfig
from art_cli.models.forward import next_token
from art_cli.models.forward.kv_cache import KVCache
from art_cli.models.forward.next_token import NextToken, next_token_of
from art_cli.models.policy import Policy

FAMILIES = (
    "llama",
    "llama:biases",
    "llama:llama3",
    "llama:yarn",
    "qwen2",
    "qwen3",
    "mistral:window",
)
ROWS = [[3, 4, 5, 6], [7, 8], [9, 10, 11]]


def policy_of(name: str) -> Policy:
    """A policy of a family."""
    policy = Policy(make_architecture(name), chatml_tokenizer())
    assert policy.ways.quick
    return policy


def read(policy: Policy, quick: bool, num: int = 20) -> Tensor:
    """The hidden states of some tokens of each row, one by one."""
    cache = KVCache(policy, len(ROWS), 8, quick)
    rows, starts = list(range(len(ROWS))), [len(r) for r in ROWS]
    with torch.inference_mode():
        cache.read(rows, ROWS, [0] * len(ROWS), None)
        steps = [[[11 + i + r] for r in rows] for i in range(num)]
        read = [cache.read(rows, s, [i + n for n in starts], None) for i, s in enumerate(steps)]
    assert bool(cache._next_token) is quick
    return torch.stack(read)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_states(family: str) -> None:
    policy = policy_of(family)
    assert torch.allclose(read(policy, True), read(policy, False), rtol=1e-5, atol=1e-5)


def test_angles_of_a_text_that_becomes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_token, "NUM_ANGLES", 6)
    policy = policy_of("qwen3")
    assert torch.allclose(read(policy, True, 40), read(policy, False, 40), rtol=1e-5, atol=1e-5)


def test_a_prefix_that_all_rows_share() -> None:
    policy, prefix = policy_of("qwen3"), list(range(3, 90))
    states = []
    with torch.inference_mode():
        for quick in (True, False):
            first, cache = KVCache(policy, 1, len(prefix)), KVCache(policy, 3, 90, quick)
            first.read([0], [prefix], [0], None)
            cache.copy_prefix(first, [0, 1, 2], len(prefix))
            states.append(cache.read([0, 1, 2], [[5], [6], [7]], [len(prefix)] * 3, first))
    assert torch.allclose(*states, rtol=1e-5, atol=1e-5)


def test_a_cache_has_the_weights_of_its_time() -> None:
    policy = policy_of("llama")
    before = read(policy, True)
    with torch.no_grad():
        for p in policy.base.parameters():
            p.mul_(1.1)
    after = read(policy, True)
    assert not torch.allclose(before, after, rtol=1e-2)
    assert torch.allclose(after, read(policy, False), rtol=1e-5, atol=1e-5)


def test_where_it_is_not_worth_it_or_not_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policy_of("llama")
    assert isinstance(next_token_of(policy._decoder), NextToken)
    policy._decoder.rotary_emb.rope_type = "dynamic"
    assert next_token_of(policy._decoder) is None, "angles that change as a text becomes longer"
    policy._decoder.rotary_emb.rope_type = "default"
    monkeypatch.setattr(next_token, "MOST_WEIGHTS", 1000)
    assert next_token_of(policy._decoder) is None, "a large model"
    monkeypatch.undo()
    policy.add_adapter(AdapterConfig(), 0)
    assert next_token_of(policy._decoder) is None, "an adapter"
    assert next_token_of(policy_of("llama").base.bfloat16().model) is None, "bf16"
