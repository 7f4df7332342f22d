"""A chat template for served weights that renders prompts exactly as in training.

If a model's own template does not describe tools, history.py describes them in the system message,
writes calls into the text, and gives results as user messages. Other servers do not do that and do
not know `model.template_args`. Therefore the same transformation is put in front of the template,
in the template's language.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from art_cli.chat.capabilities import TOOL, TemplateCapabilities
from art_cli.chat.history import DESCRIBED, RESULT
from art_cli.chat.render import Renderer
from art_cli.chat.tool_formats.table import HERMES
from art_cli.config.sections.model import ModelConfig
from art_cli.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CALL = """'<tool_call>{"name": "' + call.function.name + '", "arguments": ' \
+ (call.function.arguments | tojson(ensure_ascii=true)) + '}</tool_call>'"""
WITHOUT_SYSTEM = (
    "{%- if art.said and art.said[0].role == 'system' %}"
    "{%- set art.text = art.said[0].content %}"
    "{%- set art.said = art.said[1:] %}"
    "{%- if art.said and art.said[0].role == 'user' %}"
    "{%- set art.text = art.text + '\\n\\n' + art.said[0].content %}"
    "{%- set art.said = art.said[1:] %}"
    "{%- endif %}"
    "{%- set art.said = [{'role': 'user', 'content': art.text}] + art.said %}"
    "{%- endif %}"
)
MERGED = (
    "{%- set art.merged = [] %}"
    "{%- for m in art.said %}"
    "{%- if art.merged and m.role == 'user' and art.merged[-1].role == 'user' %}"
    "{%- set art.text = art.merged[-1].content + '\\n' + m.content %}"
    "{%- set art.merged = art.merged[:-1] + [{'role': 'user', 'content': art.text}] %}"
    "{%- else %}"
    "{%- set art.merged = art.merged + [m] %}"
    "{%- endif %}"
    "{%- endfor %}"
    "{%- set art.said = art.merged %}"
)


def served_template(
    tokenizer: PreTrainedTokenizerBase, model: ModelConfig | None = None
) -> str | None:
    """Return the template to serve, or None if the tokenizer's own is right. Raise UsageError."""
    wanted, args = (model.tool_format, model.template_args) if model else ("auto", {})
    ends: list[Any] = [tokenizer.eos_token_id]
    renderer = Renderer(tokenizer, [TOOL], ends, wanted, args)
    settings = "".join(
        f"{{%- set {k} = {k} if {k} is defined else {_literal(v)} %}}" for k, v in args.items()
    )
    if renderer.tools_by_hand:
        settings += _by_hand(renderer.capabilities)
    if not settings:
        return None
    assert isinstance(tokenizer.chat_template, str)
    return settings + tokenizer.chat_template


def parser_words(weights: Path, model: ModelConfig) -> list[str]:
    """Return vLLM's options for parsing this model's tool calls, or none if no parser fits."""
    from art_cli.models.saved_weights import load_tokenizer

    tokenizer = load_tokenizer(weights, weights)
    ends = [tokenizer.eos_token_id]
    renderer = Renderer(tokenizer, [TOOL], ends, model.tool_format, model.template_args)
    name = renderer.capabilities.output_format.format.serves
    return ["--enable-auto-tool-choice", "--tool-call-parser", name] if name else []


def _by_hand(capabilities: TemplateCapabilities) -> str:
    """Return the transformation of history.py as template code that rewrites `messages` and
    `tools`.
    """
    form = capabilities.output_format.format
    if form is not HERMES and not capabilities.writes_calls:
        raise UsageError(
            f"model.tool_format: calls written as {form.name} cannot be put into this model's chat "
            "template, which knows no tools; train with hermes to deploy it"
        )
    before, after = DESCRIBED.split("{schemas}")
    after = after.replace("{shape}", form.shape)
    described = f"{_quoted(before)} + art.schemas + {_quoted(after)}"
    return (
        "{%- set art = namespace(said=[], merged=[], text='', schemas='') %}"
        + ("{%- set art.said = messages %}" if capabilities.writes_calls else _plain(capabilities))
        + "{%- if tools %}"
        "{%- for t in tools %}"
        "{%- set art.schemas = art.schemas + ('' if loop.first else '\\n') "
        "+ (t | tojson(ensure_ascii=true)) %}"
        "{%- endfor %}"
        f"{{%- set art.text = {described} %}}"
        "{%- if art.said and art.said[0].role == 'system' %}"
        "{%- set art.said = [{'role': 'system', 'content': art.said[0].content + art.text}] "
        "+ art.said[1:] %}"
        "{%- else %}"
        "{%- set art.said = [{'role': 'system', 'content': art.text | trim}] + art.said %}"
        "{%- endif %}"
        "{%- endif %}"
        + (WITHOUT_SYSTEM if capabilities.refuses_system else "")
        + (MERGED if capabilities.refuses_repeats else "")
        + "{%- set messages, tools = art.said, none %}"
    )


def _plain(capabilities: TemplateCapabilities) -> str:
    result = _quoted(RESULT).replace("{content}", "' + art.text + '")
    role, text = "m.role", "art.text"
    if not capabilities.has_tool_role:
        role = "('user' if m.role == 'tool' else m.role)"
        text = f"({result} if m.role == 'tool' else art.text)"
    return (
        "{%- for m in messages %}"
        "{%- set art.text = m.content or '' %}"
        "{%- for call in m.tool_calls or [] %}"
        f"{{%- set art.text = art.text + {CALL} %}}"
        "{%- endfor %}"
        f"{{%- set art.said = art.said + [{{'role': {role}, 'content': {text}}}] %}}"
        "{%- endfor %}"
    )


def _quoted(text: str) -> str:
    """Return a string literal of the template language."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


def _literal(value: Any) -> str:
    """Return a literal of the template language for a value."""
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quoted(k)}: {_literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return "none" if value is None else json.dumps(value)
