"""Models that are asked rather than trained: judges, simulated users, candidates of `art eval`."""

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

ChatMessage = dict[str, Any]  # as OpenAI's protocol has it
Schema = dict[str, Any]  # a JSON schema
Tools = list[Schema] | None  # what may be called

QUESTION: ChatMessage = {"role": "user", "content": "What is 2 + 2?"}  # does it answer at all

ROUNDING = 1e-9  # US dollars
MOST_USD = 1e9  # of one call: a line that says more is damaged
BYTES_PER_TOKEN = 3  # English has 4, JSON and code about 3, Chinese 3: rather too many tokens


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text is for any model; rather too many than too few."""
    return len(text.encode(errors="replace")) // BYTES_PER_TOKEN + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeCall:
    """A tool call that an API gives apart from the text."""

    id: str
    name: str
    arguments: str  # JSON as the model wrote it, or what it took for JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer of a model."""

    text: str  # without what it thought
    cut: bool = False  # it hit its token limit
    calls: tuple[NativeCall, ...] = ()
    message: ChatMessage | None = field(default=None, compare=False)  # to go back as it came
    num_read: int = field(default=0, compare=False)  # tokens, as the server counts them
    num_written: int = field(default=0, compare=False)
    usd: float = field(default=0.0, compare=False)

    def named(self, names: ToolNames) -> Reply:
        """Return the same with the names of tools and arguments instead of their aliases."""
        called = [(call, *names.called(call.name, call.arguments)) for call in self.calls]
        calls = tuple(replace(c, name=name, arguments=given) for c, name, given in called)
        said = self.message and names.sent(self.message, back=True)
        return replace(self, calls=calls, message=said)


def calls_of(message: ChatMessage) -> tuple[NativeCall, ...]:
    """Return the tool calls of an assistant's message in OpenAI's form."""
    return tuple(
        NativeCall(
            id=str(call.get("id") or f"call{n:05d}"),  # of nine letters, as Mistral wants them
            name=str(call["function"].get("name")),
            arguments=call["function"].get("arguments") or "{}",
        )
        for n, call in enumerate(message.get("tool_calls") or ())
    )


def request_of(
    schema: Schema | None, names: ToolNames, more: Mapping[str, Any], params: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what a request holds beside the messages and the other `params` of the config.

    `more` are further parameters of this call. A `tool_choice` of either names tools by aliases.
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
    """The cost of requests so far."""

    calls: int = 0  # that were answered
    cached: int = 0  # answers that were known from before
    retries: int = 0
    seconds: float = 0.0  # waited for answers, over all calls

    def take(self) -> Usage:
        """Return what was counted since this was last called."""
        taken = replace(self)
        for each in fields(self):
            setattr(self, each.name, each.default)
        return taken


class LLM(Protocol):
    """One model, ready to be asked."""

    name: str
    max_input_tokens: int
    # Whether an answer is held to the bounds of a schema, too: how many items, which numbers, how
    # long. Anthropic and OpenAI refuse some of them (400), and compile each new schema for seconds.
    takes_bounds: bool
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
        self, messages: list[ChatMessage], schema: Schema | None = None, tools: Tools = None
    ) -> Reply:
        """Return an answer; with `schema`, JSON that follows it where the model can be made to.

        `tools`, as JSON schemas, may be called instead. Raises LLMError, BudgetError.
        """
        ...

    async def close(self) -> None:
        """End what was started for it."""
        ...


class AskedLLM(LLM, Protocol):
    """An LLM that takes further parameters of a call."""

    async def ask(
        self,
        messages: list[ChatMessage],
        schema: Schema | None = None,
        tools: Tools = None,
        more: Mapping[str, Any] | None = None,
    ) -> Reply:
        """See LLM. `more` are OpenAI's; the config's own params go before them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Money that is set aside for one call."""

    id: str
    model: str
    most: float  # that the call can cost by what is asked
    usd: float  # with what calls have been seen to cost beyond that


class Budget:
    """Money that one run may spend, over all its starts.

    What a call can cost at most is reserved before it is asked, so that calls under way cannot cost
    more than there is. A file holds a line for each reservation and one for what the call has cost;
    a call that a kill has cut off may have been billed, and counts with its reservation.
    """

    def __init__(
        self,
        max_usd: float | None,
        file: Path | None = None,
        name: str = "judge.max_usd",
        say: Callable[[str], None] = silent,
    ) -> None:
        """Without a file only what is spent from now on counts. `name` is the user's for it."""
        self._max_usd = max_usd
        self.name = name
        self.say = say
        self._file = file
        self._under_way: dict[str, float] = {}  # dollars, by the id of the reservation
        self._beyond = 0.0  # the most that a call has cost more than it could by what was asked
        self._settled = asyncio.Event()
        self.spent = 0.0
        self._unanswered: list[float] = []  # parts of `spent`
        self._torn = False
        self._recall()

    @property
    def is_limited(self) -> bool:
        """True if there is an end to it."""
        return self._max_usd is not None

    async def reserve(self, model: str, most: float) -> Reservation:
        """Set aside what a call can cost at most, once the calls under way leave as much.

        Raises BudgetError where that is more than what is left even if they were free.
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
        """Replace a reservation by what the call has cost, or may have cost without an answer."""
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
        """Return what the user must know, and what to do."""
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
        """Count what the file knows."""
        if not self._file:
            return
        self._torn = ends_torn(self._file)  # by a kill
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
        """Add a line to the file; `flush`: it survives a power cut."""
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
        except OSError as e:  # who cannot note what is spent must not spend more
            raise ArtError(f"cannot write {self._file}: {e.strerror}") from e
