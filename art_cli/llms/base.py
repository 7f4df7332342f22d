"""Models that are asked rather than trained: judges, simulated users, candidates of `art eval`."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Protocol

from art_cli.errors import ArtError, BudgetError
from art_cli.files import json_line, read_lines

ChatMessage = dict[str, Any]  # as OpenAI's protocol has it

ROUNDING = 1e-9  # US dollars
BYTES_PER_TOKEN = 3  # English has 4, JSON and code about 3, Chinese 3: rather too many tokens


def estimate_tokens(text: str) -> int:
    """About how many tokens a text is for any model; rather too many than too few."""
    return len(text.encode(errors="replace")) // BYTES_PER_TOKEN + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeCall:
    """A tool call that an API gives apart from the text."""

    id: str
    name: str
    arguments: str  # JSON as the model wrote it, or what it took for JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a model answered."""

    text: str
    cut: bool = False  # it hit its token limit
    calls: tuple[NativeCall, ...] = ()
    message: ChatMessage | None = field(default=None, compare=False)  # to go back as it came
    num_read: int = field(default=0, compare=False)  # tokens, as the server counts them
    num_written: int = field(default=0, compare=False)
    usd: float = field(default=0.0, compare=False)


def calls_of(message: ChatMessage) -> tuple[NativeCall, ...]:
    """The tool calls of an assistant's message in OpenAI's form."""
    return tuple(
        NativeCall(
            id=str(call.get("id") or f"call{n:05d}"),  # of nine letters, as Mistral wants them
            name=str(call["function"].get("name")),
            arguments=call["function"].get("arguments") or "{}",
        )
        for n, call in enumerate(message.get("tool_calls") or ())
    )


@dataclass(slots=True, kw_only=True)
class Usage:
    """What asking has cost so far."""

    calls: int = 0  # that were answered
    cached: int = 0  # answers that were known from before
    retries: int = 0
    seconds: float = 0.0  # waited for answers, over all calls

    def take(self) -> Usage:
        """What was counted since this was last called."""
        taken = replace(self)
        for each in fields(self):
            setattr(self, each.name, each.default)
        return taken


class LLM(Protocol):
    """One model, ready to be asked."""

    name: str
    max_input_tokens: int
    usage: Usage

    @property
    def spent(self) -> float:
        """US dollars, over the whole run."""
        ...

    @property
    def identity(self) -> Any:
        """All that an answer depends on beside the messages, as JSON: a part of a cache's key."""
        ...

    async def ask(
        self,
        messages: list[ChatMessage],
        schema: dict[str, Any] | None = None,
        tools: list[dict[str, Any]] | None = None,
    ) -> Reply:
        """An answer; with `schema`, JSON that follows it where the model can be made to.

        `tools`, as JSON schemas, may be called instead. Raises LLMError, BudgetError.
        """
        ...

    async def close(self) -> None:
        """End what was started for it."""
        ...


class Budget:
    """Money that one run may spend, over all its starts: each call's price is a line of a file."""

    def __init__(
        self, max_usd: float | None, file: Path | None = None, name: str = "judge.max_usd"
    ) -> None:
        """Without a file only what is spent from now on counts. `name` is the user's for it."""
        self._max_usd = max_usd
        self.name = name
        self._file = file
        self._reserved = 0.0
        self._dearest = 0.0
        self.spent = 0.0
        known = file.read_bytes() if file and file.is_file() else b""
        self._torn = bool(known) and not known.endswith(b"\n")  # by a kill
        for row in read_lines(file)[0] if file else ():
            usd = row.get("usd")
            if not isinstance(usd, int | float) or not 0 <= usd < math.inf:
                continue
            self.spent += usd
            self._dearest = max(self._dearest, usd)

    @property
    def is_limited(self) -> bool:
        """Whether there is an end to it."""
        return self._max_usd is not None

    def reserve(self, expected: float) -> float:
        """Before a call -> what is set aside for it: as much as the dearest so far has cost.

        Raises BudgetError where it could cost more than what is left.
        """
        expected = max(expected, self._dearest)
        if self._max_usd is not None:
            left = self._max_usd - self.spent - self._reserved
            if left <= 0 or expected > left + ROUNDING:
                raise BudgetError(
                    f"{self.name}={self._max_usd:g} is used up: ${self.spent:.4f} spent, and one "
                    f"more call costs up to ${expected:.4f}"
                )
        self._reserved += expected
        return expected

    def settle(self, reserved: float, usd: float, model: str) -> None:
        """After a call, which cost this much; 0 where it failed."""
        self._reserved -= reserved
        self.spent += usd
        self._dearest = max(self._dearest, usd)
        if self._file and usd:
            try:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                with open(self._file, "a", encoding="utf-8") as file:
                    file.write("\n" * self._torn + json_line({"model": model, "usd": usd}))
                    self._torn = False
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as e:  # who cannot note what is spent must not spend more
                raise ArtError(f"cannot write {self._file}: {e.strerror}") from e
