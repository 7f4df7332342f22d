"""Tasks of Inspect (inspect_ai): samples without tools, their solvers and their scorers.

    user        Answer the following multiple choice question. ... Which organelle makes ATP? ...
    assistant   ANSWER: B

`task` is what `inspect eval` takes: file.py, file.py@name, or package/name. The task's solver runs;
when it generates, it hears what the policy says.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Annotated, Any

from pydantic import Field

from art_cli import Done, Env, Message, Scenario, Split, Trajectory, play, seed_of
from art_envs.adapters.driven import DrivenRollout, text_of
from art_envs.adapters.library import library

PACKAGE = "inspect-ai"
HOW = (
    "give it an environment of its own (python -m venv .venv-inspect; .venv-inspect/bin/pip "
    "install inspect-ai), and name that: env.python: .venv-inspect/bin/python"
)
HELD_OUT = 10  # one in ten samples is val, another one test


class Inspect(Env):
    """A task of Inspect: samples, solver and scorer, without tools."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of `env.args`."""

        task: str
        args: dict[str, Any] = field(default_factory=dict)  # arguments of the task's function
        max_turns: Annotated[int, Field(ge=1)] = 10

        def __post_init__(self) -> None:
            """Raise ValueError if the task does not exist or cannot be played."""
            _loaded(self.task, json.dumps(self.args))

    def __init__(self, scenario: Scenario, cfg: Config) -> None:
        super().__init__(scenario, cfg)
        self.max_turns = cfg.max_turns
        self.task = _loaded(cfg.task, json.dumps(cfg.args))
        # A copy, because solvers modify the messages of a sample.
        self.sample: Any = copy.deepcopy(self.task.dataset[scenario.data["row"]])
        self._rollout = DrivenRollout(cfg.task)

    @classmethod
    def task_list(cls) -> dict[str, str]:
        """Return the tasks in the files of the current directory."""
        found = library("inspect_ai", PACKAGE, HOW).list_tasks()
        return {f"task={each.file}@{each.name}": "" for each in found}

    @classmethod
    def scenarios(cls, cfg: Config, split: Split) -> Iterable[Scenario]:
        """Return the samples of a split: one in ten is val, another one in ten test."""
        held_out: dict[int, Split] = {HELD_OUT - 1: "val", HELD_OUT - 2: "test"}
        for row in range(len(_loaded(cfg.task, json.dumps(cfg.args)).dataset)):
            if held_out.get(row % HELD_OUT, "train") == split:
                seed = seed_of(cfg.task, row)
                yield Scenario(id=f"{split}-{row}", split=split, seed=seed, data={"row": row})

    async def start(self) -> list[Message]:
        """Start the task's solver and return its first prompt."""
        opening = await self._rollout.begin(self._solve())
        return [{"role": m.role, "content": text_of(m)} for m in opening]

    async def reply(self, text: str) -> str | Done:
        """Return the solver's next messages."""
        heard = await self._rollout.say(text)
        return Done() if heard is None else "\n\n".join(text_of(m) for m in heard)

    async def score(self, trajectory: Trajectory) -> float:
        """Return the value of the task's first scorer as a number; the other scorers become
        metrics.

        An episode that was cut off is not scored and earns 0.
        """
        if trajectory.stop_reason not in ("env", "agent"):
            return 0.0
        state = await self._rollout.result()
        to_float = library("inspect_ai.scorer", PACKAGE, HOW).value_to_float()
        target = library("inspect_ai.scorer", PACKAGE, HOW).Target(self.sample.target)
        info = library("inspect_ai._util.registry", PACKAGE, HOW).registry_unqualified_name
        values = {}
        for scorer in self.task.scorer:
            score = await scorer(state, target)
            if score is None or not isinstance(score.value, str | int | float):
                raise RuntimeError(f"{info(scorer)} gives {score!r:.200}; expected one value")
            values[info(scorer)] = to_float(score.value)
        self.metrics = values
        return next(iter(values.values()))

    async def judge_context(self) -> str:
        """Return the target of the sample."""
        return f"Target: {self._target()}"

    def _target(self) -> str:
        target = self.sample.target
        return target if isinstance(target, str) else target[0]

    @classmethod
    def demonstrations(cls, cfg: Config, num: int) -> Iterable[list[Message]]:
        """Return train samples answered with their targets, a form that many scorers accept."""
        for scenario in islice(cls.scenarios(cfg, "train"), num):
            env = cls(scenario, cfg)
            words = "ANSWER: {}" if env.sample.choices else "{}"
            yield play(env, lambda env=env, words=words: words.format(env._target()))

    async def close(self) -> None:
        """End the solver."""
        await self._rollout.close()

    async def _solve(self) -> Any:
        model = library("inspect_ai.model", PACKAGE, HOW)
        solver = library("inspect_ai.solver", PACKAGE, HOW)
        given = self.sample.input
        state = solver.TaskState(
            model=model.ModelName("art/policy"),
            sample_id=self.sample.id or 0,
            epoch=1,
            input=given,
            messages=[model.ChatMessageUser(content=given)] if isinstance(given, str) else [*given],
            target=library("inspect_ai.scorer", PACKAGE, HOW).Target(self.sample.target),
            choices=self.sample.choices,
            metadata=dict(self.sample.metadata or {}),
        )

        async def generate(state: Any, *how: Any, **more: Any) -> Any:
            if state.tools:
                raise RuntimeError(f"{self.cfg.task} uses tools, which are not played")
            text = await self._rollout.ask(state.messages)
            state.output = model.ModelOutput.from_content("art/policy", text)
            state.messages.append(state.output.message)
            return state

        return await self.task.solver(state, generate)


@lru_cache(maxsize=8)
def _loaded(task: str, args: str) -> Any:
    """Return the task. Raise ValueError if it cannot be loaded or played."""
    load = library("inspect_ai._eval.loader", PACKAGE, HOW).load_tasks
    try:
        found = load([task], json.loads(args))
    except Exception as e:
        raise ValueError(f"Inspect cannot load {task!r}: {type(e).__name__}: {e}") from e
    if len(found) != 1:
        raise ValueError(f"{task}: names {len(found)} tasks; name one, as in file.py@name")
    if not found[0].scorer:
        raise ValueError(f"{task}: has no scorer")
    if found[0].sandbox or any(sample.sandbox for sample in found[0].dataset):
        raise ValueError(f"{task}: needs a sandbox, which is not played")
    return found[0]
