"""The grammar of tool calls: an existing tool with arguments that match its schema."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from art_cli.chat.capabilities import CALL, CALL_ID, TemplateCapabilities
from art_cli.chat.grammar.schema import SILENT, checked_schema
from art_cli.chat.grammar.terminals import TAG, Terminals
from art_cli.chat.tool_formats.arguments import DEPTH, Schema, at, kinds_of
from art_cli.chat.tool_formats.format import ARGUMENTS as FORMAT_ARGUMENTS
from art_cli.chat.tool_formats.format import KEY, NUMBER, VALUE, Pairs, Surroundings
from art_cli.errors import ConstraintError

ARGUMENTS = re.compile(r'\{\s*"zkeyz":\s*"zvaluez",\s*"znumz":\s*17\s*\}')  # the arguments of CALL
PLACES = re.compile(f"({re.escape(NUMBER)}|{CALL_ID.pattern})")  # parts that differ between calls
ID, COUNT = "/[A-Za-z0-9]{9}/", "/[0-9]{1,3}/"
IDENTIFIER = "/[A-Za-z_][A-Za-z0-9_]{0,63}/"  # an argument that no schema names
BARE_KEY = r"/[A-Za-z0-9_$@.\/-]{1,64}/"  # of a nested object, for Gemma
SINGLE_QUOTED = r"/'([^'\\\r\n\x00]|\\[\\'n])*'/"  # a Python string
EDGES = r" & ~/\n(?s:.*)/ & ~/(?s:.*)\n/"  # no line break at either end of a text
PYTHON_WORDS = {"boolean": '"True" | "False"', "null": '"None"'}
SCALARS = {"integer", "number", "boolean", "null"}
DEFINITIONS = ("$defs", "definitions")


@dataclass(slots=True)
class CallGrammar:
    """The grammar of a turn's tool calls in the format of one model."""

    capabilities: TemplateCapabilities
    terminals: Terminals
    stop_ids: frozenset[int]
    tools: dict[str, Schema]  # the schema of each one's arguments, which the library supports
    parallel: bool  # whether a turn may contain several calls
    rules: dict[str, str] = field(default_factory=dict)  # names of rules by their bodies

    def whole(self) -> str:
        """Return the grammar of whole calls, including the text before and after them."""
        if self.capabilities.output_format.format.begin.startswith("{"):
            return self._objects()
        return " | ".join(self._turn(way, way.before) for way in self._ways())

    def behind(self, name: str | None) -> str:
        """Return the grammar that follows the opening of a call to the tool `name`, or to any."""
        own, *others = self._ways()
        if name is None:
            return self._turn(own, "")
        ends = [self._text(way.end) for way in (own, *others)]
        return f"{self._arguments(name)} ({' | '.join(ends)})"

    def written_rules(self) -> str:
        """Return the rules that the grammar refers to, one per line."""
        return "".join(f"{name}{body}\n" for body, name in self.rules.items())

    def _ways(self) -> list[Surroundings]:
        """Return the ways to write calls: that of the table, and the template's if different.

        Templates differ in white space and in section tags, and some write call ids.
        """
        own = self.capabilities.output_format.format.surroundings
        one, two = (self.capabilities.written_call(num) or "" for num in (1, 2))
        name = CALL["name"]
        found = self._arguments_of(one, one.find(name))
        if found is None or one.count(name) != 1:
            return [own]
        middle = own.middle if self._pairs else one[one.find(name) + len(name) : found[0]]
        first = self._arguments_of(two, two.find(name)) if two.count(name) == 2 else None
        join = two[first[1] : two.rfind(name)] if first else ""
        before, end = one[: one.find(name)].lstrip("\n"), one[found[1] :].rstrip()
        way = Surroundings(before, middle, join, end)
        return [own] if way == own else [own, way]

    def _arguments_of(self, text: str, begin: int) -> tuple[int, int] | None:
        """Return the start and end of the arguments of CALL in text that a template wrote."""
        if self._pairs is None:
            found = ARGUMENTS.search(text, max(begin, 0))
            return found and found.span()
        last = str(CALL["arguments"]["znumz"])
        place = text.find(last, max(begin, 0)) + len(last)
        closing = self._pairs.of(False).partition(VALUE)[2].strip()
        end = text.find(closing, place) + len(closing)
        return None if text[place:end].strip() != closing else (begin, end)

    def _objects(self) -> str:
        """Return the grammar of calls that are bare JSON objects, like an answer.

        The library can tell a call from an answer only if both are written with %json.
        """
        tool_format = self.capabilities.output_format.format
        key, arguments = json.loads(tool_format.call.replace(FORMAT_ARGUMENTS, "0"))
        each = []
        for name, schema in self.tools.items():
            defined = {k: schema[k] for k in DEFINITIONS if k in schema}
            inner = {k: v for k, v in _of_object(schema).items() if k not in DEFINITIONS}
            properties = {key: {"const": name}, arguments: inner}
            whole = {"type": "object", "properties": properties, "required": [key, arguments]}
            each.append(self._json(whole | defined, {}))
        call = self._rule(" | ".join(each))
        more = f"({self.terminals.literal(tool_format.between)} {call})*" if self.parallel else ""
        return f"{call} {more}"

    def _turn(self, way: Surroundings, before: str) -> str:
        names = {
            name: name if self._pairs else json.dumps(name, ensure_ascii=False)[1:-1]
            for name in self.tools
        }
        each = (
            f"{self._text(written + way.middle)} {self._arguments(name)}"
            for name, written in names.items()
        )
        call = self._rule(" | ".join(each))
        more = ""
        if self.parallel and way.join and not any(end in way.join for end in self._ends()):
            more = f"({self._text(way.join)} {call})*"
        return f"{self._text(before)} {call} {more} {self._text(way.end)}"

    @property
    def _pairs(self) -> Pairs | None:
        return self.capabilities.output_format.format.pairs

    def _ends(self) -> list[str]:
        return [text for text, id in self.terminals.specials.items() if id in self.stop_ids]

    def _text(self, text: str) -> str:
        """Return the text around a call as terminals, without the end of the turn.

        Line breaks between tags are optional.
        """
        for end in self._ends():
            text = text.removesuffix(end)
        tags = self._pairs and not self._pairs.python
        write = self.terminals.loose if tags else self.terminals.literal
        parts = PLACES.split(text)
        parts[::2] = [write(part) if part else "" for part in parts[::2]]
        parts[1::2] = [COUNT if part == NUMBER else ID for part in parts[1::2]]
        return " ".join(filter(None, parts))

    def _rule(self, body: str, options: str = "") -> str:
        """Return the name of the rule with this body. Creates it if necessary."""
        return self.rules.setdefault(f"{options}: {body}", f"c{len(self.rules)}")

    def _json(self, schema: Any, root: Schema) -> str:
        """Return a rule for a JSON value; `root` has the definitions that `schema` refers to."""
        if isinstance(schema, dict):
            schema = {**{k: root[k] for k in DEFINITIONS if k in root}, **schema}
        return self._rule(f"%json {checked_schema(schema, of_arguments=True)}")

    # ------------------------------------------------------------------ separate arguments

    def _arguments(self, name: str) -> str:
        """Return the rule for the arguments of a call to the tool `name`."""
        schema = _of_object(self.tools[name])
        if self._pairs is None:
            return self._json(schema, {})
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            pair = self._pair(IDENTIFIER, {}, schema)
            more = f"({self._text(self._pairs.between)} {pair})*"
            return self._rule(f'({pair} {more})? ""')
        required = schema.get("required") or []
        first, rest = '""', '""'
        for key, of_key in reversed(properties.items()):
            pair = self._pair(key, of_key, schema)
            between = self._text(self._pairs.between)
            if key in required:
                first, rest = f"{pair} {rest}", self._rule(f"{between} {pair} {rest}")
            else:
                first = self._rule(f"{pair} {rest} | {first}")
                rest = self._rule(f"({between} {pair})? {rest}")
        return self._rule(first)

    def _pair(self, key: str, schema: Any, root: Schema) -> str:
        """Return the grammar of one argument. `key` is its name, or IDENTIFIER for any name."""
        pairs = self._pairs
        assert pairs
        kinds = kinds_of(schema, root)
        if pairs.python:
            return self._written(key, pairs.text, self._python(schema, root, kinds))
        if "string" not in kinds:
            nested = not (kinds and kinds <= SCALARS)
            is_gemma = self.capabilities.output_format.format.name == "gemma4"
            value = self._gemma(kinds) if is_gemma and nested else self._json(schema, root)
            return self._written(key, pairs.of(False), value)
        text = self._written_text(key, schema, root, null="null" in kinds and not pairs.other)
        others = sorted(kinds & SCALARS)
        if not pairs.other or not others:
            return text
        return f"({text} | {self._written(key, pairs.other, self._json({'type': others}, {}))})"

    def _written(self, key: str, pair: str, value: str) -> str:
        before, _, after = pair.partition(VALUE)
        opening, _, middle = before.partition(KEY)
        return " ".join(
            (self._text(opening), self._key(key), self._text(middle), value, self._text(after))
        )

    def _key(self, key: str) -> str:
        return key if key == IDENTIFIER else self.terminals.literal(key)

    def _python(self, schema: Any, root: Schema, kinds: set[str]) -> str:
        """Return a rule for a Python literal: JSON, True, False, None or single-quoted text."""
        ways = [self._json(schema, root)]
        ways += [
            words for kind, words in PYTHON_WORDS.items() if kind in kinds and _is_plain(schema)
        ]
        if "string" in kinds and _is_plain(schema):
            ways.append(SINGLE_QUOTED)
        elif "string" in kinds and (choices := _choices(schema, root)):
            ways += [self.terminals.literal(repr(choice)) for choice in choices]
        return self._rule(" | ".join(ways))

    def _written_text(self, key: str, schema: Any, root: Schema, null: bool) -> str:
        """Return the grammar of an argument whose value is unquoted text.

        `null` adds the word null to an enumeration. If the format has line breaks around the text,
        both are written or neither.
        """
        assert self._pairs
        before, _, after = self._pairs.text.partition(VALUE)
        opening, _, middle = before.partition(KEY)
        closing, opened = after.rstrip(), middle.rstrip("\n")
        choices = _choices(schema, root)
        choices += ["null"] if choices and null else []
        if opened == middle:
            value = self._closed(schema, choices, closing)
        else:
            bare = self._closed(schema, choices, closing.lstrip("\n"), EDGES)
            value = f'("\\n" {self._closed(schema, choices, closing)} | {bare})'
        behind = self._text(after.removeprefix(closing))
        return f"{self._text(opening)} {self._key(key)} {self._text(opened)} {value} {behind}"

    def _closed(self, schema: Any, choices: list[str], closing: str, also: str = "") -> str:
        """Return the grammar of a text that ends with `closing`; `also` restricts the text."""
        if choices:
            ways = " | ".join(self.terminals.literal(choice + closing) for choice in choices)
            return f"({ways})"
        tool_format = self.capabilities.output_format.format
        tags = [closing.strip(), *TAG.findall(tool_format.call + tool_format.closing)]
        kept_out = [tag for tag in dict.fromkeys(tags) if not self.terminals.is_special(tag)]
        text = self.terminals.free(kept_out, _length(schema)) + also
        if self.terminals.is_special(closing):
            return f"{self._rule(text)} {self.terminals.literal(closing)}"
        return self._rule(text, f"[suffix={json.dumps(closing)}]")

    def _gemma(self, kinds: set[str]) -> str:
        """Return the grammar of a value of these types, with Gemma's quotes and bare keys."""
        quote = '<|"|>'
        if not self.terminals.is_special(quote):
            raise ConstraintError("nested arguments need Gemma's own quotes in the tokenizer")
        mark = self.terminals.literal(quote)
        text = f"{mark} {self._rule(self.terminals.free(()))} {mark}"
        number = r"/-?(0|[1-9][0-9]{0,15})(\.[0-9]{1,16})?/"
        pair = f'{BARE_KEY} ":" gemma'
        ways = {
            "object": self._rule(f'"{{" ({pair} ("," {pair})*)? "}}"'),
            "array": self._rule('"[" (gemma ("," gemma)*)? "]"'),
        }
        scalars = f'{text} | {number} | "true" | "false" | "null"'
        self.rules[f": {scalars} | {' | '.join(ways.values())}"] = "gemma"
        return f"({' | '.join(ways.get(kind, 'gemma') for kind in sorted(kinds) or ['any'])})"


def _of_object(schema: Schema) -> Schema:
    """Return the schema with type object, unless it already names a type or a reference."""
    says = schema.keys() & {"type", "$ref", "anyOf", "allOf", "oneOf"}
    return schema if says else {**schema, "type": "object"}


def _is_plain(schema: Any) -> bool:
    """Return whether a schema restricts only the type of a value."""
    return isinstance(schema, dict) and not schema.keys() - {"type", *SILENT}


def _choices(schema: Any, root: Schema, depth: int = DEPTH) -> list[str]:
    """Return the strings that a schema enumerates; none if it allows others. Ignores null."""
    if not isinstance(schema, dict) or not depth:
        return []
    if isinstance(reference := schema.get("$ref"), str):
        return _choices(at(reference, root), root, depth - 1)
    if isinstance(parts := schema.get("anyOf", schema.get("oneOf")), list):
        texts = [part for part in parts if kinds_of(part, root) != {"null"}]
        each = [_choices(part, root, depth - 1) for part in texts]
        return [text for found in each for text in found] if all(each) else []
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    return listed if isinstance(listed, list) and all(isinstance(x, str) for x in listed) else []


def _length(schema: Any) -> str:
    """Return the allowed length of a text as a quantifier of a regular expression."""
    least, most = (schema.get(key) for key in ("minLength", "maxLength"))
    if not isinstance(least, int) and not isinstance(most, int):
        return "*"
    return f"{{{least if isinstance(least, int) else 0},{most if isinstance(most, int) else ''}}}"
