"""One conversation at the gateway: the calls of the policy that extend each other."""

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
    """One answer of the policy, and what became of it."""

    thread: Thread
    answered: Answered
    place: int  # of its message in the thread
    begun: int  # turns that had been answered when it was asked for
    cut: bool  # at a limit of ours, not by itself or at one that the client asked for
    structured: bool  # its words were to be JSON
    waiting: list[ToolCall]  # its calls that the env has not heard of
    env_turn: int | None = None  # which of the env's turns it was, where it reached the env

    @property
    def message(self) -> Message:
        """It as its client has it."""
        return self.thread.said[self.place]


@dataclass(slots=True, eq=False)
class Thread:
    """The calls that extend each other."""

    kind: object  # one for each set of tools, and for who answers
    has_tools: bool
    conversation: Talk | Spoken
    session: Session | None  # None: a model that is asked answers
    is_trained: bool = True
    is_policy: bool = True  # or answers in its place
    said: list[Message] = field(default_factory=list)  # as the program has it
    turns: list[PolicyTurn] = field(default_factory=list)
    busy: bool = False  # nothing can go on behind it
    is_full: bool = False  # what was to follow the last turn did not fit the context

    async def sample(self, asked: Asked, grammar: str | None) -> Completion:
        """Sample the turn that it is ready for."""
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
        """The part of the conversation that the policy has read."""
        return len(self.conversation.ids) if self.turns else 0

    @property
    def opening(self) -> list[Message]:
        """The words of its first call."""
        return self.said[: self.turns[0].place] if self.turns else []

    @property
    def shown(self) -> list[Message]:
        """All that was said, as it was sampled, to be read."""
        return [_with_calls(m) for m in self.conversation.messages]

    def add(self, asked: Asked, answered: Answered, *, begun: int, cut: bool) -> PolicyTurn:
        """Note a turn that was added to the conversation."""
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
        """Forget the last turn, which nobody received: it is not trained on, or gone on behind."""
        self.busy = True
        self.turns.remove(turn)
        if isinstance(self.conversation, Spoken):
            return
        num = len(turn.answered.completion.token_ids)
        sequence = self.conversation.sequences[-1]
        sequence.forget(len(sequence.ids) - num)


def same(a: Message, b: Message) -> bool:
    """Return whether two messages say the same, however a client has rewritten one.

    Clients trim texts, write the JSON of a call anew and leave thinking out. Other words, and other
    values of an argument, are another message.
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
