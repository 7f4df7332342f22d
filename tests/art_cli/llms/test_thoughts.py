"""What a model thinks into its content is heard by nobody."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_cli.llms.answer import answer_of
from art_cli.llms.thoughts import without_thoughts

FORMS = [
    "<think>{thought}</think>{said}",
    "<think>\n{thought}\n</think>\n\n{said}",
    "{thought}</think>\n{said}",  # begun in the prompt
    "<thinking>{thought}</thinking>{said}",
    "<THINK>{thought}</THINK>{said}",
    "<reasoning>{thought}</reasoning>\n{said}",
    "<seed:think>{thought}</seed:think>{said}",
    "[THINK]{thought}[/THINK]{said}",
    "<think>{thought}</think>\n<think>{thought}</think>{said}",
    "<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant"
    "<|channel|>final<|message|>{said}<|return|>",
    "<|channel|>analysis<|message|>{thought}<|end|>"
    "<|channel|>final <|constrain|>json<|message|>{said}",
]
UNFINISHED = ["<think>{thought}", "\n[THINK] {thought}", "<|channel|>analysis<|message|>{thought}"]
WORDS = st.text(st.sampled_from("ab {}[]\n<>/\"'&."), max_size=30)


@pytest.mark.parametrize("form", FORMS)
@given(thought=WORDS, said=WORDS)
@settings(deadline=None, max_examples=50)
def test_what_is_said_is_all_that_is_heard(form: str, thought: str, said: str) -> None:
    thought = f"SECRET {thought} SECRET"
    assert without_thoughts(form.format(thought=thought, said=said)).strip() == said.strip()


@pytest.mark.parametrize("form", UNFINISHED)
def test_a_thought_that_was_cut_off_says_nothing(form: str) -> None:
    assert without_thoughts(form.format(thought="the code is 7")) == ""


@pytest.mark.parametrize(
    "text",
    ["", "plain", " led by a space", "use the <think> tag", "a < b > c", "[THINKING] is no mark"],
)
def test_an_answer_without_thoughts_stays_as_it_is(text: str) -> None:
    assert without_thoughts(text) == text


def test_a_thought_between_two_sentences_is_taken_out() -> None:
    assert without_thoughts("One moment. <think>hm</think>Done.") == "One moment. Done."


def test_a_long_answer_is_read_at_once() -> None:
    for text in (
        "<think>" * 30_000,
        "</think>" * 30_000,
        "<think>a</think>" * 15_000,
        "<" * 200_000,
    ):
        without_thoughts(text)


def test_a_reply_holds_the_words_and_the_message_as_it_came() -> None:
    content = "<think>they want W3</think>\nYes, please."
    reply = answer_of({"content": content}, "stop", None).reply(0.0)
    assert reply.text == "Yes, please." and (reply.message or {})["content"] == content
