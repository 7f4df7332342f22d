"""YAML 1.2 as plain values: what JSON holds is read as JSON, and nothing is dropped in silence."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from art_cli.config import yaml_values
from art_cli.config.yaml_values import read_yaml

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
BOMB = "".join(f"k{i}: &k{i} [{f'*k{i - 1}, ' * 9 if i else '*a'}]\n" for i in range(12))


@given(VALUES)
@settings(deadline=None, max_examples=200)
def test_json_is_read_as_json(value: Any) -> None:
    assert read_yaml(json.dumps(value, ensure_ascii=False)) == value


@given(VALUES)
@settings(deadline=None, max_examples=100)
def test_what_another_writer_quotes_is_text(value: Any) -> None:
    """PyYAML quotes what YAML 1.1 would take for something else."""
    written = yaml.safe_dump(value, allow_unicode=True)
    if not any(isinstance(part, float) for part in _parts(value)):  # 1e+16 is no float there
        assert read_yaml(written) == value


def _parts(value: Any) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *(part for each in inner for part in _parts(each))]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[NO, on, y, 12:30, '7']", ["NO", "on", "y", "12:30", "7"]),
        ("[2024-01-31, 1_000]", ["2024-01-31", "1_000"]),
        ("[0o17, 0x1F, 010, -1, +1]", [15, 31, 10, -1, 1]),
        ("[1e3, .5, True, ~, '']", [1000.0, 0.5, True, None, ""]),
        ("{200: a, true: b, null: c, 1.0: d}", {"200": "a", "true": "b", "null": "c", "1.0": "d"}),
        ("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}", {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}),
        ("- {<<: [{a: 1}, {a: 2, b: 2}]}", [{"a": 1, "b": 2}]),
    ],
)
def test_the_core_schema(text: str, value: Any) -> None:
    assert read_yaml(text) == value


def test_what_is_no_number_of_json_is_one_of_yaml() -> None:
    assert read_yaml("-.inf") == -math.inf and math.isnan(read_yaml(".nan"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2", "line 4: the key 'c' is given twice"),
        ("a: 1\n? [b]\n: 2", "line 2: a key must be text"),
        ("a: !!timestamp 2024-01-31", "could not determine a constructor"),
        ("a: !python/object:os.system x", "could not determine a constructor"),
        ("a: !!int x", "line 1: 'x' does not fit its tag"),
        ("a: *b", "line 1: found undefined alias"),
        ("a: [\n", "line 2: "),
        ("a: \x01", "control characters are not allowed"),
        ("&a [*a]", "more than 10000 values"),
        (f"a: &a [x, x]\n{BOMB}", "more than 10000 values"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_its_line(
    monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    monkeypatch.setattr(yaml_values, "MOST", 10_000)
    with pytest.raises(ValueError, match=why):
        read_yaml(text)
