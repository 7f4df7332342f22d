"""Steps of one token a row that are recorded once and replayed: CUDA graphs.

A step is a thousand kernels or more, of a few microseconds each. Python takes longer to call one
than a GPU to run it: an H200 waited for nine tenths of a step of 0.6B parameters. A recording holds
addresses, so it ends where the memory that it reads is moved; and shapes, so keys are read up to a
multiple of STRIDE, with those that a row does not have masked.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

STRIDE = 256  # positions

# (ids [R, 1], positions [R, 1], end) -> hidden states [R, D]; all positions are before `end`.
Step = Callable[[Tensor, Tensor, int], Tensor]
# Calls the function once; returns what does the same again, and where that leaves its result.
Record = Callable[[Callable[[], Tensor]], tuple[Callable[[], None], Tensor]]


class ReplayedSteps:
    """A step, by how far keys are read: called as it is at first, then recorded, then replayed."""

    def __init__(self, record: Record | None = None) -> None:
        """`record` is for tests on a machine without a GPU."""
        self._record = record or _record
        self._can_record = True
        self._given: tuple[Tensor, Tensor] | None = None
        self._known: dict[int, tuple[Callable[[], None], Tensor] | None] = {}

    def forget(self) -> None:
        """Drop all recordings: what they read is elsewhere now."""
        self._given = None
        self._known = {}

    def take(self, step: Step, ids: Tensor, positions: Tensor, end: int) -> Tensor:
        """Return hidden states [R, D], which the next call may overwrite."""
        if end not in self._known or not self._can_record:
            self._known[end] = None
            return step(ids, positions, end)  # it makes what may not be made in a recording
        if self._given is None:
            self._given = ids.clone(), positions.clone()
        given = self._given
        for place, x in zip(given, (ids, positions), strict=True):
            place.copy_(x)
        known = self._known[end]
        if known is None:
            try:
                known = self._record(lambda: step(*given, end))
            except RuntimeError:  # CUDA's, for what it cannot record: that is called as ever
                self._can_record = False
                return step(ids, positions, end)
            self._known[end] = known
        replay, hidden = known
        replay()
        return hidden


@cache
def _stream() -> Any:
    return torch.cuda.Stream()


def _record(step: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
    """Record what a GPU is told to do.

    torch.cuda.graph() would also collect garbage and give back memory each time, for a second.
    """
    graph = torch.cuda.CUDAGraph()
    _stream().wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(_stream()):
        # An update may be under way in another thread.
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            hidden = step()
        finally:
            graph.capture_end()
    torch.cuda.current_stream().wait_stream(_stream())
    return graph.replay, hidden
