"""A judge of the user's own: the one of CONTRIBUTING, and what is wrong with others."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from art_cli.config.sections.judge import JudgeConfig
from art_cli.errors import UsageError
from art_cli.llms.judges.base import Transcript
from art_cli.llms.judges.build import make_judge

PAGE = Path(__file__).parents[4] / "CONTRIBUTING.md"


def test_the_judge_of_the_recipe_scores(tmp_path: Path) -> None:
    [code] = re.findall(r"```python\n(# shortest.py\n.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (tmp_path / "shortest.py").write_text(code)
    cfg = JudgeConfig(use=f"{tmp_path}/shortest.py:ShortestJudge", model="none")

    async def go() -> list[float]:
        judge = await make_judge(cfg, seed=0)
        told = [Transcript(messages=[{"role": "user", "content": "x" * n}]) for n in (1, 4, 2)]
        verdict = await judge.judge(told)
        await judge.close()
        return [s.score for s in verdict.scores]

    assert asyncio.run(go()) == [0.75, 0.0, 0.5]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("Other = 1", "has no 'Mine'"),
        ("class Mine:\n    def __init__(self): pass", "Mine: "),
        ("class Mine:\n    def __init__(self, cfg): 1 / 0", "mine.py:2: ZeroDivisionError"),
        ("class Mine:\n    def __init__(self, cfg): self.spent = 0", "has no judge, check_room"),
    ],
)
def test_one_that_cannot_be_made_is_told_with_its_place(
    tmp_path: Path, code: str, says: str
) -> None:
    (tmp_path / "mine.py").write_text(code)
    cfg = JudgeConfig(use=f"{tmp_path}/mine.py:Mine", model="none")
    with pytest.raises(UsageError, match=r"^judge\.use: ") as raised:
        asyncio.run(make_judge(cfg, seed=0))
    assert says in str(raised.value)
