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
    """Return a custom tool as a function. A grammar of its input is described, and not held to."""
    follows = ""
    if grammar:
        syntax, definition = grammar.get("syntax"), grammar.get("definition")
        follows = f"The input follows this {syntax} grammar:\n{definition}"
    described = "\n\n".join(filter(None, (description, follows)))
    return {"name": name, "description": described, "parameters": PARAMETERS}


def custom_input(arguments: dict[str, Any]) -> str:
    """Return the input of a call: its text, or all of its arguments as JSON if it has none."""
    said = arguments.get("input")
    return said if isinstance(said, str) else json.dumps(arguments)
