"""The customers of tau2: one that a model plays, and one that does what it is told by name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Protocol

from art_cli import LLM, ChatMessage, ToolError

MAX_CALLS = 20  # that a customer makes between two of their words
ENOUGH = "Error: too many calls. Tell the agent what you have found."

Call = Callable[[str, dict[str, Any]], str]  # makes a call; raises ToolError


class Tau2Customer(Protocol):
    """The customer. They use their own tools, and tell the agent of it in words."""

    async def answer(self, text: str) -> str:
        """Return the words that answer those of the agent."""
        ...


class Tau2ModelCustomer:
    """A model. Nobody but itself sees its calls."""

    def __init__(self, llm: LLM, prompt: str, tools: list[dict[str, Any]], call: Call) -> None:
        """`prompt` says who the customer is, `tools` are the schemas of their own."""
        self._heard: list[ChatMessage] = [{"role": "system", "content": prompt}]
        self._llm = llm
        self._tools = tools
        self._call = call

    async def answer(self, text: str) -> str:
        """Ask until it says something. Raises LLMError; RuntimeError where it calls without end."""
        if text.strip():
            self._heard.append({"role": "user", "content": text})
        made = 0
        while calls := await self._ask():
            if made > MAX_CALLS:  # it has been told
                raise RuntimeError(f"the customer, {self._llm.name}, calls tools without end")
            for call in calls:
                made += 1
                found = self._use(call) if made <= MAX_CALLS else ENOUGH
                self._heard.append({"role": "tool", "tool_call_id": call.id, "content": found})
        return self._heard[-1]["content"]

    async def _ask(self) -> tuple[Any, ...]:
        """Return the calls that it makes; none where it says something."""
        reply = await self._llm.ask([*self._heard], tools=self._tools or None)
        if self._tools and reply.calls and reply.message:
            self._heard.append(reply.message)
            return reply.calls
        self._heard.append({"role": "assistant", "content": reply.text})
        return ()

    def _use(self, call: Any) -> str:
        """Return what a call gives, an error too: it is the model's to mend."""
        try:
            arguments = json.loads(call.arguments)
            if not isinstance(arguments, dict):
                return f"Error: the arguments of {call.name} are no JSON object"
            return self._call(call.name, arguments)
        except (ValueError, RecursionError) as e:
            return f"Error: the arguments of {call.name} are no JSON: {e}"
        except ToolError as e:
            return f"Error: {e}"


class Tau2ToldCustomer:
    """Nobody: uses each tool whose name it reads, with the JSON behind it. For demonstrations."""

    def __init__(self, first: str, tools: list[dict[str, Any]], call: Call) -> None:
        """`first` is what they say first."""
        names = "|".join(tool["function"]["name"] for tool in tools)
        self._asked = re.compile(rf"\b({names})\b(?: with (\{{.*\}}))?")
        self._first = first
        self._call = call
        self._told = False

    async def answer(self, text: str) -> str:
        """Return what was found; without a tool that is all, and they hang up."""
        if not self._told:
            self._told = True
            return self._first
        found = [
            self._call(name, json.loads(how or "{}")) for name, how in self._asked.findall(text)
        ]
        return "\n".join(found) or "###STOP###"
