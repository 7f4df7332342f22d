"""Size of microbatches in tokens, lowered when memory runs out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import torch

from art_cli.config.sections.train import MIN_MICROBATCH_TOKENS
from art_cli.errors import TrainerError
from art_cli.training.algorithm.packing import TrainSequence, num_packed, partition

T = TypeVar("T")


class TokenBudget:
    """Maximum number of packed tokens in a microbatch. It is halved when memory runs out."""

    def __init__(self, tokens: int, say: Callable[[str], None], shares: bool = True) -> None:
        """`say` reports a change. With `shares`, a prefix shared by siblings counts once."""
        self.tokens = tokens
        self._shares = shares
        self._say = say
        self._running: list[TrainSequence] = []

    def fit(
        self,
        sequences: list[list[TrainSequence]],
        gradient: Callable[[Iterable[list[TrainSequence]]], T],
    ) -> T:
        """Run `gradient` on the parts of a step. If memory runs out, start over with smaller parts.

        The split of a step does not change its gradient. Raises TrainerError if a smaller split
        would not help.
        """
        while True:
            try:
                parts = partition(sequences, self.tokens, self._shares)
                return gradient(_Parts(parts, self._runs))
            except torch.OutOfMemoryError as e:
                error = str(e)
            self._halve(error)  # outside the handler the forward's tensors are freed

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
            f"out of memory with {packed} tokens at once: the step is repeated with "
            f"train.microbatch_tokens={half} instead of {self.tokens}for the rest of the run. The "
            "gradient is the same"
        )
        self.tokens = half


class _Parts:
    """The parts of a step, for repeated iteration."""

    def __init__(
        self,
        parts: list[list[TrainSequence]],
        note: Callable[[list[TrainSequence]], None],
    ) -> None:
        """`note` is called with each part before it runs."""
        self._parts = parts
        self._note = note

    def __iter__(self) -> Iterator[list[TrainSequence]]:
        for part in self._parts:
            self._note(part)
            yield part
