"""The role of each policy call in an episode: env turn, main conversation, or answer.

An agent may ask the policy for more than its play: a plan before each turn, a guardrail, a title.
The calls and replies that reach the env tell them apart. Threads of one family belong to one agent:
they share the system prompt and tools, or the later one continues from a turn of the earlier one
that made a call (a handoff, for example). The main family is

- the one whose calls and text reached the env; of several, the one that answered last;
- otherwise the one that began with the scenario's opening;
- except that if all of its turns fall within a tool call of another family, as with sub-agents, it
  is that other family.

The last turn of the main family is the answer, unless a call of the env follows it.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from art_cli.rollout.gateway.thread import PolicyTurn, Thread, same
from art_cli.system.untrusted import read_json
from art_cli.types import Message, ToolCall

# Tools by which frameworks let a model end its answer: pydantic-ai's (also final_result_NAME),
# smolagents', the AI SDK's. A tool of the env with such a name takes precedence.
ANSWER_TOOLS = ("final_result", "final_answer", "answer")

Entry = tuple[Message, Message, bool]  # as the client sent it, as shown to a reader, was it sampled


class Dialogue:
    """All policy turns of one episode."""

    def __init__(
        self, opening: list[Message], tools: list[dict[str, Any]], answer_tool: str | None
    ) -> None:
        self.threads: list[Thread] = []
        self.turns: list[PolicyTurn] = []  # in the order of their answers
        self.num_env_turns = 0
        self._opening = opening
        self._env_tools = {tool["function"]["name"] for tool in tools}
        self._answer_tool = answer_tool

    def take_back(self, turn: PolicyTurn) -> None:
        """Forget a turn that did not reach the client."""
        self.turns.remove(turn)
        turn.thread.take_back(turn)

    # Turns of the env.

    def turn_that_calls(self, name: str, arguments: dict[str, Any]) -> PolicyTurn | None:
        """Return the turn that led to a call of an env tool; None before the first turn.

        Prefers the last turn that still waits for this very call, then for a call of the tool (a
        client may have put a prefix before its name), then for any call, and then the last turn.
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
        """Return the turn with this text, else the last turn; None before the first turn."""
        said = [t for t in self.turns if t.message["content"].strip() == text.strip()]
        return (said or self.turns or [None])[-1]

    def reach_env(self, turn: PolicyTurn | None) -> int:
        """Mark that a turn reached the env. Return the index of the env turn."""
        if turn is None or turn.env_turn is not None:
            return max(self.num_env_turns - 1, 0) if turn is None else turn.env_turn or 0
        turn.env_turn = self.num_env_turns
        self.num_env_turns += 1
        return turn.env_turn

    # The main conversation.

    def answer(self) -> tuple[PolicyTurn, str] | None:
        """Return the main conversation's answer as text for the env's reply(), and its turn."""
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
                return None  # text before it came before the env's last call
        return None

    def messages(self) -> list[Message]:
        """Return the main conversation with each turn once, even where a client rewrote it."""
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
        """Return the threads of the main conversation."""
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
        """Rank how much a family looks like the one that plays the scenario; higher is likelier."""
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
    """Return an answer tool's arguments as an answer: a single text as it is, else JSON."""
    values = list(arguments.values())
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))


def _text_of(words: str) -> str:
    """Return the answer in a turn that is constrained to JSON."""
    try:
        value = read_json(words)
    except ValueError:
        return words
    return as_text(value) if isinstance(value, dict) else words


def _turns(family: list[Thread]) -> list[PolicyTurn]:
    """Return the turns of a family, in the order of their requests."""
    return sorted((turn for t in family for turn in t.turns), key=lambda turn: turn.begun)


def _num_env(turns: list[PolicyTurn]) -> int:
    return sum(turn.env_turn is not None for turn in turns)


def _system(messages: list[Message]) -> str:
    return "\n".join(m["content"].strip() for m in messages if m["role"] == "system")


def _related(a: Thread, b: Thread) -> bool:
    """Return whether thread `b`, which began later, belongs to the same agent as thread `a`."""
    system = _system(a.opening)
    if a.kind == b.kind and system == _system(b.opening) and (system or a.has_tools):
        return True
    known = [t for t in a.turns if any(same(t.message, m) for m in b.opening)]
    # A thread that continues a turn without calls discusses it: it is a critic, or makes a title.
    return bool(known) and bool(known[-1].answered.calls)


def _waits(family: list[Thread], other: list[Thread]) -> bool:
    """Return whether all turns of another family were requested during a call of this one."""
    own, inner = _turns(family), _turns(other)
    return any(
        turn.answered.calls
        and turn.env_turn is None
        and turn.begun < inner[0].begun
        and inner[-1].begun < following.begun
        for turn, following in pairwise(own)
    )


def _joined(before: list[Entry], thread: Thread) -> list[Entry]:
    """Append the thread that continues a conversation of its family, with each turn once."""
    sampled = {turn.place for turn in thread.turns}
    pairs = zip(thread.said, thread.shown, strict=False)  # another request may be in progress
    own = [(said, shown, n in sampled) for n, (said, shown) in enumerate(pairs)]
    shared = 0
    while shared < min(len(before), len(own)) and same(before[shared][0], own[shared][0]):
        shared += 1
    if shared >= len(thread.opening):
        return own  # another answer to an earlier request
    for at, (said, _, was_sampled) in enumerate(before):
        if was_sampled:
            place = next((n for n, entry in enumerate(own) if same(entry[0], said)), None)
            if place is not None:
                return [*before[: at + 1], *own[place + 1 :]]
    return [*before, *own[shared:]]
