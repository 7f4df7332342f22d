"""`art envs check` and an env whose texts hold a key of the environment."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from art_cli import keys
from art_cli.envs.base import Done, Env
from art_cli.envs.tools import tool
from art_cli.keys import register_key
from art_cli.preflight.envs.check import CHECKS
from art_cli.preflight.envs.subject import Options, Subject
from art_cli.types import Scenario, Split, Trajectory

KEY = "Zq7pXwK9vRt2m"


@dataclass(frozen=True)
class Nothing:
    """No settings."""


class Tells(Env):
    """Tells a key in a result of a tool."""

    Config = Nothing

    @classmethod
    def scenarios(cls, cfg: object, split: Split) -> list[Scenario]:
        """See Env."""
        return [Scenario(id=f"{split}-{n}", split=split, seed=n) for n in range(4)]

    async def start(self) -> str:
        """See Env."""
        return "Look."

    @tool()
    async def look(self) -> str:
        """Look."""
        return f"401 for {KEY}"

    async def reply(self, text: str) -> Done:
        """See Env."""
        return Done()

    async def score(self, trajectory: Trajectory) -> float:
        """See Env."""
        return 1.0


def test_an_env_that_tells_its_policy_a_key_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "_given", {})
    monkeypatch.setattr(keys, "_known", keys._Forms({}, 0))

    def found() -> list[tuple[str, str]]:
        subject = Subject("test_keys:Tells", Tells, Nothing(), Options(episodes=4))
        list(CHECKS["episodes"](subject))
        return [(f.status, f.what) for f in CHECKS["keys"](subject)]

    assert [status for status, _ in found()] == ["ok"]
    register_key(KEY, "${oc.env:ART_X}")
    (status, what), _ = found()
    assert status == "warning" and what == "what look() gives holds the value of ${oc.env:ART_X}"
