"""Values of Arrow (parquet, data sets of the hub) as a JSON file would hold them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

Convert = Callable[[Any], Any]  # of a value that is not None


def converted(batches: Iterator[Any], whole: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of record batches. Raise ValueError, with the column, for what is no text.

    Columns in `whole` hold whole numbers in floats, as pandas leaves integers with gaps.
    """
    for batch in batches:
        ways = {f.name: _way(f.type, f.name) for f in batch.schema}
        for name in whole:
            ways[name] = int
        for row in batch.to_pylist():
            for name, value in row.items():
                if (way := ways[name]) and value is not None:
                    is_nan = isinstance(value, float) and math.isnan(value)
                    row[name] = None if is_nan else way(value)
            yield row


def whole_columns(schema: Any, column: Callable[[str], Any]) -> set[str]:
    """Return the columns of floats, some of them missing, in which all others are whole numbers.

    `column` reads one.
    """
    import pyarrow.compute as pc
    from pyarrow import types

    found: set[str] = set()
    for f in schema:
        if not types.is_float64(f.type):
            continue
        values = pc.fill_null(column(f.name), math.nan)  # type: ignore[attr-defined]
        there = pc.filter(values, pc.is_finite(values))  # type: ignore[attr-defined]
        is_whole = pc.all(pc.equal(there, pc.round(there))).as_py()  # type: ignore[attr-defined]
        if len(there) and is_whole and abs(pc.max(pc.abs(there)).as_py()) < 2**53:  # type: ignore[attr-defined]
            found.add(f.name)
    return found


def _way(kind: Any, name: str) -> Convert | None:
    """Return how values of a type become JSON's; None: they are."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return _way(kind.value_type, name)
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
        return lambda value: _decoded(value, name)
    if types.is_struct(kind):
        ways = {f.name: _way(f.type, f"{name}.{f.name}") for f in kind}
        return lambda value: {k: _by(ways[k], v) for k, v in value.items()}
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        way = _way(kind.value_type, name)
        return (lambda value: [_by(way, v) for v in value]) if way else None
    plain = (types.is_integer, types.is_boolean, types.is_string, types.is_large_string)
    if types.is_null(kind) or any(check(kind) for check in plain):
        return None
    raise ValueError(f"the column {name!r} is of the type {kind}, which is no text; convert it")


def _by(way: Convert | None, value: Any) -> Any:
    return value if way is None or value is None else way(value)


def _shortest(kind: str) -> Convert:
    """Return a float's shortest text that means it, as a float: 0.1, not 0.10000000149."""
    import numpy

    number: Any = numpy.float16 if kind == "halffloat" else numpy.float32
    return lambda value: float(str(number(value)))


def _moment(value: Any) -> str:
    """Return a timestamp; midnight without a zone is how pandas keeps a day."""
    is_day = value.tzinfo is None and not (value.hour or value.minute or value.second)
    return value.isoformat()[:10] if is_day and not value.microsecond else value.isoformat()


def _decoded(value: bytes, name: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ValueError(f"the column {name!r} holds bytes that are no text in UTF-8") from None
