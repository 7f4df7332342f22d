"""Shortening of texts for external services and for single lines."""

from __future__ import annotations

from art_cli.keys import mask_keys

LONGEST = 20_000  # characters of a conversation
LONGEST_LINE = 160


def shortened(text: str) -> str:
    """Return a text without its middle part if it is very long."""
    left_out = len(text) - LONGEST
    if left_out <= 0:
        return text
    half = LONGEST // 2
    return f"{text[:half]}\n\n[... {left_out} characters left out ...]\n\n{text[-half:]}"


def in_a_line(error: BaseException) -> str:
    """Return an error's text on one short line."""
    text = " ".join(mask_keys(str(error)).split()) or type(error).__name__
    return text if len(text) <= LONGEST_LINE else text[: LONGEST_LINE - 3] + "..."
