"""The faults that scripts/mutate.py plants: each has its place in the program as it is."""

from __future__ import annotations

import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_each_fault_has_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    faults: list[Any] = runpy.run_path(str(ROOT / "scripts" / "mutate.py"))["FAULTS"]
    places = {f: (ROOT / f.file).read_text().count(f.before) for f in faults}
    assert not [f for f, num in places.items() if num != 1]
    assert not [f for f, num in Counter(faults).items() if num > 1 or f.before == f.after]
