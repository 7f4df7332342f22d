"""Scenarios to trajectory groups: many episodes at once, each under its own seed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from itertools import islice
from typing import Any

from art_cli.agents.base import Agent, Agents
from art_cli.deadline import watchdog
from art_cli.env import seed_of
from art_cli.errors import EnvError, UsageError, blame
from art_cli.model import Report, TrainableModel, silent
from art_cli.rollout import rollout
from art_cli.types import Scenario, Split, Trajectory, TrajectoryGroup

MAX_SCENARIOS = 1_000_000
BLOCK_GRACE = 30.0  # seconds beyond an episode's own deadline before a standstill ends the program


async def gather_trajectory_groups(
    model: TrainableModel,
    scenarios: list[Scenario],
    *,
    group_size: int = 8,
    purpose: str = "train",
    agents: Agents | None = None,
    after_each: Callable[[TrajectoryGroup], Awaitable[object]] | None = None,
    report: Report = silent,
) -> list[TrajectoryGroup]:
    """Roll out `group_size` trajectories of each scenario with the model's present weights.

    With `agents`, someone else plays in the model's place.

    `after_each` is called with each group as soon as it is complete, while others still play. Where
    it raises, all groups are seen through first: what a judge was paid for is then kept.

    What is sampled follows from the experiment's seed, `purpose`, the step, the place in the stream
    of scenarios, the scenario, and the trajectory's number in this call. Evaluation uses the same
    at every step: differences are the policy's.
    Raises EngineError; EnvError where no trajectory came through; what `after_each` raises.
    """
    moment = "" if purpose == "eval" else f"{model.step}+{model.parts.progress.cursor}"
    parts, seed = model.parts, model.experiment.seed
    jobs = [s for s in scenarios for _ in range(group_size)]
    # All agents exist before the first episode starts: the engine then knows whom to wait for.
    make = (agents or parts.agents).open
    players = [make(seed_of(seed, purpose, moment, s.id, n)) for n, s in enumerate(jobs)]
    limit = model.env_class.episode_timeout + BLOCK_GRACE

    played, finished = 0, 0

    async def one(scenario: Scenario, agent: Agent) -> Trajectory:
        nonlocal played
        try:
            return await rollout(model.env_class, model.settings, scenario, agent, parts.services)
        finally:
            agent.close()
            played += 1
            report("rollout", played, len(jobs))

    async def group(n: int, scenario: Scenario) -> TrajectoryGroup:
        nonlocal finished
        mine = players[n * group_size : (n + 1) * group_size]
        trajectories = await asyncio.gather(*(one(scenario, agent) for agent in mine))
        found = TrajectoryGroup(trajectories)
        if after_each and any(not t.failed for t in trajectories):
            await after_each(found)
            finished += 1
            if played == len(jobs):
                report("scoring", finished, len(scenarios))
        return found

    with watchdog(limit, f"the env {model.env_class.__name__} or the engine"):
        groups = await _all([group(n, s) for n, s in enumerate(scenarios)])
    trajectories = [t for g in groups for t in g.trajectories]
    by_env = [t for t in trajectories if t.stop_reason in ("error", "timeout") or not after_each]
    if trajectories and len(by_env) == len(trajectories) and all(t.reward is None for t in by_env):
        raise EnvError(_why_none(trajectories))
    return groups


def scenarios_of(model: TrainableModel, split: Split) -> list[Scenario]:
    """All scenarios of a split. Raises UsageError where there is none, or no end of them."""
    env = model.env_class
    try:
        found = list(islice(env.scenarios(model.settings, split), MAX_SCENARIOS + 1))
    except Exception as e:
        place = blame(e, env)
        raise UsageError(f"{env.__name__}.scenarios() failed for {split}: {place}") from e
    if not 0 < len(found) <= MAX_SCENARIOS:
        count = f"more than {MAX_SCENARIOS}" if found else "no"
        raise UsageError(f"{env.__name__}.scenarios() gives {count} {split} scenarios")
    return found


async def _all(groups: list[Coroutine[Any, Any, TrajectoryGroup]]) -> list[TrajectoryGroup]:
    """All results, or the first error once all have ended."""
    tasks = [asyncio.ensure_future(group) for group in groups]
    try:
        results = await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        for task in tasks:
            task.cancel()
    errors = [r for r in results if isinstance(r, BaseException)]
    if errors:
        raise errors[0]
    return [r for r in results if not isinstance(r, BaseException)]


def _why_none(trajectories: list[Trajectory]) -> str:
    first = next((t.error for t in trajectories if t.error), None)
    if first is None:
        return (
            "score() gave None for every trajectory, so there is no reward; a judge can give one: "
            "judge: {model: openai/o3}"
        )
    line = first.partition("\n")[0]  # a traceback follows
    return f"all {len(trajectories)} episodes failed, the first with:\n  {line}"
