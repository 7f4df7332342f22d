"""What an assistant asks a customer for, read without a language model.

It is the one reader of free text at a desk, and nothing is scored by it: where it understands
nothing, the scripted customer tells all that they know. tests/envs/utterances holds what it was
made on and what it was measured on.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_REQUEST = re.compile(
    r"\?|\b(please|provide|tell me|give me|need|what|which|could you|can you|may i)\b", re.I
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


def asked_slots(text: str, slots: Slots) -> list[str]:
    """Return the slots that the text asks for, in the order of `slots`."""
    sentences = re.split(r"(?<=[.!?])\s+|\n", text)
    requests = " ".join(s for s in sentences if _REQUEST.search(s))
    return [slot for slot, (pattern, _) in slots.items() if pattern.search(requests)]
