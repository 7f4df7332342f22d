"""What an answer says: values as whole tokens, refusals, proposals, questions."""

import pytest

from art_cli.envs.base import ToolError
from art_envs.service.answer import SLOTS, agrees, asked_slots, denies, proposes, says
from art_envs.service.arithmetic import calculated


@pytest.mark.parametrize(
    ("text", "value", "said"),
    [
        ("That is $10.", "10", True),
        ("It was 100 or 10.50, order W10, item-10.", "10", False),
        ("You get 1,250.00 back", "1250.00", True),
        ("You get $1250 back", "1250.00", True),
        ("You get 1250.01 back", "1250.00", False),
        ("version 1.2.3", "1.2", False),
        ("Flight HAT001 is booked", "hat001", True),
        ("Flight HAT0011 is booked", "HAT001", False),
        ("one of 1 2 3 4 5 6 7", "7", False),  # who names everything says nothing
        ("1.10 2.10 3.10 4.10, so 7 variants", "7", True),
    ],
)
def test_says(text: str, value: str, said: bool) -> None:
    assert says(text, value) is said


@pytest.mark.parametrize(
    ("text", "denied"),
    [
        ("I am sorry, I cannot do that.", True),
        ("sorry", True),
        ("Unfortunately the order has shipped.", True),
        ("I can\N{RIGHT SINGLE QUOTATION MARK}t do this.", True),
        ("You are not eligible for a refund.", True),
        ("I'm sorry to hear that. What is your email?", False),
        ("Sorry for the delay, it is done.", False),
        ("It is done.", False),
    ],
)
def test_denies(text: str, denied: bool) -> None:
    assert denies(text) is denied


@pytest.mark.parametrize(
    ("text", "proposed"),
    [
        ("I will cancel W1. Do you confirm (yes/no)?", True),
        ("Shall I go ahead?", True),
        ("Please confirm your email address.", False),
        ("What is your zip code?", False),
    ],
)
def test_proposes(text: str, proposed: bool) -> None:
    assert proposes(text) is proposed


def test_asked_slots_are_those_of_requests() -> None:
    text = "Your email was found. Please tell me your full name and zip code."
    assert asked_slots(text, SLOTS) == ["name", "zip"]
    assert asked_slots("The card was charged.", SLOTS) == []


def test_agrees() -> None:
    assert agrees("Yes, please.")
    assert not agrees("No. I want this: paypal.")
    assert not agrees("Yesterday I ordered a lamp.")


@pytest.mark.parametrize(
    ("expression", "value"),
    [("1 + 2 * 3", "7.00"), ("-(10.10 - 0.10) / 4", "-2.50"), ("0.1 + 0.2", "0.30")],
)
def test_calculated(expression: str, value: str) -> None:
    assert calculated(expression) == value


@pytest.mark.parametrize(
    "expression",
    ["1 +", "2 ** 9999", "a", "1 / 0", "0/0", "__import__('os')", "True", "(" * 90, "1" * 999, ""],
)
def test_what_is_no_sum_is_refused(expression: str) -> None:
    with pytest.raises(ToolError):
        calculated(expression)
