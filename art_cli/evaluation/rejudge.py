"""Judging of stored trajectories, for `art judge audit` and `art judge rescore`. No rollouts."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from art_cli.backends.local import LocalBackend
from art_cli.config.load import LoadedExperiment
from art_cli.config.sections.judge import JudgeConfig
from art_cli.config.sections.llm import REFERENCE
from art_cli.errors import JudgeError, UsageError
from art_cli.evaluation.policies import player
from art_cli.llms.judges.audit import JudgedGroup
from art_cli.llms.judges.base import Judge, Transcript, Verdict
from art_cli.llms.judges.build import make_judge
from art_cli.llms.judges.scorer import stored_transcript
from art_cli.rollout.env_class import env_of
from art_cli.rollout.first_episode import offered_tools
from art_cli.runs.directory import RunDir
from art_cli.runs.trajectories import can_be_judged, grouped, reward_parts_of
from art_cli.system.progress import Report, silent
from art_cli.training.gather import gather_trajectory_groups, scenarios_of
from art_cli.training.model import TrainableModel

NEEDED = ("step", "group", "scenario_id", "messages", "judge_context", "reward", "metrics")
Rows = list[dict[str, Any]]  # of one group, as returned by RunDir.read_trajectories


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroup:
    """A stored group, with the parts that a judge needs."""

    step: int
    scenario_id: str
    transcripts: list[Transcript]
    env_rewards: list[float | None]
    rewards: list[float | None]  # the rewards used for training

    @classmethod
    def of(cls, rows: Rows, tools: list[Any]) -> StoredGroup:
        """Return a group of the rows whose trajectories did not fail."""
        played = [r for r in rows if can_be_judged(r)]
        return cls(
            step=rows[0]["step"],
            scenario_id=rows[0]["scenario_id"],
            transcripts=[stored_transcript(r, tools) for r in played],
            env_rewards=[reward_parts_of(r).get("env") for r in played],
            rewards=[r["reward"] for r in played],
        )

    def judged(self, verdict: Verdict) -> JudgedGroup:
        """Return the group with a judge's votes, for an audit."""
        return JudgedGroup(
            votes=verdict.votes,
            orders=verdict.orders,
            env_rewards=self.env_rewards,
            lengths=[len(json.dumps(t.messages)) for t in self.transcripts],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejudged:
    """The result of judging stored groups."""

    judge: str
    groups: list[tuple[StoredGroup, Verdict]]  # without groups on which the judge failed
    errors: list[str]  # of the failed groups
    usd: float
    seconds: float

    @property
    def num_groups(self) -> int:
        """The number of judged groups, including failures."""
        return len(self.groups) + len(self.errors)


async def stored_groups(
    run: RunDir, loaded: LoadedExperiment, steps: list[int]
) -> list[StoredGroup]:
    """Return the train groups of these steps with at least two trajectories to compare.

    Raises UsageError if there is none.
    """
    tools = await offered_tools(env_of(loaded.experiment.env), loaded.env_settings)
    read = {step: run.read_trajectories(step, "train") for step in steps}
    for step, step_rows in read.items():
        if wrong := next((name for r in step_rows for name in NEEDED if name not in r), None):
            raise UsageError(f"{run.trajectory_file(step, 'train')} has a row without {wrong}")
    rows = [group for step_rows in read.values() for group in grouped(step_rows)]
    groups = [StoredGroup.of(group, tools) for group in rows]
    found = [group for group in groups if len(group.transcripts) > 1]
    if not found:
        raise UsageError(f"{run.root} has no train group of two finished trajectories there")
    return found


async def some_groups(run: RunDir, loaded: LoadedExperiment, num: int) -> list[StoredGroup]:
    """Return at most `num` groups, evenly spaced over the steps. Raises UsageError."""
    steps = run.trajectory_steps("train")
    if not steps:
        raise UsageError(f"{run.root} has no train trajectories yet; audit its config instead")
    some = sorted({steps[i * (len(steps) - 1) // max(1, num - 1)] for i in range(num)})
    groups = await stored_groups(run, loaded, some)
    return [groups[i * len(groups) // num] for i in range(num)] if len(groups) > num else groups


async def untrained_groups(
    loaded: LoadedExperiment, num: int, report: Report = silent
) -> list[StoredGroup]:
    """Roll out groups with the config's initial policy, in a temporary run directory."""
    model = player(loaded)
    with tempfile.TemporaryDirectory() as folder:
        async with LocalBackend(folder, report=report) as backend:
            await model.register(backend)
            scenarios = scenarios_of(model, "train")[:num]
            size = model.experiment.train.group_size
            groups = await gather_trajectory_groups(
                model, scenarios, group_size=size, report=report
            )
            model.parts.run.write_trajectories(0, "train", groups)
            return await stored_groups(model.parts.run, loaded, [0])


@contextlib.asynccontextmanager
async def open_judge(
    cfg: JudgeConfig, loaded: LoadedExperiment, run: RunDir | None, report: Report = silent
) -> AsyncIterator[Judge]:
    """Yield the judge, ready to be called. `model: reference` is the base of the run.

    Raises PreflightError. Raises UsageError if a base is needed and there is no run.
    """
    async with contextlib.AsyncExitStack() as stack:
        if cfg.model != REFERENCE:
            report(f"asking {cfg.model}")
            judge = await make_judge(cfg, loaded.experiment.seed, say=report)
            stack.push_async_callback(judge.close)
        elif run is None:
            raise UsageError("judge.model=reference is the base of a run, and there is none yet")
        else:
            experiment = dataclasses.replace(loaded.experiment, judge=cfg)
            model = TrainableModel.of(experiment, loaded.env_settings, loaded.to_yaml())
            local = LocalBackend.of_run(run, report=report)
            backend = await stack.enter_async_context(local)
            await model.open(backend)
            judge = await backend.reference_judge(model, model.parts)
        yield judge


async def rejudge(
    name: str, judge: Judge, groups: list[StoredGroup], report: Report = silent
) -> Rejudged:
    """Judge all groups concurrently. A group on which the judge fails is left out.

    Raises BudgetError.
    """
    done, began = 0, time.monotonic()
    errors: list[str] = []

    async def one(group: StoredGroup) -> Verdict | None:
        nonlocal done
        try:
            return await judge.judge(group.transcripts)
        except JudgeError as e:
            errors.append(str(e))
            return None
        finally:
            done += 1
            report(f"{name}: judging", done, len(groups))

    verdicts = await asyncio.gather(*(one(group) for group in groups))
    found = [(g, v) for g, v in zip(groups, verdicts, strict=True) if v is not None]
    seconds = time.monotonic() - began
    return Rejudged(judge=name, groups=found, errors=errors, usd=judge.spent, seconds=seconds)
