"""Parquet as programs write it: each value is what a JSON file of it would hold, or refused."""

from __future__ import annotations

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_cli import UsageError
from art_envs.tasks.columns import text_of
from art_envs.tasks.rows import Row, read_rows

pa: Any = pytest.importorskip("pyarrow")
pq: Any = pytest.importorskip("pyarrow.parquet")
DAY, NOON = datetime.datetime(2024, 1, 31), datetime.datetime(2024, 1, 31, 12, 30)


def read(folder: Path, **columns: Any) -> list[dict[str, Any]]:
    pq.write_table(pa.table(columns), folder / "d.parquet")
    return [row.values for row in read_rows(str(folder / "d.parquet"))]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (pa.array([0.1, 3.14, 1e10], pa.float32()), [0.1, 3.14, 1e10]),
        (pa.array([0.1], pa.float16()), [0.1]),
        (pa.array([3.0, None, 7.0]), [3, None, 7]),
        (pa.array([3.0, float("nan")]), [3, None]),
        (pa.array([3.0, 0.5]), [3.0, 0.5]),
        (pa.array([True, None]), [True, None]),
        (pa.array([decimal.Decimal("12.50")], pa.decimal128(10, 2)), ["12.50"]),
        (pa.array([DAY.date()]), ["2024-01-31"]),
        (pa.array([DAY, NOON]), ["2024-01-31", "2024-01-31T12:30:00"]),
        (pa.array([NOON.time()]), ["12:30:00"]),
        (pa.array([b"yes"]), ["yes"]),
        (pa.array(["a", "b"]).dictionary_encode(), ["a", "b"]),
        (pa.array([[0.1, None]], pa.list_(pa.float32())), [[0.1, None]]),
        (pa.array([{"a": {"b": DAY}}]), [{"a": {"b": "2024-01-31"}}]),
        (pa.array([2**60 + 1]), [2**60 + 1]),
        (pa.nulls(1), [None]),
    ],
    ids=str,
)
def test_a_value_is_what_its_writer_meant(tmp_path: Path, column: Any, values: list[Any]) -> None:
    found = [row["x"] for row in read(tmp_path, x=column)]
    assert found == values and list(map(type, found)) == list(map(type, values))
    json.dumps(found)


IMAGE = {"bytes": b"\xff\xd8", "path": "a.jpg"}


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (pa.array([b"\xff"]), "'x' .* is a bytes, not text; convert the column to text"),
        (pa.array([datetime.timedelta(1)]), "'x' .* is a timedelta, not text; convert the column"),
        (pa.array([IMAGE]), "'x' .* is a dict, not text; name what is within it as COLUMN.KEY"),
        (pa.array([3.0, float("inf")]), "'x' .* is inf, no number"),
    ],
    ids=str,
)
def test_a_value_that_is_no_text_is_refused_only_if_a_task_uses_it(
    tmp_path: Path, column: Any, why: str
) -> None:
    rows = [Row("here", n, row) for n, row in enumerate(read(tmp_path, x=column))]
    with pytest.raises(UsageError, match=why):
        [text_of(row, "x", "target") for row in rows]


@pytest.mark.parametrize("kind", [bool, str, int, float, datetime.date, decimal.Decimal])
@given(data=st.data())
@settings(deadline=None, max_examples=30)
def test_nothing_is_lost_of_a_column(
    tmp_path_factory: pytest.TempPathFactory, kind: type, data: st.DataObject
) -> None:
    one = {
        decimal.Decimal: st.decimals(-99, 99, places=2),
        float: st.floats(allow_nan=False, allow_infinity=False),
        str: st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        int: st.integers(-(2**63), 2**63 - 1),
    }.get(kind, st.from_type(kind))
    values = data.draw(st.lists(st.none() | one, min_size=1, max_size=5))
    folder = tmp_path_factory.mktemp("rows")
    found = [row["x"] for row in read(folder, x=pa.array(values))]
    for value, got in zip(values, found, strict=True):
        if value is None:
            assert got is None
        elif kind is datetime.date:
            assert got == value.isoformat()
        else:
            assert kind(got) == value
