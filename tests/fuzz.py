"""What the outside may send: strategies for Hypothesis, and how its tests are run.

    @fuzz(500)
    @given(any_json)
    def test_...(value): ...

The cases follow from the test alone, so that a failure repeats; nothing is kept on disk.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

ODD = (
    "\ud800",  # half a surrogate pair, which is no text in any encoding
    "\udfff\ud800",
    "\x00",
    "\x1b[2J",
    "\u202e",  # what follows is shown from right to left
    "\u200b\ufeff",
    "e\u0301" * 20,
    "\U0001f600",
    "<|im_end|>",
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    '{"',
    "\\ud800",
    "\\u0000",
)
ODD_NUMBERS = (
    *(10**400, -(10**400), 2**63, -(2**63) - 1, 2**53 + 1),
    *(float("inf"), float("-inf"), float("nan"), -0.0, 1e308, 5e-324),
)


def nested(depth: int, leaf: Any = 0) -> Any:
    """`leaf` inside of so many lists and objects."""
    for n in range(depth):
        leaf = [leaf] if n % 2 else {"a": leaf}
    return leaf


any_text = st.one_of(
    st.text(st.characters(), max_size=40),  # of all categories, surrogates too
    st.lists(st.sampled_from(ODD) | st.text(max_size=8), max_size=6).map("".join),
    st.integers(0, 5000).map(lambda n: "x" * n),
)
any_scalar = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(ODD_NUMBERS),
    any_text,
)
any_json = st.one_of(
    st.recursive(
        any_scalar,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
        max_leaves=12,
    ),
    st.integers(1, 600).map(nested),
)
"""A value that `json.dumps` can write, NaN and infinities as it spells them."""


def broken(text: str) -> st.SearchStrategy[str]:
    """The text with a piece of it cut out, said twice, or something else put in."""
    places = st.tuples(st.integers(0, len(text)), st.integers(0, len(text))).map(sorted)
    insert = st.sampled_from(
        ("", ",", "}", "]", '"', "NaN", "Infinity", "9" * 5000, "1e999", "[" * 3000, *ODD)
    )
    return st.one_of(
        st.builds(lambda p, new: text[: p[0]] + new + text[p[1] :], places, insert),
        st.builds(lambda p: text[: p[1]] + text[p[0] :], places),
    )


any_json_text = any_json.map(json.dumps).flatmap(lambda text: st.just(text) | broken(text))
"""JSON, and what was JSON before somebody broke it."""


def fuzz(cases: int) -> Callable[[Any], Any]:
    """Run a test of Hypothesis on so many cases, the same ones each time.

    It takes all of them where ART_FUZZ_ALL is set, as .ci/run does, and else a tenth.
    """
    return settings(
        max_examples=cases if os.environ.get("ART_FUZZ_ALL") else max(min(cases, 50), cases // 10),
        deadline=None,
        derandomize=True,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
