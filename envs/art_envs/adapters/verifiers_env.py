"""Environments of verifiers: single turns, tools and turns without end, with their rubrics.

    user        Call the following tools with arguments of your choice: ['tool_A', 'tool_C']
    assistant   <tool_call>{"name": "tool_A", "arguments": {"x": 1}}</tool_call><tool_call>...
    tool        2

`id` is the name of a package that is installed, or of a module that can be imported. The library
runs its own rollout; when that asks its model, it hears what the policy says. Up to version 0.3 an
environment is what the package's load_environment() gives (`verifiers_classic`); 0.4 has none of
these, but tasksets that a harness plays (`verifiers_tasksets`).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import distributions
from importlib.util import find_spec
from itertools import count
from typing import Annotated, Any, Protocol

from pydantic import Field

from art_cli import Done, Env, Message, Scenario, Split, Tool, Trajectory, seed_of
from art_envs.adapters.driven import DrivenRollout, text_of
from art_envs.adapters.library import library
from art_envs.adapters.verifiers_classic import Classic
from art_envs.adapters.verifiers_tasksets import PolicyTaskset

PACKAGE = "verifiers"
HOW = (
    "give it an environment of its own (python -m venv .venv-vf; .venv-vf/bin/pip install "
    "'verifiers>=0.1.14,<0.5'), and name that: env.python: .venv-vf/bin/python"
)
NEEDS = re.compile(r"verifiers\b(?!-)")
HELD_OUT = 10  # one in ten train rows is val, and another one test if there is no eval data
Respond = Callable[[list[Any], list[Any]], Coroutine[Any, Any, Any]]  # to messages, with tools


class Played(Protocol):
    """An environment of verifiers: its rows, its rollout and its score."""

    train: list[Any]
    test: list[Any]  # if empty, a part of the train rows is used
    max_turns: int  # -1: the environment sets no limit
    cut_off: type[Exception]  # the exception that `respond` raises when the episode is cut off

    def rollout(self, row: Any, respond: Respond) -> Coroutine[Any, Any, Any]:
        """Play a row to its end with `respond` as the model. Return the argument for `score`."""
        ...

    def answer(self, text: str, calls: list[dict[str, str]]) -> Any:
        """Return a model turn for `respond` to return; a call has `id`, `name` and `arguments`."""
        ...

    async def score(self, result: Any) -> tuple[float, dict[str, float]]:
        """Return the reward and the metrics. Raise RuntimeError if the rollout failed."""
        ...

    def reference(self, row: Any) -> str:
        """Return the right answer of a row, empty if it has none."""
        ...


class Verifiers(Env):
    """An environment of verifiers, by its package's name."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of `env.args`."""

        id: str
        # Arguments of load_environment(), or for a taskset the value of `vf-eval`'s --env.
        args: dict[str, Any] = field(default_factory=dict)
        tasks: Annotated[int, Field(ge=1)] | None = None  # the first so many; null: all
        max_turns: Annotated[int, Field(ge=1)] = 30  # used if the environment sets no limit

        def __post_init__(self) -> None:
            """Raise ValueError if the environment does not exist or cannot be played."""
            _played(self)

    tool_timeout = 120.0

    def __init__(self, scenario: Scenario, cfg: Config) -> None:
        super().__init__(scenario, cfg)
        self.played = _played(cfg)
        limit = self.played.max_turns
        self.max_turns = limit if limit > 0 else cfg.max_turns
        self.row = _rows(self.played)[scenario.data["row"]][1]
        self._rollout = DrivenRollout(cfg.id)
        self._calls: list[tuple[dict[str, str], asyncio.Future[str | Done]]] = []
        self._ids = count()
        self._tools: list[Tool] = []

    @classmethod
    def task_list(cls) -> dict[str, str]:
        """Return the installed packages that depend on verifiers."""
        library("verifiers", PACKAGE, HOW)
        found = [d for d in distributions() if any(NEEDS.match(r) for r in d.requires or ())]
        return {f"id={d.metadata['Name']}": d.metadata["Summary"] or "" for d in found}

    @classmethod
    def scenarios(cls, cfg: Config, split: Split) -> Iterable[Scenario]:
        """Return the rows of a split, from the environment's train and eval data."""
        num = 0
        for i, (home, _) in enumerate(_rows(_played(cfg))):
            if home == split:
                yield Scenario(
                    id=f"{split}-{num}", split=split, seed=seed_of(cfg.id, i), data={"row": i}
                )
                num += 1

    async def start(self) -> list[Message]:
        """Start the library's rollout and return its first prompt."""
        opening = await self._rollout.begin(self.played.rollout(self.row, self._respond))
        return [{"role": m.role, "content": text_of(m)} for m in opening]

    def tools(self) -> list[Tool]:
        """Return the tools that the library offers its model."""
        return self._tools

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> str | Done:
        """Send the calls of a turn together, because they are one message to the library."""
        waiting: asyncio.Future[str | Done] = asyncio.get_running_loop().create_future()
        call = {"id": f"call_{next(self._ids)}", "name": name}
        self._calls.append((call | {"arguments": json.dumps(arguments)}, waiting))
        if len(self._calls) >= self.calls_in_turn:
            calls, self._calls = self._calls, []
            heard = await self._say("", [call for call, _ in calls])
            results = {m.tool_call_id: text_of(m) for m in heard or () if m.role == "tool"}
            rest = [text_of(m) for m in heard or () if m.role != "tool"]
            for call, future in calls:
                words = [results.get(call["id"], ""), *(rest if future is waiting else ())]
                future.set_result(Done() if heard is None else "\n\n".join(filter(None, words)))
        return await waiting

    async def reply(self, text: str) -> str | Done:
        """Return the library's answer to a turn without a call."""
        heard = await self._say(text, [])
        return Done() if heard is None else "\n\n".join(text_of(m) for m in heard)

    async def score(self, trajectory: Trajectory) -> float:
        """Return the rubric's reward. An episode that art cut off ends like one with a full
        context.
        """
        self._rollout.cut_off(self.played.cut_off())
        reward, self.metrics = await self.played.score(await self._rollout.result())
        return reward

    async def judge_context(self) -> str:
        """Return the right answer, if the row has one."""
        answer = self.played.reference(self.row)
        return f"A right answer: {answer}" if answer else ""

    async def close(self) -> None:
        """End the library's rollout, which cleans up after itself."""
        await self._rollout.close()

    async def _respond(self, prompt: list[Any], tools: list[Any]) -> Any:
        """Return the policy's answer to a prompt of the library."""
        self._tools = [
            Tool(name=t.name, description=t.description, parameters=dict(t.parameters))
            for t in tools
        ]
        return await self._rollout.ask(prompt)

    async def _say(self, text: str, calls: list[dict[str, str]]) -> list[Any] | None:
        """Answer with the policy's turn. Return the messages that follow, None when it is over."""
        return await self._rollout.say(self.played.answer(text, calls))


def _played(cfg: Verifiers.Config) -> Played:
    """Return the environment of a config. Raise ValueError if it cannot be loaded or played."""
    return _loaded(cfg.id, json.dumps(cfg.args), cfg.tasks)


@lru_cache(maxsize=8)
def _loaded(name: str, args: str, tasks: int | None) -> Played:
    library("verifiers", PACKAGE, HOW)
    kind = Classic if find_spec("verifiers.envs") else PolicyTaskset  # which 0.4 has no more
    return kind(name, json.loads(args), tasks)


@lru_cache(maxsize=8)
def _rows(played: Played) -> list[tuple[Split, Any]]:
    """Return all rows, each with its split."""
    homes: list[Split] = ["train"] * HELD_OUT
    homes[-1] = "val"
    if not played.test:
        homes[-2] = "test"
    rows: list[tuple[Split, Any]] = [
        (homes[i % HELD_OUT], row) for i, row in enumerate(played.train)
    ]
    return rows + [("test", row) for row in played.test]
