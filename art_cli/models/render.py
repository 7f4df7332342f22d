"""Messages to tokens and back. What is trained is what was sampled.

The ids that the engine sampled are kept; nothing is decoded and tokenized again. New messages are
rendered as a suffix to the ids so far. Where the chat template rewrites what went before (Qwen3
strips the thinking of earlier turns), the conversation forks: a new sequence starts from the
rewritten text, and the model is trained on what it really read in each.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from art_cli.errors import UsageError
from art_cli.system.bounded_cache import Recent
from art_cli.system.outside import read_json
from art_cli.types import Completion, Message, Sequence, ToolCall

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TOOL_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.S)
TOOL_CALL_FORMAT = '<tool_call>{"name": <name>, "arguments": <object>}</tool_call>'
CACHED = 2**22  # bytes of renderings, and as many of their ids: siblings begin alike
ID = 40  # bytes of one in a tuple
LONG = 2**15  # characters; a longer text is measured before it is tokenized
HERMES_TOOLS = """

You may call these tools:
<tools>
{schemas}
</tools>
To call one, answer with <tool_call>{{"name": <name>, "arguments": <object>}}</tool_call>"""

RESULT = "<tool_response>\n{content}\n</tool_response>"  # where a template has no role for it


_one_at_a_time = threading.Lock()  # long texts: each takes hundreds of bytes a character


class TooLongError(Exception):
    """A text is longer than the model can read; `num_tokens` of it were counted."""

    def __init__(self, num_tokens: int) -> None:
        super().__init__(f"more than {num_tokens} tokens")
        self.num_tokens = num_tokens


def spoken(text: str) -> str:
    """A turn without its thinking, cut short or not: what tools, env and user get to hear."""
    _, closed, rest = text.rpartition("</think>")
    said, opened, _ = rest.partition("<think>")
    return said.strip() if closed or opened else said


def parse_tool_calls(text: str) -> list[ToolCall | str]:
    """The tool calls of a turn in the Hermes format; a string says what is wrong with one."""
    return [parse_tool_call(body) for body in TOOL_CALL.findall(text)]


def parse_tool_call(body: str) -> ToolCall | str:
    """Return what stands between the tags; a string says what is wrong with it."""
    try:
        call = read_json(body)
    except ValueError as e:
        return f"error: the tool call is not valid JSON ({e}); expected {TOOL_CALL_FORMAT}"
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return f"error: the tool call has no name; expected {TOOL_CALL_FORMAT}"
    arguments = call.get("arguments", {})
    if not isinstance(arguments, dict):
        return f"error: the arguments are not an object; expected {TOOL_CALL_FORMAT}"
    return ToolCall(name=call["name"], arguments=arguments)


class Renderer:
    """A chat template bound to a tokenizer and the tools of one env."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        tools: list[Any] | None = None,
        eos_token_ids: list[int] | None = None,
    ) -> None:
        """`eos_token_ids` are the model's own, beside the template's and the tokenizer's.

        Raises UsageError where the template is missing or cannot be used.
        """
        template = tokenizer.chat_template
        if not template:
            raise UsageError(
                f"the tokenizer of {tokenizer.name_or_path!r} has no chat template; use an "
                "instruct model, or add chat_template.jinja to its folder"
            )
        template = template if isinstance(template, str) else json.dumps(template)
        self._tokenizer = tokenizer
        self._tools = tools or None
        # A template that does not know the Hermes format gets the tools in its system message.
        self.tools_by_hand = bool(tools) and "<tool_call>" not in template
        added = tokenizer.added_tokens_decoder.values()
        special = (str(t) for t in added if t.special)
        self._specials = sorted({*tokenizer.all_special_tokens, *special})
        self._render_cached = Recent(
            self._render, lambda key, text: sys.getsizeof(key[0]) + sys.getsizeof(text), CACHED
        )
        self.encode = Recent(
            self._encode, lambda text, ids: sys.getsizeof(text) + ID * len(ids), CACHED
        )
        self.has_tool_role = "tool" in template  # else it is a word like any other to it
        self.has_tool_role = self.has_tool_role and self._shows_tool_results()
        self.end_of_turn = self._find_end_of_turn()
        ends = [self.encode(self.end_of_turn)[0], tokenizer.eos_token_id, *(eos_token_ids or [])]
        self.stop_ids = frozenset(i for i in ends if i is not None)

    def offering(self, tools: list[Any]) -> Renderer:
        """Return the same template with other tools."""
        return Renderer(self._tokenizer, tools, list(self.stop_ids))

    def text(self, messages: list[Message], *, generate: bool = True) -> str:
        """The rendered conversation, ending where the assistant is to begin if `generate`."""
        return self._render_cached((json.dumps(messages), generate))

    def decode(self, ids: list[int]) -> str:
        """Return the text of sampled ids, without special tokens."""
        return self._tokenizer.decode(ids, skip_special_tokens=True)  # type: ignore[return-value]

    def check_length(self, text: str, room: int) -> None:
        """Raise TooLongError where a text is far more than `room` tokens, before it costs much.

        A tokenizer takes seconds and hundreds of bytes for each megabyte and character. Cut into
        slices a text has at most a few tokens more than as a whole, nowhere near twice as many.
        """
        num = 0
        for begin in range(0, len(text) if len(text) > LONG else 0, LONG):
            num += len(self._encode(text[begin : begin + LONG]))
            if num > 2 * room:
                raise TooLongError(num)

    def _encode(self, text: str) -> tuple[int, ...]:
        if len(text) > LONG:
            with _one_at_a_time:
                return tuple(self._tokenizer.encode(text, add_special_tokens=False))
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def _render(self, key: tuple[str, bool]) -> str:
        messages_json, generate = key
        plain = [self._plain(m) for m in json.loads(messages_json)]
        tools = self._tools
        if tools and self.tools_by_hand:
            schemas = "\n".join(json.dumps(t) for t in tools)
            described = HERMES_TOOLS.format(schemas=schemas)
            if plain and plain[0]["role"] == "system":
                plain[0] = {**plain[0], "content": plain[0]["content"] + described}
            else:
                plain.insert(0, {"role": "system", "content": described.strip()})
            tools = None
        try:
            return self._tokenizer.apply_chat_template(
                plain, tools=tools, tokenize=False, add_generation_prompt=generate
            )  # type: ignore[return-value]
        except Exception as e:  # a template is a program, and the messages and tools are anyone's
            why = str(e) if isinstance(e, TemplateError) else f"{type(e).__name__}: {e}"
            roles = ", ".join(m["role"] for m in plain)
            raise UsageError(
                f"the chat template of {self._tokenizer.name_or_path!r} refuses the messages "
                f"({roles:.200}): {why:.500}"
            ) from None

    def _plain(self, message: dict[str, Any]) -> dict[str, str]:
        """Keep role and content only: a call is in the text, and a template would write it again.

        What a tool or user says is data: a special token in it is broken up, or it could end the
        turn and speak for another.
        """
        role, content = message["role"], message["content"]
        if role in ("user", "tool"):
            for token in self._specials:
                if token in content:
                    content = content.replace(token, f"{token[:-1]} {token[-1]}")
        if role == "tool" and not self.has_tool_role:
            return {"role": "user", "content": RESULT.format(content=content)}
        return {"role": role, "content": content}

    def _shows_tool_results(self) -> bool:
        """A template may know tools and yet skip or refuse their results."""
        probe: list[Message] = [
            {"role": "user", "content": "question"},
            {"role": "assistant", "content": "answer"},
            {"role": "tool", "content": "zresultz"},
        ]
        try:
            return "zresultz" in self.text(probe)
        except UsageError:
            return False

    def _find_end_of_turn(self) -> str:
        """Return the special token that the template writes behind an assistant's content."""
        probe: list[Message] = [
            {"role": "user", "content": "question"},
            {"role": "assistant", "content": "zanswerz"},
        ]
        tail = self.text(probe, generate=False).rpartition("zanswerz")[2]
        specials = [t for t in self._specials if tail.startswith(t)]
        if not specials:
            raise UsageError(
                "the chat template does not end an assistant's turn with a special token "
                f"(it writes {tail!r}), so a turn could never stop"
            )
        return max(specials, key=len)


class Conversation:
    """The messages of one episode and the token sequences that the model saw and made of them."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._messages: list[Message] = []
        self._text = ""  # rendered, up to where the current turn begins
        self._opening = ""  # of the turn, if it was given one
        self.sequences: list[Sequence] = []

    @property
    def messages(self) -> list[Message]:
        """All that was said, as it was read and sampled."""
        return list(self._messages)

    @property
    def ids(self) -> list[int]:
        """The tokens of the current sequence."""
        return self.sequences[-1].ids

    def add_messages(
        self, messages: list[Message], opening: str = "", room: int | None = None
    ) -> None:
        """Add what the model reads next: a suffix where the template allows it, else a fork.

        `opening` is how the turn begins that it is to go on with. Raises TooLongError where what is
        new is by far more than `room` tokens.
        """
        before = list(self._messages)
        self._messages += messages
        text = self._renderer.text(self._messages)
        glue = self._glue(before, text) if self.sequences else None
        if room is not None:
            self._renderer.check_length(text if glue is None else glue, room)
        if glue is None:
            self.sequences.append(Sequence())
            ids = self._renderer.encode(text)
        else:
            # Tokenised behind the end of the turn: some tokenizers put a space before what is a
            # text of its own, or strip what follows a special token.
            end = self._renderer.end_of_turn
            ids = self._renderer.encode(end + glue)
            if self.ids[-1] in self._renderer.stop_ids:
                ids = ids[len(self._renderer.encode(end)) :]
        self.sequences[-1].extend_prompt([*ids, *self._renderer.encode(opening)])
        self._text, self._opening = text, opening

    def add_completion(self, completion: Completion) -> str:
        """Add the turn as it was sampled. Return its text, the given opening included."""
        self.sequences[-1].extend_sampled(completion)
        text = self._opening + self._renderer.decode(completion.token_ids)
        self._messages.append({"role": "assistant", "content": text})
        return text

    def _glue(self, before: list[Message], text: str) -> str | None:
        """What `text` adds behind the turn's end, or None if it rewrites what was before it."""
        end = self._renderer.end_of_turn
        sampled = before[-1]["content"]
        if text.startswith(self._text + sampled + end):
            return text[len(self._text) + len(sampled) + len(end) :]
        # The template may merely write this turn in another way (it trims, say), which is not a
        # reason to fork; or it writes it otherwise *now that more follows*, which is.
        alone = self._renderer.text(before, generate=False)
        if not (alone.startswith(self._text) and text.startswith(alone) and end in alone):
            return None
        return alone.rpartition(end)[2] + text[len(alone) :]
