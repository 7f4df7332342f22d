"""OpenAI's `custom` tools, whose input is free text, as functions with one text argument.

{"type": "custom", "name": "sql"}   sql(input)
"""

from __future__ import annotations

import json
from typing import Any

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
}


def custom_function(
    name: str, description: str | None, grammar: dict[str, Any] | None
) -> dict[str, Any]:
    """Convert a custom tool to a function. Its grammar is described in words, not enforced."""
    follows = ""
    if grammar:
        syntax, definition = grammar.get("syntax"), grammar.get("definition")
        follows = f"The input follows this {syntax} grammar:\n{definition}"
    described = "\n\n".join(filter(None, (description, follows)))
    return {"name": name, "description": described, "parameters": PARAMETERS}


def custom_input(arguments: dict[str, Any]) -> str:
    """Return the input of a call: its `input` text, or else all of its arguments as JSON."""
    said = arguments.get("input")
    return said if isinstance(said, str) else json.dumps(arguments)
