"""The grammar of a turn, in the words of every family: thinking, then an answer or calls."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest
from chat_models import ASK, BY_NAME, SHIPPED, SYSTEM, TOOLS, ChatModel

from art_cli.chat.grammar.grammars import Grammars, Vocabulary
from art_cli.chat.grammar.write import answer_grammar, call_grammar
from art_cli.chat.render import Conversation, Renderer
from art_cli.chat.tool_formats.arguments import schemas_by_name
from art_cli.types import Completion

ORDER = {
    "type": "object",
    "properties": {"order": {"type": "integer"}, "why": {"type": "string"}},
    "required": ["order"],
    "additionalProperties": False,
}
PARAMETERS = schemas_by_name(TOOLS)
ANSWER = '{"order": 17, "why": "it is late"}'


@cache
def of(renderer: Renderer) -> Grammars:
    tokenizer = renderer._tokenizer
    return Grammars(lambda: Vocabulary.of(tokenizer, len(tokenizer)))


def read(renderer: Renderer, grammar: str, ids: list[int]) -> tuple[int, list[list[int]]]:
    """Return how many of these tokens a grammar takes, and which it allows at each."""
    tokenizer, grammars = renderer._tokenizer, of(renderer)
    matcher, allowed = grammars.start(grammar), []
    for n, i in enumerate(ids):
        bits = grammars.masks([matcher])[0].tolist()
        allowed.append([t for t in range(len(tokenizer)) if bits[t // 32] >> (t % 32) & 1])
        if i not in allowed[-1]:
            return n, allowed
        assert matcher.consume_token(i)
    return len(ids), allowed


def opened(model: ChatModel, tools: list[Any] | None) -> tuple[Renderer, Conversation]:
    renderer = model.renderer(tools)
    talk = Conversation(renderer)
    talk.add_messages([SYSTEM, ASK])
    return renderer, talk


def spoken(talk: Conversation, renderer: Renderer, text: str) -> list[int]:
    """The tokens of a turn behind a prompt that may have begun to think."""
    opening, _ = renderer.capabilities.output_format.tags
    ids = talk.spoken_as(text)
    own = renderer._tokenizer.decode(ids, skip_special_tokens=False)
    if talk.prompt.rstrip().endswith(opening) and own.startswith(opening):
        return list(renderer.encode(own.removeprefix(opening)))
    return ids


def done(ids: list[int]) -> Completion:
    return Completion(
        token_ids=ids, logprobs=[0.0] * len(ids), finish_reason="stop", policy_version=0
    )


def said(talk: Conversation, renderer: Renderer, ids: list[int]) -> Any:
    return renderer.read(talk.add_completion(done(ids)))


@pytest.mark.parametrize("model", SHIPPED, ids=lambda m: m.name)
def test_what_a_model_says_to_a_schema_is_taken_and_nothing_else(model: ChatModel) -> None:
    renderer, talk = opened(model, None)
    grammar = answer_grammar(renderer, of(renderer).specials, talk.prompt, ORDER, {})
    thinks = "thought" in grammar
    text = f"<think>\nhm {{\n</think>\n\n{ANSWER}" if thinks else ANSWER
    ids = spoken(talk, renderer, text)
    taken, allowed = read(renderer, grammar, ids)
    assert taken == len(ids), renderer._tokenizer.decode(ids[: taken + 1])
    assert set(allowed[-1]) <= renderer.stop_ids  # the end of the turn, where the answer ends
    turn = said(talk, renderer, ids)
    assert json.loads(turn.words) == json.loads(ANSWER) and (turn.thought == "hm {") == thinks
    for wrong in ("no", '{"order": "17"}', '{"order": 17'):
        bad = spoken(talk, renderer, text.replace(ANSWER, wrong))
        assert read(renderer, grammar, bad)[0] < len(bad)


@pytest.mark.parametrize("model", SHIPPED, ids=lambda m: m.name)
def test_a_turn_may_call_a_tool_instead_of_answering(model: ChatModel) -> None:
    renderer, talk = opened(model, TOOLS)
    grammar = answer_grammar(renderer, of(renderer).specials, talk.prompt, ORDER, PARAMETERS)
    call = '<tool_call>{"name": "look_up", "arguments": {"order": "17"}}</tool_call>'
    for text in (call, ANSWER):
        if "closed[" in grammar or "thought:" in grammar:
            text = f"<think>\nhm\n</think>\n\n{text}"
        ids = spoken(talk, renderer, text)
        taken, _ = read(renderer, grammar, ids)
        assert taken == len(ids), renderer._tokenizer.decode(ids[: taken + 1])
    cancel = {"cancel": PARAMETERS["cancel"]}
    other = answer_grammar(renderer, of(renderer).specials, talk.prompt, ORDER, cancel)
    unknown = spoken(talk, renderer, text.replace(ANSWER, call))
    assert read(renderer, other, unknown)[0] < len(unknown)


@pytest.mark.parametrize("model", SHIPPED, ids=lambda m: m.name)
def test_the_arguments_of_a_call_that_is_demanded_meet_its_schema(model: ChatModel) -> None:
    renderer = model.renderer(TOOLS)
    talk = Conversation(renderer)
    talk.add_messages([SYSTEM, ASK], talk.opening("look_up"))
    grammar = call_grammar(renderer, of(renderer).specials, PARAMETERS, "look_up")
    call = '<tool_call>{"name": "look_up", "arguments": {"order": "17"}}</tool_call>'
    own = renderer._tokenizer.decode(talk.spoken_as(call), skip_special_tokens=False)
    found = re.search(r'look_up.*?(\{"order".*|<[^<>]*(parameter|arg_key)\b.*)', own, re.S)
    assert found
    rest = found[1]
    ids = list(renderer.encode(rest))
    taken, _ = read(renderer, grammar, ids)
    assert taken == len(ids), (rest, renderer._tokenizer.decode(ids[: taken + 1]))
    turn = said(talk, renderer, ids)
    assert turn.calls == [{"name": "look_up", "arguments": {"order": "17"}}]
    if '{"order": "17"}' in rest:
        bad = list(renderer.encode(rest.replace('"17"', "17")))
        assert read(renderer, grammar, bad)[0] < len(bad)


def test_a_prompt_that_has_closed_the_thinking_leaves_no_room_for_more() -> None:
    renderer, talk = opened(BY_NAME["qwen3"], None)
    closed = f"{talk.prompt}<think>\n\n</think>\n\n"
    assert "thought" in answer_grammar(renderer, of(renderer).specials, talk.prompt, ORDER, {})
    assert "thought" not in answer_grammar(renderer, of(renderer).specials, closed, ORDER, {})
