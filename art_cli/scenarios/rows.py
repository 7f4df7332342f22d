"""Calls become tasks: a question, its answer, and the split that the call's content says.

level 1   Use look_up with title "Rex". Answer with its result alone, to the letter.
level 2   Use look_up with title "Rex". Answer with the value of "year" in its result alone.
level 3   Return a book's year. (title "Rex") Answer with the value of "year" alone.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from art_cli.envs.base import seed_of
from art_cli.envs.tools import Tool
from art_cli.errors import UsageError
from art_cli.keys import mask_keys_in
from art_cli.scenarios.guesses import constant, follows_from, is_always_the_same
from art_cli.scenarios.machine import TIME, is_environment, is_part_of_now, of_this_machine
from art_cli.scenarios.source import SYSTEM, ToolResult
from art_cli.system.files import atomic_write, json_line
from art_cli.types import Split

LONGEST = 200  # characters of an answer
FEWEST = 10  # scenarios of a split that is held out, if there are enough in all
SHARE = 10  # otherwise one in ten scenarios

Part = tuple[str, str, str]  # of a result: its key or "", what is asked for, the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """A line of the file of tasks."""

    question: str
    answer: str
    level: int
    kind: str  # the tool
    calls: tuple[ToolResult, ...]  # calls that lead to the answer

    def line(self, split: Split) -> dict[str, Any]:
        """Return the task as JSON data."""
        calls = [{"name": c.tool, "arguments": c.arguments} for c in self.calls]
        return {
            "question": self.question,
            "answer": self.answer,
            "level": self.level,
            "kind": self.kind,
            "calls": calls,
            "split": split,
        }

    def conversation(self) -> dict[str, Any]:
        """Return the task as a demonstration for SFT, in OpenAI's form."""
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": self.question},
        ]
        for n, call in enumerate(self.calls):
            made = {"name": call.tool, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
            calls = [{"id": f"call{n}", "type": "function", "function": made}]
            messages.append({"role": "assistant", "content": "", "tool_calls": calls})
            messages.append({"role": "tool", "tool_call_id": f"call{n}", "content": call.result})
        return {"messages": [*messages, {"role": "assistant", "content": self.answer}]}


class SeenAnswers:
    """Answers of all results, to reject those that need no call or only hold on one machine."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)

    def add(self, call: ToolResult) -> None:
        """Add the answers of a call's result."""
        arguments = json.dumps(call.arguments, sort_keys=True)
        for _, what, answer in (("", "", call.result), *_parts(call.result)):
            self._answers[call.tool, what].append((arguments, answer))

    def fault(self, call: ToolResult, part: Part, question: str) -> str | None:
        """Return why a part of a result does not answer a question, as the end of a sentence."""
        key, what, answer = part
        found = of_this_machine(answer, key)
        if found is None and is_environment(call.result):
            found = "an environment variable"
        elif found is None and is_part_of_now(answer, call.result):
            found = TIME
        if found:
            return f"depend on {found}"
        answers = self._answers[call.tool, what]
        if is_always_the_same(answers):
            return "are the same whatever the arguments are"
        if follows_from(answer, question, call.arguments, constant(answers)):
            return "follow from their questions"
        return None


def tasks_of(
    calls: Sequence[ToolResult],
    tools: Mapping[str, Tool],
    num: int,
    seed: int,
    seen: SeenAnswers | None = None,
) -> tuple[list[TaskRow], Counter[tuple[str, str]]]:
    """Return at most `num` tasks, and the number of unused answers by (tool, fault).

    Each call has one task before any has a second, and no question occurs twice. Answers are
    compared with `seen`, by default the answers of these calls.
    """
    rng = random.Random(seed)
    if seen is None:
        seen = SeenAnswers()
        for call in calls:
            seen.add(call)
    faults: Counter[tuple[str, str]] = Counter()
    left = [list(forms_of(call, tools[call.tool], seen, faults)) for call in calls]
    out: dict[str, TaskRow] = {}
    while len(out) < num and (left := [forms for forms in left if forms]):
        for forms in left[: num - len(out)]:
            level = rng.choice(sorted({form.level for form in forms}))
            row = rng.choice([form for form in forms if form.level == level])
            forms.remove(row)
            out.setdefault(row.question.casefold(), row)
    return list(out.values()), faults


def forms_of(
    call: ToolResult, tool: Tool, seen: SeenAnswers, faults: Counter[tuple[str, str]]
) -> Iterator[TaskRow]:
    """Yield the possible tasks of a call. Count rejected answers by (tool, fault)."""
    told = ", ".join(
        f"{name} {json.dumps(v, ensure_ascii=False)}" for name, v in call.arguments.items()
    )
    use = f"Use {call.tool}{f' with {told}' if told else ''}."
    purpose = tool.description.partition("\n")[0].strip()
    where = f" ({told})" if told else ""
    for part in (("", "", call.result), *_parts(call.result)):
        what, answer = part[1:]
        if not 0 < len(answer) <= LONGEST:
            continue
        asked = {2: f"{use} Answer with {what} in its result alone."} if what else {}
        asked |= {3: f"{purpose}{where} Answer with {what} alone."} if what and purpose else {}
        asked = asked or {1: f"{use} Answer with its result alone, to the letter."}
        for level, question in asked.items():
            if fault := seen.fault(call, part, question):
                faults[call.tool, fault] += 1
                break  # counted once
            yield TaskRow(
                question=question, answer=answer, level=level, kind=call.tool, calls=(call,)
            )


def _parts(result: str) -> Iterator[Part]:
    """Yield the possible questions about a JSON result: an object's values, and the counts of
    lists.
    """
    try:
        value = json.loads(result)
    except (ValueError, RecursionError):
        return
    if isinstance(value, list):
        yield "", "the number of entries", str(len(value))
    for key, each in value.items() if isinstance(value, dict) else ():
        named = json.dumps(key, ensure_ascii=False)
        if isinstance(each, str | int | float) and not isinstance(each, bool):
            yield key, f"the value of {named}", str(each)
        elif isinstance(each, list):
            yield key, f"the number of entries of {named}", str(len(each))


def splits_of(rows: Sequence[TaskRow]) -> list[Split]:
    """Return the split of each row, computed from its calls, so that no call is in two splits."""
    keys = [json.dumps([[c.tool, c.arguments] for c in row.calls], sort_keys=True) for row in rows]
    order = sorted(set(keys), key=lambda key: seed_of("split", key))
    num = max(len(order) // SHARE, min(FEWEST, len(order) // 4))
    held_out: dict[str, Split] = dict.fromkeys(order[:num], "test")
    held_out |= dict.fromkeys(order[num : 2 * num], "val")
    return [held_out.get(key, "train") for key in keys]


def write_rows(file: Path, rows: Sequence[TaskRow], demonstrations: Path | None) -> Counter[Split]:
    """Write the file, and the conversations of its train rows; return how many rows of each split.

    Raises UsageError.
    """
    splits = splits_of(rows)
    lines = [mask_keys_in(row.line(split)) for row, split in zip(rows, splits, strict=True)]
    train = [row for row, split in zip(rows, splits, strict=True) if split == "train"]
    told = [mask_keys_in(row.conversation()) for row in train]
    try:
        if demonstrations:
            atomic_write(demonstrations, "".join(map(json_line, told)))
        atomic_write(file, "".join(map(json_line, lines)))
    except OSError as e:
        raise UsageError(f"{e.filename or file}: cannot be written: {e.strerror}") from None
    return Counter(splits)
