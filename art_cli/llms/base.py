"""Models that are called but not trained: judges, simulated users, candidates of `art eval`."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Protocol

from art_cli.chat.tool_formats.names import ToolNames
from art_cli.errors import ArtError, BudgetError
from art_cli.system.files import ends_torn, json_line, read_lines, to_append
from art_cli.system.progress import silent

ChatMessage = dict[str, Any]  # in OpenAI's format
Schema = dict[str, Any]  # a JSON schema
Tools = list[Schema] | None  # tools that may be called

QUESTION: ChatMessage = {"role": "user", "content": "What is 2 + 2?"}  # tests that it answers

ROUNDING = 1e-9  # US dollars
MOST_USD = 1e9  # per call; a larger recorded value is damaged
BYTES_PER_TOKEN = 3  # English has 4, JSON and code about 3, Chinese 3: rather overestimates tokens


def estimate_tokens(text: str) -> int:
    """Return an estimate of a text's tokens for any model, rather too high than too low."""
    return len(text.encode(errors="replace")) // BYTES_PER_TOKEN + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeCall:
    """A tool call that an API returns separately from the text."""

    id: str
    name: str
    arguments: str  # JSON as the model wrote it, possibly invalid


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer of a model, with its cost."""

    text: str  # without thinking
    cut: bool = False  # the token limit was reached
    calls: tuple[NativeCall, ...] = ()
    message: ChatMessage | None = field(default=None, compare=False)  # unchanged, to be resent
    num_read: int = field(default=0, compare=False)  # tokens, as the server counts them
    num_written: int = field(default=0, compare=False)
    usd: float = field(default=0.0, compare=False)

    def named(self, names: ToolNames) -> Reply:
        """Return the same, with the names of tools and arguments instead of their aliases."""
        called = [(call, *names.called(call.name, call.arguments)) for call in self.calls]
        calls = tuple(replace(c, name=name, arguments=given) for c, name, given in called)
        said = self.message and names.sent(self.message, back=True)
        return replace(self, calls=calls, message=said)


def calls_of(message: ChatMessage) -> tuple[NativeCall, ...]:
    """Return the tool calls of an assistant message in OpenAI's format."""
    return tuple(
        NativeCall(
            id=str(call.get("id") or f"call{n:05d}"),  # nine characters, as Mistral requires
            name=str(call["function"].get("name")),
            arguments=call["function"].get("arguments") or "{}",
        )
        for n, call in enumerate(message.get("tool_calls") or ())
    )


def request_of(
    schema: Schema | None, names: ToolNames, more: Mapping[str, Any], params: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the parts of a request other than messages and the config's other `params`.

    `more` are further parameters of this call. `tool_choice` is translated to the tools' aliases.
    """
    asked: dict[str, Any] = dict(more)
    if tools := names.shown():
        asked["tools"] = tools
    if "tool_choice" in (both := {**more, **params}):
        asked["tool_choice"] = names.chosen(both["tool_choice"])
    if schema:
        form = {"name": "answer", "strict": True, "schema": schema}
        asked["response_format"] = {"type": "json_schema", "json_schema": form}
    return asked


@dataclass(slots=True, kw_only=True)
class Usage:
    """Counts of requests so far."""

    calls: int = 0  # answered calls
    cached: int = 0  # answers from the cache
    retries: int = 0
    seconds: float = 0.0  # waiting for answers, over all calls

    def take(self) -> Usage:
        """Return the counts since the last call, and reset them."""
        taken = replace(self)
        for each in fields(self):
            setattr(self, each.name, each.default)
        return taken


class LLM(Protocol):
    """Interface of a model that is ready to be called."""

    name: str
    max_input_tokens: int
    # Whether answers also obey the bounds of a schema: number of items, numeric ranges, lengths.
    # Anthropic and OpenAI refuse some of them (400), and compile each new schema for seconds.
    takes_bounds: bool
    usage: Usage

    @property
    def spent(self) -> float:
        """US dollars spent over the whole run."""
        ...

    @property
    def identity(self) -> Any:
        """Everything except the messages that an answer depends on, as JSON, for cache keys."""
        ...

    async def ask(
        self, messages: list[ChatMessage], schema: Schema | None = None, tools: Tools = None
    ) -> Reply:
        """Return an answer. With `schema`, it is JSON of that schema if the model supports that.

        `tools`, as JSON schemas, may be called instead. Raises LLMError, BudgetError.
        """
        ...

    async def close(self) -> None:
        """Close connections and end servers that were started for the model."""
        ...


class AskedLLM(LLM, Protocol):
    """An `LLM` that takes further parameters for each call."""

    async def ask(
        self,
        messages: list[ChatMessage],
        schema: Schema | None = None,
        tools: Tools = None,
        more: Mapping[str, Any] | None = None,
    ) -> Reply:
        """See `LLM`. `more` are OpenAI's parameters; the config's own params override them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Money that is set aside for one call."""

    id: str
    model: str
    most: float  # US dollars, upper bound from the request
    usd: float  # US dollars reserved: `most` plus the largest excess seen


class Budget:
    """Money that one run may spend, over all its starts.

    The maximum cost of a call is reserved beforehand, so concurrent calls cannot exceed the limit.
    A file holds a line for each reservation and one for each actual cost. A call that was cut off
    by a kill may have been billed, so its reservation counts as spent.
    """

    def __init__(
        self,
        max_usd: float | None,
        file: Path | None = None,
        name: str = "judge.max_usd",
        say: Callable[[str], None] = silent,
    ) -> None:
        """Without a file, only spending from now on counts. `name` is the limit's config key."""
        self._max_usd = max_usd
        self.name = name
        self.say = say
        self._file = file
        self._under_way: dict[str, float] = {}  # US dollars, by reservation id
        self._beyond = 0.0  # the largest excess of a call's cost over its upper bound
        self._settled = asyncio.Event()
        self.spent = 0.0
        self._unanswered: list[float] = []  # parts of `spent`
        self._torn = False
        self._recall()

    @property
    def is_limited(self) -> bool:
        """True if there is a limit."""
        return self._max_usd is not None

    async def reserve(self, model: str, most: float) -> Reservation:
        """Reserve the maximum cost of a call, waiting for calls in progress if necessary.

        Raises BudgetError if it exceeds what is left even if those calls cost nothing.
        """
        while not self._has(most + self._beyond + sum(self._under_way.values())):
            if not self._has(most + self._beyond):
                raise BudgetError(self._used_up(most + self._beyond))
            await self._settled.wait()
        usd = most + self._beyond
        reserved = Reservation(id=secrets.token_hex(8), model=model, most=most, usd=usd)
        self._under_way[reserved.id] = usd
        if usd:
            self._note({"call": reserved.id, "model": model, "reserved": usd})
        return reserved

    def settle(self, reserved: Reservation, usd: float, *, answered: bool = True) -> None:
        """Replace a reservation by the actual cost, or by the assumed cost without an answer."""
        del self._under_way[reserved.id]
        self._settled.set()
        self._settled = asyncio.Event()
        self._count(usd, answered)
        if answered:
            self._beyond = max(self._beyond, usd - reserved.most)
        if usd or reserved.usd:
            line = {"call": reserved.id, "model": reserved.model, "usd": usd}
            self._note(line if answered else line | {"answered": False}, flush=True)

    def _has(self, usd: float) -> bool:
        return self._max_usd is None or self.spent + usd <= self._max_usd + ROUNDING

    def _count(self, usd: float, answered: bool) -> None:
        self.spent += usd
        if usd and not answered:
            self._unanswered.append(usd)

    def _used_up(self, most: float) -> str:
        """Return the error message, with a remedy."""
        lost = ""
        if num := len(self._unanswered):
            calls = "1 call" if num == 1 else f"{num} calls"
            lost = f" (${sum(self._unanswered):.4f} of it for {calls} without an answer, which "
            lost += "may have been billed)"
        return (
            f"{self.name}={self._max_usd:g} is {'used up' if self.spent else 'not enough'}: "
            f"${self.spent:.4f} spent{lost}, and one more call can cost up to ${most:.4f}; "
            f"raise {self.name}, or allow shorter answers with params.max_tokens"
        )

    def _recall(self) -> None:
        """Count the spending recorded in the file."""
        if not self._file:
            return
        self._torn = ends_torn(self._file)  # after a kill
        cut_off: dict[str, float] = {}
        for noted in read_lines(self._file, most=sys.maxsize)[0]:
            usd = noted.get("reserved" if "reserved" in noted else "usd")
            if not isinstance(usd, int | float) or not 0 <= usd < MOST_USD:
                continue
            if "reserved" in noted:
                cut_off[str(noted.get("call"))] = usd
            else:
                cut_off.pop(str(noted.get("call")), None)
                self._count(usd, noted.get("answered") is not False)
        for usd in cut_off.values():
            self._count(usd, answered=False)

    def _note(self, line: dict[str, Any], *, flush: bool = False) -> None:
        """Append a line to the file; with `flush`, it survives a power failure."""
        if not self._file:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with open(self._file, "a", encoding="utf-8", opener=to_append) as file:
                file.write("\n" * self._torn + json_line(line))
                self._torn = False
                if flush:
                    file.flush()
                    os.fsync(file.fileno())
        except OSError as e:  # without a record, nothing more may be spent
            raise ArtError(f"cannot write {self._file}: {e.strerror}") from e
