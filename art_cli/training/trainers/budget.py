"""The tokens of a step that run at once, as far as memory allows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import torch

from art_cli.config.sections.train import MIN_MICROBATCH_TOKENS
from art_cli.errors import TrainerError
from art_cli.training.algorithm.packing import TrainSequence, num_packed, partition

T = TypeVar("T")


class TokenBudget:
    """Packed tokens of one microbatch: half of them from the moment that memory has run out."""

    def __init__(self, tokens: int, say: Callable[[str], None], shares: bool = True) -> None:
        """`say` is told when the budget changes. `shares`: what siblings share counts once."""
        self.tokens = tokens
        self._shares = shares
        self._say = say
        self._running: list[TrainSequence] = []

    def fit(
        self,
        sequences: list[list[TrainSequence]],
        gradient: Callable[[Iterable[list[TrainSequence]]], T],
    ) -> T:
        """Run `gradient` on the parts of a step; again from its beginning where memory runs out.

        How a step is split does not change its gradient. Raises TrainerError where a smaller split
        would not help.
        """
        while True:
            try:
                parts = partition(sequences, self.tokens, self._shares)
                return gradient(_Parts(parts, self._runs))
            except torch.OutOfMemoryError as e:
                error = str(e)
            self._halve(error)  # here the exception, which holds the forward's states, is gone

    def _runs(self, part: list[TrainSequence]) -> None:
        self._running = part

    def _halve(self, error: str) -> None:
        packed = num_packed([s.ids for s in self._running], self._shares)
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        half = max(MIN_MICROBATCH_TOKENS, min(packed, self.tokens) // 2)
        if len(partition([self._running], 1)) == 1 or half >= self.tokens:
            raise TrainerError(
                f"out of memory with {packed} tokens, which is as little as the update can run at "
                f"once: {error}. Set train.gradient_checkpointing=on, lower engine.max_model_len, "
                "or train a smaller or quantized model"
            )
        self._say(
            f"out of memory with {packed} tokens at once: the same step again with "
            f"train.microbatch_tokens={half} instead of {self.tokens}, and so from now on. The "
            "gradient is the same"
        )
        self.tokens = half


class _Parts:
    """The parts of a step, to be run through as often as it takes."""

    def __init__(
        self,
        parts: list[list[TrainSequence]],
        note: Callable[[list[TrainSequence]], None],
    ) -> None:
        """`note` is told which part is running."""
        self._parts = parts
        self._note = note

    def __iter__(self) -> Iterator[list[TrainSequence]]:
        for part in self._parts:
            self._note(part)
            yield part
