"""Aliases fit, differ from each other, and are the names themselves where those fit."""

from fuzz import fuzz
from hypothesis import given
from hypothesis import strategies as st

from art_cli.system.aliases import API_NAMES, aliases

PARTS = st.sampled_from(["a", "b", "_", ".", "/", "-", " ", "\u5217", "\u00e9", "2", "x" * 40])
NAMES = st.lists(PARTS, max_size=5).map("".join) | st.text(max_size=8)


def test_what_is_alike_is_told_apart_by_a_number() -> None:
    assert aliases(["a.b", "a/b", "a_b", "\u5217", "r\u00e9"]) == [
        "a_b_2",
        "a_b_3",
        "a_b",
        "tool",
        "re",
    ]
    assert aliases(["x" * 65, "x" * 66]) == ["x" * 64, "x" * 62 + "_2"]


@fuzz(300)
@given(st.lists(NAMES, max_size=8))
def test_each_name_has_an_alias_of_its_own(names: list[str]) -> None:
    found = aliases(names)
    assert len(set(found)) == len(names) and all(map(API_NAMES.allows, found))
    assert all(n in found for n in names if API_NAMES.allows(n))
