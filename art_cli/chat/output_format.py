"""A model's output format: the tags of its thinking, and the format of its tool calls."""

from __future__ import annotations

import json
from dataclasses import dataclass

from art_cli.chat.tool_formats.format import NAME, ToolFormat
from art_cli.chat.tool_formats.readers import Schemas
from art_cli.chat.tool_formats.table import HERMES
from art_cli.chat.turns import THINK, Turn, thinks
from art_cli.types import ToolCall

THINKING = (  # tags around thinking; the last pair is the default
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<|channel>thought", "<channel|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    THINK,
)


def thinking_of(template: str) -> tuple[str, str]:
    """Return the thinking tags that a chat template contains."""
    return next((tags for tags in THINKING if tags[0] in template), THINK)


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """A format of tool calls and the tags of thinking."""

    format: ToolFormat
    tags: tuple[str, str]

    @property
    def is_text_form(self) -> bool:
        """True if the model's own format is the text form."""
        return self.format is HERMES and self.tags == THINK

    @property
    def markers(self) -> str:
        """All markers of calls and thinking, as one text."""
        return "".join((self.format.shape, self.format.begin, self.format.tags, *self.tags))

    def read(self, text: str, schemas: Schemas) -> Turn:
        """Parse a turn. The tools' `schemas` give types to untyped arguments."""
        if self.format.turn:
            return self.format.turn(text, self.format.shape)
        thought, said = thinks(text, self.tags)
        return Turn(thought=thought, said=said, pieces=self.format.pieces(said, schemas))

    def write(self, turn: Turn) -> str | None:
        """Write a turn in the model's format without a template; None if that is not supported."""
        calls: list[ToolCall] = [c for c in turn.calls if not isinstance(c, str)]
        if len(calls) < len(turn.calls) or (calls and not self.format.writes):
            return None
        opening, closing = self.tags
        thought = f"{opening}\n{turn.thought}\n{closing}\n\n" if turn.thought else ""
        written = self.format.write(calls) if calls else ""
        return thought + "\n".join(filter(None, (turn.words.strip(), written)))

    def opening(self, name: str | None) -> str:
        """Return the text that begins a call to the tool `name`, or to any."""
        before, _, behind = self.format.begin.partition(NAME)
        return (
            before
            if name is None
            else f"{before}{json.dumps(name, ensure_ascii=False)[1:-1]}{behind}"
        )
