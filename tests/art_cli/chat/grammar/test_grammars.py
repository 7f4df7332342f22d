"""Grammars are compiled once, beside the event loop, within limits."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
import torch
from held import COLOUR, END, ORDER, grammar, masks

from art_cli.chat.grammar import grammars as module
from art_cli.chat.grammar.allowed import has, is_forced, unpacked
from art_cli.chat.grammar.grammars import Grammars, Vocabulary
from art_cli.errors import ConstraintError
from art_cli.models.policy import Policy


def ids_of(policy: Policy, text: str) -> list[int]:
    return [*policy.tokenizer.encode(text, add_special_tokens=False), END]


@pytest.mark.parametrize("size", [0, 1, 100])
def test_replayed_masks_are_those_of_one_token_after_the_other(make_policy: Any, size: int) -> None:
    """Whatever the number of the model's logits is above the tokenizer's."""
    policy = make_policy()
    tokens = len(policy.tokenizer)
    grammars = Grammars(lambda: Vocabulary.of(policy.tokenizer, tokens + size))
    policy.grammars = grammars
    turns = [
        (grammar(ORDER), ids_of(policy, '{"name": "red", "count":7}')),
        (grammar(COLOUR), ids_of(policy, '"reddish"')),
        (grammar(ORDER), ids_of(policy, '{"name": "blue", "count": 31, "gift": true}')),
    ]
    for (text, ids), bits in zip(turns, grammars.replay(turns), strict=True):
        expected = masks(policy, text, ids)
        assert torch.equal(unpacked(bits, tokens + size), expected)
        assert is_forced(bits).tolist() == (expected.sum(1) == 1).tolist()
        assert bool(has(bits, torch.tensor(ids)).all())


def test_replaying_in_parts_changes_nothing(
    make_policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = make_policy()
    turns = [(grammar(COLOUR), ids_of(policy, '"reddish"'))] * 7
    whole = list(policy.grammars.replay(turns))
    monkeypatch.setattr(module, "AT_ONCE", 1000)
    parts = list(policy.grammars.replay(turns))
    assert len(parts) == 7
    assert all(torch.equal(a, b) for a, b in zip(whole, parts, strict=True))


def test_a_grammar_is_compiled_once(make_policy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, made = make_policy(), []
    matcher = module.LLMatcher
    monkeypatch.setattr(module, "LLMatcher", lambda *a, **k: made.append(a[1]) or matcher(*a, **k))
    for _ in range(3):
        asyncio.run(policy.grammars.compile(grammar(ORDER)))
    assert len(made) == 1


def test_only_so_many_compiled_grammars_are_kept(
    make_policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CACHED", 2**19)
    policy = make_policy()
    for i in range(20):
        asyncio.run(policy.grammars.compile(grammar({"const": i})))
    assert 0 < policy.grammars._compiled.num_bytes <= 2**19


def test_what_takes_too_long_to_compile_is_refused_and_holds_nobody_up(
    make_policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = make_policy()
    monkeypatch.setattr(module, "COMPILE_TIMEOUT", 0.2)
    monkeypatch.setattr(policy.grammars, "_compiled", lambda _: time.sleep(1))
    beats = []

    async def both() -> None:
        refused = asyncio.ensure_future(policy.grammars.compile(grammar(ORDER)))
        while not refused.done():
            await asyncio.sleep(0.001)
            beats.append(time.monotonic())
        await refused

    with pytest.raises(ConstraintError, match=r"takes more than 0\.2 s"):
        asyncio.run(both())
    assert len(beats) > 5


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        ({"not": {}}, r'not supported: Unimplemented keys: \["not"\]'),
        ({"$ref": "http://127.0.0.1:9/a"}, "not supported: .*retrieving it failed"),
        ({"$ref": "file:///etc/passwd"}, "not supported: .*retrieving it failed"),
        ({"$ref": "#"}, "no answer can meet"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "Unsatisfiable"),
        ({"allOf": [{"anyOf": [{"properties": {f"{i}{j}": {}}, "required": [f"{i}{j}"]}
          for j in range(10)]} for i in range(12)]}, "schema too large"),
        ({"type": "string", "pattern": "(?=a)"}, "not supported"),
    ],
)  # fmt: skip
def test_what_the_library_does_not_know_is_said_in_a_line(
    make_policy: Any, schema: Any, what: str
) -> None:
    with pytest.raises(ConstraintError, match=what) as caught:
        asyncio.run(make_policy().grammars.compile(grammar(schema)))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_a_tokenizer_without_its_rules_is_told(make_policy: Any) -> None:
    grammars = Grammars(lambda: Vocabulary("", 0, 300))
    with pytest.raises(ConstraintError, match="its tokenizer is not one of the library tokenizers"):
        asyncio.run(grammars.compile(grammar(ORDER)))
