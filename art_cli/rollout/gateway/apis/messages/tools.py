"""Conversion of client-side tools of Anthropic's API to functions for the policy.

Tools with a type of their own, such as `bash_20250124`, get the arguments from Anthropic's
documentation. Tools that only Anthropic runs are refused or left out.

A deferred tool is hidden until a `tool_reference` block in a result names it. The block is then
replaced with the tool's definition, so the conversation stays in the same sequence.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BaseModel, Field

from art_cli.rollout.gateway.apis.messages.blocks import HOSTED
from art_cli.rollout.gateway.asked import RequestError

DROP = "leave such tools out with agent.hosted_tools: drop"
TEXT, LINE = {"type": "string"}, {"type": "integer"}
LINES = {"type": "array", "items": LINE}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


def _commands(*names: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(names)}


_EDIT: dict[str, Any] = {
    "path": TEXT,
    "view_range": LINES,
    "file_text": TEXT,
    "old_str": TEXT,
    "new_str": TEXT,
    "insert_line": LINE,
    "insert_text": TEXT,
}
_EDITS = ("view", "create", "str_replace", "insert")
PUBLISHED: dict[str, tuple[str, dict[str, Any]]] = {  # by the beginning of `type`
    "bash_": (
        "Run a command in a shell that stays; `restart` begins it anew.",
        _object([], command=TEXT, restart={"type": "boolean"}),
    ),
    "text_editor_": (
        "View, create and edit files.",
        _object(["command", "path"], command=_commands(*_EDITS, "undo_edit"), **_EDIT),
    ),
    "memory_": (
        "View, create, edit and remove files of what you remember, below /memories.",
        _object(
            ["command"],
            command=_commands(*_EDITS, "delete", "rename"),
            **_EDIT,
            old_path=TEXT,
            new_path=TEXT,
        ),
    ),
}


class MessagesTool(BaseModel):
    """A tool in the form of a request."""

    type: str | None = None
    name: Annotated[str, Field(min_length=1)]
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    defer_loading: bool | None = None


def definitions_of(tools: list[MessagesTool]) -> dict[str, str]:
    """Return the JSON of the function tools by name. References to tools are replaced with it."""
    functions = {
        tool.name: {
            "name": tool.name,
            "description": tool.description or "",
            "parameters": tool.input_schema or {},
        }
        for tool in tools
        if tool.type in (None, "custom")
    }
    return {name: json.dumps(function) for name, function in functions.items()}


def functions_of(tools: list[MessagesTool], *, drops_hosted: bool) -> list[dict[str, Any]]:
    """Return the tools of a request as functions, without deferred ones.

    If the request searches tools with a tool that only Anthropic runs, and that tool is left out,
    deferred tools are included: nothing could find them. Raises RequestError.
    """
    found: list[dict[str, Any]] = []
    is_searched = not any(str(tool.type).startswith("tool_search_tool_") for tool in tools)
    for number, tool in enumerate(tools):
        description, schema = tool.description, tool.input_schema
        if tool.defer_loading and is_searched:
            continue
        if tool.type not in (None, "custom"):
            known = next((v for k, v in PUBLISHED.items() if str(tool.type).startswith(k)), None)
            if known is None and drops_hosted:
                continue
            if known is None:
                what = f"a tool of type {tool.type!r:.100} cannot be used"
                raise RequestError(400, f"tools.{number}: {what}: {HOSTED}, or {DROP}")
            description, schema = known
        function = {"name": tool.name, "description": description, "parameters": schema}
        found.append({"type": "function", "function": function})
    return found
