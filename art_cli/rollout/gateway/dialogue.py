"""The roles of an agent's calls of the policy: the env's turns, the main conversation, the answer.

An agent may ask the policy for much that is not its play: a plan before each turn, a guardrail, a
title. What it does to the env tells them apart. Conversations of one family belong to one agent:
they have the same system prompt and tools, or the later one goes on where the earlier one called
something (a handoff, say). The main family

- is the one whose calls and words reached the env; of several, the one that spoke last;
- else the one that began with the scenario's own opening;
- and where all of it was played while another family waited for a tool of its own, as one does that
  has sub-agents, it is that other one.

What comes last in it is the answer, but for words before the env's last call.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from art_cli.rollout.gateway.thread import PolicyTurn, Thread, same
from art_cli.system.untrusted import read_json
from art_cli.types import Message, ToolCall

# Tools by which frameworks let a model end: pydantic-ai's (also final_result_NAME), smolagents',
# the AI SDK's. One of the env's own of that name is the env's.
ANSWER_TOOLS = ("final_result", "final_answer", "answer")

Entry = tuple[Message, Message, bool]  # as the program has it, as it is shown, was it sampled


class Dialogue:
    """All turns of the policy in one episode."""

    def __init__(
        self, opening: list[Message], tools: list[dict[str, Any]], answer_tool: str | None
    ) -> None:
        self.threads: list[Thread] = []
        self.turns: list[PolicyTurn] = []  # in the order in which they were answered
        self.num_env_turns = 0
        self._opening = opening
        self._env_tools = {tool["function"]["name"] for tool in tools}
        self._answer_tool = answer_tool

    def take_back(self, turn: PolicyTurn) -> None:
        """Forget a turn that nobody received."""
        self.turns.remove(turn)
        turn.thread.take_back(turn)

    # The env's turns.

    def turn_that_calls(self, name: str, arguments: dict[str, Any]) -> PolicyTurn | None:
        """Return the turn that led to a call of the env; None before the first one.

        It is the last one that waits for this call, or for one of the tool (whose name a client may
        have put another in front of), or for anything; else the last one at all.
        """
        call: ToolCall = {"name": name, "arguments": arguments}

        def fit(turn: PolicyTurn) -> int:
            if call in turn.waiting:
                return 3
            if any(c["name"].endswith(name) for c in turn.waiting):
                return 2
            return 1 if turn.waiting else 0

        found = max(reversed(self.turns), key=fit, default=None)
        if found and fit(found) > 1:
            fitting = [c for c in found.waiting if c["name"].endswith(name)]
            found.waiting.remove(call if call in fitting else fitting[0])
        return found

    def turn_that_says(self, text: str) -> PolicyTurn | None:
        """Return the turn whose words the env is to hear; None before the first one."""
        said = [t for t in self.turns if t.message["content"].strip() == text.strip()]
        return (said or self.turns or [None])[-1]

    def reach_env(self, turn: PolicyTurn | None) -> int:
        """Return which of the env's turns a turn is, from now on."""
        if turn is None or turn.env_turn is not None:
            return max(self.num_env_turns - 1, 0) if turn is None else turn.env_turn or 0
        turn.env_turn = self.num_env_turns
        self.num_env_turns += 1
        return turn.env_turn

    # The main conversation.

    def answer(self) -> tuple[PolicyTurn, str] | None:
        """Return what the main conversation came to, as text for the env's reply()."""
        for turn in reversed(_turns(self.main())):
            calls = turn.answered.calls
            if not calls:
                words = turn.message["content"]
                return turn, _text_of(words) if turn.structured else words
            given = [c.arguments for c in calls if self._answers(c.name)]
            if given:
                return turn, as_text(given[-1])
            names = {c.name for c in calls}
            if turn.env_turn is not None or names & self._env_tools:
                return None  # words before it were said before the env's last call
        return None

    def messages(self) -> list[Message]:
        """Return the main conversation, each turn of it once, however often it was rewritten."""
        family = self.main()
        ends = {t.thread for t in _turns(family)[-1:]}
        live = [t for t in family if t in ends or _num_env(t.turns)]
        entries: list[Entry] = []
        for thread in live:
            entries = _joined(entries, thread)
        return [shown for _, shown, _ in entries] or list(self._opening)

    def _answers(self, name: str) -> bool:
        if name in self._env_tools:
            return False
        if self._answer_tool:
            return name == self._answer_tool
        return name in ANSWER_TOOLS or name.startswith("final_result_")

    def main(self) -> list[Thread]:
        """Return the main conversation's threads."""
        families = self._families()
        if not families:
            return []
        playing = [f for f in families if _num_env(_turns(f))]
        if playing:
            main = max(playing, key=lambda f: self.turns.index(_turns(f)[-1]))
        else:
            main = max(families, key=self._likeness)
        while waiting := next((f for f in families if f is not main and _waits(f, main)), None):
            main = waiting
        return main

    def _families(self) -> list[list[Thread]]:
        families: list[list[Thread]] = []
        for thread in self.threads:
            if not thread.turns:
                continue
            kin = [f for f in families if any(_related(other, thread) for other in f)]
            families = [f for f in families if f not in kin]
            families.append([*(t for f in kin for t in f), thread])
        return families

    def _likeness(self, family: list[Thread]) -> tuple[int, int, int]:
        """Return how much a family looks like the one that plays the scenario."""
        wanted = [m["content"].strip() for m in self._opening if m["role"] == "user"][-1:]
        said = [m["content"].strip() for t in family for m in t.opening if m["role"] == "user"]
        begun = 0
        if wanted:
            begun = 2 if wanted[0] in said else int(any(wanted[0] in text for text in said))
        own = _system(self._opening)
        begun += begun == 2 and bool(own) and any(_system(t.opening) == own for t in family)
        turns = _turns(family)
        return begun, len(turns), -self.turns.index(turns[0])


def as_text(arguments: dict[str, Any]) -> str:
    """Return the arguments of an answer tool as an answer: a lone text as it is, else JSON."""
    values = list(arguments.values())
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))


def _text_of(words: str) -> str:
    """Return what structured words say."""
    try:
        value = read_json(words)
    except ValueError:
        return words
    return as_text(value) if isinstance(value, dict) else words


def _turns(family: list[Thread]) -> list[PolicyTurn]:
    """Return the turns of a family, in the order in which they were asked for."""
    return sorted((turn for t in family for turn in t.turns), key=lambda turn: turn.begun)


def _num_env(turns: list[PolicyTurn]) -> int:
    return sum(turn.env_turn is not None for turn in turns)


def _system(messages: list[Message]) -> str:
    return "\n".join(m["content"].strip() for m in messages if m["role"] == "system")


def _related(a: Thread, b: Thread) -> bool:
    """Return whether `b`, which began later, is of the same agent as `a`."""
    system = _system(a.opening)
    if a.kind == b.kind and system == _system(b.opening) and (system or a.has_tools):
        return True
    known = [t for t in a.turns if any(same(t.message, m) for m in b.opening)]
    # Behind words that called nothing it is one who talks about them: a critic, or a title.
    return bool(known) and bool(known[-1].answered.calls)


def _waits(family: list[Thread], other: list[Thread]) -> bool:
    """Return whether all of another family's turns were asked for within a call of this one."""
    own, inner = _turns(family), _turns(other)
    return any(
        turn.answered.calls
        and turn.env_turn is None
        and turn.begun < inner[0].begun
        and inner[-1].begun < following.begun
        for turn, following in pairwise(own)
    )


def _joined(before: list[Entry], thread: Thread) -> list[Entry]:
    """Return a conversation and one of its family that goes on with it, each turn once."""
    sampled = {turn.place for turn in thread.turns}
    pairs = zip(thread.said, thread.shown, strict=False)  # it may be asked more at this moment
    own = [(said, shown, n in sampled) for n, (said, shown) in enumerate(pairs)]
    shared = 0
    while shared < min(len(before), len(own)) and same(before[shared][0], own[shared][0]):
        shared += 1
    if shared >= len(thread.opening):
        return own  # another answer to what was asked before
    for at, (said, _, was_sampled) in enumerate(before):
        if was_sampled:
            place = next((n for n, entry in enumerate(own) if same(entry[0], said)), None)
            if place is not None:
                return [*before[: at + 1], *own[place + 1 :]]
    return [*before, *own[shared:]]
