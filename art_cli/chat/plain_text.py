"""A text that a model goes on with, without a chat template: what is trained is what was sampled.

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
    """One text, and the one sequence that the model saw and made of it."""

    begun = ""  # by nobody: as of a Conversation, which can begin a turn for the model

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._text = ""  # all of it, or "" where only its tokens are known
        self.messages: list[Message] = []
        self.sequences: list[Sequence] = [Sequence()]

    @property
    def ids(self) -> list[int]:
        """Its tokens."""
        return self.sequences[0].ids

    def goes_on_as(self, prompt: Prompt) -> bool:
        """Return whether a prompt is all of it, and more."""
        if isinstance(prompt, str):
            return bool(self._text) and prompt.startswith(self._text)
        return len(prompt) > len(self.ids) and prompt[: len(self.ids)] == tuple(self.ids)

    def add(self, prompt: Prompt, room: int) -> None:
        """Read on to the end of a prompt that goes on with it.

        Raises TooLongError where it leaves no room for another of `room` tokens, and UsageError
        where a token is none; the text is then as it was.
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
        """Add what was sampled. Return its text."""
        self.sequences[0].extend_sampled(completion)
        text = self._renderer.decode(completion.token_ids)
        if self._text:
            self._text += text + self._renderer.stop_of(completion.token_ids)
        self.messages.append({"role": "assistant", "content": text})
        return text

    def forked(self) -> PlainText:
        """Return the same text: what was sampled is trained on here, only read there."""
        other = copy.copy(self)
        other.messages, other.sequences = list(self.messages), [Sequence()]
        other.sequences[0].extend_prompt(self.ids)
        return other
