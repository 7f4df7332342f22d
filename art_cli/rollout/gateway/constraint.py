"""What a request holds its turn to: a schema of the answer, or of a call's arguments."""

from __future__ import annotations

from art_cli.engines.base import Engine
from art_cli.errors import ConstraintError
from art_cli.models.grammar.schema import checked_schema
from art_cli.models.grammar.write import answer_grammar, call_grammar, schema_grammar
from art_cli.models.plain_text import PlainText
from art_cli.models.render import Renderer
from art_cli.rollout.gateway.asked import Asked, RequestError
from art_cli.rollout.gateway.exchange import Talk
from art_cli.system.deadline import beside


async def check_schema(asked: Asked, engine: Engine) -> None:
    """Raise RequestError where a turn could not be held to what a request wants of it."""
    schema = _wanted(asked)
    if schema is None:
        return
    if asked.prefill:
        raise RequestError(
            400, "a turn that the client begins cannot be held to a schema; leave out one of both"
        )
    try:
        checked = await beside(asked.size, checked_schema, schema)
        await engine.grammars.compile(schema_grammar(checked))
    except ConstraintError as e:
        raise RequestError(400, str(e)) from None


def grammar_of(talk: Talk, renderer: Renderer, asked: Asked, engine: Engine) -> str | None:
    """Return the grammar of the turn behind a conversation; None: it is free.

    A call that is demanded comes before a schema of the words. Raises RequestError.
    """
    schema = _wanted(asked)
    if schema is None or isinstance(talk, PlainText):
        return None
    specials = engine.grammars.specials
    try:
        if asked.must_call:
            return call_grammar(renderer, specials, schema)
        tools = [tool["function"]["name"] for tool in asked.tools]
        return answer_grammar(renderer, specials, talk.prompt, schema, tools)
    except ConstraintError as e:
        raise RequestError(400, str(e)) from None


def _wanted(asked: Asked) -> object | None:
    if not asked.must_call:
        return asked.response_schema
    functions = [t["function"] for t in asked.tools if t["function"]["name"] == asked.forced_tool]
    strict = [f for f in functions if f.get("strict")]
    return strict[0].get("parameters") if strict else None
