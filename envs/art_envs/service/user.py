"""The customer. What they say follows from the goal; the env decides when the episode ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from art_cli import LLM, ChatMessage
from art_envs.service.answer import Slots, asked_slots, asks, denies, proposes, says
from art_envs.service.goal import Choice, Goal

NO_WRITE = ("refused", "information", "transfer")  # kinds whose customer can be given no change
GOODBYE = "[goodbye]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a user answers."""

    text: str
    leaving: bool = False  # the user thinks that all is done; the env may know better


class User(Protocol):
    """Who talks to the assistant."""

    async def say(self, text: str) -> Said:
        """Return the answer to what the assistant said."""
        ...


class ScriptedUser:
    """Deterministic: answers what is asked for, accepts or corrects proposals, takes a no.

    It reads the assistant's words by patterns, so it cannot follow everything; what it never does
    is leave while the assistant asks something, or tell what it may not.
    """

    def __init__(self, goal: Goal, slots: Slots) -> None:
        self._goal = goal
        self._slots = slots
        self._wants = list(goal["wants"])
        self._told = [self._wants.pop(0)] if self._wants else []
        self._fallbacks = list(goal["fallbacks"])
        self._pressure = list(goal["pressure"])
        self._second_thoughts = list(goal["second_thoughts"])
        self._answered: set[str] = set()

    async def say(self, text: str) -> Said:
        asked = asked_slots(text, self._slots)
        known = {slot for slot in asked if slot in self._goal["may_reveal"]}
        is_new, self._answered = known - self._answered, self._answered | known
        # "Unfortunately I cannot find you. What is your zip code?" is a question, not a no.
        if denies(text) and not is_new:
            return self._refused(text)
        facts = self._facts(text, asked)
        if proposes(text):
            return self._proposed(text, facts)
        if facts:
            return Said(text=facts)
        return self._next(text)

    def _refused(self, text: str) -> Said:
        if self._fallbacks:
            return self._tell(self._fallbacks.pop(0))
        if self._pressure:
            return self._tell(self._pressure.pop(0))
        if proposes(text) and self._goal["kind"] not in NO_WRITE:
            return self._proposed(text, "")
        if self._wants:
            return self._tell(self._wants.pop(0), "I see.")
        return Said(text="I see. No, thank you. Goodbye.", leaving=True)

    def _proposed(self, text: str, facts: str) -> Said:
        if self._second_thoughts:
            return self._tell(self._second_thoughts.pop(0))
        wrong = [c for c in self._goal["accepts"] if _is_wrong(text, c)]
        if wrong:
            return Said(text=f"No. I want this: {wrong[0]['takes']}.")
        return Said(text=f"Yes, please. {facts}".strip())

    def _facts(self, text: str, asked: list[str]) -> str:
        goal, lines, unknown = self._goal, [], []
        for slot in asked:
            if slot in goal["may_reveal"]:
                lines.append(self._slots[slot].sentence.format(goal["facts"][slot]))
            else:
                unknown.append(slot.replace("_", " "))
        if unknown and not lines and not proposes(text):
            lines.append(f"I do not know the {' or '.join(unknown)}. {self._told[-1]}")
        return " ".join(lines)

    def _next(self, text: str) -> Said:
        if self._wants:
            return self._tell(self._wants.pop(0))
        if asks(text) and not _offers_more(text):
            return Said(text=" ".join(self._told))
        return Said(text="That is all, thank you. Goodbye.", leaving=True)

    def _tell(self, want: str, before: str = "") -> Said:
        self._told.append(want)
        return Said(text=f"{before} {want}".strip())


def _is_wrong(text: str, choice: Choice) -> bool:
    named = [option for option in choice["options"] if says(text, option)]
    return bool(named) and choice["takes"] not in named


def _offers_more(text: str) -> bool:
    return any(word in text.lower() for word in ("anything else", "something else", "further"))


PROMPT = """\
You play a customer who writes to a company's support. Stay in this role and never act as support.

What you want, in this order, one thing at a time:
{wants}
{extra}
What you know and tell only when you are asked for it:
{facts}
You know nothing else: asked for something else, say that you do not know it. Never invent.

Write one short message at a time, without quotes. Agree (begin with "yes") to a proposal only if
it is what you want. Write {goodbye} at the end of a message only once everything you want has been
done or has been refused for good; never while support asks you something or is about to act."""


class LLMUser:
    """A language model that plays the customer. It is told only what they may reveal."""

    def __init__(self, goal: Goal, slots: Slots, llm: LLM) -> None:
        self._llm = llm
        prompt = PROMPT.format(
            wants=_lines(goal["wants"]),
            extra=_extra(goal),
            facts=_lines([slots[s].sentence.format(goal["facts"][s]) for s in goal["may_reveal"]]),
            goodbye=GOODBYE,
        )
        self._messages: list[ChatMessage] = [
            {"role": "system", "content": prompt},
            # Some chat templates refuse a conversation that the assistant begins.
            {"role": "user", "content": "Hello, how can I help you?"},
            {"role": "assistant", "content": goal["opening"]},
        ]

    async def say(self, text: str) -> Said:
        """Return the answer to what the assistant said.

        Raises LLMError where the model gives none.
        """
        self._messages.append({"role": "user", "content": text})
        answer = (await self._llm.ask(self._messages)).text.strip()
        self._messages.append({"role": "assistant", "content": answer})
        leaving = GOODBYE in answer
        said = answer.replace(GOODBYE, "").strip()
        return Said(text=said or "Goodbye.", leaving=leaving)


def _extra(goal: Goal) -> str:
    parts = []
    if goal["fallbacks"]:
        parts.append(f"If that is refused, ask for this instead:\n{_lines(goal['fallbacks'])}")
    if goal["pressure"]:
        parts.append(f"You do not take a no at once; push like this:\n{_lines(goal['pressure'])}")
    if goal["second_thoughts"]:
        thoughts = _lines(goal["second_thoughts"])
        parts.append(f"When first asked to confirm, you change your mind:\n{thoughts}")
    choices = [choice["takes"] for choice in goal["accepts"]]
    if choices:
        parts.append(f"Accept nothing that differs from this:\n{_lines(choices)}")
    return "".join(f"\n{part}\n" for part in parts)


def _lines(texts: list[str]) -> str:
    return "\n".join(f"- {text}" for text in texts) or "- nothing"
