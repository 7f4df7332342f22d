"""Calls under a grammar, by a policy that knows nothing: each is of a tool that there is."""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import Any

import jsonschema
import pytest
import torch
from cases import slow_but
from chat_models import ASK, GEMMA4, SHIPPED, SYSTEM, TOOLS, ChatModel
from chat_models import BY_NAME as MODELS

from art_cli.chat.grammar.allowed import unpacked
from art_cli.chat.grammar.grammars import Grammars, Vocabulary
from art_cli.chat.grammar.write import answer_grammar, call_grammar
from art_cli.chat.render import Conversation, Renderer
from art_cli.chat.tool_formats.arguments import schemas_by_name
from art_cli.chat.tool_formats.table import FORMATS
from art_cli.chat.turns import Turn
from art_cli.errors import ConstraintError

NUM = int(os.environ.get("ART_RANDOM_TURNS", "12"))  # of each format
MOST = 400  # tokens of a turn
REASON: dict[str, Any] = {
    "type": "object",
    "properties": {"why": {"type": "string", "maxLength": 20}, "sure": {"type": "boolean"}},
    "required": ["why"],
    "additionalProperties": False,
}
RATE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "rate": {"type": "number"},
        "grade": {"$ref": "#/$defs/grade"},
        "next": {"anyOf": [{"$ref": "#/$defs/grade"}, {"type": "null"}]},
        "of": {"$ref": "#/$defs/place"},
        "word": {"type": "string", "minLength": 2, "maxLength": 5},
        "note": {"type": ["string", "null"]},
        "any": {},
        "ids[]": {"type": "integer"},
        "from": {"type": "string", "enum": ["a", "b"]},
    },
    "required": ["grade", "word"],
    "$defs": {
        "grade": {"type": "string", "enum": ["good", "bad"]},
        "place": {
            "type": "object",
            "properties": {"row": {"type": "integer"}, "at": {"enum": ["a", "b"]}},
            "required": ["at"],
        },
    },
}
OFFERED: list[Any] = [
    *TOOLS,
    {"type": "function", "function": {"name": "rate", "description": "Rate.", "parameters": RATE}},
    {
        "type": "function",
        "function": {
            "name": "rate_all",
            "description": "Rate all.",
            "parameters": {"type": "object", "properties": {}},
        },
    },
]
PARAMETERS = schemas_by_name(OFFERED)
PARAMETERS["free"] = {}  # any arguments
SHORT = ("gemma4",)  # whose nested values are not held to their schemas


def _renderers() -> dict[str, Renderer]:
    """One of each format: of a model that has it, or with a template that knows no tools."""
    found = {
        m.renderer(OFFERED).capabilities.output_format.format.name: m.renderer(OFFERED)
        for m in SHIPPED
    }
    plain = MODELS["phi-3.5-mini"]
    gemma = ChatModel(
        name="gemma", special=plain.special, eos=plain.eos, more_eos=plain.more_eos, added=GEMMA4,
        file="phi-3.5-mini.jinja",
    )  # fmt: skip
    for each in FORMATS:
        model = gemma if each.name == "gemma4" else plain
        if each.name not in found:
            found[each.name] = model.renderer(OFFERED, tool_format=each.name)
    return found


RENDERERS = _renderers()
FAST = (
    "hermes",
    "qwen_xml",
    "mistral_list",
    "pythonic",
    "harmony",
)  # one of each syntax


class Random:
    """A policy that draws among what is allowed, and prefers what ends things."""

    def __init__(self, renderer: Renderer) -> None:
        self.renderer = renderer
        self.tokenizer = renderer._tokenizer
        self.size = len(self.tokenizer)
        self.grammars = Grammars(lambda: Vocabulary.of(self.tokenizer, self.size))
        self.dice = torch.Generator().manual_seed(0)
        ends = [i for i in range(self.size) if set(self.tokenizer.decode([i])) & set("\"'}])</;|")]
        self.wanted = torch.zeros(self.size)
        self.wanted[ends] = 3.0
        self.wanted[list({*self.grammars.specials.values(), *renderer.stop_ids})] = 5.0

    def turn(self, grammar: str, n: int) -> list[int]:
        """Draw a turn; one that was cut off has no end."""
        matcher, ids = self.grammars.start(grammar), []
        taste = torch.randn(self.size, generator=self.dice) * (0.5, 1, 2, 3)[n % 4]
        logits = taste + self.wanted * (n % 3) / 2
        while len(ids) < MOST and not (ids and ids[-1] in self.renderer.stop_ids):
            allowed = unpacked(self.grammars.masks([matcher]), self.size)[0]
            assert allowed.any(), self.tokenizer.decode(ids)
            held = logits.masked_fill(~allowed, -torch.inf)
            ids.append(int(torch.multinomial(held.softmax(0), 1, generator=self.dice)))
            assert matcher.consume_token(ids[-1])
        return ids


def check_calls(name: str, turn: Turn) -> None:
    assert not turn.words.strip(), turn
    for call in turn.calls:
        if isinstance(call, str):  # no grammar keeps apart the keys of an object that lists none
            assert "stands there twice" in call, turn
            continue
        parameters = PARAMETERS[call["name"]]
        if name in SHORT:
            scalars = {k: v for k, v in call["arguments"].items() if not isinstance(v, dict | list)}
            call = {**call, "arguments": scalars}
        jsonschema.validate(call["arguments"], {"type": "object", **parameters})


@pytest.mark.parametrize("name", slow_but(FAST, RENDERERS))
def test_a_turn_is_an_answer_or_calls_of_tools_or_cut_off(name: str) -> None:
    renderer = RENDERERS[name]
    policy, talk = Random(renderer), Conversation(renderer)
    talk.add_messages([SYSTEM, ASK])
    grammar = answer_grammar(renderer, policy.grammars.specials, talk.prompt, REASON, PARAMETERS)
    kinds = Counter[str]()
    for n in range(NUM):
        ids = policy.turn(grammar, n)
        if ids[-1] not in renderer.stop_ids:
            kinds["cut off"] += 1
            continue
        turn = renderer.read(renderer.decode(ids))
        kinds["calls" if turn.calls else "answer"] += 1
        if turn.calls:
            check_calls(name, turn)
        else:
            jsonschema.validate(json.loads(turn.words), REASON)
    print(name, dict(kinds))
    assert kinds["answer"] + kinds["calls"]


@pytest.mark.parametrize("tool", [None, "rate"])
@pytest.mark.parametrize("name", slow_but(FAST, RENDERERS))
def test_a_call_that_is_demanded_is_whole(name: str, tool: str | None) -> None:
    renderer = RENDERERS[name]
    policy = Random(renderer)
    grammar = call_grammar(renderer, policy.grammars.specials, PARAMETERS, tool)
    opening, num = renderer.capabilities.output_format.opening(tool), 0
    for n in range(NUM):
        ids = policy.turn(grammar, n)
        if ids[-1] not in renderer.stop_ids:
            continue
        turn, num = renderer.read(opening + renderer.decode(ids)), num + 1
        check_calls(name, turn)
        assert [c["name"] for c in turn.calls if not isinstance(c, str)] == [tool] or tool is None
    assert num


def test_a_list_that_could_be_calls_is_refused() -> None:
    renderer = RENDERERS["pythonic"]
    with pytest.raises(ConstraintError, match="looks like a call"):
        answer_grammar(renderer, {}, "", {"type": "array"}, PARAMETERS)


def test_a_turn_of_one_call_holds_no_second() -> None:
    renderer = RENDERERS["hermes"]
    policy, talk = Random(renderer), Conversation(renderer)
    talk.add_messages([SYSTEM, ASK])
    specials = policy.grammars.specials
    two = (
        '<tool_call>{"name": "rate_all", "arguments": {}}</tool_call>\n'
        '<tool_call>{"name": "rate_all", "arguments": {}}</tool_call>'
    )
    ids = [*renderer.encode(two), renderer.encode(renderer.end_of_turn)[0]]
    for parallel in (True, False):
        grammar = answer_grammar(
            renderer, specials, talk.prompt, REASON, PARAMETERS, parallel=parallel
        )
        matcher = policy.grammars.start(grammar)
        assert all(matcher.consume_token(i) for i in ids) == parallel
