"""What of a demonstration is trained, token by token."""

from __future__ import annotations

import re
from typing import Any

import pytest
from chat_models import BY_NAME, SHIPPED, TOOLS, ChatModel
from fuzz import fuzz
from hypothesis import given
from hypothesis import strategies as st

from art_cli.chat.render import Renderer
from art_cli.errors import UsageError
from art_cli.training.demonstrations import joined
from art_cli.training.trainers.sft import _rendered, demonstration
from art_cli.types import Message

ASKED: Message = {"role": "user", "content": "a question"}


def says(text: str, weight: int = 1) -> Message:
    return {"role": "assistant", "content": text, "weight": weight}


def texts(renderer: Renderer, messages: list[Message]) -> tuple[str, str]:
    """Return all that is read, and what of it is trained."""
    [sequence] = demonstration(renderer, messages)
    decode = renderer._tokenizer.decode
    trained = [i for i, m in zip(sequence.ids, sequence.mask, strict=True) if m]
    return str(decode(sequence.ids)), str(decode(trained))


@pytest.mark.parametrize("name", ["qwen2.5", "mistral-nemo", "phi-3.5-mini"])
def test_a_turn_of_weight_0_is_read_and_not_trained(name: str) -> None:
    renderer = BY_NAME[name].renderer(None)
    messages = [ASKED, says("bad answer", 0), ASKED, says("good answer")]
    read, trained = texts(renderer, messages)
    assert "bad answer" in read and "bad answer" not in trained
    assert trained == f"good answer{renderer.end_of_turn}"
    all_of_them = [{**m, "weight": 1} for m in messages]
    assert texts(renderer, all_of_them)[0] == read  # type: ignore[arg-type]


def test_a_greeting_that_the_template_refuses_is_left_out_and_counted() -> None:
    greeted = [says("how can I help?"), ASKED, says("an answer")]
    renderer, said = BY_NAME["mistral-nemo"].renderer(None), list[str]()
    found = list(_rendered(renderer, [greeted, [ASKED, says("x")], greeted], said.append))
    plain = demonstration(renderer, greeted[1:])
    assert [s.ids for s in found[0]] == [s.ids for s in plain]
    [line] = said
    assert "its first words are left out of 2 of 3 demonstrations" in line
    with pytest.raises(UsageError, match=r"demonstration 2 of 2: the chat template of .* refuses"):
        list(_rendered(renderer, [greeted, greeted[:1]], said.append))


ROLES = st.sampled_from(["system", "user", "user", "assistant", "assistant", "tool"])
CALL = '<tool_call>{"name": "cancel", "arguments": {"order": 1}}</tool_call>'


@fuzz(400)
@given(
    st.sampled_from(SHIPPED),
    st.lists(st.tuples(ROLES, st.sampled_from(["words", "words", "call", "empty"])), max_size=7),
)
def test_no_words_of_a_conversation_are_lost_unless_that_is_said(
    model: ChatModel, turns: list[tuple[Any, str]]
) -> None:
    messages: list[Message] = []
    for n, (role, kind) in enumerate(turns):
        content = f"z{n}z" if kind != "empty" or role == "assistant" else ""
        content += CALL if kind == "call" and role == "assistant" else ""
        messages.append({"role": role, "content": content})
    messages = joined(messages)
    last = max((n for n, m in enumerate(messages) if m["role"] == "assistant"), default=None)
    if last is None:  # refused with its line where the file is read
        return
    renderer, said = model.renderer(TOOLS), list[str]()
    try:
        [sequences] = _rendered(renderer, [messages], said.append)
    except UsageError as e:
        assert str(e).startswith("demonstration 1 of 1: ")
        return
    decode = renderer._tokenizer.decode
    read = "".join(str(decode(s.ids)) for s in sequences)
    trained = [[i for i, m in zip(s.ids, s.mask, strict=True) if m] for s in sequences]
    learned = "".join(map(str, map(decode, trained)))
    kept = messages[: last + 1]  # nothing is learned from what follows
    if said:
        first = next(n for n, m in enumerate(messages) if m["role"] != "system")
        kept = [*kept[:first], *kept[first + 1 :]]
    for message in kept:
        for word in re.findall("z[0-9]z", message["content"]):
            assert word in read, (model.name, word)
            assert (word in learned) == (message["role"] == "assistant"), (model.name, word)
