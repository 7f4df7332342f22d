"""Steps that are recorded once: when they are, and that a cache which uses them reads the same.

What records here is a stand-in for a GPU's, whose own test is in test_gpu.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from batches import MakePolicy
from torch import Tensor

from art_cli.models.forward.kv_cache import KVCache
from art_cli.models.forward.replay import ReplayedSteps


class Recorder:
    """Calls the step at each replay, and writes its result where the recording has its."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0

    def __call__(self, step: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        self.recorded += 1
        result = step()

        def replay() -> None:
            self.replayed += 1
            result.copy_(step())

        return replay, result


def test_a_step_is_called_then_recorded_then_replayed_with_what_is_given() -> None:
    recorder, called = Recorder(), []
    steps = ReplayedSteps(recorder)

    def step(ids: Tensor, positions: Tensor, end: int) -> Tensor:
        called.append(end)
        return (ids * 100 + positions).float()

    for i in range(4):
        ids, positions = torch.tensor([[i], [2 * i]]), torch.tensor([[i], [7]])
        assert steps.take(step, ids, positions, 8).tolist() == [[101 * i], [200 * i + 7]]
    assert (recorder.recorded, recorder.replayed) == (1, 3)
    steps.take(step, ids, positions, 16)  # another shape
    assert recorder.recorded == 1
    steps.forget()
    assert steps.take(step, ids[:1], positions[:1], 8).tolist() == [[303]]
    assert steps.take(step, ids[:1], positions[:1], 8).tolist() == [[303]]
    assert recorder.recorded == 2


def test_what_cannot_be_recorded_is_called() -> None:
    def refuse(step: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        tried.append(1)
        raise RuntimeError("operation not permitted when stream is capturing")

    tried: list[int] = []
    steps, one = ReplayedSteps(refuse), torch.tensor([[1]])
    for _ in range(4):
        assert steps.take(lambda ids, *_: ids * 3, one, one, 8).tolist() == [[3]]
    assert len(tried) == 1


@pytest.mark.parametrize("rank", [0, 4], ids=["full", "lora"])
def test_a_cache_reads_the_same(make_policy: MakePolicy, rank: int) -> None:
    """Also where it grows, gets rows, loses some, and is read in part."""
    policy = make_policy(rank)
    assert policy.ways.quick
    plain, recorded = (KVCache(policy, 2, 8, quick=True) for _ in range(2))
    recorder = Recorder()
    recorded._replayed = ReplayedSteps(recorder)
    lengths = [0, 0]

    def read(tokens: list[list[int]], rows: list[int] | None = None) -> None:
        rows = list(range(len(lengths))) if rows is None else rows
        starts = [lengths[r] for r in rows]
        hidden = [c.read(rows, tokens, starts, None) for c in (plain, recorded)]
        assert torch.allclose(*hidden, atol=1e-5)
        for row, t in zip(rows, tokens, strict=True):
            lengths[row] += len(t)

    with torch.inference_mode():
        read([[5, 6, 7], [8, 9, 10]])
        for i in range(3):
            read([[11 + i], [12 + i]])
        assert recorder.recorded == 1 and recorder.replayed == 2
        read([[4, 5]], rows=[1])
        for i in range(6):
            read([[21 + i], [22 + i]])  # they outgrow their room, twice
        assert recorder.recorded == 3
        for cache in (plain, recorded):
            cache.add_rows(1)
        lengths.append(0)
        read([[7, 8, 9, 10]], rows=[2])
        for i in range(3):
            read([[31 + i], [32 + i], [33 + i]])
        assert recorder.recorded == 4
        for cache in (plain, recorded):
            cache.select([0, 2])
        del lengths[1]
        for i in range(3):
            read([[31 + i], [32 + i]])
        assert recorder.recorded == 5
