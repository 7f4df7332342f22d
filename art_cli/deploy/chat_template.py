"""The chat template that goes with weights: what was trained on, whoever renders it.

Where a model's own template does not know the Hermes format, render.py describes the tools in the
system message, keeps calls with the words, and shows results as a user's words. Others know
nothing of that, so the same is put before the template, in its own language.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from art_cli.models.render import HERMES_TOOLS, RESULT, Renderer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ANY_TOOL = {"type": "function", "function": {"name": "any", "description": "", "parameters": {}}}
CALL = """'<tool_call>{"name": "' + call.function.name + '", "arguments": ' \
+ (call.function.arguments | tojson(ensure_ascii=true)) + '}</tool_call>'"""


def served_template(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """Return the template to serve with; None: the tokenizer's own does. Raises UsageError."""
    renderer = Renderer(tokenizer, [ANY_TOOL])
    if not renderer.tools_by_hand:
        return None
    assert isinstance(tokenizer.chat_template, str)
    before, after = HERMES_TOOLS.split("{schemas}")
    described = f"{_quoted(before)} + art.schemas + {_quoted(after)}"
    result = _quoted(RESULT).replace("{content}", "' + art.text + '")
    role, text = "m.role", "art.text"
    if not renderer.has_tool_role:
        role = "('user' if m.role == 'tool' else m.role)"
        text = f"({result} if m.role == 'tool' else art.text)"
    return (
        "{%- set art = namespace(said=[], text='', schemas='') %}"
        "{%- for m in messages %}"
        "{%- set art.text = m.content or '' %}"
        "{%- for call in m.tool_calls or [] %}"
        f"{{%- set art.text = art.text + {CALL} %}}"
        "{%- endfor %}"
        f"{{%- set art.said = art.said + [{{'role': {role}, 'content': {text}}}] %}}"
        "{%- endfor %}"
        "{%- if tools %}"
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
        "{%- set messages, tools = art.said, none %}"
    ) + tokenizer.chat_template


def _quoted(text: str) -> str:
    """As a string of the template's language, the doubled braces of a format string undone."""
    plain = text.replace("{{", "{").replace("}}", "}")
    return "'" + plain.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"
