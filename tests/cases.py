"""Tables of cases that run the same code: one of each mechanism is fast, the others are slow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow_but(fast: Iterable[Any], cases: Iterable[Any]) -> list[Any]:
    """Mark each case as slow that is not in `fast`. A case is one value, or a tuple of several."""
    kept = list(fast)
    return [
        case
        if case in kept
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for case in cases
    ]
