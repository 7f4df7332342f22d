"""Tasks created without a model: valid calls, whose result is the answer.

Each call is made in three sessions, in a different order among other calls. A result that does not
repeat is no answer. A restarted server has the data that earlier calls left behind.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from art_cli.envs.tools import Tool, named_tools
from art_cli.errors import UsageError
from art_cli.scenarios.rows import SeenAnswers, forms_of
from art_cli.scenarios.source import HOW_TO_ALLOW, ToolResult, ToolSession, ToolsSource
from art_cli.scenarios.values import KnownValues, UnknownValue
from art_cli.system.progress import Report

SLACK = 1.2  # calls per requested task, because some results do not repeat
NO_TEXT = re.compile(r"\[\w+/[^\]\n]*\]")  # the placeholder of a picture: [image/png]
AT_ONCE = 4  # sessions, each with a server of its own if a command starts it
PATIENCE = 30  # consecutive calls of a tool without a new result, after which it is skipped
MOST_FAILURES = 3  # server failures in calls of one tool, after which it is skipped
# Total seconds of one tool's calls during the search, after which it is skipped. Each call that is
# used is made twice more, and training makes thousands.
MOST_SECONDS = 60.0


@dataclass(slots=True)
class Tried:
    """The outcomes of the calls that were made."""

    kept: list[ToolResult] = field(default_factory=list)
    tools: dict[str, Tool] = field(default_factory=dict)  # callable tools
    withheld: list[str] = field(default_factory=list)  # tools that must not be called
    refused: Counter[str] = field(default_factory=Counter)  # refused calls by tool
    empty: Counter[str] = field(default_factory=Counter)
    changing: Counter[str] = field(default_factory=Counter)  # results that did not repeat
    failed: Counter[str] = field(default_factory=Counter)  # the server did
    slow: Counter[str] = field(default_factory=Counter)  # calls of a tool that was left for that
    guessed: Counter[tuple[str, str]] = field(default_factory=Counter)  # answers, by tool and fault
    seen: SeenAnswers = field(default_factory=SeenAnswers)
    unknown: dict[str, str] = field(default_factory=dict)  # tool -> an argument without a value
    words: dict[str, str] = field(default_factory=dict)  # tool -> its last error

    def fail(self, tool: str, error: Exception) -> None:
        """Record that the server failed in a call."""
        self.failed[tool] += 1
        self.words[tool] = str(error).partition("\n")[0]


async def exact_calls(
    source: ToolsSource, num: int, seed: int, values: KnownValues, report: Report
) -> Tried:
    """Return about `num` calls whose results repeat. Raise UsageError if there are none."""
    tried = Tried()
    found = await found_calls(
        source, int(num * SLACK) + 1, random.Random(seed), values, tried, report
    )
    tried.kept = (await _repeated(source, found, tried, report))[:num]
    if not tried.kept:
        raise UsageError(f"no task came of it: {'; '.join(left_out(tried)) or 'there is no tool'}")
    return tried


async def found_calls(
    source: ToolsSource,
    num: int,
    rng: random.Random,
    values: KnownValues,
    tried: Tried,
    report: Report,
) -> list[ToolResult]:
    """Return calls with a non-empty result. Results provide the arguments of further calls."""
    found: list[ToolResult] = []
    seen: set[str] = set()
    idle: Counter[str] = Counter()
    made: Counter[str] = Counter()
    spent: dict[str, float] = defaultdict(float)  # seconds
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(source.opened())
        tools = list(session.tools)
        tried.tools = {tool.name: tool for tool in tools}
        tried.withheld = source.withheld
        while tools and len(found) < num:
            for tool in list(tools):
                report("calling tools", min(len(found), num), num)
                called, began = None, time.monotonic()
                try:
                    called = await _one(session, tool, rng, values, seen, tried)
                except Exception as e:  # a server that crashed or hung
                    tried.fail(tool.name, e)
                    with suppress(Exception):  # the session is already closed
                        await stack.aclose()
                    session = await stack.enter_async_context(source.opened())
                spent[tool.name] += time.monotonic() - began
                made[tool.name] += 1
                idle[tool.name] = 0 if called else idle[tool.name] + 1
                found += [called] if called else []
                if idle[tool.name] > PATIENCE or tried.failed[tool.name] >= MOST_FAILURES:
                    tools.remove(tool)
                elif spent[tool.name] > MOST_SECONDS:
                    tried.slow[tool.name] = made[tool.name]
                    tools.remove(tool)
    return found


async def _one(
    session: ToolSession,
    tool: Tool,
    rng: random.Random,
    values: KnownValues,
    seen: set[str],
    tried: Tried,
) -> ToolResult | None:
    try:
        arguments = values.arguments(tool, rng)
    except UnknownValue as e:
        tried.unknown[tool.name] = str(e)
        return None
    tried.unknown.pop(tool.name, None)
    key = json.dumps([tool.name, arguments], sort_keys=True)
    if key in seen:
        return None
    seen.add(key)
    called = await session.call(tool.name, arguments)
    if called.is_error:
        tried.refused[tool.name] += 1
        tried.words[tool.name] = called.result.partition("\n")[0]
        return None
    values.learn(called.result)
    if is_empty(called.result):
        tried.empty[tool.name] += 1
        return None
    tried.seen.add(called)
    faults: Counter[tuple[str, str]] = Counter()
    if not any(forms_of(called, tool, tried.seen, faults)) and faults:
        tried.guessed += faults
        return None
    return called


def is_empty(result: str) -> bool:
    """Return whether a result is empty, and thus easily guessed: [], {"found": []}."""

    def nothing(value: Any) -> bool:
        if isinstance(value, dict | list):
            return all(map(nothing, value.values() if isinstance(value, dict) else value))
        return value in (None, "")

    try:
        return nothing(json.loads(result))
    except (ValueError, RecursionError):
        return result.strip() in ("", "None") or NO_TEXT.fullmatch(result.strip()) is not None


async def _repeated(
    source: ToolsSource, found: Sequence[ToolResult], tried: Tried, report: Report
) -> list[ToolResult]:
    """Return the calls whose result repeats in two further sessions."""
    writing = {name for name, tool in tried.tools.items() if tool.writes}
    # Calls that only read share two sessions, in two orders. A call that writes has two sessions to
    # itself.
    rest = [c for c in found if c.tool in writing]
    reads = [c for c in found if c.tool not in writing]
    batches = [reads, reads[::-1], *([c] for c in rest), *([c] for c in rest)]
    again: dict[int, list[ToolResult]] = defaultdict(list)
    done, total = 0, sum(map(len, batches))
    slots = asyncio.Semaphore(AT_ONCE)

    async def play(batch: list[ToolResult]) -> None:
        nonlocal done
        left = list(batch)
        while left:  # one pass, unless the server fails
            call = left[0]
            try:
                async with slots, source.opened() as session:
                    while left:
                        call = left.pop(0)
                        again[id(call)].append(await session.call(call.tool, call.arguments))
                        done += 1
                        report("calling again", done, total)
            except UsageError:
                raise
            except Exception as e:
                tried.fail(call.tool, e)

    await asyncio.gather(*(play(batch) for batch in batches if batch))
    kept: list[ToolResult] = []
    for call in found:
        if len(again[id(call)]) < 2:  # the server failed, which is recorded
            continue
        one, other = again[id(call)]
        # A call that writes was first made after others that write.
        same = one == other and not one.is_error and (one == call or call.tool in writing)
        if same:
            kept.append(one)
        else:
            tried.changing[call.tool] += 1
    return kept


def not_called(tried: Tried) -> list[str]:
    """Return a line about tools that may write and were not called, or nothing."""
    if not tried.withheld:
        return []
    names = named_tools(tried.withheld)
    return [f"{names}: not called, as they may write to the server's own data; {HOW_TO_ALLOW}"]


def left_out(tried: Tried) -> list[str]:
    """Return lines about tools and calls that are in no task."""
    out = not_called(tried)
    out += [
        f"no value is known for {argument!r} of {tool} (give some: --value {argument}=...)"
        for tool, argument in tried.unknown.items()
    ]
    for what, counted in (
        ("refused", tried.refused),
        ("had an empty result", tried.empty),
        ("did not repeat", tried.changing),
        ("got no answer from the server", tried.failed),
    ):
        for tool, num in counted.items():
            said = f" ({tried.words[tool]:.120})" if tool in tried.words else ""
            out.append(f"{num} calls of {tool} {what}{said}")
    for (tool, fault), num in tried.guessed.items():
        out.append(f"{num} answers of {tool} {fault}")
    for tool, num in tried.slow.items():
        out.append(f"further calls of {tool}: {num} took {MOST_SECONDS:g} s")
    return out
