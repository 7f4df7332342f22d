"""An agent type of the user's own: whatever its code does in an episode is that episode's end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hosted import host, script

from art_cli.config.sections.agent import AgentConfig
from art_cli.errors import UsageError
from art_cli.rollout.agents.build import make_runner
from art_cli.types import Trajectory

AGENT = """
import httpx
from art_cli.rollout.agents.hosted import CrashError

class Mine:
    def __init__(self, cfg): self.cfg = cfg
    async def open(self): pass
    async def close(self): pass
    async def run(self, hosted, url, trajectory):
        async with httpx.AsyncClient() as client:
            body = {"model": "policy", "messages": hosted.opening}
            await client.post(f"{url}/v1/chat/completions", json=body)
        return self.cfg.command[0]
"""


def played(folder: Path, policy: Any, last: str, **more: Any) -> Trajectory:
    file = folder / "mine.py"
    file.write_text(AGENT.replace("return self.cfg.command[0]", last))
    runner = make_runner(AgentConfig(use=f"{file}:Mine", command=["bye"]))
    assert runner
    return asyncio.run(host(policy, script(policy, "hello"), runner, **more))


def test_it_is_made_of_its_section_and_says_the_last_word(tmp_path: Path, make_policy: Any) -> None:
    trajectory = played(tmp_path, make_policy(), "return self.cfg.command[0]")
    assert trajectory.metrics["heard"] == 1 and trajectory.stop_reason == "env"


@pytest.mark.parametrize(
    ("last", "says"),
    [
        ("1 / 0", "mine.py:13: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "mine.py:13: SystemExit: 3"),
        ("raise CrashError('it fell')", "the agent failed: it fell"),
        ("return 7", "run() returned 7; expected text or None"),
    ],
)
def test_what_its_code_raises_is_a_crash(
    tmp_path: Path, make_policy: Any, last: str, says: str
) -> None:
    trajectory = played(tmp_path, make_policy(), last, crashes=True)
    assert trajectory.metrics["crashed"] == 1 and says in str(trajectory.crash)


def test_what_fails_before_the_first_episode_is_told(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(AGENT.replace("async def open(self): pass", "async def open(self): 1 / 0"))
    runner = make_runner(AgentConfig(use=f"{file}:Mine"))
    assert runner
    with pytest.raises(UsageError, match=r"^agent\.use: .*mine.py:7: ZeroDivisionError"):
        asyncio.run(runner.open())


@pytest.mark.parametrize("method", ["open", "close"])
def test_a_method_that_never_returns_ends_at_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr("art_cli.rollout.agents.user_runner.CALL_SECONDS", 0.1)
    waits = f"async def {method}(self): await __import__('asyncio').Event().wait()"
    file = tmp_path / "mine.py"
    file.write_text(AGENT.replace(f"async def {method}(self): pass", waits))
    runner = make_runner(AgentConfig(use=f"{file}:Mine"))
    says = rf"^agent\.use: .*mine.py:Mine: {method}\(\) took more than 0\.1 s"
    with pytest.raises(UsageError, match=says):
        asyncio.run(getattr(runner, method)())
