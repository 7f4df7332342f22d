"""A text that a model cannot read."""

from __future__ import annotations


class TooLongError(Exception):
    """A text is longer than the model can read; `num_tokens` of it were counted."""

    def __init__(self, num_tokens: int, *, is_all: bool = False) -> None:
        super().__init__(f"{num_tokens} tokens" if is_all else f"more than {num_tokens} tokens")
        self.num_tokens = num_tokens
