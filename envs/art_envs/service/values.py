"""When two written values are the same."""

from __future__ import annotations

import re
from decimal import Decimal

_NUMBER = re.compile(r"\$?\s*(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(?:\s*(?:\$|usd|dollars?))?", re.I)


def is_value(said: str, value: str) -> bool:
    """Return whether the text is this value and nothing else: "$1,250" is "1250.00".

    Who names several has named none.
    """
    said = said.strip().rstrip(".")
    found, number = _NUMBER.fullmatch(said), _NUMBER.fullmatch(value)
    if found and number:
        return _decimal(found) == _decimal(number)
    return said.lower() == value.lower()


def _decimal(match: re.Match[str]) -> Decimal:
    return Decimal(match[1].replace(",", "") + (match[2] or ""))
