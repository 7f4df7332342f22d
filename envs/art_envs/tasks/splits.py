"""The rows that are held out: named by a column or a file, or else drawn by a hash of the question.

A hash, so that a row stays on its side whatever comes before it in the file and on every machine.
It is taken of the question as `key_of` has it, so that copies of a question that differ in case,
punctuation, spaces or the form of a character (é, ﬁ, full-width) are on one side. That catches
retyped and reformatted questions; it does not catch one that is told in other words.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from art_cli import Split, seed_of

NAMES: dict[str, Split] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev", "eval"), "val"),
    "test": "test",
}


def key_of(question: str) -> str:
    """Return what two questions share that are the same one: letters and digits alone."""
    folded = unicodedata.normalize("NFKC", question).casefold()
    return "".join(filter(str.isalnum, folded)) or "".join(folded.split())


def by_hash(key: str, val: float, test: float) -> Split:
    """Return the split of a question, given the shares of what is held out."""
    place = seed_of("split", key) / 2**63
    return "test" if place < test else "val" if place < test + val else "train"


def leaks(keys: dict[Split, Sequence[str]]) -> dict[Split, set[int]]:
    """Return which rows of each split stand in one that is held out from it: val in test too."""
    out: dict[Split, set[int]] = {"train": set(), "val": set(), "test": set()}
    held_out = set(keys["test"])
    for split in ("val", "train"):
        out[split] = {i for i, key in enumerate(keys[split]) if key in held_out}
        held_out |= set(keys[split])
    return out
