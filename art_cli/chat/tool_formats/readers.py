"""Strict readers of tool calls between a format's tags, with precise errors.

Each format has a reader. It receives the text between the tags and yields the calls. The error of a
malformed call ends with the format's shape.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from art_cli.chat.tool_formats.arguments import Schema, typed
from art_cli.chat.turns import WrittenCall, call_of
from art_cli.system.untrusted import check_json, read_json
from art_cli.types import ToolCall

Schemas = dict[str, Schema]
Reader = Callable[[str, str, Schemas], Iterator[WrittenCall]]  # text, shape, the tools' schemas
ReadArguments = Callable[[str, Schema], dict[str, Any]]  # raises ValueError
# Patterns of calls and arguments between tags, with the groups that `named_calls` and `tagged` use.
QWEN_PARAMETER = (
    r"<parameter=(?P<key>[^>\n]+)>\n?(?P<value>.*?)\n?</parameter>(?=\s*(?:<parameter=|\Z))"
)
GLM_PARAMETER = (
    r"<arg_key>(?P<key>[^<]+)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>"
    r"(?=\s*(?:<arg_key>|\Z))"
)
INVOKE = (
    r'<{0}invoke name="(?P<name>[^"]+)">(?P<arguments>.*?)</{0}invoke>(?=\s*(?:<{0}invoke |\Z))'
)
MINIMAX_PARAMETER = (
    r'<parameter name="(?P<key>[^"]+)">(?P<value>.*?)</parameter>(?=\s*(?:<parameter |\Z))'
)
DSML_PARAMETER = (
    r'<｜DSML｜parameter name="(?P<key>[^"]+)" string="(?P<text>true|false)">'
    r"(?P<value>.*?)</｜DSML｜parameter>(?=\s*(?:<｜DSML｜parameter |\Z))"
)
DECODER = json.JSONDecoder()
DEEP = (SyntaxError, ValueError, RecursionError, MemoryError)  # raised by Python's own parser


def wrong(text: str, what: str, shape: str, name: str = "") -> WrittenCall:
    """Return a call that cannot be made, with its error."""
    why = f"error: the tool call {what}; expected {shape}"
    return WrittenCall(text=text, call=why, name=name)


# ------------------------------------------------------------------------------------------ JSON


def json_calls(
    name: str = "name", arguments: tuple[str, ...] = ("arguments",), *, one: bool = False
) -> Reader:
    """Make a reader of JSON objects, one per call: only `one`, or a list or sequence of them."""

    def read(text: str, shape: str, schemas: Schemas) -> Iterator[WrittenCall]:
        try:
            values = [(text, read_json(text))] if one else _values(text)
        except ValueError as e:
            yield wrong(text, f"is not valid JSON ({e})", shape)
            return
        for written, value in values:
            id = value.get("id") if isinstance(value, dict) else None
            yield WrittenCall(
                text=written,
                call=call_of(value, shape, name, arguments),
                id=id if isinstance(id, str) else None,
            )

    return read


def json_names(text: str, shape: str, schemas: Schemas) -> Iterator[WrittenCall]:
    """Read a list of objects whose only key is the tool's name."""
    try:
        values = _values(text)
    except ValueError as e:
        yield wrong(text, f"is not valid JSON ({e})", shape)
        return
    for written, value in values:
        pairs = list(value.items()) if isinstance(value, dict) else []
        if len(pairs) == 1 and isinstance(pairs[0][1], dict):
            (name, arguments) = pairs[0]
            yield WrittenCall(text=written, call=ToolCall(name=name, arguments=arguments))
        else:
            yield wrong(written, "is not one name with its arguments", shape)


def _values(text: str) -> list[tuple[str, Any]]:
    """Return the objects of a list or of a sequence. Raises ValueError."""
    text = text.strip()
    if text.startswith("["):
        return [(json.dumps(v, ensure_ascii=False), v) for v in read_json(text)] or _none()
    values: list[tuple[str, Any]] = []
    place = 0
    while place < len(text):
        try:
            end = DECODER.raw_decode(text, place)[1]
        except RecursionError:
            end = len(text)
        values.append((text[place:end], read_json(text[place:end])))
        place = end + len(text[end:]) - len(text[end:].lstrip(" \t\r\n;"))
    return values or _none()


def _none() -> Any:
    raise ValueError("there is no call in it")


# ---------------------------------------------------------------------- name and arguments


def named_calls(call: str, arguments: ReadArguments) -> Reader:
    """Make a reader of calls that each match a pattern with the groups `name` and `arguments`."""
    pattern = re.compile(rf"\s*{call}\s*", re.S)

    def read(text: str, shape: str, schemas: Schemas) -> Iterator[WrittenCall]:
        place = 0
        while place < len(text) or not place:
            match = pattern.match(text, place)
            if match is None:
                yield wrong(text[place:], "cannot be read", shape)
                return
            yield _named(match, arguments, shape, schemas)
            place = match.end()

    return read


def _named(
    match: re.Match[str], arguments: ReadArguments, shape: str, schemas: Schemas
) -> WrittenCall:
    name = match["name"].strip()
    try:
        found = arguments(match["arguments"], schemas.get(name, {}))
    except ValueError as e:
        return wrong(match[0], f"of {name} cannot be read ({e})", shape, name)
    id = match.groupdict().get("id")
    return WrittenCall(text=match[0], call=ToolCall(name=name, arguments=found), id=id)


def json_object(text: str, schema: Schema) -> dict[str, Any]:
    """Parse arguments that are a JSON object. Empty text means no arguments."""
    value = read_json(text) if text.strip() else {}
    if not isinstance(value, dict):
        raise ValueError("the arguments are not an object")
    return value


def tagged(parameter: str) -> ReadArguments:
    """Make a reader of arguments, each of which matches the pattern `parameter`.

    The pattern has the groups `key` and `value`. It may have a group `text`, which is "true" for a
    value to be taken as text and "false" for a value to be parsed as JSON.
    """
    pattern = re.compile(rf"\s*{parameter}\s*", re.S)

    def read(text: str, schema: Schema) -> dict[str, Any]:
        found: dict[str, Any] = {}
        place = 0
        while text[place:].strip():
            match = pattern.match(text, place)
            if match is None:
                raise ValueError(f"not at {text[place:].strip()!r:.60}")
            key, value = match["key"].strip(), match["value"]
            if key in found:
                raise ValueError(f"the key {key!r:.200} stands there twice")
            said = match.groupdict().get("text")
            if said is None:
                found[key] = typed(key, value, schema)
            else:
                found[key] = value if said == "true" else read_json(value)
            place = match.end()
        check_json(found)
        return found

    return read


# ---------------------------------------------------------------------------------------- Python


def python_calls(text: str, shape: str, schemas: Schemas) -> Iterator[WrittenCall]:
    """Read calls in Python syntax: a list of calls, or one per line."""
    try:
        nodes = [statement.value for statement in ast.parse(text.strip()).body]  # type: ignore[attr-defined]
    except (*DEEP, AttributeError) as e:
        yield wrong(text, f"is not valid Python ({_why(e)})", shape)
        return
    if len(nodes) == 1 and isinstance(nodes[0], ast.List):
        nodes = nodes[0].elts
    if not nodes:
        yield wrong(text, "is empty", shape)
    for node in nodes:
        try:
            yield _python_call(node, shape)
        except RecursionError:
            yield wrong(text, "is nested too deep", shape)


class _JsonWords(ast.NodeTransformer):
    """Converts JSON constants: some templates write JSON inside Python."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        words = {"true": True, "false": False, "null": None}
        return ast.Constant(words[node.id]) if node.id in words else node


def _python_call(node: ast.AST, shape: str) -> WrittenCall:
    text = ast.unparse(node)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "print" and len(node.args) == 1:
        node = node.args[0]
    if not isinstance(node, ast.Call) or node.args:
        return wrong(text, "is not a name with named arguments", shape)
    try:
        words = _JsonWords()
        arguments = {k.arg: ast.literal_eval(words.visit(k.value)) for k in node.keywords if k.arg}
        if len(arguments) < len(node.keywords):
            raise ValueError("** is not allowed")
        arguments = json.loads(json.dumps(arguments))  # turns tuples into lists
        check_json(arguments)
    except (*DEEP, TypeError) as e:
        return wrong(text, f"has an argument that is no value ({_why(e)})", shape)
    return WrittenCall(text=text, call=ToolCall(name=ast.unparse(node.func), arguments=arguments))


def _why(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"{error.msg} in line {error.lineno}"
    return f"{type(error).__name__}: {error}"[:200]


# ---------------------------------------------------------------------------------------- Gemma 4


PYTHON_WORDS = {"None": "null", "True": "true", "False": "false"}  # Gemma's template writes them
GEMMA_TOKEN = re.compile(
    r'<\|"\|>(?P<text>.*?)<\|"\|>|(?P<sign>[{}\[\],:])|(?P<bare>[^{}\[\],:<"]+)', re.S
)


def gemma_object(text: str, schema: Schema) -> dict[str, Any]:
    """Parse arguments that are JSON with bare keys, and text in Gemma's own quotes."""
    parts: list[str] = []
    place = 0
    while place < len(text):
        match = GEMMA_TOKEN.match(text, place)
        if match is None:
            raise ValueError(f"not at {text[place:]!r:.60}")
        place = match.end()
        if match["text"] is not None:
            parts.append(json.dumps(match["text"]))
        elif match["sign"]:
            parts.append(match["sign"])
        elif match["bare"].strip():
            is_key = text[place : place + 1] == ":"
            bare = match["bare"].strip()
            parts.append(json.dumps(bare) if is_key else PYTHON_WORDS.get(bare, bare))
    return json_object("".join(parts), schema)
