"""The customers of tau2: one played by a model, and one that executes named instructions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Protocol

from art_cli import LLM, ChatMessage, ToolError

MAX_CALLS = 20  # limit of the customer's calls between two of their messages
ENOUGH = "Error: too many calls. Tell the agent what you have found."

Call = Callable[[str, dict[str, Any]], str]  # executes a call; raises ToolError


class Tau2Customer(Protocol):
    """The customer, who uses their own tools and reports the results to the agent."""

    async def answer(self, text: str) -> str:
        """Return the answer to a message of the agent."""
        ...


class Tau2ModelCustomer:
    """A customer played by a model. The agent does not see the customer's calls."""

    def __init__(self, llm: LLM, prompt: str, tools: list[dict[str, Any]], call: Call) -> None:
        """`prompt` describes the customer, `tools` are the schemas of the customer's own tools."""
        self._heard: list[ChatMessage] = [{"role": "system", "content": prompt}]
        self._llm = llm
        self._tools = tools
        self._call = call

    async def answer(self, text: str) -> str:
        """Call the model until it answers in text. Raise LLMError, or RuntimeError after too many
        calls.
        """
        if text.strip():
            self._heard.append({"role": "user", "content": text})
        made = 0
        while calls := await self._ask():
            if made > MAX_CALLS:  # the model has been told to answer in text
                raise RuntimeError(f"the customer, {self._llm.name}, calls tools without end")
            for call in calls:
                made += 1
                found = self._use(call) if made <= MAX_CALLS else ENOUGH
                self._heard.append({"role": "tool", "tool_call_id": call.id, "content": found})
        return self._heard[-1]["content"]

    async def _ask(self) -> tuple[Any, ...]:
        """Return the model's calls, or none if it answers in text."""
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
