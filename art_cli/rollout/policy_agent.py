"""The policy as the built-in agent: token ids in, token ids out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from art_cli.chat.render import Conversation, Renderer
from art_cli.chat.too_long import TooLongError
from art_cli.engines.base import Engine, Session
from art_cli.rollout.agent import ContextFull, TurnAgent
from art_cli.system.deadline import beside
from art_cli.types import Completion, Message, Sequence, Trajectory


class PolicyAgent(TurnAgent):
    """Implements Agent with an engine."""

    def __init__(
        self, renderer: Renderer, open_session: Callable[[], Session], max_model_len: int
    ) -> None:
        """`open_session` is called at the start: an engine may wait for turns of open sessions."""
        self.conversation = Conversation(renderer)
        self._renderer = renderer
        self.completions: list[Completion] = []
        self._open_session = open_session
        self._session: Session | None = None
        self._max_model_len = max_model_len

    def begin(self) -> None:
        """See TurnAgent."""
        self._session = self._open_session()

    def expect(self, coming: bool) -> None:
        """See TurnAgent."""
        if self._session:
            self._session.expect(coming)

    def offer(self, tools: list[dict[str, Any]]) -> None:
        """See TurnAgent. Tools other than those of the env's class need a new template binding."""
        if tools != self._renderer.tools:
            self._renderer = self._renderer.offering(tools)
            self.conversation = Conversation(self._renderer)

    async def act(self, messages: list[Message]) -> str:
        """Sample a turn. Raises ContextFull if there is no room for one token."""
        size = sum(len(m["content"]) for m in messages)
        try:
            await beside(size, self.conversation.add_messages, messages, "", self._max_model_len)
        except TooLongError:
            raise ContextFull from None
        ids = self.conversation.ids
        if len(ids) >= self._max_model_len:
            raise ContextFull
        assert self._session, "act() comes after begin()"
        completion = await self._session.generate(ids)
        self.completions.append(completion)
        self.cut_off = completion.finish_reason == "length"
        own = self.conversation.add_completion(completion)
        self.turn = self._renderer.read(own)  # keeps errors of calls in the policy's own format
        return self._renderer.text_form(own)

    def record(self, trajectory: Trajectory) -> None:
        """See Agent. Messages after the last sampled token are left out."""
        cut = any(c.finish_reason == "length" for c in self.completions)
        record_sampled(trajectory, self.conversation.sequences, self.completions, cut=cut)

    def close(self) -> None:
        if self._session:
            self._session.close()


@dataclass(frozen=True, slots=True)
class PolicyAgents:
    """Implement AgentFactory for `agent.use: builtin`."""

    engine: Engine
    renderer: Renderer
    max_model_len: int

    def open(self, seed: int) -> PolicyAgent:
        return PolicyAgent(self.renderer, partial(self.engine.open, seed), self.max_model_len)


def record_sampled(
    trajectory: Trajectory, sequences: list[Sequence], completions: list[Completion], *, cut: bool
) -> None:
    """Record the data to train on: each sequence up to its last sampled token.

    `cut`: whether a turn ended at a limit of ours.
    """
    trajectory.sequences = [_as_read(s) for s in sequences if s.num_sampled]
    trajectory.policy_versions = [c.policy_version for c in completions]
    trajectory.truncated = cut or trajectory.stop_reason == "context"


def _as_read(s: Sequence) -> Sequence:
    end = len(s.mask) - s.mask[::-1].index(1)
    return s.up_to(end)
