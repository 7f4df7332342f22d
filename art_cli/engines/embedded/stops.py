"""Detection of stop texts while tokens are sampled."""

from __future__ import annotations

from collections.abc import Callable

BROKEN = "\ufffd"  # decoded in place of an incomplete character


class StopTexts:
    """Checks a turn token by token.

    The cost of a token depends neither on the number or length of the stop texts nor on the turn's
    length.
    """

    def __init__(self, stops: tuple[str, ...], decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._by_length: dict[int, set[str]] = {}
        for stop in filter(None, stops):
            self._by_length.setdefault(len(stop), set()).add(stop)
        self._longest = max(self._by_length, default=0)
        self._tail = ""  # last characters of the text so far
        self._known = self._read = 0  # numbers of tokens: before the last few, and in total

    def end_with(self, sampled: list[int]) -> bool:
        """Return whether the last of these tokens completes one of the texts."""
        if not self._longest:
            return False
        # A token's text may depend on previous ones: some tokenizers drop a first space.
        before = self._decode(sampled[self._known : self._read])
        new = self._decode(sampled[self._known :])[len(before) :]
        whole = new.rstrip(BROKEN)
        text = self._tail + whole
        found = any(
            text[end - length : end] in stops
            for length, stops in self._by_length.items()
            for end in range(max(length, len(self._tail) + 1), len(text) + 1)
        )
        if whole == new:
            self._tail = text[-self._longest :]
            self._known, self._read = self._read, len(sampled)
        return found
