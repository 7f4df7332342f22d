"""A model behind an API as an agent: its native tool calls become the text form of all turns.

    the model     content "One moment.", tool_calls [{get_order, {"order_id": "W42"}}]
    our turn      One moment.<tool_call>{"name": "get_order", "arguments": {...}}</tool_call>
    back to it    its message as it came, then {"role": "tool", "tool_call_id": ..., "content": ...}

So envs, scores and reports see a single form, and the model sees the form of its API.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from art_cli.chat.turns import MARKERS, TOOL_CALL, call_text, parse_tool_calls, plain, spoken
from art_cli.llms.base import LLM, ChatMessage, NativeCall, Reply, estimate_tokens
from art_cli.rollout.agent import ContextFull, TurnAgent
from art_cli.system.untrusted import read_json
from art_cli.types import Message, Trajectory


class PromptedAgent(TurnAgent):
    """Implements Agent over an LLM."""

    def __init__(self, llm: LLM, tools: list[dict[str, Any]]) -> None:
        self._llm = llm
        self._tools = tools
        self._history: list[ChatMessage] = []
        self._waiting: list[str] = []  # ids of calls whose results are next, in order
        self._num_calls = 0
        self._tokens = 0  # in the history, as the server counted them
        self._turns = 0
        self._num_written = 0
        self._usd = 0.0
        self._any_cut = False

    def offer(self, tools: list[dict[str, Any]]) -> None:
        """See TurnAgent."""
        self._tools = tools

    async def act(self, messages: list[Message]) -> str:
        """Request a turn from the model. Raises ContextFull, LLMError, BudgetError."""
        for message in messages:
            self._read(message)
        if self._tokens > self._llm.max_input_tokens:
            raise ContextFull
        reply = await self._llm.ask(self._history, tools=self._tools or None)
        self._turns += 1
        self._tokens = max(self._tokens, reply.num_read) + reply.num_written
        self._num_written += reply.num_written
        self._usd += reply.usd
        self.cut_off = reply.cut
        self._any_cut |= reply.cut
        text = turn_text(reply)
        if reply.calls and reply.message:
            self._history.append(reply.message)
            self._waiting = [call.id for call in reply.calls]
        else:
            self._add_turn(text)
        return text

    def record(self, trajectory: Trajectory) -> None:
        """See Agent. There are no token ids, so the trajectory cannot be trained on."""
        trajectory.policy_versions = [0] * self._turns
        trajectory.truncated = self._any_cut or trajectory.stop_reason == "context"
        trajectory.num_written = self._num_written
        trajectory.usd = self._usd

    def _read(self, message: Message) -> None:
        """Add a message of the env, or of the opening, to the history."""
        content = message["content"]
        self._tokens += estimate_tokens(content)
        if message["role"] == "assistant":
            self._add_turn(content)
        elif message["role"] == "tool" and self._waiting:
            called = self._waiting.pop(0)
            self._history.append({"role": "tool", "tool_call_id": called, "content": content})
        else:
            role = "user" if message["role"] == "tool" else message["role"]
            self._history.append({"role": role, "content": content})

    def _add_turn(self, text: str) -> None:
        """Add a turn in the text form to the history, and give ids to its calls."""
        calls = parse_tool_calls(spoken(text)) if self._tools else []
        message: ChatMessage = {"role": "assistant", "content": text}
        if calls:
            message["content"] = TOOL_CALL.sub("", text).strip() or None
            message["tool_calls"] = [self._numbered(call) for call in calls]
            self._waiting = [call["id"] for call in message["tool_calls"]]
        self._history.append(message)

    def _numbered(self, call: Any) -> dict[str, Any]:
        """Return a call with an id. A malformed call, given as an error text, becomes `unknown`."""
        self._num_calls += 1
        good = not isinstance(call, str)
        function = {
            "name": call["name"] if good else "unknown",
            "arguments": json.dumps(call["arguments"]) if good else "{}",
        }
        return {"id": f"call{self._num_calls:05d}", "type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class PromptedAgents:
    """Implement AgentFactory: the same model in each episode."""

    llm: LLM
    tools: list[dict[str, Any]]

    def open(self, seed: int) -> PromptedAgent:
        """See AgentFactory. The seed is ignored: APIs do not sample reproducibly."""
        return PromptedAgent(self.llm, self.tools)


def turn_text(reply: Reply) -> str:
    """Return a reply in the text form. Markers of that form in the reply's own text are escaped.

    A lone surrogate, which JSON can spell, becomes a question mark.
    """
    words = reply.text
    if reply.calls:
        words = plain(words, MARKERS[:2])
        words += "".join(_call_text(call) for call in reply.calls)
    return words.encode(errors="replace").decode()


def _call_text(call: NativeCall) -> str:
    """Write a call as text. Broken JSON is left as is: the turn loop reports the error."""
    try:
        arguments = json.dumps(read_json(call.arguments), ensure_ascii=False)
    except ValueError:
        arguments = call.arguments
    return call_text(call.name, arguments)
