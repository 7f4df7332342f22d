"""The env of tasks that stand in a file: one question, one answer.

user        {"question": "7 + 5 = ?", "answer": "12"}  is asked as   7 + 5 = ?
assistant   It is 12.                                  grade: number  ->  1
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from art_cli import Done, Env, Message, Scenario, Split, Trajectory
from art_envs.tasks.columns import said_in
from art_envs.tasks.grading import is_right
from art_envs.tasks.scenarios import scenarios_of
from art_envs.tasks.settings import ANSWER, TaskSettings


class TaskEnv(Env):
    """The common part of envs whose tasks stand in a file."""

    Config = TaskSettings
    cfg: TaskSettings

    def __init__(self, scenario: Scenario, cfg: TaskSettings) -> None:
        super().__init__(scenario, cfg)
        self.task: dict[str, Any] = scenario.data
        self.said: str | None = None

    @classmethod
    def scenarios(cls, cfg: TaskSettings, split: Split) -> Iterable[Scenario]:
        """Return those of a split: of a column, of a file, or by a hash of the question."""
        return scenarios_of(cfg, split)

    def opening(self) -> list[Message]:
        """Return the messages that an episode begins with."""
        asked = self.task["input"]
        messages: list[Message] = (
            [{"role": "user", "content": asked}] if isinstance(asked, str) else list(asked)
        )
        if self.cfg.system:
            messages.insert(0, {"role": "system", "content": self.cfg.system})
        return messages

    async def reply(self, text: str) -> Done:
        """Take the answer: the episode ends with it."""
        self.said = text
        return Done()

    def graded(self) -> float | None:
        """Return 1 for a right answer, else 0; None where a judge decides.

        May take seconds: math-verify and regular expressions do.
        """
        if self.cfg.grade == "judge":
            return None
        said = None if self.said is None else said_in(self.said, self.cfg.answer)
        right = said is not None and is_right(
            self.cfg.grade,
            said,
            self.task["targets"],
            self.task.get("choices", ()),
            self.cfg.tolerance,
        )
        self.metrics = {"success": float(right)}
        if self.cfg.answer is not None:
            self.metrics["has_answer"] = float(said is not None)
        return float(right)

    def score(self, trajectory: Trajectory) -> Any:
        """Return what the answer earns. It is no `async def`, and so runs in a thread."""
        return self.graded()

    async def judge_context(self) -> str:
        """Return the right answer, if there is one."""
        targets = self.task.get("targets")
        return f"A right answer: {' / '.join(targets)}" if targets else ""

    def gold(self) -> Iterator[str] | None:
        """Say the row's whole answer, or its target; None where it has neither."""
        text = gold_of(self.cfg, self.task)
        return None if text is None else iter([text])


class Dataset(TaskEnv):
    """Questions and answers from a file or a Hugging Face data set: no Python to write."""

    max_turns = 1

    async def start(self) -> list[Message]:
        """Return the question."""
        return self.opening()

    @classmethod
    def demonstrations(cls, cfg: TaskSettings, num: int) -> Iterable[list[Message]]:
        """Yield train questions with their answers."""
        found = scenarios_of(cfg, "train")
        told = ((s, gold_of(cfg, s.data)) for s in found)
        for scenario, text in islice((pair for pair in told if pair[1] is not None), num):
            yield [*cls(scenario, cfg).opening(), {"role": "assistant", "content": str(text)}]


def gold_of(cfg: TaskSettings, task: dict[str, Any]) -> str | None:
    """Return what a perfect player says: the solution, or the target as answers look."""
    if "solution" in task:
        return task["solution"]
    targets = task.get("targets")
    if not targets:
        return None
    if cfg.grade == "regex" and not is_right("regex", targets[0], targets, (), 0):
        return None  # a pattern is no answer, unless it is plain text
    return targets[0] if cfg.answer is None else cfg.answer.replace(ANSWER, targets[0])
