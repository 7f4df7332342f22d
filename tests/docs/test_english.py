"""Few sentences have to be turned around by their reader: scripts/english.py counts them."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "english.py"
ENGLISH: dict[str, Any] = runpy.run_path(str(SCRIPT))


@pytest.mark.parametrize("kind", ["module", "function", "docs"])
def test_sentences_begin_with_what_they_are_about(kind: str) -> None:
    found = list(ENGLISH["KINDS"][kind]())
    turned = [f"{place}: {text}" for place, text in found if ENGLISH["is_turned"](text, kind)]
    assert len(found) > 500
    assert len(turned) / len(found) <= ENGLISH["LIMITS"][kind], turned


@pytest.mark.parametrize(
    ("sentence", "is_turned"),
    [
        ("What a run leaves behind.", True),
        ("Who plays?", True),
        ("Does it fit?", True),
        ("Whatever ends a run, it goes on.", True),
        ("A run leaves files behind: what it wrote.", False),
        ("Checkpoints of a run.", False),
    ],
)
def test_it_counts_those_alone(sentence: str, is_turned: bool) -> None:
    assert ENGLISH["is_turned"](sentence, "docs") is is_turned
