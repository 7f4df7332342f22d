"""The settings in `env.args` of a file of tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

Grade = Literal["exact", "number", "choice", "regex", "math", "judge"]
ANSWER = "{answer}"


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """The file, its columns, how answers are graded, and what is held out."""

    # FILE.jsonl, .csv, .tsv or .parquet, from the folder that art is started in; or
    # hf:NAME, hf:NAME:CONFIG or hf:NAME:CONFIG:SPLIT, a data set of the Hugging Face hub.
    data: str
    input: str  # the column with the question; a.b is b within the column a
    target: str | None = None  # the column with the right answer; a list: each of them is right
    # How an answer is graded: docs/tasks.md. judge: not here, but by `judge` of the config.
    grade: Grade
    # What is asked, with {COLUMN} in it; null: the input alone.
    prompt: str | None = None
    system: str = ""  # the system message; none, if empty
    # For `grade: choice`: the options, or the column with each row's own, which are then shown
    # with letters. null: all targets that there are.
    choices: tuple[str, ...] | str | None = None
    # What an answer looks like, with {answer} where the part stands that is graded.
    answer: str | None = None
    tolerance: Annotated[float, Field(ge=0)] = 0.0  # for `grade: number`: how far off is right
    # The column with a whole answer, to warm up on; null: the target is one.
    solution: str | None = None
    split: str | None = None  # the column that says train, val or test
    val_data: str | None = None  # as `data`, for one split alone
    test_data: str | None = None
    # Shares of the rows that are held out, where neither a column nor a file says which.
    val_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    test_share: Annotated[float, Field(ge=0, lt=1)] = 0.1

    def __post_init__(self) -> None:
        """Raise ValueError where settings do not go together."""
        if self.grade != "judge" and self.target is None:
            raise ValueError(f"grade: {self.grade} needs target, the column with the right answer")
        if self.choices is not None and self.grade != "choice":
            raise ValueError("choices has no effect without grade: choice; remove it")
        if self.tolerance and self.grade != "number":
            raise ValueError("tolerance has no effect without grade: number; remove it")
        if self.answer is not None and self.answer.count(ANSWER) != 1:
            raise ValueError(
                f"answer: expected {ANSWER} once, where the graded part stands, as in "
                f"'<answer>{ANSWER}</answer>'; got {self.answer!r}"
            )
        if self.answer is not None and any(ord(c) < 32 and c not in "\n\t" for c in self.answer):
            raise ValueError(
                f"answer: there is a control character in {self.answer!r}; a backslash needs "
                "single quotes in YAML"
            )
        if self.grade == "judge" and self.answer is not None:
            raise ValueError("answer has no effect with grade: judge; remove it")
        if self.val_share + self.test_share >= 1:
            raise ValueError("val_share and test_share leave nothing to train on")
