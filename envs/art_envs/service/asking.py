"""The assistant's questions to a customer, parsed without a language model.

No other code of the desk reads free text, and no score depends on it: if no question is recognized,
the scripted customer tells everything they know. tests/envs/utterances holds the examples that it
was developed on and measured on.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_REQUEST = re.compile(
    r"\?|\b(?:please|kindly|provide|tell|give|send|share|let me (?:know|have)|need|require|missing"
    r"|what|which|why|who|whom|how|could you|can you|may i|choose|pick|state|specify|enter|type"
    r"|drop me|verify|otherwise|will do|works? too|confirm (?:the|your)|identify)\b",
    re.I,
)
# A question that refers to the sentence before it: "I see two orders. Which one do you mean?"
_BACK = re.compile(
    r"\bwhich (?:one|would|of (?:them|these))\b|\bgive me (?:those|that|it)\b|\bis that what\b"
    r"|\bwhat (?:is|was) (?:it|yours)\b",
    re.I,
)


class Slot(NamedTuple):
    """A fact that an assistant may ask a customer for."""

    pattern: re.Pattern[str]  # matches a request for the fact
    sentence: str  # the customer's answer


Slots = dict[str, Slot]  # slot by name

# The slots of all domains; a domain adds its own.
SLOTS: Slots = {
    "name": Slot(
        re.compile(
            r"(?<!user )\b(?:sur)?names?\b(?! (?:the|of|a|one)\b)"
            r"|\bwhom? (?:am i|do i have|are you)\b|\b(?:how|what) are you called\b"
            r"|\baddress you (?:as|properly|by)\b",
            re.I,
        ),
        "My name is {}.",
    ),
    "email": Slot(
        re.compile(
            r"(?<!number in your )\b(?:e-?mails?|mail address|address you (?:signed|registered))\b",
            re.I,
        ),
        "My email is {}.",
    ),
    "zip": Slot(re.compile(r"\b(?:zip|postal|post ?code)\b", re.I), "My zip code is {}."),
    "user_id": Slot(
        re.compile(
            r"\b(?:user|customer|account|profile|member)(?:'s)? ?(?:id|number|name)\b|\byour id\b",
            re.I,
        ),
        "My user id is {}.",
    ),
    "reason": Slot(
        re.compile(
            r"\breasons?\b|\bwhy\b|\bhow come\b|\bwhat (?:made you|happened)\b|\bby mistake\b"
            r"|\bchange of plans?\b"
            r"|\bexplain\b|\bgrounds\b|\bthe cause\b",
            re.I,
        ),
        "The reason: {}.",
    ),
    "payment": Slot(
        re.compile(
            r"\b(?:payment|pay(?:ing)?|refund(?:ed)?|reimbursed?|cards?|paypal|charged?|billed"
            r"|difference|money|credit)\b|\bsettle\b|\bput (?:it|that|this) on\b|\bcover the\b",
            re.I,
        ),
        "For the payment: {}.",
    ),
}


def asked_slots(text: str, slots: Slots) -> list[str]:
    """Return the slots that the text asks for, in the order of `slots`."""
    sentences = re.split(r"(?<=[.!?])\s+|\n", text)
    requests = []
    for before, sentence in zip(["", *sentences], sentences, strict=False):
        if _REQUEST.search(sentence):
            requests += [before] * bool(_BACK.search(sentence)) + [sentence]
    asked = " ".join(requests)
    return [slot for slot, (pattern, _) in slots.items() if pattern.search(asked)]
