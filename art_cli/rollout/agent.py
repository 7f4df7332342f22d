"""Players of an episode: the policy turn by turn, another model, or a program that someone has."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from art_cli.chat.turns import Turn, read_turn
from art_cli.envs.base import Done
from art_cli.rollout.episode import Episode
from art_cli.types import Message, StopReason, ToolCall, Trajectory

CUT_OFF = "error: the turn was cut off at its limit of tokens, so this call was not made; be brief"


class Agent(Protocol):
    """The one who plays one episode."""

    async def play(self, episode: Episode) -> StopReason:
        """Drive the episode from its start; return why it ended.

        Raise what the env raises, EngineError, LLMError.
        """
        ...

    def record(self, trajectory: Trajectory) -> None:
        """Write into the trajectory what was said and sampled so far."""
        ...

    def close(self) -> None:
        """Free what the agent holds: its episode is over."""
        ...


class AgentFactory(Protocol):
    """Makes the agents of a batch of episodes."""

    def open(self, seed: int) -> Agent:
        """Return an agent for one episode; all that it samples follows from the seed."""
        ...


class ContextFull(Exception):
    """The conversation has no room for another turn."""


class TurnAgent:
    """An Agent that answers turn by turn: its tool calls and its words go to the env."""

    cut_off = False  # whether its last turn ended at the limit of tokens, not by itself
    turn: Turn | None = None  # that turn, where it was said in other words than the text form

    def begin(self) -> None:
        """Make ready, as the episode begins."""

    def expect(self, coming: bool) -> None:
        """Know whether its own turn comes next, or that of another player of its game."""

    def offer(self, tools: list[dict[str, Any]]) -> None:
        """Take the tools of the episode, before its first turn."""

    async def act(self, messages: list[Message]) -> str:
        """Return the next turn, in the text form, given the messages that are new since the last.

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
        said += messages  # nobody read them, but the score may
        return "max_turns"


def calls_in(turn: Turn, *, cut_off: bool) -> list[ToolCall | str]:
    """Return the tool calls of a turn; a string says why one cannot be made.

    A turn that never ended makes none. If it did, text without end behind a good call would be paid
    like the call alone, and a policy can come to write nothing else.
    """
    return [CUT_OFF for _ in turn.calls] if cut_off else turn.calls


async def _turn(
    episode: Episode, num: int, text: str, turn: Turn, cut_off: bool
) -> list[Message] | Done:
    """Return what comes back to a turn: results of its calls, or the env's reply to its words."""
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
