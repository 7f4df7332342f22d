"""Whoever renders a conversation for a model that was trained here must render the same text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from chat_models import BY_NAME

from art_cli.chat.render import Renderer
from art_cli.config.sections.model import ModelConfig, TinyConfig
from art_cli.deploy.chat_template import parser_words, served_template
from art_cli.errors import UsageError
from art_cli.models import tiny

TEMPLATES = Path(__file__).parents[1] / "templates"
CHATML = (
    "{%- for m in messages -%}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{%- endfor -%}{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)
WITH_TOOL_ROLE = CHATML.replace("m.role", "('tool' if m.role == 'tool' else m.role)")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Look it's up: {a} \\ ü.",
            "parameters": {"type": "object", "properties": {"key": {"type": "string"}}},
        },
    },
    {"type": "function", "function": {"name": "end", "description": "", "parameters": {}}},
]
SYSTEM = {"role": "system", "content": "Be kind."}
CALL = '<tool_call>{"name": "look", "arguments": {"key": "a \\"b\\""}}</tool_call>'
SAID = [
    {"role": "user", "content": "what's a?"},
    {"role": "assistant", "content": f"let me see {CALL}"},
    {"role": "tool", "content": "seven"},
    {"role": "assistant", "content": "it is seven"},
    {"role": "user", "content": "thanks"},
]
FUNCTION = {"name": "look", "arguments": {"key": 'a "b"'}}
SAID_TO_AN_API: list[Any] = [
    SAID[0],
    {
        "role": "assistant",
        "content": "let me see ",
        "tool_calls": [{"id": "c", "type": "function", "function": FUNCTION}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "seven"},
    *SAID[3:],
]


def tokenizer_with(template: str) -> Any:
    _, tokenizer = tiny.make(TinyConfig(vocab_size=320), ["some text"], 0)
    tokenizer.chat_template = template
    tokenizer.add_special_tokens(
        {"additional_special_tokens": ["<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"]}
    )
    return tokenizer


@pytest.mark.parametrize("template", [CHATML, WITH_TOOL_ROLE, "llama3"])
@pytest.mark.parametrize("opening", [[], [SYSTEM]])
@pytest.mark.parametrize("tools", [TOOLS, []])
def test_others_render_what_was_trained_on(
    template: str, opening: list[Any], tools: list[Any]
) -> None:
    if template == "llama3":
        template = (TEMPLATES / "llama3.jinja").read_text()
    tokenizer = tokenizer_with(template)
    mine = Renderer(tokenizer, tools).text([*opening, *SAID])
    served = served_template(tokenizer)
    assert served and served.endswith(template)
    theirs = tokenizer.apply_chat_template(
        [*opening, *SAID_TO_AN_API],
        tools=tools or None,
        tokenize=False,
        add_generation_prompt=True,
        chat_template=served,
    )
    assert theirs == mine
    assert ("Look it's up" in mine) == bool(tools)


def test_a_template_that_knows_the_format_stays_as_it_is() -> None:
    assert served_template(tokenizer_with((TEMPLATES / "qwen3.jinja").read_text())) is None
    assert served_template(tokenizer_with(tiny.CHAT_TEMPLATE)) is None


@pytest.mark.parametrize("opening", [[], [SYSTEM]])
def test_what_a_template_refuses_is_put_differently_for_others_too(opening: list[Any]) -> None:
    """As Gemma 2's: no system message, and roles that alternate."""
    refusals = (
        "{%- for m in messages -%}{%- if m.role == 'system' or loop.index0 and "
        "m.role == messages[loop.index0 - 1].role -%}{{ raise_exception('no') }}{%- endif -%}"
        "{%- endfor -%}"
    )
    tokenizer = tokenizer_with(refusals + CHATML)
    results = [{"role": "tool", "content": text} for text in ("seven", "eight")]
    said = [*opening, *SAID[:2], *results, SAID[3], SAID[4]]
    to_an_api = [*opening, *SAID_TO_AN_API[:2], *results, SAID[3], SAID[4]]
    mine = Renderer(tokenizer, TOOLS).text(said)
    theirs = tokenizer.apply_chat_template(
        to_an_api,
        tools=TOOLS,
        tokenize=False,
        add_generation_prompt=True,
        chat_template=served_template(tokenizer),
    )
    assert theirs == mine and "seven" in mine and "eight" in mine


def test_the_arguments_of_the_template_are_served_with_it() -> None:
    tokenizer = tokenizer_with(BY_NAME["qwen3"].template())
    model = ModelConfig(base="x", template_args={"enable_thinking": False})
    mine = Renderer(tokenizer, TOOLS, template_args=model.template_args).text([SAID[0]])
    served = served_template(tokenizer, model)
    asked: dict[str, Any] = {"tools": TOOLS, "tokenize": False, "add_generation_prompt": True}
    theirs = tokenizer.apply_chat_template([SAID[0]], chat_template=served, **asked)
    assert theirs == mine and mine.endswith("</think>\n\n")
    others = {**asked, "chat_template": served, "enable_thinking": True}
    assert not tokenizer.apply_chat_template([SAID[0]], **others).endswith("</think>\n\n")


def test_a_format_that_a_template_cannot_be_taught_is_a_users_mistake() -> None:
    model = ModelConfig(base="x", tool_format="gemma3")
    with pytest.raises(UsageError, match="written as gemma3 cannot be put into"):
        served_template(tokenizer_with(CHATML), model)


def test_vllm_is_told_how_to_read_the_calls(tmp_path: Path) -> None:
    for name, words in (
        ("qwen3-coder", ["--enable-auto-tool-choice", "--tool-call-parser", "qwen3_coder"]),
        ("qwen3", ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]),
        ("apertus", []),
    ):
        BY_NAME[name].tokenizer(BY_NAME[name].template()).save_pretrained(tmp_path / name)
        assert parser_words(tmp_path / name, ModelConfig(base="x")) == words
