"""Conversion of Arrow values, of parquet files and Hugging Face data sets, to those of JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

Convert = Callable[[Any], Any]  # of a value that is not None


def converted(batches: Iterator[Any], whole: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of record batches as plain values. Values of unknown types stay as they are.

    `whole` names float columns that hold integers, which is how pandas stores integers with gaps.
    """
    for batch in batches:
        ways = {f.name: _way(f.type) for f in batch.schema}
        for name in whole:
            ways[name] = int
        for row in batch.to_pylist():
            for name, value in row.items():
                if (way := ways[name]) and value is not None:
                    is_nan = isinstance(value, float) and math.isnan(value)
                    row[name] = None if is_nan else way(value)
            yield row


def whole_columns(schema: Any, column: Callable[[str], Any]) -> set[str]:
    """Return the float columns whose values are all integers or missing.

    `column` reads a column by its name.
    """
    import pyarrow.compute as pc
    from pyarrow import types

    found: set[str] = set()
    for f in schema:
        if not types.is_float64(f.type):
            continue
        values = pc.fill_null(column(f.name), math.nan)  # type: ignore[attr-defined]
        there = pc.filter(values, pc.invert(pc.is_nan(values)))  # type: ignore[attr-defined]
        is_whole = pc.all(pc.equal(there, pc.round(there))).as_py()  # type: ignore[attr-defined]
        if len(there) and is_whole and pc.max(pc.abs(there)).as_py() < 2**53:  # type: ignore[attr-defined]
            found.add(f.name)
    return found


def _way(kind: Any) -> Convert | None:
    """Return the function that converts values of an Arrow type; None: they need no conversion."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return _way(kind.value_type)
    if types.is_float32(kind) or types.is_float16(kind):
        return _shortest(str(kind))
    if types.is_float64(kind):
        return float
    if types.is_decimal(kind):
        return lambda value: format(value, "f")
    if types.is_timestamp(kind):
        return _moment
    if types.is_date(kind) or types.is_time(kind):
        return lambda value: value.isoformat()
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return _decoded
    if types.is_struct(kind):
        ways = {f.name: _way(f.type) for f in kind}
        return lambda value: {k: _by(ways[k], v) for k, v in value.items()}
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        way = _way(kind.value_type)
        return (lambda value: [_by(way, v) for v in value]) if way else None
    return None


def _by(way: Convert | None, value: Any) -> Any:
    return value if way is None or value is None else way(value)


def _shortest(kind: str) -> Convert:
    """Return the function that keeps a float's shortest digits: 0.1, not 0.10000000149."""
    import numpy

    number: Any = numpy.float16 if kind == "halffloat" else numpy.float32
    return lambda value: float(str(number(value)))


def _moment(value: Any) -> str:
    """Format a timestamp; midnight without a time zone, as pandas stores a date, as a date."""
    is_day = value.tzinfo is None and not (value.hour or value.minute or value.second)
    return value.isoformat()[:10] if is_day and not value.microsecond else value.isoformat()


def _decoded(value: bytes) -> str | bytes:
    """Decode UTF-8. Other bytes, such as an image, stay bytes: a task may not use the column."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
