"""The one reader of free text at a desk: what an assistant asks a customer for."""

from collections import Counter
from pathlib import Path

import pytest

from art_envs.airline.desk import AirlineDesk
from art_envs.retail.desk import RetailDesk
from art_envs.service.asking import asked_slots

SLOTS = {**RetailDesk.slots, **AirlineDesk.slots}


def utterances(half: str) -> list[tuple[set[str], str]]:
    """What is asked for, and the words."""
    lines = (Path(__file__).parent / "utterances" / f"{half}.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in lines]
    return [(set(slots.split()) - {"-"}, text) for slots, text in rows]


@pytest.mark.parametrize("half", ["made_on", "kept_apart"])
def test_what_is_asked_for_is_understood(half: str) -> None:
    found: Counter[str] = Counter()
    for wanted, text in utterances(half):
        got = set(asked_slots(text, SLOTS))
        found += Counter(right=len(wanted & got), missed=len(wanted - got), odd=len(got - wanted))
    assert found["right"] / (found["right"] + found["odd"]) >= 0.97
    assert found["right"] / (found["right"] + found["missed"]) >= 0.97


def test_the_half_kept_apart_is_apart() -> None:
    made, kept = ({text for _, text in utterances(half)} for half in ("made_on", "kept_apart"))
    assert len(made | kept) >= 600
    assert not made & kept


def test_a_question_may_be_about_the_sentence_before_it() -> None:
    assert asked_slots("I see several orders. Which one do you mean?", SLOTS) == ["order_id"]
    assert asked_slots("Your email was found. Your name and zip code, please.", SLOTS) == [
        "name",
        "zip",
    ]


def test_what_is_told_is_not_asked_for() -> None:
    assert asked_slots("The card was charged.", SLOTS) == []
