"""Roll out and score groups of scenarios: many concurrent episodes, each with its own seed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from art_cli.envs.base import seed_of
from art_cli.errors import AgentError, EnvError
from art_cli.rollout.agent import Agent
from art_cli.rollout.groups import eval_seed, play_groups, scenarios_in, why_crashed, why_none
from art_cli.system.progress import Report, silent
from art_cli.training.model import TrainableModel
from art_cli.types import Scenario, Split, TrajectoryGroup

Score = Callable[[TrajectoryGroup], Awaitable[object]]  # sets the rewards of a group, in place
Groups = AsyncGenerator[tuple[int, TrajectoryGroup], None]  # with the index of the scenario


async def gather_trajectory_groups(
    model: TrainableModel,
    scenarios: list[Scenario],
    *,
    group_size: int = 8,
    purpose: str = "train",
    moment: str | None = None,
    after_each: Score | None = None,
    report: Report = silent,
) -> list[TrajectoryGroup]:
    """Roll out and score a group for each scenario. Return the groups in the scenarios' order.

    `after_each` scores a group. Raises the errors of `rollouts` and `score_groups`.
    """
    groups = rollouts(
        model, scenarios, group_size=group_size, purpose=purpose, moment=moment, report=report
    )
    found, _ = await score_groups(groups, after_each, report)
    return found


def rollouts(
    model: TrainableModel,
    scenarios: list[Scenario],
    *,
    group_size: int = 8,
    purpose: str = "train",
    moment: str | None = None,
    report: Report = silent,
) -> Groups:
    """Yield groups of `group_size` trajectories of each scenario, as `play_groups` does.

    All turns are sampled with the model's present weights, or with newer ones that arrive
    meanwhile. The seeds derive from the experiment's seed, `purpose`, `moment` (by default the step
    and the cursor of the scenarios), the scenario, and the trajectory's number in this call.
    Evaluation uses the same seeds at every step, so differences come from the policy only.
    """
    parts, seed = model.parts, model.experiment.seed
    moment = moment or f"{model.step}+{parts.progress.cursor}"

    def player(n: int, trial: int, s: Scenario) -> Agent:
        if purpose == "eval":
            return parts.eval_agents.open(eval_seed(seed, s, trial))
        return parts.agents.open(seed_of(seed, purpose, moment, s.id, n * group_size + trial))

    # All episodes that have a slot start in the same iteration of the event loop, before any of
    # them requests a turn. The engine then knows how many requests to batch.
    jobs = [(s, [player(n, k, s) for k in range(group_size)]) for n, s in enumerate(scenarios)]
    return play_groups(
        model.env_class,
        model.settings,
        parts.services,
        jobs,
        slots=parts.slots,
        weights=model.experiment.reward,
        report=report,
    )


async def score_groups(
    groups: Groups, score: Score | None, report: Report = silent
) -> tuple[list[TrajectoryGroup], float]:
    """Score each group as soon as it is complete, while others are still being played.

    Return the groups in the order of their scenarios, and the monotonic time in seconds when the
    last one was complete. Without `score`, the env's own rewards stay. A group that failed entirely
    is not scored. An error of `score` is raised after all groups have ended. Raises AgentError if
    the user's own agent failed in every episode, EnvError if no trajectory has a reward for another
    reason.
    """
    found: dict[int, list[TrajectoryGroup]] = {}
    scoring: dict[tuple[int, int], asyncio.Task[object]] = {}
    num_scored, rolled = 0, time.monotonic()

    async def scored(group: TrajectoryGroup, score: Score) -> None:
        nonlocal num_scored
        await score(group)
        num_scored += 1
        if all_played:
            report("scoring", num_scored, len(scoring))

    all_played = False
    try:
        async with aclosing(groups):
            async for n, group in groups:
                found.setdefault(n, []).append(group)
                rolled = time.monotonic()
                if score and not all(t.failed for t in group.trajectories):
                    place = n, len(found[n])
                    scoring[place] = asyncio.ensure_future(scored(group, score))
        all_played = True
        if num_scored < len(scoring):
            report("scoring", num_scored, len(scoring))
    except asyncio.CancelledError:
        for task in scoring.values():
            task.cancel()
        raise
    finally:  # requests to a judge are already paid for
        await asyncio.gather(*scoring.values(), return_exceptions=True)
    for place in sorted(scoring):
        scoring[place].result()
    in_order = [group for n in sorted(found) for group in found[n]]
    trajectories = [t for g in in_order for t in g.trajectories]
    if trajectories and all(t.crash for t in trajectories):
        raise AgentError(why_crashed(trajectories))
    final = [t for t in trajectories if t.stop_reason in ("error", "timeout") or not score]
    if trajectories and len(final) == len(trajectories) and all(t.reward is None for t in final):
        raise EnvError(why_none([t.error for t in trajectories]))
    return in_order, rolled


def scenarios_of(model: TrainableModel, split: Split) -> list[Scenario]:
    """Return all scenarios of a split. Raises UsageError if there are none or infinitely many."""
    return scenarios_in(model.env_class, model.settings, split)
