"""Detection of answers that need no call, because they follow from the question or never vary.

A result is compared with the others of its tool: words that occur in all of them carry no
information.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from itertools import permutations
from typing import Any

TOKEN = re.compile(r"\d+(?:\.\d+)?|[^\W\d_]+")
# The number of results, for different arguments, that show which words a tool always returns. Two
# may agree by chance: with three possible values, one in three does.
ENOUGH = 3
MOST_NUMBERS = 6  # limit of a call's numbers for computed answers


def tokens(text: str) -> set[str]:
    """Return the words and numbers of a text in canonical form: 7.0 and "7" are equal."""
    return {_plain(token) for token in TOKEN.findall(text.casefold())}


def constant(answers: Sequence[tuple[str, str]]) -> set[str]:
    """Return the words in all of (arguments, answer), or none if few arguments were tried."""
    if len({arguments for arguments, _ in answers}) < ENOUGH:
        return set()
    return set.intersection(*(tokens(answer) for _, answer in answers))


def is_always_the_same(answers: Sequence[tuple[str, str]]) -> bool:
    """Return whether enough (arguments, answer) pairs exist and all have the same answer."""
    different = {arguments for arguments, _ in answers}
    return len(different) >= ENOUGH and len({answer for _, answer in answers}) == 1


def stands_in(answer: str, question: str) -> bool:
    """Return whether an answer occurs in a text, ignoring case, or as an equal number."""
    text = answer.strip().casefold()
    if re.search(rf"(?<!\w){re.escape(text)}(?!\w)", question.casefold()):
        return True
    numbers = TOKEN.fullmatch(text) is not None and text[0].isdigit()
    return numbers and _plain(text) in tokens(question)


def follows_from(
    answer: str, question: str, arguments: dict[str, Any], known: Set[str] = frozenset()
) -> bool:
    """Return whether an answer adds nothing to the question.

    All its words occur in the question, are `known`, or result from arithmetic with two of the
    call's numbers.
    """
    if stands_in(answer, question):
        return True
    said = tokens(answer)
    computed = set(_computed(list(_numbers(arguments))))
    return bool(said) and said - known <= tokens(question) | computed


def _plain(token: str) -> str:
    return f"{float(token):.10g}" if token[0].isdigit() and len(token) < 16 else token


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _numbers(each)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def _computed(numbers: list[float]) -> Iterator[str]:
    """Yield sums, differences, products and quotients."""
    if len(numbers) > MOST_NUMBERS:
        return
    for a, b in permutations(numbers, 2):
        found = [a + b, a - b, a * b, *([a / b] if b else [])]
        yield from (f"{abs(value):.10g}" for value in found)
    if numbers:
        yield f"{abs(sum(numbers)):.10g}"
