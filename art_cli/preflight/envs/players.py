"""Players for the checks of an env: random, perfect, and replaying given turns."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from art_cli.envs.base import Env
from art_cli.rollout.agents.scripted import Player
from art_cli.types import Message

IDLE = ("", "I am sorry, I cannot help with that.", "It is done.")
MANY_WORDS = 400  # most recent words that a random player draws from
OFTEN = 0.7  # share of turns in which RandomCalls makes a call
WORD = re.compile(r"[\w@#.:-]*\w")


class GoldError(Exception):
    """gold() does not play its episode to the end."""


class Repeater(Player):
    """Player that says given turns, then nothing. It yields to other episodes at every turn."""

    def __init__(self, turns: Iterable[str]) -> None:
        super().__init__()
        self._script = iter(turns)

    async def act(self, messages: list[Message]) -> str:
        await asyncio.sleep(0)
        return await super().act(messages)

    def answer(self, messages: list[Message]) -> str:
        return next(self._script, "")


class Gold(Player):
    """The env's own perfect player. Raises GoldError if it does not play."""

    def __init__(self, env: Env) -> None:
        super().__init__()
        self._env = env
        self._turns: Iterator[str] | None = None

    def answer(self, messages: list[Message]) -> str:
        self._turns = self._turns or self._env.gold()
        if self._turns is None:
            raise GoldError("gold() returned None")
        text = next(self._turns, None)
        if text is None:
            raise GoldError(f"gold() ended after {len(self.turns)} turns, before its episode did")
        return text


class RandomWords(Player):
    """Player that says random words from the messages that it has read."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._rng = random.Random(seed)
        self._words = ["yes", "no", "1", "a"]

    def answer(self, messages: list[Message]) -> str:
        self._read(messages)
        return " ".join(self._rng.choices(self._words, k=self._rng.randint(1, 4)))

    def _read(self, messages: list[Message]) -> None:
        self._words += [w for m in messages for w in WORD.findall(m["content"])]
        self._words = self._words[-MANY_WORDS:]


class RandomCalls(RandomWords):
    """Player that mostly makes random tool calls with arguments that fit the tool's schema.

    Text arguments are words from the messages that it has read.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._tools: list[dict[str, Any]] = []

    def offer(self, tools: list[dict[str, Any]]) -> None:
        self._tools = tools

    def answer(self, messages: list[Message]) -> str:
        if self._rng.random() > OFTEN or not self._tools:
            return super().answer(messages)
        self._read(messages)
        function = self._rng.choice(self._tools)["function"]
        arguments = value_for(function["parameters"], self._rng, self._words)
        return call_text(function["name"], arguments)


def call_text(name: str, arguments: Any) -> str:
    """Return a tool call in the format of a model's turn."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def value_for(schema: dict[str, Any], rng: random.Random, words: Sequence[str]) -> Any:
    """Return a random value that a JSON schema by pydantic allows. Texts are taken from `words`."""
    return _value(schema, schema.get("$defs", {}), rng, words)


def _value(
    schema: dict[str, Any], defs: dict[str, Any], rng: random.Random, words: Sequence[str]
) -> Any:
    if "$ref" in schema:
        schema = defs[schema["$ref"].rpartition("/")[2]]
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return _value(rng.choice(choices), defs, rng, words)
    kind = schema.get("type")
    if kind == "object":
        required = schema.get("required", ())
        return {
            name: _value(each, defs, rng, words)
            for name, each in schema.get("properties", {}).items()
            if name in required or rng.random() < 0.5
        }
    if kind == "array":
        num = rng.randint(schema.get("minItems", 0), max(2, schema.get("minItems", 0)))
        return [_value(schema.get("items", {}), defs, rng, words) for _ in range(num)]
    if kind in ("integer", "number"):
        return _number(schema, rng, words, kind == "integer")
    if kind == "boolean":
        return rng.random() < 0.5
    return None if kind == "null" else rng.choice(words)


def _number(
    schema: dict[str, Any], rng: random.Random, words: Sequence[str], whole: bool
) -> int | float:
    low = schema.get("minimum", schema.get("exclusiveMinimum", -10 if rng.random() < 0.2 else 0))
    high = schema.get("maximum", schema.get("exclusiveMaximum", max(low + 1, 20)))
    low += "exclusiveMinimum" in schema
    high -= "exclusiveMaximum" in schema
    read = [n for w in words if w.isascii() and w.isdigit() and low <= (n := int(w[:9])) <= high]
    if read and rng.random() < 0.5:
        return rng.choice(read)
    high = max(low, high)
    return rng.randint(int(low), int(high)) if whole else round(rng.uniform(low, high), 2)
