"""Tasks that a model writes, each tried before it is kept.

written by difficulty and tool -> its calls are made in two sessions, without an error and with the
same results -> the model answers by these results, which hold that answer -> a judge prefers that
to doing nothing -> no other task has these calls and this answer
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from art_cli.errors import BudgetError, JudgeError, LLMError, UsageError
from art_cli.llms.judges.base import Transcript
from art_cli.llms.judges.ruler import Ruler
from art_cli.preflight.envs.duplicates import Known
from art_cli.scenarios.exact import AT_ONCE, Tried, found_calls
from art_cli.scenarios.guesses import follows_from, stands_in
from art_cli.scenarios.machine import TIME, is_environment, is_part_of_now, of_this_machine
from art_cli.scenarios.rows import LONGEST, TaskRow
from art_cli.scenarios.source import ToolResult, ToolsSource
from art_cli.scenarios.support import is_supported
from art_cli.scenarios.values import KnownValues
from art_cli.scenarios.writer import LEVELS, Draft, TaskWriter
from art_cli.system.progress import Report
from art_cli.types import Scenario

A_TIME = 5  # tasks per request
TRIED = 4 * A_TIME  # before any of them is judged, so that money that runs out leaves some
SHOWN = 20  # earlier questions in a request
EXAMPLES = 3  # example calls per tool
ROUNDS = 8  # limit of requests without a new task
IDLE = "It is done."
ANOTHER = "the same calls and answer as another"


@dataclass(slots=True)
class WrittenTasks:
    """The model's tasks that passed all checks, and counts of those that did not."""

    rows: list[TaskRow] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    stopped: BudgetError | LLMError | None = None  # the reason for fewer tasks than requested


async def examples_of(
    source: ToolsSource, seed: int, values: KnownValues, report: Report
) -> tuple[Tried, list[ToolResult]]:
    """Return (the tools, some calls of each with their results) as examples for the model."""
    tried, rng = Tried(), random.Random(seed)
    calls = await found_calls(source, 10 * EXAMPLES, rng, values, tried, report)
    if not tried.tools:
        raise UsageError("there is no tool")
    first = [[c for c in calls if c.tool == name][:EXAMPLES] for name in tried.tools]
    return tried, [call for found in first for call in found]


class DraftTrial:
    """Checks drafts of the model."""

    def __init__(self, source: ToolsSource, writer: TaskWriter, ruler: Ruler) -> None:
        self.writer = writer
        self.dropped: Counter[str] = Counter()  # rejected drafts by reason
        self._source = source
        self._ruler = ruler
        self._servers = asyncio.Semaphore(AT_ONCE)

    async def row_of(self, draft: Draft) -> TaskRow | None:
        """Return the task of a draft if its answer is supported, or None. Raise LLMError,
        BudgetError.
        """
        calls, again = [await self._played(draft) for _ in range(2)]
        if calls is None or again is None:
            return self._drop("a call was refused")
        if calls != again:
            return self._drop("results did not repeat")
        answer = ((await self.writer.answer(draft.question, calls)) or "").strip()
        if not answer or len(answer) > LONGEST:
            return self._drop("its results give no short answer")
        if follows_from(answer, draft.question, {}):
            return self._drop("the question says the answer")
        if not is_supported(answer, draft.question, calls):
            return self._drop("the results do not hold the answer")
        if found := of_this_machine(answer) or _of_machine(answer, calls):
            return self._drop(f"the answer depends on {found}")
        return TaskRow(
            question=draft.question,
            answer=answer,
            level=draft.level,
            kind=calls[0].tool,
            calls=tuple(calls),
        )

    async def judged(self, row: TaskRow) -> TaskRow | None:
        """Return the task if a judge prefers its solution to doing nothing, or None.

        Raise LLMError or BudgetError.
        """
        reference = row.conversation()["messages"]
        idle = [*reference[:2], {"role": "assistant", "content": IDLE}]
        context = f"A right answer: {row.answer}"
        shown = [Transcript(messages=messages, context=context) for messages in (reference, idle)]
        try:
            best, worst = (await self._ruler.judge(shown)).scores
        except JudgeError as e:
            raise LLMError(str(e)) from e
        is_better = best.score > worst.score
        return row if is_better else self._drop("doing nothing is as good, says the judge")

    def _drop(self, why: str) -> None:
        self.dropped[why] += 1

    async def _played(self, draft: Draft) -> list[ToolResult] | None:
        """Return the calls of one session, or None if one is refused or the server fails."""
        out: list[ToolResult] = []
        async with self._servers:
            try:
                async with self._source.opened() as session:
                    for tool, arguments in draft.calls:
                        out.append(await session.call(tool, arguments))
                        if out[-1].is_error:
                            return None
            except UsageError:
                raise
            except Exception:  # a server that crashed or hung gives no task
                return None
        return out


async def written_tasks(
    trial: DraftTrial, tools: Sequence[str], num: int, seed: int, report: Report
) -> WrittenTasks:
    """Return at most `num` tasks, fewer if the budget or the model's ideas run out.

    Raise LLMError if the model never answers, BudgetError if nothing was paid for.
    """
    out = WrittenTasks(dropped=trial.dropped)
    wanted = _wanted(tools, seed)
    without = 0  # requests without a new task
    while len(out.rows) < num and without < ROUNDS and out.stopped is None:
        report("writing tasks", len(out.rows), num)
        before = len(out.rows)
        pairs = [next(wanted) for _ in range(max(1, -(-(num - before) // A_TIME)))]
        questions = [row.question for row in out.rows][-SHOWN:]
        drafts, stopped = await _all(
            trial.writer.tasks(level, tool, A_TIME, questions, f"{seed}/{before}/{n}")
            for n, (level, tool) in enumerate(pairs)
        )
        new = list(_new([d for found in drafts for d in found], out))
        for begin in range(0, len(new), TRIED):
            if out.stopped is None and len(out.rows) < num:
                await _keep_good(new[begin : begin + TRIED], trial, out)
        del out.rows[num:]
        without += len(out.rows) == before
        out.stopped = out.stopped or stopped
    if out.stopped and not out.rows:
        raise out.stopped
    return out


async def _keep_good(drafts: Sequence[Draft], trial: DraftTrial, out: WrittenTasks) -> None:
    """Add the tasks of drafts that pass. The judge is never asked about two equal tasks."""
    rows, unanswered = await _all(map(trial.row_of, drafts))
    others = list(_others([row for row in rows if row is not None], out))
    good, unjudged = await _all(map(trial.judged, others))
    out.rows += [row for row in good if row is not None]
    out.stopped = unanswered or unjudged


async def _all(work: Any) -> tuple[list[Any], BudgetError | LLMError | None]:
    """Return (the results, the error of those that failed)."""
    found = await asyncio.gather(*work, return_exceptions=True)
    failures = [each for each in found if isinstance(each, BaseException)]
    for each in failures:
        if not isinstance(each, BudgetError | LLMError):
            raise each
    # After an occasional failure the model may continue; without a budget it cannot.
    broke = next((each for each in failures if isinstance(each, BudgetError)), None)
    stopped = broke or (failures[0] if failures and len(failures) == len(found) else None)
    return [each for each in found if not isinstance(each, BaseException)], stopped  # type: ignore


def _wanted(tools: Sequence[str], seed: int) -> Iterator[tuple[int, str]]:
    """Yield pairs of level and tool, each equally often."""
    pairs = [(level, tool) for level in LEVELS for tool in tools]
    random.Random(seed).shuffle(pairs)
    return cycle(pairs)


def _new(drafts: Sequence[Draft], out: WrittenTasks) -> Iterator[Draft]:
    """Yield drafts that do not reword an accepted task or another draft.

    Two drafts are rewordings if they make the same calls and their questions are nearly equal.
    Questions that differ only in a name or a number make different calls, and are different tasks.
    """
    said: dict[str, list[str]] = defaultdict(list)
    for row in out.rows:
        said[_key((call.tool, call.arguments) for call in row.calls)].append(row.question)
    for draft in drafts:
        questions = said[_key(draft.calls)]
        if Known(map(_scenario, questions)).find(_scenario(draft.question)):
            out.dropped[ANOTHER] += 1
            continue
        questions.append(draft.question)
        yield draft


def _others(rows: Sequence[TaskRow], out: WrittenTasks) -> Iterator[TaskRow]:
    """Yield rows whose calls and answer differ from those of accepted tasks.

    Two answers are the same if one contains the other: "Rex" and "the dog Rex".
    """
    kept: dict[str, list[str]] = defaultdict(list)
    for row in out.rows:
        kept[_key((call.tool, call.arguments) for call in row.calls)].append(row.answer)
    for row in rows:
        answers = kept[_key((call.tool, call.arguments) for call in row.calls)]
        if any(stands_in(row.answer, a) or stands_in(a, row.answer) for a in answers):
            out.dropped[ANOTHER] += 1
            continue
        answers.append(row.answer)
        yield row


def _key(calls: Iterable[tuple[str, dict[str, Any]]]) -> str:
    """Return a key of the calls that ignores their order, which may differ between solutions."""
    return json.dumps(sorted(json.dumps(call, sort_keys=True) for call in calls))


def _of_machine(answer: str, calls: Sequence[ToolResult]) -> str | None:
    """Return the part of an answer that depends on the machine, judging by its results."""
    for call in calls:
        if is_environment(call.result) and stands_in(answer, call.result):
            return "an environment variable"
        if is_part_of_now(answer, call.result):
            return TIME
    return None


def _scenario(question: str) -> Scenario:
    return Scenario(id=question, split="train", seed=0, data={"question": question})
