"""A judge of the user's own: the one of CONTRIBUTING, and what is wrong with others."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from art_cli.config.sections.judge import JudgeConfig
from art_cli.errors import JudgeError, UsageError
from art_cli.llms.judges.base import Transcript
from art_cli.llms.judges.build import check_setup, make_judge

PAGE = Path(__file__).parents[4] / "CONTRIBUTING.md"


def test_the_judge_of_the_recipe_scores(tmp_path: Path) -> None:
    [code] = re.findall(r"```python\n(# shortest.py\n.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (tmp_path / "shortest.py").write_text(code)
    cfg = JudgeConfig(use=f"{tmp_path}/shortest.py:ShortestJudge")

    async def go() -> list[float]:
        judge = await make_judge(cfg, seed=0)
        told = [Transcript(messages=[{"role": "user", "content": "x" * n}]) for n in (1, 4, 2)]
        verdict = await judge.judge(told)
        await judge.close()
        return [s.score for s in verdict.scores]

    assert asyncio.run(go()) == [0.75, 0.0, 0.5]


METHODS = """class Mine:
    async def judge(self, transcripts): pass
    def check_room(self, opening, tools): pass
    async def ping(self): pass
    async def close(self): pass
"""


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("Other = 1", "has no 'Mine'"),
        ("Mine = 1", "is no class"),
        ("class Mine:\n    def __init__(self): pass", "it is not made as Mine(cfg)"),
        (
            "class Mine:\n    def __init__(self, cfg): self.spent = 0",
            "it has no async judge(transcripts); it has no check_room(opening, tools); it has no",
        ),
        (METHODS + "    def __init__(self, cfg): 1 / 0", "mine.py:6: ZeroDivisionError"),
        (METHODS + "    def __init__(self, cfg): self.spent = 0", "does not set usage; see Judge"),
        (METHODS.replace("transcripts", "one, two"), "it cannot be asked for judge(transcripts)"),
        (METHODS.replace("async ", "", 1), "it has a judge() that must be `async def`"),
    ],
)
def test_one_that_cannot_be_made_is_told_with_its_place(
    tmp_path: Path, code: str, says: str
) -> None:
    (tmp_path / "mine.py").write_text(code)
    cfg = JudgeConfig(use=f"{tmp_path}/mine.py:Mine")
    with pytest.raises(UsageError, match=r"^judge\.use: ") as raised:
        asyncio.run(make_judge(cfg, seed=0))
    assert says in str(raised.value)


def test_a_class_that_is_not_there_is_told_before_anything_is_loaded(tmp_path: Path) -> None:
    cfg = JudgeConfig(use=f"{tmp_path}/mine.py:Mine")
    with pytest.raises(UsageError, match=r"^judge\.use: .* there is no file"):
        check_setup(cfg)


GOOD = """
from art_cli.llms.base import Usage
from art_cli.llms.judges.base import Score, Verdict

class Mine:
    def __init__(self, cfg): self.usage, self.spent = Usage(), 0.0
    def check_room(self, opening, tools): pass
    async def ping(self): pass
    async def close(self): pass
    async def judge(self, transcripts):
        return GIVEN
"""


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("[0.5, 0.5]", "returned list, not a Verdict of Scores"),
        ("Verdict(scores=[0.5, 0.5])", "returned Verdict, not a Verdict of Scores"),
        ("Verdict(scores=[])", "one finite score for each of 2 trajectories, and returned []"),
        ("Verdict(scores=[Score(score=float('nan'), explanation='')] * 2)", "returned [nan, nan]"),
        ("1 / 0", "mine.py:11: ZeroDivisionError"),
    ],
)
def test_a_verdict_that_does_not_fit_is_told(tmp_path: Path, given: str, says: str) -> None:
    (tmp_path / "mine.py").write_text(GOOD.replace("GIVEN", given))
    cfg = JudgeConfig(use=f"{tmp_path}/mine.py:Mine")

    async def go() -> None:
        await (await make_judge(cfg, seed=0)).judge([Transcript(messages=[])] * 2)

    with pytest.raises(UsageError, match=r"^judge\.use: ") as raised:
        asyncio.run(go())
    assert says in str(raised.value)


def test_one_that_never_answers_is_a_judge_that_failed(tmp_path: Path) -> None:
    code = GOOD.replace("return GIVEN", "await asyncio.Event().wait()")
    (tmp_path / "mine.py").write_text(f"import asyncio\n{code}")
    cfg = JudgeConfig(use=f"{tmp_path}/mine.py:Mine", timeout=0.01)

    async def go() -> None:
        await (await make_judge(cfg, seed=0)).judge([Transcript(messages=[])])

    with pytest.raises(
        JudgeError, match=r"mine.py:Mine: judge\(\) took more than 0.01 s \(judge.timeout\)"
    ):
        asyncio.run(go())


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (
            "check_room(self, opening, tools): pass",
            "check_room(self, opening, tools): 1/0",
            ":7: Z",
        ),
        ("ping(self): pass", "ping(self): 1 / 0", ":8: Z"),
        ("ping(self): pass", "ping(self): await asyncio.Event().wait()", "ping() took more than"),
        ("close(self): pass", "close(self): 1 / 0", ":9: Z"),
    ],
)
def test_whichever_of_its_methods_fails_is_told(
    tmp_path: Path, before: str, after: str, says: str
) -> None:
    (tmp_path / "mine.py").write_text(f"import asyncio{GOOD.replace(before, after)}")
    cfg = JudgeConfig(use=f"{tmp_path}/mine.py:Mine", timeout=0.01)

    async def go() -> None:
        judge = await make_judge(cfg, seed=0)
        judge.check_room([], [])
        await judge.ping()
        await judge.close()

    with pytest.raises((UsageError, JudgeError), match=r"^judge\.use: ") as raised:
        asyncio.run(go())
    assert says in str(raised.value)
