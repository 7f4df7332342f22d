"""The faults that scripts/mutate.py plants: each has its place in the program as it is."""

from __future__ import annotations

import ast
import importlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = """
class Box(Base):
    size: int = 3

    async def fill(self, rows, most=2):
        if not rows and len(rows) < most:
            self.count += 1
        await put(rows, most)
        return [r + 1 for r in rows if r == self.size]
"""


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a script by its name."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module


def test_each_chosen_fault_has_one_place(scripts: Any) -> None:
    faults = scripts("chosen_faults").CHOSEN
    places = {f: (ROOT / f[0]).read_text().count(f[1]) for f in faults}
    assert not [f for f, num in places.items() if num != 1]
    assert not [f for f, num in Counter(faults).items() if num > 1 or f[1] == f[2]]


def test_a_fault_of_each_kind_is_found_and_can_be_planted(scripts: Any) -> None:
    found = {}
    for fault in scripts("random_faults").faults_of("box.py", SOURCE):
        text = fault.planted(SOURCE)
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(SOURCE))
        found.setdefault(fault.kind, set()).add(f"{fault.before} -> {fault.after}")
    assert found == {
        "comparison": {
            "len(rows) < most -> (len(rows) >= most)",
            "r == self.size -> (r != self.size)",
        },
        "boundary": {"len(rows) < most -> (len(rows) <= most)", "r + 1 -> r"},
        "dropped statement": {"self.count += 1 -> pass", "await put(rows, most) -> pass"},
        "swapped arguments": {"put(rows, most) -> put(most, rows)"},
        "wrong default": {"3 -> 4", "2 -> 3"},
        "missing await": {"await put(rows, most) -> put(rows, most)"},
        "and for or": {
            "not rows and len(rows) < most -> (not rows or len(rows) < most)",
        },
        "dropped not": {"not rows -> rows"},
    }


def test_the_same_seed_draws_the_same_faults(scripts: Any) -> None:
    random_faults = scripts("random_faults")
    drawn = random_faults.drawn(ROOT, 40, seed=7)
    assert drawn == random_faults.drawn(ROOT, 40, seed=7)
    assert drawn != random_faults.drawn(ROOT, 40, seed=8)
    assert set(Counter(f.kind for f in drawn).values()) == {5}
    for fault in drawn:
        ast.parse(fault.planted((ROOT / fault.file).read_text()))


def test_each_equivalent_fault_has_its_place_and_each_file_apart_is_there(scripts: Any) -> None:
    random_faults = scripts("random_faults")
    for file, before, _ in random_faults.EQUIVALENT:
        assert before in (ROOT / file).read_text()
    assert all((ROOT / file).is_file() for file in random_faults.APART)
