"""The simulated customer, whose messages follow from the goal. The env ends the episode."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from art_cli import LLM, ChatMessage
from art_envs.service.asking import Slots, asked_slots
from art_envs.service.goal import Action, Goal, Want, ever_wanted

GOODBYE, YES = "[goodbye]", "[yes]"
MAX_OBJECTIONS = 2  # wrong proposals after which the customer leaves
PATIENCE = 6  # turns without progress after which the customer leaves
NEEDLESS = 2  # turns of patience that a needless action costs; one more the second time

IsWanted = Callable[[Action, Want], Awaitable[bool]]  # returns whether a write satisfies a want


class Report(NamedTuple):
    """The outcome of an action that a customer was asked to take in their own world."""

    text: str  # in the customer's words
    is_due: bool  # the policy requires the action at this point
    is_again: bool  # the customer had taken the action before
    mends: bool  # it solves the customer's problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A user's answer."""

    text: str
    leaving: bool = False  # the user considers everything done, which the env may overrule
    agrees: bool = False  # whether the user accepts the proposal


class User(Protocol):
    """The user who talks to the assistant."""

    @property
    def is_insisting(self) -> bool:
        """Whether the user still waits for a yes or no after a refusal."""
        ...

    async def say(self, text: str, *, works: bool = False) -> Said:
        """Return the answer to the assistant's message.

        `works`: the assistant has looked up something new since its last message.
        """
        ...

    async def confirm(self, write: Action, is_wanted: IsWanted) -> Said:
        """Return the answer to a proposal."""
        ...

    async def refused(self, reason: str) -> Said:
        """Return the answer to a refusal."""
        ...

    async def told(self, value: str) -> Said:
        """Return the answer to a value."""
        ...

    async def did(self, what: str, report: Report) -> Said:
        """Return the user's reaction to an action that they were asked to take."""
        ...

    def got(self, *, agreed: bool) -> None:
        """Record a change that was made, with or without the user's consent."""
        ...


class ScriptedUser:
    """A deterministic user: answers questions, accepts or corrects proposals, and accepts a
    refusal.

    The user knows which actions were taken, so the assistant's words settle nothing. They leave
    after a change without their consent, after too many wrong proposals, or when nothing happens
    any more.
    """

    def __init__(self, goal: Goal, slots: Slots) -> None:
        self._slots = slots
        self._known = {
            slot: slots[slot].sentence.format(goal["facts"][slot]) for slot in goal["may_reveal"]
        }
        self._untold = set(self._known)
        self._waiting = list(goal["wants"])
        self._left = PATIENCE
        self._objections = 0
        self._is_upset = False
        self._begin(self._waiting.pop(0))

    def _begin(self, want: Want) -> None:
        self._now = want
        self._wants_write = bool(want["write"]) and not want["reasons"]
        self._outputs = list(want["outputs"]) if not want["reasons"] else []
        self._pressure = list(want["pressure"])
        self.is_insisting = False

    async def say(self, text: str, *, works: bool = False) -> Said:
        self._left = min(self._left + works, PATIENCE)
        if self._is_upset:
            return self._leave("I did not agree to that.")
        if self._is_settled():
            return self._next("Thank you.")
        asked = asked_slots(text, self._slots)
        if known := [slot for slot in asked if slot in self._known]:
            is_new = not self._untold.isdisjoint(known)
            self._untold.difference_update(known)
            return self._answer(" ".join(self._known[slot] for slot in known), is_new=is_new)
        if self.is_insisting:
            return self._answer("Is that a yes or a no?")
        if asked:
            unknown = " or ".join(slot.replace("_", " ") for slot in asked)
            known = [f"I do not know the {unknown}.", self._now["words"], *self._rest()]
            return self._answer(" ".join(known))
        return self._answer(" ".join([self._now["words"], *self._rest()]))

    def _rest(self) -> list[str]:
        """Return all facts that the user knows and has not told: no question was recognized."""
        rest = [sentence for slot, sentence in self._known.items() if slot in self._untold]
        self._untold.clear()
        return rest

    def _answer(self, text: str, *, is_new: bool = False) -> Said:
        self._left -= not is_new
        return Said(text=text) if self._left > 0 else self._leave("This leads nowhere.")

    def _is_settled(self) -> bool:
        return not (self._wants_write or self._outputs or self._now["reasons"])

    async def confirm(self, write: Action, is_wanted: IsWanted) -> Said:
        if self._is_upset:
            return self._leave("I did not agree to that.")
        if (self._wants_write or self._now["reasons"]) and await is_wanted(write, self._now):
            if self._now["rather"]:
                self._begin(self._now["rather"])
                self._left = PATIENCE
                return Said(text=self._now["words"])
            return Said(text="Yes.", agrees=True)
        self._objections += 1
        if self._objections > MAX_OBJECTIONS:
            return self._leave("That is wrong again.")
        if self._is_settled():
            return Said(text="No, I did not ask for that.")
        return Said(
            text=" ".join(["No, that is not what I want.", self._now["words"], *self._rest()])
        )

    async def refused(self, reason: str) -> Said:
        if self._is_upset:
            return self._leave("I did not agree to that.")
        if self._now["otherwise"]:
            self._begin(self._now["otherwise"])
            return Said(text=self._now["words"])
        if self._pressure:
            self.is_insisting = True
            return Said(text=self._pressure.pop(0))
        return self._next("I see.")

    async def told(self, value: str) -> Said:
        if value in self._outputs:
            self._outputs.remove(value)
        return self._next("Thank you.") if self._is_settled() else Said(text="Thank you.")

    async def did(self, what: str, report: Report) -> Said:
        if self._is_upset:
            return self._leave("I did not agree to that.")
        if report.mends:
            self._wants_write = False
            return self._next(f"{report.text} It works again, thank you.")
        if report.is_due:
            return self._answer(report.text, is_new=True)
        self._left -= NEEDLESS + report.is_again - 1
        again = "I have done that already." if report.is_again else ""
        return self._answer(f"{again} {report.text}".strip())

    def got(self, *, agreed: bool) -> None:
        self._is_upset = self._is_upset or not agreed
        self._wants_write = self._wants_write and not agreed

    def _next(self, before: str) -> Said:
        self.is_insisting = False
        if not self._waiting:
            return self._leave(before)
        self._begin(self._waiting.pop(0))
        self._left = PATIENCE
        return Said(text=f"{before} {self._now['words']}")

    def _leave(self, why: str) -> Said:
        return Said(text=f"{why} Goodbye.", leaving=True)


PROMPT = """\
You play a customer who writes to a company's support. Stay in this role and never act as support.

What you want, in this order, one thing at a time:
{wants}
{extra}
What you know and tell only when you are asked for it:
{facts}
You know nothing else: asked for something else, say that you do not know it. Never invent.

Write one short message at a time, without quotes. What support does stands in brackets: believe \
that alone, not what support says that it did. When you are asked to confirm a change, begin with \
{yes} only if it is exactly what you want; else say what is wrong. Write {goodbye} at the end of a \
message only once everything you want has been done or has been refused for good; never while \
support asks you something or is about to act."""


class LLMUser:
    """A language model that plays the customer. Its prompt contains only facts it may reveal."""

    is_insisting = False  # the model itself decides when to leave

    def __init__(self, goal: Goal, slots: Slots, llm: LLM) -> None:
        self._llm = llm
        prompt = PROMPT.format(
            wants=_lines([each["words"] for each in goal["wants"]]),
            extra=_extra(goal),
            facts=_lines([slots[s].sentence.format(goal["facts"][s]) for s in goal["may_reveal"]]),
            goodbye=GOODBYE,
            yes=YES,
        )
        self._messages: list[ChatMessage] = [
            {"role": "system", "content": prompt},
            # Some chat templates reject a conversation that begins with the assistant.
            {"role": "user", "content": "Hello, how can I help you?"},
            {"role": "assistant", "content": goal["opening"]},
        ]
        self._news: list[str] = []  # actions since the user's last message

    async def say(self, text: str, *, works: bool = False) -> Said:
        """Return the answer to the assistant's message.

        Raise LLMError if the model gives no answer, RuntimeError if it only thinks.
        """
        heard = "\n".join([*self._news, text]) or "..."
        self._news = []
        self._messages.append({"role": "user", "content": heard})
        answer = (await self._llm.ask(self._messages)).text.strip()
        if not answer:
            raise RuntimeError(
                "the model that plays the customer says nothing; if it thinks, raise "
                "env.args.user.params.max_tokens"
            )
        self._messages.append({"role": "assistant", "content": answer})
        leaving, agrees = GOODBYE in answer, answer.lower().startswith(YES)
        said = answer.replace(GOODBYE, "").strip()
        said = said[len(YES) :].strip() or "Yes." if agrees else said
        return Said(text=said or "Goodbye.", leaving=leaving, agrees=agrees)

    async def confirm(self, write: Action, is_wanted: IsWanted) -> Said:
        what = json.dumps(write["arguments"])
        return await self.say(f"[Support asks you to confirm: {write['name']} {what}]")

    async def refused(self, reason: str) -> Said:
        return await self.say(f"[Support refuses what you asked for. The reason: {reason}]")

    async def told(self, value: str) -> Said:
        return await self.say(f"[Support gives you the answer to your question: {value}]")

    async def did(self, what: str, report: Report) -> Said:
        return await self.say(
            f"[Support asks you to do this: {what}. You do it, and find: {report.text} Tell them.]"
        )

    def got(self, *, agreed: bool) -> None:
        yes = "you agreed to" if agreed else "you did not agree to"
        self._news.append(f"[Support has made a change that {yes}.]")


def _extra(goal: Goal) -> str:
    parts = []
    for each in ever_wanted(goal):
        if each["otherwise"]:
            other = each["otherwise"]["words"]
            parts.append(f"If this is refused: {each['words']}\nask for this:\n- {other}")
        if each["rather"]:
            rather = each["rather"]["words"]
            parts.append(
                f"When you are asked to confirm this: {each['words']}\n"
                f"say no: you change your mind, and want this in its place:\n- {rather}"
            )
        if each["pressure"]:
            pushes = _lines(each["pressure"])
            parts.append(f"You do not take a no at once; push like this:\n{pushes}")
    return "".join(f"\n{part}\n" for part in parts)


def _lines(texts: list[str]) -> str:
    return "\n".join(f"- {text}" for text in texts) or "- nothing"
