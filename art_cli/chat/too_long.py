"""The error for a text that exceeds the model's context."""

from __future__ import annotations


class TooLongError(Exception):
    """A text is longer than the context; `num_tokens` were counted before counting stopped."""

    def __init__(self, num_tokens: int, *, is_all: bool = False) -> None:
        super().__init__(f"{num_tokens} tokens" if is_all else f"more than {num_tokens} tokens")
        self.num_tokens = num_tokens
