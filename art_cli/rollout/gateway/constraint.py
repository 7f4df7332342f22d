"""The JSON Schemas that constrain a turn: of its answer and of its tool calls."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from art_cli.chat.grammar.schema import checked_schema
from art_cli.chat.grammar.write import answer_grammar, call_grammar, schema_grammar
from art_cli.chat.plain_text import PlainText
from art_cli.chat.render import Renderer
from art_cli.chat.tool_formats.arguments import Schema
from art_cli.engines.base import Engine
from art_cli.errors import ConstraintError
from art_cli.rollout.gateway.asked import Asked, RequestError
from art_cli.rollout.gateway.exchange import Talk
from art_cli.system.deadline import beside


@dataclass(frozen=True, slots=True)
class Hold:
    """The schemas that constrain one turn."""

    schema: object | None  # of the answer's text; None: a call is required
    tools: dict[str, Schema]  # that the turn may call instead: the schema of each one's arguments


async def hold_of(asked: Asked, engine: Engine) -> Hold | None:
    """Return the schemas that constrain the turn of a request; None if there are none.

    A required call takes precedence over a schema of the text. Raises RequestError if a schema is
    not supported, except that a tool that is not `strict` then accepts any object as arguments.
    """
    functions = [tool["function"] for tool in asked.tools]
    if asked.forced_tool is not None:
        functions = [f for f in functions if f["name"] == asked.forced_tool]
    is_strict = asked.must_call and any(f.get("strict") for f in functions)
    if asked.response_schema is None and not is_strict:
        return None
    if asked.prefill:
        raise RequestError(
            400, "a turn that the client begins cannot follow a schema; leave out one of the two"
        )
    try:
        if not asked.must_call:
            await _check(asked.response_schema, asked, engine)
        tools = {f["name"]: await _parameters(f, asked, engine) for f in functions}
    except ConstraintError as e:
        raise RequestError(400, str(e)) from None
    return Hold(None if asked.must_call else asked.response_schema, tools)


def grammar_of(
    talk: Talk, renderer: Renderer, asked: Asked, hold: Hold | None, engine: Engine
) -> str | None:
    """Return the grammar of the next turn of a conversation. Raises RequestError."""
    if hold is None or isinstance(talk, PlainText):
        return None
    specials, parallel = engine.grammars.specials, asked.parallel
    try:
        if hold.schema is None:
            name = asked.forced_tool
            return call_grammar(renderer, specials, hold.tools, name, parallel=parallel)
        return answer_grammar(
            renderer, specials, talk.prompt, hold.schema, hold.tools, parallel=parallel
        )
    except ConstraintError as e:
        raise RequestError(400, str(e)) from None


async def _check(schema: object, asked: Asked, engine: Engine, **more: bool) -> None:
    """Raise ConstraintError if a schema is not supported."""
    checked = await beside(asked.size, partial(checked_schema, **more), schema)
    await engine.grammars.compile(schema_grammar(checked))


async def _parameters(function: dict[str, Any], asked: Asked, engine: Engine) -> Schema:
    """Return the schema of a function's arguments. Raises ConstraintError for a `strict` tool."""
    schema = function.get("parameters") or {}
    try:
        await _check(schema, asked, engine, of_arguments=True)
    except ConstraintError as e:
        if function.get("strict"):
            raise ConstraintError(f"the tool {function['name']:.100}: {e}") from None
        return {"type": "object"}
    return schema
