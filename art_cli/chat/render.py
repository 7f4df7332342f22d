"""Conversion of messages to tokens and back. The sampled tokens are the trained tokens.

Token ids that the engine sampled are never decoded and retokenized. New messages are rendered as
a suffix to the ids so far. If the chat template rewrites earlier text (Qwen3 strips the thinking of
earlier turns), the conversation forks: a new sequence starts from the rewritten text, and the model
is trained on what it read in each sequence.
"""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from art_cli.chat.capabilities import TemplateCapabilities, TokenTexts
from art_cli.chat.history import History
from art_cli.chat.template import ChatTemplate
from art_cli.chat.too_long import TooLongError
from art_cli.chat.tool_formats.arguments import schemas_by_name
from art_cli.chat.tool_formats.names import ToolNames
from art_cli.chat.turns import Turn, read_turn, write_turn_text
from art_cli.errors import UsageError
from art_cli.system.bounded_cache import Recent
from art_cli.types import Completion, Message, Sequence

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CACHED = 2**22  # bytes of cached renderings, and of their ids: siblings share their beginning
Said = tuple[tuple[str, str], ...]  # roles and contents
ID = 40  # bytes of a token id in a tuple
LONG = 2**15  # characters; longer texts are measured before they are tokenized

_one_at_a_time = threading.Lock()  # for long texts, which need hundreds of bytes per character


class Renderer:
    """A chat template bound to a tokenizer and the tools of one env."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        tools: list[Any] | None = None,
        eos_token_ids: list[int] | None = None,
        tool_format: str = "auto",
        template_args: Mapping[str, Any] | None = None,
        now: datetime | None = None,
    ) -> None:
        """`eos_token_ids` are the model's, `now` is the template's time. Raises UsageError."""
        template = ChatTemplate(tokenizer, template_args or {}, now)
        added = tokenizer.added_tokens_decoder.values()
        special = (str(t) for t in added if t.special)
        self._specials = sorted({*tokenizer.all_special_tokens, *special})
        own = list(eos_token_ids or [])
        ends = [tokenizer.eos_token, *tokenizer.convert_ids_to_tokens(own)]
        tokens = TokenTexts(
            special=self._specials,
            added=[str(t) for t in added],
            eos=[str(end) for end in ends if end],
            model_ends=bool(own),
        )
        with template.limited():
            capabilities = TemplateCapabilities(template, tool_format, tokens)
        self._set(tokenizer, template, capabilities, tools)
        ends = [capabilities.end_of_turn, capabilities.end_of_calls]
        ids: list[Any] = [*(self.encode(end)[0] for end in ends if end), *own]
        ids.append(tokenizer.eos_token_id)
        self.stop_ids: frozenset[int] = frozenset(i for i in ids if i is not None)
        self._stops = [self._token(i) for i in self.stop_ids]
        kept = [t for t in self._specials if t in capabilities.output_format.markers]
        self._keeps_specials = bool(kept)  # tags of the format may be special tokens
        self._unheard = sorted({*self._specials} - {*kept})
        dropped: Any = tokenizer.convert_tokens_to_ids(self._unheard)
        self._dropped: set[int] = set(dropped)

    def _set(
        self,
        tokenizer: PreTrainedTokenizerBase,
        template: ChatTemplate,
        capabilities: TemplateCapabilities,
        tools: list[Any] | None,
    ) -> None:
        self._tokenizer = tokenizer
        self.template = template
        self.capabilities = capabilities
        self._tools = tools or None
        self.names = ToolNames(tools, capabilities.output_format.format.names)
        self._shown = self.names.shown() or None
        self._speaks_text_form = capabilities.output_format.is_text_form and not self.names
        self._schemas = schemas_by_name(self._shown)
        self._history = History(capabilities, self._specials, self._shown, self._schemas)
        self._render_cached = Recent(  # the key is about as large as the text
            self._render, lambda key, text: 2 * sys.getsizeof(text), CACHED
        )
        self.encode = Recent(
            self._encode, lambda text, ids: sys.getsizeof(text) + ID * len(ids), CACHED
        )

    @property
    def tools(self) -> list[Any]:
        """The JSON schemas of the tools bound to the template."""
        return self._tools or []

    @property
    def tools_by_hand(self) -> bool:
        """True if we describe the tools in the system message because the template does not."""
        return bool(self._tools) and not self.capabilities.shows_tools

    @property
    def has_tool_role(self) -> bool:
        """True if the template renders tool results. Otherwise they become user messages."""
        return self.capabilities.has_tool_role

    @property
    def end_of_turn(self) -> str:
        """The special token that ends a turn."""
        return self.capabilities.end_of_turn

    def offering(self, tools: list[Any] | None) -> Renderer:
        """Return the same template bound to other tools."""
        other = copy.copy(self)
        other._set(self._tokenizer, self.template, self.capabilities, tools)
        return other

    def text(self, messages: list[Message], *, generate: bool = True) -> str:
        """Render a conversation as text, with the generation prompt if `generate`."""
        said = tuple((m["role"], m["content"]) for m in messages)  # a template sees nothing else
        return self._render_cached((said, generate))

    def read(self, text: str) -> Turn:
        """Parse a turn in the model's own format."""
        return self.names.meant(self.capabilities.output_format.read(text, self._schemas))

    def read_rendered(self, text: str) -> Turn:
        """Parse a turn that a template wrote, with the special tokens that `decode` drops."""
        for token in self._unheard:
            text = text.replace(token, "")
        return self.read(text)

    def text_form(self, text: str) -> str:
        """Convert a turn from the model's own format to the text form."""
        return text if self._speaks_text_form else write_turn_text(self.read(text))

    def own_words(self, text: str) -> str:
        """Convert a turn from the text form to the model's own format, as it follows a prompt.

        Raises UsageError if neither the template nor the format can write its calls.
        """
        output_format = self.capabilities.output_format
        if self._speaks_text_form:
            return text
        turn = read_turn(text)
        named = self.names.spoken(turn)
        bare = replace(named, thought="")
        written = (
            self.capabilities.written(named),
            output_format.write(named),
            self.capabilities.written(bare),
        )
        ways = [way for way in written if way is not None]
        # Some have no place for text beside a call. Losing the text is better than losing the call.
        same = [way for way in ways if self.read_rendered(way).calls == turn.calls]
        same.sort(key=lambda way: not self.read_rendered(way).means(turn))
        if not same:
            raise UsageError(
                f"the chat template of {self.template.name!r} cannot write the tool calls of "
                f"this turn as {output_format.format.name}: {text:.200}"
            )
        return text if same[0].strip() == text.strip() else same[0]

    def behind(self, prompt: str, words: str) -> str:
        """Return text adapted to follow a prompt: closes thinking that the prompt began."""
        opening, closing = self.capabilities.output_format.tags
        if prompt.rstrip().endswith(opening) and closing not in words:
            return f"{closing}\n\n{words}"
        return words

    def decode(self, ids: list[int]) -> str:
        """Decode sampled ids. Special tokens are dropped, except those of calls and thinking."""
        if not self._keeps_specials:
            return self._tokenizer.decode(ids, skip_special_tokens=True)  # type: ignore[return-value]
        if ids and ids[-1] in self.stop_ids:
            ids = ids[:-1]
        kept = [i for i in ids if i not in self._dropped]
        return self._tokenizer.decode(kept, skip_special_tokens=False)  # type: ignore[return-value]

    def stop_of(self, ids: list[int]) -> str:
        """Return the text of the token that ended these ids, or "" if they were cut off."""
        return self._token(ids[-1]) if ids and ids[-1] in self.stop_ids else ""

    def cut(self, text: str, stop: str) -> tuple[str, str] | None:
        """Split the text after a body into the sampled `stop` and the rest.

        Returns None if the template ends the turn in another way.
        """
        if not stop:
            return "", text
        if text.startswith(stop):
            return stop, text[len(stop) :]
        # The template may write its fixed end of turn where the model sampled another of its ends.
        end = self.end_of_turn
        if self.capabilities.ends_itself and text.startswith(end):
            return end, text[len(end) :]
        return None

    def is_end(self, text: str) -> bool:
        """Return whether a text begins with an end of turn."""
        ends = (self.end_of_turn, self.capabilities.end_of_calls, *self._stops)
        return any(end and text.startswith(end) for end in ends)

    def check_length(self, text: str, room: int) -> None:
        """Raise TooLongError early if a text has far more than `room` tokens.

        A tokenizer needs seconds per megabyte and hundreds of bytes per character. Tokenized in
        slices, a text has only a few more tokens than as a whole, so twice `room` is a safe limit.
        """
        num = 0
        for begin in range(0, len(text) if len(text) > LONG else 0, LONG):
            num += len(self._encode(text[begin : begin + LONG]))
            if num > 2 * room:
                raise TooLongError(num)

    def _encode(self, text: str) -> tuple[int, ...]:
        with _one_at_a_time if len(text) > LONG else nullcontext():
            return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def _render(self, key: tuple[Said, bool]) -> str:
        said, generate = self._history.put(key[0]), key[1]
        tools = self._shown if self.capabilities.shows_tools else None
        return self.template(said, tools, generate=generate)

    def _token(self, id: int) -> str:
        return str(self._tokenizer.convert_ids_to_tokens(id))


class Conversation:
    """The messages of one episode, and the token sequences that the model read and sampled."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._messages: list[Message] = []  # in the text form
        self._said: list[Message] = []  # in the model's own format
        self._text = ""  # rendered up to the beginning of the current turn
        self.begun = ""  # the given beginning of the turn
        self.sequences: list[Sequence] = []

    @property
    def messages(self) -> list[Message]:
        """All messages in the text form."""
        return list(self._messages)

    @property
    def said(self) -> list[Message]:
        """All messages in the model's own format."""
        return list(self._said)

    @property
    def ids(self) -> list[int]:
        """The tokens of the current sequence."""
        return self.sequences[-1].ids

    @property
    def prompt(self) -> str:
        """The text that the model reads before its current turn."""
        return self._text

    def forked(self) -> Conversation:
        """Return a copy. Tokens sampled so far are trained on only in the original."""
        other, other_ids = copy.copy(self), Sequence()
        other_ids.extend_prompt(self.ids)
        other._messages, other._said = list(self._messages), list(self._said)
        other.sequences = [other_ids]
        return other

    def opening(self, tool: str | None) -> str:
        """Return the text that begins a call to `tool`, or to any tool."""
        return self._renderer.capabilities.output_format.opening(
            tool and self._renderer.names.alias(tool)
        )

    def add_messages(
        self, messages: list[Message], opening: str = "", room: int | None = None
    ) -> None:
        """Add the model's next input: as a suffix if the template allows it, else as a fork.

        `opening` is the beginning of the next turn. Raises TooLongError if there is no room for
        another token, or the template's UsageError. The conversation is then unchanged.
        """
        before = self._said
        said = [*before, *(self._own(m) for m in messages)]
        text = self._renderer.text(said)
        opening = self._renderer.behind(text, opening) if opening else ""
        glue = self._glue(before, text) if self.sequences else None
        if room is not None:
            self._renderer.check_length(text if glue is None else "".join(glue), room)
        if glue is None:
            begun = Sequence()
            ids = self._renderer.encode(text)
        else:
            # Tokenized together with the end of the turn: some tokenizers add a space to a separate
            # text, or strip text that follows a special token.
            begun, (sampled, new) = self.sequences[-1], glue
            ids = self._renderer.encode(sampled + new)
            ids = ids[len(self._renderer.encode(sampled)) :] if sampled else ids
        ids = [*ids, *self._renderer.encode(opening)]
        if room is not None and len(begun.ids) + len(ids) >= room:
            raise TooLongError(len(begun.ids) + len(ids), is_all=True)
        self.sequences += [begun] if glue is None else []
        begun.extend_prompt(ids)
        self._messages += messages
        self._said, self._text, self.begun = said, text, opening

    def spoken_as(self, text: str) -> list[int]:
        """Return the tokens of a turn, given in the text form, including its end."""
        renderer = self._renderer
        own = renderer.behind(self._text, renderer.own_words(text))
        calls = bool(renderer.read(own).calls)
        end = renderer.capabilities.end_of_calls if calls else renderer.end_of_turn
        return [*renderer.encode(own), *renderer.encode(end)]

    def add_completion(self, completion: Completion) -> str:
        """Add the sampled turn. Return its text, including its given beginning."""
        self.sequences[-1].extend_sampled(completion)
        text = self.begun + self._renderer.decode(completion.token_ids)
        self._said.append({"role": "assistant", "content": text})
        self._messages.append({"role": "assistant", "content": self._renderer.text_form(text)})
        return text

    def _own(self, message: Message) -> Message:
        if message["role"] != "assistant":
            return message
        return {**message, "content": self._renderer.own_words(message["content"])}

    def _glue(self, before: list[Message], text: str) -> tuple[str, str] | None:
        """Return the parts of `text` after the last turn's body: (sampled, new).

        Returns None if `text` rewrites earlier messages.
        """
        renderer, sampled = self._renderer, before[-1]["content"]
        stop = renderer.stop_of(self.ids)
        behind = text.removeprefix(self._text + sampled)
        if behind != text and renderer.is_end(behind):
            return renderer.cut(behind, stop)
        # A template that only writes this turn differently (for example trims it) needs no fork.
        # One that omits or changes something *because more messages follow* does.
        alone = renderer.text(before, generate=False)
        alone = alone[: renderer.capabilities.body_end(alone, len(self._text))]
        if not (alone.startswith(self._text) and text.startswith(alone)):
            return None
        if not renderer.read_rendered(alone[len(self._text) :]).means(renderer.read(sampled)):
            return None
        return renderer.cut(text[len(alone) :], stop)
