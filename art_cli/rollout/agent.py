"""Agents that play an episode: the policy, another model, or a user's program."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from art_cli.chat.turns import Turn, read_turn
from art_cli.envs.base import Done
from art_cli.rollout.episode import Episode
from art_cli.types import Message, StopReason, ToolCall, Trajectory

CUT_OFF = "error: the turn was cut off at its limit of tokens, so this call was not made; be brief"


class Agent(Protocol):
    """A player of one episode."""

    async def play(self, episode: Episode) -> StopReason:
        """Play the episode from its start. Return why it ended.

        Raises the env's exceptions, EngineError, LLMError.
        """
        ...

    def record(self, trajectory: Trajectory) -> None:
        """Store the messages and the sampled tokens so far in the trajectory."""
        ...

    def close(self) -> None:
        """Free the agent's resources. The episode is over."""
        ...


class AgentFactory(Protocol):
    """Creates the agents of a batch of episodes."""

    def open(self, seed: int) -> Agent:
        """Return an agent for one episode. The seed determines all of its sampling."""
        ...


class ContextFull(Exception):
    """The conversation has no room for another turn."""


class TurnAgent:
    """An Agent that answers turn by turn. Its tool calls and its text go to the env."""

    cut_off = False  # whether its last turn ended at the token limit
    turn: Turn | None = None  # its last turn, if that is not written in the text form

    def begin(self) -> None:
        """Prepare for a new episode."""

    def expect(self, coming: bool) -> None:
        """Receive whether its own turn is next, or that of another player of its game."""

    def offer(self, tools: list[dict[str, Any]]) -> None:
        """Receive the tools of the episode, before the first turn."""

    async def act(self, messages: list[Message]) -> str:
        """Return the next turn in the text form, given the messages since the last turn.

        Raises ContextFull.
        """
        raise NotImplementedError

    def record(self, trajectory: Trajectory) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """See Agent."""

    async def play(self, episode: Episode) -> StopReason:
        self.begin()
        said = episode.trajectory.messages
        messages = await episode.start()
        self.offer(episode.trajectory.tools)
        for num in range(episode.env.max_turns):
            said += messages
            try:
                text = await self.act(messages)
            except ContextFull:
                return "context"
            turn = self.turn or read_turn(text)
            outcome = await _turn(episode, num, text, turn, self.cut_off)
            if isinstance(outcome, Done):
                return "env"
            messages = outcome
        said += messages  # no agent read them, but the score may use them
        return "max_turns"


def calls_in(turn: Turn, *, cut_off: bool) -> list[ToolCall | str]:
    """Return the tool calls of a turn. A string is the error of a call that cannot be made.

    A turn that was cut off makes no calls. Otherwise endless text after a good call would earn the
    same reward as the call alone, and a policy could learn to write endless text.
    """
    return [CUT_OFF for _ in turn.calls] if cut_off else turn.calls


async def _turn(
    episode: Episode, num: int, text: str, turn: Turn, cut_off: bool
) -> list[Message] | Done:
    """Return the env's response to a turn: the results of its calls, or the reply to its text."""
    calls = calls_in(turn, cut_off=cut_off) if episode.has_tools else []
    message: Message = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [c for c in calls if not isinstance(c, str)]
    episode.trajectory.messages.append(message)
    if not calls:
        answer = await episode.reply(turn.said, turn=num)
        return answer if isinstance(answer, Done) else [{"role": "user", "content": answer}]
    episode.announce([call["name"] for call in calls if not isinstance(call, str)])
    making = [
        episode.refuse(c, turn=num)
        if isinstance(c, str)
        else episode.call_tool(c["name"], c["arguments"], turn=num)
        for c in calls
    ]
    given = [await making[0]] if len(making) == 1 else await asyncio.gather(*making)
    answers = [answer for answer in given if not isinstance(answer, Done)]
    return answers if len(answers) == len(given) else Done()
