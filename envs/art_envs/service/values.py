"""Comparison of a value in a text with the expected value."""

from __future__ import annotations

import re
from decimal import Decimal

_CURRENCY = r"(?:US\$|\$|USD|(?:US )?dollars?)"
_NUMBER = re.compile(
    rf"{_CURRENCY}?\s*(\d{{1,3}}(?:,\d{{3}})+|\d+)(\.\d+)?(?:\s*{_CURRENCY})?", re.I
)
_MARKS = "*`'\"\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}"  # around a value


def is_value(said: str, value: str) -> bool:
    """Return whether the text is this value and nothing else: "USD 1,250" is "1250.00".

    Quotation marks and Markdown emphasis around it are ignored. A text with several values matches
    none of them.
    """
    said = said.strip().rstrip(".").strip(_MARKS).rstrip(".")
    found, number = _NUMBER.fullmatch(said), _NUMBER.fullmatch(value)
    if found and number:
        return _decimal(found) == _decimal(number)
    return said.lower() == value.lower()


def _decimal(match: re.Match[str]) -> Decimal:
    return Decimal(match[1].replace(",", "") + (match[2] or ""))
