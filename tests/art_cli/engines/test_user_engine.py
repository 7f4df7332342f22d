"""An engine of the user's own: what it does wrong ends the run with its key and its place."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.engines.user_engine import UserEngine
from art_cli.errors import ConstraintError, EngineError, UsageError
from art_cli.types import Completion

ENGINE = """
from art_cli.engines.base import Engine, Session
from art_cli.errors import ConstraintError
from art_cli.types import Completion

class Mine(Engine):
    cached_tokens = policy_version = 0
    def __init__(self, policy, cfg, sampling, stop_ids): self.grammars = policy.grammars
    def open(self, seed, *, awaited=True): return Talk()
    async def sync(self, version): self.policy_version = version
    async def rest(self): pass  # rest
    async def close(self): pass  # close

def said(**changed):
    good = {"token_ids": [1, 2], "logprobs": [-0.5, -0.1], "finish_reason": "stop"}
    return Completion(**{**good, "policy_version": 0, **changed})

class Talk(Session):
    async def generate(self, ids, *, max_tokens=None, stop=(), grammar=None, top_logprobs=0):
        return said()
"""


def answer(folder: Path, policy: Any, before: str = "", after: str = "") -> Completion:
    file = folder / "mine.py"
    file.write_text(ENGINE.replace(before, after) if before else ENGINE)
    cfg = EngineConfig(use=f"{file}:Mine")
    engine = UserEngine(policy, cfg, SamplingConfig(), frozenset())

    async def go() -> Completion:
        await engine.sync(4)
        assert engine.policy_version == 4
        session = engine.open(0)
        session.expect(True)
        said = await session.generate([1, 2, 3])
        session.close()
        await engine.rest()
        await engine.close()
        return said

    return asyncio.run(go())


def test_what_it_says_is_passed_on(tmp_path: Path, make_policy: Any) -> None:
    assert answer(tmp_path, make_policy()).token_ids == [1, 2]


@pytest.mark.parametrize(
    ("before", "method"),
    [
        ("return said()", "generate"),
        ("self.policy_version = version", "sync"),
        ("pass  # rest", "rest"),
        ("pass  # close", "close"),
    ],
)
def test_a_call_that_never_returns_ends_at_the_deadline(
    tmp_path: Path, make_policy: Any, monkeypatch: pytest.MonkeyPatch, before: str, method: str
) -> None:
    monkeypatch.setattr("art_cli.engines.user_engine.CALL_SECONDS", 0.1)
    says = rf"^engine\.use: .*mine.py:Mine: {method}\(\) took more than 0\.1 s$"
    with pytest.raises(EngineError, match=says):
        answer(tmp_path, make_policy(), before, "await __import__('asyncio').Event().wait()")


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("return said()", "return said", "generate() returned function, not a Completion"),
        ("return said()", "pass", "generate() returned NoneType, not a Completion"),
        ("return said()", "return said(logprobs=[0.0])", "2 token_ids and 1 logprobs; expected"),
        ("return said()", "return said(token_ids=[], logprobs=[])", "0 token_ids and 0 logprobs"),
        ("return said()", "return said(logprobs=[0.0, float('nan')])", "not finite: [0.0, nan]"),
        ("return said()", "return said(token_ids=[1, 9999])", "the token id 9999; expected integ"),
        ("return said()", "return said(token_ids=[1, 2.0])", "the token id 2.0; expected integers"),
        ("return said()", "return {}[ids[0]]", "mine.py:20: KeyError: 1"),
        ("return Talk()", "return Mine", "open() returned a _ProtocolMeta, which does not impl"),
        ("= version", "= 1 / 0", "mine.py:10: ZeroDivisionError"),
    ],
)
def test_what_does_not_fit_is_told(
    tmp_path: Path, make_policy: Any, before: str, after: str, says: str
) -> None:
    with pytest.raises(EngineError, match=r"^engine\.use: .*mine.py:Mine") as raised:
        answer(tmp_path, make_policy(), before, after)
    assert says in str(raised.value)


def test_an_attribute_of_the_wrong_kind_is_told(tmp_path: Path, make_policy: Any) -> None:
    with pytest.raises(UsageError, match="policy_version is None, expected an integer"):
        answer(tmp_path, make_policy(), "= policy_version = 0", "= 0; policy_version = None")


def test_an_error_of_ours_stays_what_it_is(tmp_path: Path, make_policy: Any) -> None:
    with pytest.raises(ConstraintError, match="no grammars"):
        answer(tmp_path, make_policy(), "return said()", "raise ConstraintError('no grammars')")
