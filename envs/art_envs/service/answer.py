"""What an answer of the assistant says, read without a language model."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import NamedTuple

MAX_VALUES = 6  # numbers of one shape in one answer; who names more has not answered

_NUMBER = re.compile(r"(?<![\w.#-])\$?(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(?![\w])(?!\.\d)")
_DENIAL = re.compile(
    r"\b(sorry(?! (?:to hear|for|about))|unfortunately|can ?not"
    r"|can['\N{RIGHT SINGLE QUOTATION MARK}]t|unable"
    r"|not (?:be )?(?:able|possible|allowed|permitted|eligible|entitled)|impossible|refuse|decline"
    r"|denied|must deny)\b",
    re.I,
)
_PROPOSAL = re.compile(
    r"\b(confirm(?! (?:your|the) (?:identity|name|e-?mail|zip|account))|proceed|go ahead|shall i"
    r"|should i|do you (?:agree|want me|wish me)|would you like me|\(?yes/no\)?"
    r"|is (?:that|this) (?:ok|okay|right|correct|fine))\b",
    re.I,
)
_REQUEST = re.compile(
    r"\?|\b(please|provide|tell me|give me|need|what|which|could you|can you|may i)\b", re.I
)
_AGREES = re.compile(
    r"\s*(yes|yeah|yep|sure|ok|okay|correct|right|please do|go ahead|i confirm|confirmed|agreed)\b",
    re.I,
)


class Slot(NamedTuple):
    """Something that an assistant may ask a customer for."""

    pattern: re.Pattern[str]  # how a request for it looks
    sentence: str  # the customer's answer


Slots = dict[str, Slot]  # by name

# Those of any domain; a domain adds its own.
SLOTS: Slots = {
    "name": Slot(re.compile(r"\b(?:first|last|full|your) names?\b", re.I), "My name is {}."),
    "email": Slot(re.compile(r"\be-?mail\b", re.I), "My email is {}."),
    "zip": Slot(re.compile(r"\b(?:zip|postal|post ?code)\b", re.I), "My zip code is {}."),
    "user_id": Slot(
        re.compile(r"\b(?:user|customer|account|profile) ?(?:id|number|name)\b", re.I),
        "My user id is {}.",
    ),
    "reason": Slot(re.compile(r"\b(?:reason|why)\b", re.I), "The reason: {}."),
    "payment": Slot(
        re.compile(r"\b(?:payment|pay|refund(?:ed)?|card|paypal)\b", re.I),
        "For the payment: {}.",
    ),
}


def says(text: str, value: str) -> bool:
    """Return whether a value stands in the text as a whole token: "10" is not in "100" or "10.50".

    Numbers compare as numbers, "1,250.00" with "$1250"; an answer that lists more than MAX_VALUES
    numbers of the value's shape (with or without decimals) says none of them.
    """
    if re.fullmatch(r"\d+(\.\d+)?", value):
        found = {(Decimal(a.replace(",", "") + b), bool(b)) for a, b in _NUMBER.findall(text)}
        has_decimals = "." in value
        rivals = {number for number, decimals in found if decimals == has_decimals}
        return len(rivals) <= MAX_VALUES and Decimal(value) in {number for number, _ in found}
    return bool(re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text, re.I))


def denies(text: str) -> bool:
    """Return an explicit refusal."""
    return bool(_DENIAL.search(text))


def proposes(text: str) -> bool:
    """Return whether a text asks for a yes to something."""
    return bool(_PROPOSAL.search(text))


def asks(text: str) -> bool:
    """Return whether a text wants something from the reader."""
    return "?" in text or bool(_PROPOSAL.search(text))


def agrees(text: str) -> bool:
    """Return a yes, as an answer to a proposal."""
    return bool(_AGREES.match(text))


def asked_slots(text: str, slots: Slots) -> list[str]:
    """Return the slots that the text asks for, in the order of `slots`."""
    sentences = re.split(r"(?<=[.!?])\s+|\n", text)
    requests = " ".join(s for s in sentences if _REQUEST.search(s))
    return [slot for slot, (pattern, _) in slots.items() if pattern.search(requests)]
