"""An env that raises one of art's own exceptions costs its episode, whatever the exception says."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hosted import Shop

from art_cli import errors
from art_cli.config.sections.llm import LLMConfig
from art_cli.errors import ArtError, BudgetError, EngineError, UsageError
from art_cli.rollout.agent import TurnAgent
from art_cli.rollout.env_class import env_in
from art_cli.rollout.first_episode import check_env
from art_cli.rollout.rollout import rollout
from art_cli.types import Message, Scenario, Trajectory

ENV = '''
import asyncio, sys
from dataclasses import dataclass
from art_cli import Done, Env, errors, tool
from art_cli.config.sections.llm import LLMConfig

class Raises(Env):
    """Raises what its scenario names, where its scenario names."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        user: LLMConfig | None = None

    def __init__(self, scenario, cfg):
        super().__init__(scenario, cfg)
        self._raise("init")

    def _raise(self, where):
        if self.scenario.data["where"] == where:
            name = self.scenario.data["what"]
            if name == "SystemExit":
                sys.exit(3)
            if name == "OwnError":
                raise type("OwnError", (errors.BudgetError,), {})("of mine")
            raise getattr(errors, name)(["of mine"] if name == "ConfigError" else "of mine")

    async def start(self):
        self._raise("start")
        return "go"

    def tools(self):
        self._raise("tools")
        return super().tools()

    @tool()
    def plain(self) -> str:
        """A plain tool."""
        self._raise("plain tool")
        return "x"

    @tool()
    async def asynchronous(self) -> str:
        """An async tool."""
        await asyncio.sleep(0)
        self._raise("async tool")
        return "x"

    async def reply(self, text):
        self._raise("reply")
        if self.cfg.user:
            return (await self.services.llm(self.cfg.user).ask([])).text
        return Done()

    def judge_context(self):
        self._raise("judge_context")
        return ""

    def score(self, trajectory):
        self._raise("score")
        return 1.0

    async def close(self):
        await asyncio.sleep(0)
        self._raise("close")
'''
RAISED = sorted(
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, ArtError)
)
PLACES = (
    *("init", "start", "tools", "plain tool", "async tool", "reply", "judge_context", "score"),
    "close",
)


class Plays(TurnAgent):
    """Calls both tools, then says something."""

    def __init__(self) -> None:
        call = '<tool_call>{"name": "NAME", "arguments": {}}</tool_call>'
        names = ("plain", "asynchronous")
        self._turns = iter([*(call.replace("NAME", name) for name in names), "done"])

    async def act(self, messages: list[Message]) -> str:
        return next(self._turns)

    def record(self, trajectory: Trajectory) -> None: ...


@pytest.fixture(scope="module", params=["here", "elsewhere"])
def env(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    file = tmp_path_factory.mktemp("env") / "raises.py"
    file.write_text(ENV)
    env: Any = env_in(f"{file}:Raises", sys.executable if request.param == "elsewhere" else None)
    yield env
    if request.param == "elsewhere":
        env.worker.close()


def play(env: Any, what: str, where: str, services: Any = None, **args: Any) -> Trajectory:
    data = {"what": what, "where": where}
    scenario = Scenario(id="train-0", split="train", seed=1, data=data)
    return asyncio.run(rollout(env, env.Config(**args), scenario, Plays(), services))


@pytest.mark.parametrize("where", PLACES)
def test_every_error_of_art_that_an_env_raises_is_its_episodes_own(env: Any, where: str) -> None:
    for what in (*RAISED, "OwnError", "SystemExit"):
        t = play(env, what, where)
        assert "of mine" in str(t.error) or "SystemExit(3)" in str(t.error), (what, t.error)
        assert (t.reward is None) == (where != "close"), what
        if what in ("BudgetError", "Interrupted") and where != "close":
            assert "raises.py:" in str(t.error)  # whose it is can be seen
    assert play(env, "", "nowhere").reward == 1


@pytest.mark.parametrize("raised", [BudgetError, EngineError])
def test_a_budget_that_is_spent_by_an_env_still_ends_the_run(
    env: Any, raised: type[ArtError]
) -> None:
    class Model:
        async def ask(self, messages: Any, schema: Any, tools: Any) -> Any:
            raise raised("2 of 2 USD are spent")

    services = SimpleNamespace(llm=lambda cfg: Model())
    with pytest.raises(raised, match="2 of 2 USD are spent"):
        play(env, "", "nowhere", services, user=LLMConfig(model="openai/x"))


@pytest.mark.parametrize("what", ["BudgetError", "Interrupted", "EnvError"])
def test_the_first_episode_says_that_the_env_does_not_work(what: str) -> None:
    class Wrong(Shop):
        async def start(self) -> str:
            raise getattr(errors, what)("of mine")

    with pytest.raises(UsageError, match=rf"the env Wrong does not work: {Path(__file__)}:\d+: "):
        asyncio.run(check_env(Wrong, None))
