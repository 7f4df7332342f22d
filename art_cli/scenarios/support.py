"""Verification that a written answer follows from the results of its calls."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from art_cli.scenarios.guesses import stands_in, tokens
from art_cli.scenarios.source import ToolResult

NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?(?![\w.])")
MOST_NUMBERS = 100  # limit of numbers from results that are combined in pairs
ROUNDED = 0.006  # tolerance of a mean or a quotient rounded to two decimals


def is_supported(answer: str, question: str, calls: Sequence[ToolResult]) -> bool:
    """Return whether the results support an answer.

    They do if it occurs in one of them, if all its words occur in them, or if it is a number
    computed from theirs: a count of entries, or a sum, mean, difference, product or quotient.
    """
    results = [call.result for call in calls]
    if any(stands_in(answer, result) for result in results):
        return True
    found = NUMBER.findall(answer)
    if len(found) == 1:
        value = float(found[0].replace(",", ""))
        return any(abs(value - each) <= ROUNDED for each in _computed(question, results))
    said = tokens(answer)
    return bool(said) and said <= set[str]().union(*map(tokens, results))


def _computed(question: str, results: Sequence[str]) -> Iterator[float]:
    columns: dict[str, list[float]] = defaultdict(list)
    longest = 0
    for result in results:
        try:
            value = json.loads(result)
        except (ValueError, RecursionError):
            columns[""] += map(_number, NUMBER.findall(result))
            longest = max(longest, len(result.splitlines()))
        else:
            longest = max(longest, _read(value, "", columns))
    yield from map(float, range(longest + 1))  # the number of entries that meet a condition
    for column in columns.values():
        yield from (sum(column), sum(column) / len(column), max(column), min(column))
    given = map(_number, NUMBER.findall(question))
    numbers = [*(n for column in columns.values() for n in column), *given][:MOST_NUMBERS]
    yield from numbers
    for a, b in combinations(numbers, 2):
        yield from (a + b, a - b, b - a, a * b)
        yield from (x / y * scale for x, y in ((a, b), (b, a)) if y for scale in (1, 100))


def _read(value: Any, name: str, columns: dict[str, list[float]]) -> int:
    """Collect a result's numbers by key. Return the length of its longest list."""
    if isinstance(value, bool) or value is None:
        return 0
    if isinstance(value, int | float):
        columns[name].append(float(value))
        return 0
    if isinstance(value, str):
        if NUMBER.fullmatch(value):
            columns[name].append(_number(value))
        return 0
    each = value.items() if isinstance(value, dict) else ((name, v) for v in value)
    longest = max((_read(v, key, columns) for key, v in each), default=0)
    return max(longest, len(value) if isinstance(value, list) else 0)


def _number(text: str) -> float:
    return float(text.replace(",", ""))
