"""Scenarios to trajectory groups: many episodes at once, each under its own seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice

from art_cli.deadline import watchdog
from art_cli.engines.base import Session
from art_cli.env import seed_of
from art_cli.errors import EnvError, UsageError, blame
from art_cli.model import Report, TrainableModel, silent
from art_cli.rollout import PolicyAgent, rollout
from art_cli.types import Scenario, Split, Trajectory, TrajectoryGroup

MAX_SCENARIOS = 1_000_000
BLOCK_GRACE = 30.0  # seconds beyond an episode's own deadline before a standstill ends the program


async def gather_trajectory_groups(
    model: TrainableModel,
    scenarios: list[Scenario],
    *,
    group_size: int = 8,
    purpose: str = "train",
    report: Report = silent,
) -> list[TrajectoryGroup]:
    """Roll out `group_size` trajectories of each scenario with the model's present weights.

    What is sampled follows from the experiment's seed, `purpose`, the step, the place in the stream
    of scenarios, the scenario, and the trajectory's number in this call. Evaluation uses the same
    at every step: differences are the policy's.
    Raises EngineError; EnvError where no trajectory came through.
    """
    moment = "" if purpose == "eval" else f"{model.step}+{model.parts.progress.cursor}"
    engine, seed = model.parts.engine, model.experiment.seed
    jobs = [s for s in scenarios for _ in range(group_size)]
    # All sessions exist before the first episode starts: the engine then knows whom to wait for.
    sessions = [engine.open(seed_of(seed, purpose, moment, s.id, n)) for n, s in enumerate(jobs)]
    limit = model.env_class.episode_timeout + BLOCK_GRACE

    def tell(done: int) -> None:
        report("rollout", done, len(jobs))

    with watchdog(limit, f"the env {model.env_class.__name__} or the engine"):
        trajectories = await _all(model, jobs, sessions, tell)
    if jobs and all(t.reward is None for t in trajectories):
        raise EnvError(_why_none(trajectories))
    return [
        TrajectoryGroup(
            scenario=s, trajectories=trajectories[i * group_size : (i + 1) * group_size]
        )
        for i, s in enumerate(scenarios)
    ]


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


async def _all(
    model: TrainableModel,
    scenarios: list[Scenario],
    sessions: list[Session],
    tell: Callable[[int], None],
) -> list[Trajectory]:
    done = 0

    async def one(scenario: Scenario, session: Session) -> Trajectory:
        nonlocal done
        max_len = model.experiment.engine.max_model_len
        agent = PolicyAgent(model.parts.renderer, session, max_len)
        try:
            return await rollout(model.env_class, model.settings, scenario, agent)
        finally:
            session.close()
            done += 1
            tell(done)

    pairs = zip(scenarios, sessions, strict=True)
    tasks = [asyncio.ensure_future(one(*pair)) for pair in pairs]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


def _why_none(trajectories: list[Trajectory]) -> str:
    first = next((t.error for t in trajectories if t.error), None)
    if first is None:
        return "score() gave None for every trajectory, so there is no reward to learn from"
    line = first.partition("\n")[0]  # a traceback follows
    return f"all {len(trajectories)} episodes failed, the first with:\n  {line}"
