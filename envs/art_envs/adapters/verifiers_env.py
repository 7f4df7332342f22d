"""Environments of verifiers 0.1: single turns, tools and turns without end, with their rubrics.

    user        Call the following tools with arguments of your choice: ['tool_A', 'tool_C']
    assistant   <tool_call>{"name": "tool_A", "arguments": {"x": 1}}</tool_call><tool_call>...
    tool        2

`id` is what `vf.load_environment` takes: the name of a package, or of a module beside the config,
that has a function load_environment. The library runs its own rollout; when that asks its model, it
hears what the policy says.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import distributions
from itertools import count
from typing import Annotated, Any

from pydantic import Field

from art_cli import Done, Env, Message, Scenario, Split, Tool, Trajectory, seed_of
from art_envs.adapters.driven import DrivenRollout, text_of
from art_envs.adapters.library import library

PACKAGE = "verifiers"
HOW = (
    "give it an environment of its own (python -m venv .venv-vf; .venv-vf/bin/pip install "
    "'verifiers>=0.1.14,<0.2'), and name that: env.python: .venv-vf/bin/python"
)
NEEDS = re.compile(r"verifiers\b(?!-)")
HELD_OUT = 10  # one of so many rows of train is val, and one test where there are no others


class Verifiers(Env):
    """An environment of verifiers 0.1, by its package's name."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of `env.args`."""

        id: str
        args: dict[str, Any] = field(default_factory=dict)  # of its load_environment()
        max_turns: Annotated[int, Field(ge=1)] = 30  # where the environment has no limit of its own

        def __post_init__(self) -> None:
            """Raise ValueError where there is no such environment, or it cannot be played."""
            _loaded(self.id, json.dumps(self.args))

    tool_timeout = 120.0

    def __init__(self, scenario: Scenario, cfg: Config) -> None:
        super().__init__(scenario, cfg)
        self.theirs = _loaded(cfg.id, json.dumps(cfg.args))
        limit = getattr(self.theirs, "max_turns", -1)
        self.max_turns = limit if limit > 0 else cfg.max_turns
        self._rollout = DrivenRollout(cfg.id)
        self._calls: list[tuple[dict[str, str], asyncio.Future[str | Done]]] = []
        self._ids = count()
        self._tools: list[Tool] = []

    @classmethod
    def task_list(cls) -> dict[str, str]:
        """Return the installed packages that need verifiers: their environments."""
        library("verifiers", PACKAGE, HOW)
        found = [d for d in distributions() if any(NEEDS.match(r) for r in d.requires or ())]
        return {f"id={d.metadata['Name']}": d.metadata["Summary"] or "" for d in found}

    @classmethod
    def scenarios(cls, cfg: Config, split: Split) -> Iterable[Scenario]:
        """Return the rows: of the environment's train and eval data, or parts of the one it has."""
        rows, num = _rows(cfg.id, json.dumps(cfg.args)), 0
        for i, (home, _) in enumerate(rows):
            if home == split:
                yield Scenario(
                    id=f"{split}-{num}", split=split, seed=seed_of(cfg.id, i), data={"row": i}
                )
                num += 1

    async def start(self) -> list[Message]:
        """Begin the library's rollout; return its first prompt."""
        row = dict(_rows(self.cfg.id, json.dumps(self.cfg.args))[self.scenario.data["row"]][1])
        rollout = self.theirs.rollout(row, _client(self._respond), "policy", {})
        return [{"role": m.role, "content": text_of(m)} for m in await self._rollout.begin(rollout)]

    def tools(self) -> list[Tool]:
        """Return those that the library offers its model."""
        return self._tools

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> str | Done:
        """Make the calls of a turn together: they are one message to the library."""
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
        """Return what the library says to a turn without a call."""
        heard = await self._say(text, [])
        return Done() if heard is None else "\n\n".join(text_of(m) for m in heard)

    async def score(self, trajectory: Trajectory) -> float:
        """Return what the rubric gives. An episode that art cut off ends as a full context does."""
        self._rollout.cut_off(_module("errors").OverlongPromptError())
        state = await self._rollout.result()
        if state.get("error") is not None:
            raise RuntimeError(f"{self.cfg.id} failed: {state['error']!r}")
        await self.theirs.rubric.score_rollout(state)
        self.metrics = {name: float(value) for name, value in (state["metrics"] or {}).items()}
        return float(state["reward"])

    async def judge_context(self) -> str:
        """Return the right answer, where a row has one."""
        row = _rows(self.cfg.id, json.dumps(self.cfg.args))[self.scenario.data["row"]][1]
        answer = row.get("answer")
        return f"A right answer: {answer}" if answer else ""

    async def close(self) -> None:
        """End the library's rollout, which cleans up after itself."""
        await self._rollout.close()

    async def _respond(self, prompt: list[Any], tools: Any) -> Any:
        """Return the policy's answer to what the library asks its model."""
        self._tools = [
            Tool(name=t.name, description=t.description, parameters=dict(t.parameters))
            for t in tools or ()
        ]
        return await self._rollout.ask(prompt)

    async def _say(self, text: str, calls: list[dict[str, str]]) -> list[Any] | None:
        """Answer for the policy; return the messages that come back, None where it is over."""
        types = _module("types")
        made = [types.ToolCall(**call) for call in calls] or None
        reason = "tool_calls" if calls else "stop"
        said = types.ResponseMessage(
            content=text, tool_calls=made, finish_reason=reason, is_truncated=False
        )
        answer = types.Response(id="", created=0, model="policy", message=said)
        return await self._rollout.say(answer)


def _module(name: str) -> Any:
    return library(f"verifiers.{name}", PACKAGE, HOW)


def _client(respond: Any) -> Any:
    """Return a client of verifiers whose model is `respond`."""
    base = _module("clients.client").Client

    async def get_response(
        self: Any, prompt: Any, model: str, sampling_args: Any, tools: Any = None, **more: Any
    ) -> Any:
        return await respond(prompt, tools)

    made = type("Policy", (base,), {"get_response": get_response})
    made.__abstractmethods__ = frozenset()  # what they do is only asked for by what is replaced
    return made(None)


@lru_cache(maxsize=8)
def _loaded(name: str, args: str) -> Any:
    """Return the library's environment. Raise ValueError where it cannot be loaded or played."""
    vf = library("verifiers", PACKAGE, HOW)
    try:
        found = vf.load_environment(name, **json.loads(args))
    except Exception as e:
        raise ValueError(f"verifiers cannot load {name!r}: {type(e).__name__}: {e}") from e
    if not isinstance(found, vf.Environment):
        raise ValueError(f"{name}: load_environment() gives no Environment of verifiers 0.1")
    if found.rubric._get_group_reward_funcs():
        raise ValueError(f"{name}: its rubric compares siblings, which an env of art cannot do")
    return found


@lru_cache(maxsize=8)
def _rows(name: str, args: str) -> list[tuple[Split, dict[str, Any]]]:
    """Return all rows, each with the split that it is of."""
    found = _loaded(name, args)
    train = list(found.get_dataset())
    found.build_eval_dataset()
    test = [] if found.eval_dataset is None else list(found.eval_dataset)
    homes: list[Split] = ["train"] * HELD_OUT
    homes[-1] = "val"
    if not test:
        homes[-2] = "test"
    rows: list[tuple[Split, dict[str, Any]]] = [
        (homes[i % HELD_OUT], row) for i, row in enumerate(train)
    ]
    return rows + [("test", row) for row in test]
