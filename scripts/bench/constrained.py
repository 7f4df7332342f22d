"""Measure the cost of a turn that is held to a schema: in sampling, and in the update.

    python scripts/bench/constrained.py [--rows 64] [--vocab 150000]

The engine samples the same number of tokens with and without a grammar. A vocabulary of that size
is made up, since the tiny model's is small: the masks' cost goes by it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from art_cli.chat.grammar.allowed import unpacked
from art_cli.chat.grammar.grammars import Grammars, Vocabulary
from art_cli.chat.grammar.schema import checked_schema
from art_cli.chat.grammar.write import HEAD
from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.model import TinyConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.engines.base import Session
from art_cli.engines.embedded.engine import TransformersEngine
from art_cli.models import tiny
from art_cli.models.policy import Policy

TOKENS, END = 120, 2
SCHEMA: dict[str, Any] = {
    "type": "array",
    "minItems": 200,  # so that no turn ends early
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "count": {"type": "integer"},
            "kind": {"enum": ["mug", "plate", "jug"]},
        },
        "required": ["name", "count", "kind"],
        "additionalProperties": False,
    },
}
GRAMMAR = f"{HEAD}start: answer <[{END}]>\nanswer: %json {checked_schema(SCHEMA)}\n"


def sampled(policy: Policy, rows: int, grammar: str | None) -> float:
    """Return the seconds of one decoding step of so many rows."""
    how = SamplingConfig(max_tokens=TOKENS)
    engine = TransformersEngine(policy, EngineConfig(), how, frozenset({END}))

    async def one(session: Session) -> int:
        done = await session.generate([5, 6, 7], grammar=grammar)
        session.close()
        return len(done.token_ids)

    async def everyone() -> list[int]:
        return list(await asyncio.gather(*(one(engine.open(i)) for i in range(rows))))

    began = time.perf_counter()
    num = asyncio.run(everyone())
    return (time.perf_counter() - began) / max(num)


def made_up(size: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer with so many tokens, most of them words."""
    rng, letters = random.Random(0), "etaoinshrdlucmfwypvbgkjqxz"
    vocab = {t: i for i, t in enumerate(["<|a|>", "<|b|>", "<|c|>"])}
    for letter in pre_tokenizers.ByteLevel.alphabet():
        vocab.setdefault(letter, len(vocab))
    while len(vocab) < size:
        word = "".join(rng.choices(letters, range(26, 0, -1), k=rng.randrange(2, 10)))
        vocab.setdefault(("Ġ" if rng.random() < 0.5 else "") + word, len(vocab))
    bpe = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    bpe.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    bpe.add_special_tokens(["<|a|>", "<|b|>", "<|c|>"])
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|c|>")


def masks(size: int, rows: int) -> tuple[float, float, float, float]:
    """Return seconds: of loading the tokenizer, a row's mask, putting it on logits, a replay."""
    tokenizer = made_up(size)
    grammars = Grammars(lambda: Vocabulary.of(tokenizer, size))
    began = time.perf_counter()
    asyncio.run(grammars.compile(GRAMMAR))
    loaded = time.perf_counter() - began
    rng, logits = random.Random(0), torch.randn(rows, size)
    matchers = [grammars.start(GRAMMAR) for _ in range(rows)]
    ids: list[list[int]] = [[] for _ in range(rows)]
    making = applying = 0.0
    for _ in range(60):
        began = time.perf_counter()
        bits = grammars.masks(matchers)
        making += time.perf_counter() - began
        began = time.perf_counter()
        allowed = unpacked(bits, size)
        logits.masked_fill(~allowed, -torch.inf)
        applying += time.perf_counter() - began
        for row, matcher in enumerate(matchers):
            ids[row].append(rng.choice(allowed[row].nonzero()[:, 0].tolist()))
            assert matcher.consume_token(ids[row][-1])
    began = time.perf_counter()
    list(grammars.replay([(GRAMMAR, each) for each in ids]))
    replay = time.perf_counter() - began
    return loaded, making / 60 / rows, applying / 60 / rows, replay / 60 / rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--vocab", type=int, default=150_000)
    args = parser.parse_args()
    model, tokenizer = tiny.make(TinyConfig(), ["a mug, a plate and a jug: 17"], 0)
    policy = Policy(model, tokenizer)
    sampled(policy, args.rows, GRAMMAR)
    free, held = (
        min(sampled(policy, args.rows, grammar) for _ in range(3)) for grammar in (None, GRAMMAR)
    )
    print(f"tiny model, {args.rows} rows: {free * 1e3:.2f} ms a step, ", end="")
    print(f"{held * 1e3:.2f} ms with a grammar: {held / free:.2f} times")
    loaded, making, applying, replay = masks(args.vocab, args.rows)
    print(f"vocabulary of {args.vocab}: {loaded:.2f} s to load it and compile a grammar")
    print(f"  {making * 1e6:.0f} us a mask, {applying * 1e6:.0f} us to put it on logits")
    print(f"  {replay * 1e6:.0f} us a token to make the masks of an update again")


if __name__ == "__main__":
    main()
