"""Conversion of conversations to the form that a chat template takes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from art_cli.chat.capabilities import TemplateCapabilities
from art_cli.chat.tool_formats.readers import Schemas
from art_cli.chat.turns import Turn, WrittenCall, plain

DESCRIBED = """

You may call these tools:
<tools>
{schemas}
</tools>
To call one, answer with {shape}"""
RESULT = "<tool_response>\n{content}\n</tool_response>"  # for templates without a tool role
Said = dict[str, Any]  # a message for a template


class History:
    """Converts our messages to those of a template, for one set of tools."""

    def __init__(
        self,
        capabilities: TemplateCapabilities,
        specials: list[str],
        tools: list[Any] | None,
        schemas: Schemas,
    ) -> None:
        self._capabilities = capabilities
        self._specials = specials
        self._schemas = schemas
        alone = {"user": capabilities.refuses_repeats, "tool": capabilities.refuses_results}
        self._merged = {role for role, refused in alone.items() if refused}
        self._described = ""
        if tools and not capabilities.shows_tools:
            shown = "\n".join(json.dumps(t) for t in tools)
            self._described = DESCRIBED.format(
                schemas=shown, shape=capabilities.output_format.format.shape
            )

    def put(self, messages: Iterable[tuple[str, str]]) -> list[Said]:
        """Convert messages, given as (role, content), with turns as the model wrote them."""
        said: list[Said] = []
        waiting: list[Said] = []  # calls whose results are next, in order
        for n, (role, content) in enumerate(messages):
            if role in ("user", "tool"):
                content = self._harmless(content)
            if role == "assistant":
                said.append(self._turn(content, n))
                waiting = list(said[-1].get("tool_calls", []))
            elif role == "tool":
                said.append(self._result(content, waiting))
            else:
                said.append({"role": role, "content": content})
        if self._capabilities.one_call:
            said = list(_one_by_one(said))
        if self._capabilities.one_system:
            said = _with_one_system(said)
        said = self._with_tools(said)
        asked = any(message["role"] == "user" for message in said)
        if self._capabilities.refuses_system or (
            self._capabilities.system_needs_user and not asked
        ):
            said = _without_system(said)
        return _merged(said, self._merged)

    def _harmless(self, content: str) -> str:
        """Break up special tokens in text of tools or users: as data they must not end a turn."""
        for token in self._specials:
            if token in content:
                content = content.replace(token, f"{token[:-1]} {token[-1]}")
        return content

    def _turn(self, content: str, place: int) -> Said:
        """Convert a turn, unchanged if possible: the template would rewrite separate parts."""
        capabilities = self._capabilities
        if not capabilities.in_parts:
            if capabilities.refuses_empty and not content:
                content = " "
            return {"role": "assistant", "content": content}
        markers = (*self._specials, *capabilities.output_format.tags)
        turn = _harmless(capabilities.output_format.read(content, self._schemas), markers)
        ids: list[str] = []
        fits = capabilities.output_format.format.id
        for n, call in enumerate(turn.written):
            made = f"call{place % 1000:03d}{n % 100:02d}"
            is_good = fits and call.id and fits.fullmatch(call.id) and call.id not in ids
            ids.append(call.id if is_good and call.id else made)
        return capabilities.parts(turn, ids)

    def _result(self, content: str, waiting: list[Said]) -> Said:
        capabilities = self._capabilities
        if not capabilities.has_tool_role or (capabilities.in_parts and not waiting):
            return {"role": "user", "content": RESULT.format(content=content)}
        if not capabilities.in_parts:
            return {"role": "tool", "content": content}
        call = waiting.pop(0)
        name = call["function"]["name"]
        return {"role": "tool", "name": name, "tool_call_id": call["id"], "content": content}

    def _with_tools(self, said: list[Said]) -> list[Said]:
        """Describe the tools in the system message, if the template does not describe them."""
        if not self._described:
            return said
        if said and said[0]["role"] == "system":
            first = {**said[0], "content": said[0]["content"] + self._described}
            return [first, *said[1:]]
        return [{"role": "system", "content": self._described.strip()}, *said]


def _harmless(turn: Turn, markers: tuple[str, ...]) -> Turn:
    """Return a turn in whose text no markers of the template occur."""

    def change(value: Any) -> Any:
        if isinstance(value, str):
            return plain(value, markers)
        if isinstance(value, list):
            return [change(each) for each in value]
        if isinstance(value, dict):
            return {k: change(v) for k, v in value.items()}
        if isinstance(value, WrittenCall):
            return replace(value, text=change(value.text), call=change(value.call))
        return value

    pieces = tuple(change(piece) for piece in turn.pieces)
    return replace(turn, thought=change(turn.thought), pieces=pieces)


def _one_by_one(said: list[Said]) -> Any:
    """Yield each call as a separate turn, followed by its result."""
    rest = list(said)
    while rest:
        message = rest.pop(0)
        calls = message.get("tool_calls", [])
        if len(calls) < 2:
            yield message
            continue
        for n, call in enumerate(calls):
            bare = {"role": "assistant", "content": ""} if n else message
            yield {**bare, "tool_calls": [call]}
            if rest and rest[0]["role"] == "tool":
                yield rest.pop(0)


def _with_one_system(said: list[Said]) -> list[Said]:
    """Join the leading system messages, and make later ones user messages.

    Templates drop or refuse system messages in other places.
    """
    num = next((n for n, m in enumerate(said) if m["role"] != "system"), len(said))
    first = "\n\n".join(m["content"] for m in said[:num])
    rest = [{**m, "role": "user"} if m["role"] == "system" else m for m in said[num:]]
    return [{"role": "system", "content": first}] * bool(num) + rest


def _without_system(said: list[Said]) -> list[Said]:
    """Put the text of the system message before that of the first user message."""
    if not said or said[0]["role"] != "system":
        return said
    system, rest = said[0]["content"], said[1:]
    if rest and rest[0]["role"] == "user":
        first = {**rest[0], "content": f"{system}\n\n{rest[0]['content']}"}
        return [first, *rest[1:]]
    return [{"role": "user", "content": system}, *rest]


def _merged(said: list[Said], roles: set[str]) -> list[Said]:
    """Merge consecutive messages of the same role, for these roles."""
    merged: list[Said] = []
    for message in said:
        if merged and message["role"] in roles and message["role"] == merged[-1]["role"]:
            content = f"{merged[-1]['content']}\n{message['content']}"
            merged[-1] = {**merged[-1], "content": content}
        else:
            merged.append(message)
    return merged
