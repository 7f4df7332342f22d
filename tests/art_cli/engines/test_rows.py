"""Siblings are in one row of the embedded engine until they part, whatever keeps the rows."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
import torch
from architectures import chatml_tokenizer, make_architecture
from engine_contract import SHARED, assert_exact, play, some_ids
from torch import Tensor

from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.engines.embedded.engine import TransformersEngine
from art_cli.engines.embedded.row import Occupant, Row
from art_cli.engines.embedded.slots import Slots
from art_cli.models.policy import Policy
from art_cli.types import Sequence

ENDS = frozenset(range(40))
GROUPS = [prompt for ids in ([5, 6, 7], SHARED, [*SHARED, 8]) for prompt in [ids] * 8]


def engine_of(policy: Policy, *, max_tokens: int = 9, **cfg: Any) -> TransformersEngine:
    sampling = SamplingConfig(max_tokens=max_tokens, temperature=0.1)
    return TransformersEngine(policy, EngineConfig(**cfg), sampling, ENDS)


def histories(sequences: list[Sequence]) -> set[tuple[int, ...]]:
    """All that stood before a sampled token."""
    return {tuple(s.ids[:i]) for s in sequences for i, sampled in enumerate(s.mask) if sampled}


def test_what_siblings_have_in_common_is_read_once(
    make_policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So there are as many rows of logits as there are histories of a sampled token."""
    policy = make_policy()
    read = 0
    logits = policy.head.logits

    def counted(hidden: Tensor) -> Tensor:
        nonlocal read
        read += len(hidden)
        return logits(hidden)

    monkeypatch.setattr(type(policy.head), "logits", lambda _, hidden: counted(hidden))
    sequences = play(engine_of(policy), GROUPS)
    num_sampled = sum(s.num_sampled for s in sequences)
    known = histories(sequences)
    assert len(known) < 0.9 * num_sampled
    assert len(known) <= read < 1.15 * len(known), "idle rows run along in some steps"
    assert_exact(policy, sequences, 0.1)


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("concurrent", [3, 20, 64])
def test_siblings_who_come_and_go(make_policy: Any, concurrent: int, deterministic: bool) -> None:
    policy = make_policy()
    engine = engine_of(policy, max_num_seqs=concurrent, deterministic=deterministic)
    sequences = play(engine, GROUPS, jitter=1)
    assert len(sequences) == len(GROUPS)
    assert_exact(policy, sequences, 0.1)
    assert not engine._rows.everyone and engine._rows._slots.cache is None


@pytest.mark.parametrize("architecture", ["qwen3", "qwen3_5_text", "stablelm", "jamba"])
@pytest.mark.parametrize("deterministic", [True, False])
def test_a_sibling_who_tells_it_differently_leaves_the_others_what_they_have(
    architecture: str, deterministic: bool
) -> None:
    """Recurrent states, caches of transformers' own, and none at all, too."""
    policy = Policy(make_architecture(architecture), chatml_tokenizer())
    engine = engine_of(policy, max_tokens=4, deterministic=deterministic)
    turns = 4

    async def one(number: int) -> list[Sequence]:
        session = engine.open(seed=0)  # all say the same where they have heard the same
        ids, out = list(SHARED), []
        for turn in range(turns):
            if turn + number == turns + 1:  # another story, after the others have gone on
                ids = [*ids[: 44 - 15 * (number % 3)], *some_ids(3)]
            sequence = Sequence()
            sequence.extend_prompt(list(ids))
            completion = await session.generate(list(ids))
            sequence.extend_sampled(completion)
            out.append(sequence)
            ids += [*completion.token_ids, 50 + turn]
        session.close()
        return out

    async def everyone() -> list[list[Sequence]]:
        return await asyncio.wait_for(asyncio.gather(*(one(i) for i in range(turns + 2))), 300)

    found = asyncio.run(everyone())
    assert_exact(policy, [s for each in found for s in each], 0.1)
    assert found[0] == found[1] and found[-1][0] != found[0][0]


def test_a_sibling_who_comes_later_joins_the_one_who_waits(make_policy: Any) -> None:
    """Both have the prefix of those who are at work, and are read once these are through."""
    policy = make_policy()
    sampling = SamplingConfig(max_tokens=20)
    cfg = EngineConfig(deterministic=False)
    engine = TransformersEngine(policy, cfg, sampling, frozenset())

    async def one(seed: int, *ids: int) -> Sequence:
        session, sequence = engine.open(seed), Sequence()
        sequence.extend_prompt([*SHARED, *ids])
        sequence.extend_sampled(await session.generate(list(sequence.ids)))
        session.close()
        return sequence

    async def everyone() -> list[Sequence]:
        jobs = [asyncio.ensure_future(one(i, 50 + i)) for i in range(8)]
        for seed in (8, 9):
            for _ in range(6):
                await asyncio.sleep(0)
            jobs.append(asyncio.ensure_future(one(seed, 70, 71)))
        for _ in range(3):
            await asyncio.sleep(0)
        waiting = [row for row in engine._rows._slots.taken if len(row.occupants) == 2]
        assert [len(row.cached) for row in waiting] == [len(SHARED)]
        return list(await asyncio.wait_for(asyncio.gather(*jobs), 300))

    assert_exact(policy, asyncio.run(everyone()))


def occupied(num: int, *ids: int) -> Row:
    row = Row(list(ids))
    for i in range(num):
        row.enter(Occupant(order=i, uniforms=random.Random(i), awaited=True))
    return row


class Counted:
    """Stands for a cache: counts what is done to it."""

    length = 8

    def __init__(self, rows: int) -> None:
        self.num_rows = rows
        self.added: list[int] = []
        self.copied: list[tuple[int, int]] = []
        self.selected: list[list[int]] = []

    def add_rows(self, num: int) -> None:
        self.num_rows += num
        self.added.append(num)

    def copy(self, pairs: list[tuple[int, int]], length: int) -> None:
        self.copied += pairs

    def select(self, rows: list[int]) -> None:
        self.num_rows = len(rows)
        self.selected.append(rows)


@pytest.mark.parametrize("on_gpu", [False, True])
def test_rows_are_made_as_siblings_part_or_beforehand_on_a_gpu(on_gpu: bool) -> None:
    made: list[Counted] = []
    slots = Slots(lambda rows, _: made.append(Counted(rows)) or made[-1], on_gpu)  # type: ignore[arg-type, return-value]
    both = [occupied(4, 1), occupied(4, 2)]
    slots.place(both, 5)
    [cache] = made
    assert cache.num_rows == (8 if on_gpu else 2) and slots.span == cache.num_rows
    copies = slots.copy([(row, row.occupants[2:]) for row in both])
    assert cache.num_rows == (8 if on_gpu else 4)
    assert cache.copied == [(0, 2), (1, 3)] and [c.index for c in copies] == [2, 3]
    assert [len(r.occupants) for r in slots.taken] == [2, 2, 2, 2]
    for occupant in (*both[0].occupants, *both[1].occupants, copies[0].occupants[0]):
        occupant.leave()
    slots.free_empty()
    slots.pack()
    assert cache.selected == ([[2, 3, 0]] if on_gpu else [[2, 3]])
    assert [c.index for c in copies] == [0, 1] and slots.occupants[0].row is copies[0]
    slots.copy([(copies[1], copies[1].occupants[1:])])
    assert cache.num_rows == 3 and slots.rows[2]


def test_a_cache_copies_what_a_row_holds(make_policy: Any) -> None:
    """Beyond that, the row is the other's own."""
    from art_cli.models.forward.kv_cache import KVCache

    policy = make_policy()
    cache = KVCache(policy, 3, 12)
    with torch.inference_mode():
        cache.read([0, 1, 2], [[5, 6, 7], [8, 9, 10], [1, 2, 3]], [0, 0, 0], None)
        cache.copy([(1, 0)], 3)
        apart = cache.read([0, 1], [[11], [12]], [3, 3], None)
        together = cache.read([0, 1, 2], [[13], [13], [13]], [4, 4, 3], None)
    alone = KVCache(policy, 2, 12)
    with torch.inference_mode():
        alone.read([0, 1], [[8, 9, 10]] * 2, [0, 0], None)
        assert torch.allclose(apart, alone.read([0, 1], [[11], [12]], [3, 3], None), atol=1e-5)
        expected = alone.read([0, 1], [[13], [13]], [4, 4], None)
    assert torch.allclose(together[:2], expected, atol=1e-5)
