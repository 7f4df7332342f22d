"""One conversation at the gateway: policy calls that extend each other."""

from __future__ import annotations

from dataclasses import dataclass, field

from art_cli.chat.plain_text import PlainText
from art_cli.chat.turns import Turn, parse_tool_calls, read_turn, spoken
from art_cli.engines.base import Session
from art_cli.rollout.gateway.asked import Answered, Asked
from art_cli.rollout.gateway.asked_model import Spoken
from art_cli.rollout.gateway.exchange import Talk, echoed
from art_cli.types import Completion, Message, ToolCall


@dataclass(slots=True, eq=False)
class PolicyTurn:
    """One answer of the policy and its fate in the episode."""

    thread: Thread
    answered: Answered
    place: int  # index of its message in the thread
    begun: int  # number of turns answered before it was requested
    cut: bool  # at a limit of ours, not by itself or at a limit of the client
    structured: bool  # its text was constrained to JSON
    waiting: list[ToolCall]  # its calls that have not reached the env
    env_turn: int | None = None  # index of its env turn, if it reached the env

    @property
    def message(self) -> Message:
        """The turn's message as its client has it."""
        return self.thread.said[self.place]


@dataclass(slots=True, eq=False)
class Thread:
    """Policy calls that extend each other."""

    kind: object  # identifies the set of tools and the model that answers
    has_tools: bool
    conversation: Talk | Spoken
    session: Session | None  # None: another model answers by API
    is_trained: bool = True
    is_policy: bool = True  # or another model answers in its place
    said: list[Message] = field(default_factory=list)  # the messages as the program has them
    turns: list[PolicyTurn] = field(default_factory=list)
    busy: bool = False  # nothing can continue from here for now
    is_full: bool = False  # the messages after the last turn did not fit the context

    async def sample(self, asked: Asked, grammar: str | None) -> Completion:
        """Sample the next turn of the conversation."""
        assert self.session
        return await self.session.generate(
            list(self.conversation.ids),
            max_tokens=asked.limit,
            stop=asked.stops,
            top_logprobs=asked.top_logprobs,
            grammar=grammar,
        )

    def goes_on_as(self, asked: Asked, kind: object) -> bool:
        """Return whether a request extends the last one."""
        talk, messages = self.conversation, asked.messages
        if self.busy or kind != self.kind:
            return False
        if isinstance(talk, PlainText):
            return asked.raw is not None and talk.goes_on_as(asked.raw)
        if asked.raw is not None or len(messages) <= len(self.said):
            return False
        return all(same(a, b) for a, b in zip(self.said, messages, strict=False))

    @property
    def num_tokens(self) -> int:
        """The number of tokens in the conversation; 0 before its first turn."""
        return len(self.conversation.ids) if self.turns else 0

    @property
    def opening(self) -> list[Message]:
        """The messages of the first request."""
        return self.said[: self.turns[0].place] if self.turns else []

    @property
    def shown(self) -> list[Message]:
        """All messages for a reader, with the turns as they were sampled."""
        return [_with_calls(m) for m in self.conversation.messages]

    def add(self, asked: Asked, answered: Answered, *, begun: int, cut: bool) -> PolicyTurn:
        """Record a turn that was added to the conversation."""
        self.said, self.is_full = [*asked.messages, echoed(answered, asked.prefill)], False
        if asked.raw is not None:
            self.said = list(self.conversation.messages)
        turn = PolicyTurn(
            thread=self,
            answered=answered,
            place=len(self.said) - 1,
            begun=begun,
            cut=cut,
            structured=asked.response_schema is not None,
            waiting=[{"name": c.name, "arguments": c.arguments} for c in answered.calls],
        )
        self.turns.append(turn)
        return turn

    def take_back(self, turn: PolicyTurn) -> None:
        """Forget the last turn, which did not reach the client, so that it is not trained on."""
        self.busy = True
        self.turns.remove(turn)
        if isinstance(self.conversation, Spoken):
            return
        num = len(turn.answered.completion.token_ids)
        sequence = self.conversation.sequences[-1]
        sequence.forget(len(sequence.ids) - num)


def same(a: Message, b: Message) -> bool:
    """Return whether two messages are the same apart from a client's rewriting.

    Clients trim texts, reformat the JSON of a call and leave thinking out. A message with other
    text, or other values of an argument, is a different message.
    """
    if a is b:
        return True
    if a["role"] != b["role"]:
        return False
    if a["content"] == b["content"] or a["content"].strip() == b["content"].strip():
        return True
    if a["role"] != "assistant":
        return False
    one, other = read_turn(a["content"]), read_turn(b["content"])
    return one.words.strip() == other.words.strip() and _calls(one) == _calls(other)


def _calls(turn: Turn) -> list[object]:
    return [c.text if isinstance(c.call, str) else c.call for c in turn.written]


def _with_calls(message: Message) -> Message:
    if message["role"] != "assistant":
        return message
    calls = [c for c in parse_tool_calls(spoken(message["content"])) if not isinstance(c, str)]
    return {**message, "tool_calls": calls} if calls else message
