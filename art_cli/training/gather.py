"""Scenarios to trajectory groups: many episodes of the policy at once, each under its own seed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from art_cli.envs.base import seed_of
from art_cli.errors import EnvError
from art_cli.rollout.agent import Agent
from art_cli.rollout.groups import eval_seed, play_groups, scenarios_in, why_none
from art_cli.system.progress import Report, silent
from art_cli.training.model import TrainableModel
from art_cli.types import Scenario, Split, TrajectoryGroup


async def gather_trajectory_groups(
    model: TrainableModel,
    scenarios: list[Scenario],
    *,
    group_size: int = 8,
    purpose: str = "train",
    moment: str | None = None,
    after_each: Callable[[TrajectoryGroup], Awaitable[object]] | None = None,
    report: Report = silent,
) -> list[TrajectoryGroup]:
    """Roll out `group_size` trajectories of each scenario with the model's present weights.

    `after_each`: see `play_groups`.

    What is sampled follows from the experiment's seed, `purpose`, `moment` (by default the step and
    the place in the stream of scenarios), the scenario, and the trajectory's number in this call.
    Evaluation uses the same at every step, whatever else is evaluated: differences are the
    policy's.
    Raises EngineError; EnvError where no trajectory came through; what `after_each` raises.
    """
    parts, seed = model.parts, model.experiment.seed
    moment = moment or f"{model.step}+{parts.progress.cursor}"
    # All agents exist before the first episode starts: the engine then knows whom to wait for.
    make = parts.agents.open

    def player(n: int, trial: int, s: Scenario) -> Agent:
        if purpose == "eval":
            return make(eval_seed(seed, s, trial))
        return make(seed_of(seed, purpose, moment, s.id, n * group_size + trial))

    async def judged(n: int, group: TrajectoryGroup) -> None:
        if after_each:
            await after_each(group)

    jobs = [(s, [player(n, k, s) for k in range(group_size)]) for n, s in enumerate(scenarios)]
    groups = await play_groups(
        model.env_class,
        model.settings,
        parts.services,
        jobs,
        after_each=judged if after_each else None,
        report=report,
    )
    trajectories = [t for g in groups for t in g.trajectories]
    by_env = [t for t in trajectories if t.stop_reason in ("error", "timeout") or not after_each]
    if trajectories and len(by_env) == len(trajectories) and all(t.reward is None for t in by_env):
        raise EnvError(why_none([t.error for t in trajectories]))
    return groups


def scenarios_of(model: TrainableModel, split: Split) -> list[Scenario]:
    """All scenarios of a split. Raises UsageError where there is none, or no end of them."""
    return scenarios_in(model.env_class, model.settings, split)
