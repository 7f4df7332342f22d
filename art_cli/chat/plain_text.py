"""A text that a model continues without a chat template. The sampled token ids are trained on.

talk = PlainText(renderer)
talk.add("Question: 2+2?\\nAnswer:", 100), talk.add_completion(sampled)
talk.goes_on_as("Question: 2+2?\\nAnswer: 4\\nQuestion:")  # True: the sampled ids stay as they are
"""

from __future__ import annotations

import copy

from art_cli.chat.render import Renderer
from art_cli.chat.too_long import TooLongError
from art_cli.errors import UsageError
from art_cli.types import Completion, Message, Sequence

Prompt = str | tuple[int, ...]  # text, or its tokens


class PlainText:
    """A text, and the single token sequence that the model read and sampled."""

    begun = ""  # always empty; a Conversation can begin a turn for the model

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._text = ""  # the whole text, or "" if only its tokens are known
        self.messages: list[Message] = []
        self.sequences: list[Sequence] = [Sequence()]

    @property
    def ids(self) -> list[int]:
        """The tokens of the text."""
        return self.sequences[0].ids

    def goes_on_as(self, prompt: Prompt) -> bool:
        """Return whether a prompt extends the text."""
        if isinstance(prompt, str):
            return bool(self._text) and prompt.startswith(self._text)
        return len(prompt) > len(self.ids) and prompt[: len(self.ids)] == tuple(self.ids)

    def add(self, prompt: Prompt, room: int) -> None:
        """Add the part of a prompt that extends the text.

        Raises TooLongError if `room` tokens leave no place for another one, and UsageError for an
        unknown token id. The text is then unchanged.
        """
        text = ""
        if isinstance(prompt, str):
            new = prompt[len(self._text) :]
            self._renderer.check_length(new, room)
            ids, text = [*self._renderer.encode(new)], prompt
        else:
            ids = list(prompt[len(self.ids) :])
            num = len(self._renderer._tokenizer)
            if wrong := [i for i in ids if not 0 <= i < num]:
                raise UsageError(f"prompt: there is no token {wrong[0]}; there are {num}")
            new = self._renderer.decode(ids)
        if (num := len(self.ids) + len(ids)) >= room:
            raise TooLongError(num, is_all=True)
        self._text = text
        self.sequences[0].extend_prompt(ids)
        self.messages.append({"role": "user", "content": new})

    def add_completion(self, completion: Completion) -> str:
        """Add a sampled completion. Return its text."""
        self.sequences[0].extend_sampled(completion)
        text = self._renderer.decode(completion.token_ids)
        if self._text:
            self._text += text + self._renderer.stop_of(completion.token_ids)
        self.messages.append({"role": "assistant", "content": text})
        return text

    def forked(self) -> PlainText:
        """Return a copy. Tokens sampled so far are trained on only in the original."""
        other = copy.copy(self)
        other.messages, other.sequences = list(self.messages), [Sequence()]
        other.sequences[0].extend_prompt(self.ids)
        return other
