"""Whoever renders a conversation for a model that was trained here must render the same text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from art_cli.config.schema import TinyConfig
from art_cli.deploy.chat_template import served_template
from art_cli.models import tiny
from art_cli.models.render import Renderer

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
