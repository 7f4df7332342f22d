"""Recognition of answers that need no call: they follow from the question, or are always the same.

A result is compared with the others of its tool: words that stand in all of them tell nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from itertools import permutations
from typing import Any

TOKEN = re.compile(r"\d+(?:\.\d+)?|[^\W\d_]+")
# Results of other arguments that show what a tool says to all. Two may be alike by chance: one in
# three has the value of another one where there are three values.
ENOUGH = 3
MOST_NUMBERS = 6  # of the arguments of a call that is computed with


def tokens(text: str) -> set[str]:
    """Return the words and numbers of a text in one form: 7.0 and "7" are 7."""
    return {_plain(token) for token in TOKEN.findall(text.casefold())}


def constant(answers: Sequence[tuple[str, str]]) -> set[str]:
    """Return the words in all of (arguments, answer); none while few arguments were tried."""
    if len({arguments for arguments, _ in answers}) < ENOUGH:
        return set()
    return set.intersection(*(tokens(answer) for _, answer in answers))


def is_always_the_same(answers: Sequence[tuple[str, str]]) -> bool:
    """Return whether all (arguments, answer) have one answer, and there are enough of them."""
    different = {arguments for arguments, _ in answers}
    return len(different) >= ENOUGH and len({answer for _, answer in answers}) == 1


def stands_in(answer: str, question: str) -> bool:
    """Return whether an answer stands in a text as a whole, in any case, or as an equal number."""
    text = answer.strip().casefold()
    if re.search(rf"(?<!\w){re.escape(text)}(?!\w)", question.casefold()):
        return True
    numbers = TOKEN.fullmatch(text) is not None and text[0].isdigit()
    return numbers and _plain(text) in tokens(question)


def follows_from(
    answer: str, question: str, arguments: dict[str, Any], known: Set[str] = frozenset()
) -> bool:
    """Return whether an answer says nothing that the question does not.

    All its words stand in the question, are `known`, or are what comes of computing with two of the
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
