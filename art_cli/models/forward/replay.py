"""Record decoding steps of one token a row once, and replay them: CUDA graphs.

A step consists of a thousand or more kernels of a few microseconds each. Python takes longer to
launch one than a GPU to run it: an H200 idled for nine tenths of a step of 0.6B parameters.

A recording holds addresses, so it is dropped when the memory that it reads moves. It also holds
shapes, so keys are read up to a multiple of STRIDE and masked past the end of a row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

STRIDE = 256  # positions

# (ids [R, 1], positions [R, 1], end) -> hidden states [R, D]; all positions are below `end`.
Step = Callable[[Tensor, Tensor, int], Tensor]
# Calls the function once, recording it. Returns a function that replays it, and its output tensor.
Record = Callable[[Callable[[], Tensor]], tuple[Callable[[], None], Tensor]]


class ReplayedSteps:
    """Steps by the number of keys read: called normally first, recorded second, then replayed."""

    def __init__(self, record: Record | None = None) -> None:
        """`record` replaces the CUDA recorder in tests without a GPU."""
        self._record = record or _record
        self._can_record = True
        self._given: tuple[Tensor, Tensor] | None = None
        self._known: dict[int, tuple[Callable[[], None], Tensor] | None] = {}

    def forget(self) -> None:
        """Drop all recordings, because the memory that they read has moved."""
        self._given = None
        self._known = {}

    def take(self, step: Step, ids: Tensor, positions: Tensor, end: int) -> Tensor:
        """Run a step. Return its hidden states [R, D], which the next call may overwrite."""
        if end not in self._known or not self._can_record:
            self._known[end] = None
            return step(ids, positions, end)  # allocates what a recording must not
        if self._given is None:
            self._given = ids.clone(), positions.clone()
        given = self._given
        for place, x in zip(given, (ids, positions), strict=True):
            place.copy_(x)
        known = self._known[end]
        if known is None:
            try:
                known = self._record(lambda: step(*given, end))
            except RuntimeError:  # CUDA cannot record it: call it normally
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
    """Record the GPU work of a step. Return the replay function and the output.

    torch.cuda.graph() would also collect garbage and free cached memory each time, which takes a
    second.
    """
    graph = torch.cuda.CUDAGraph()
    _stream().wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(_stream()):
        # An update may run in another thread.
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            hidden = step()
        finally:
            graph.capture_end()
    torch.cuda.current_stream().wait_stream(_stream())
    return graph.replay, hidden
