"""Many episodes side by side, whoever plays them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from itertools import islice
from typing import Any

from art_cli.envs.base import Env, NoServices, Services, seed_of
from art_cli.errors import UsageError, blame
from art_cli.llms.meter import MeteredServices
from art_cli.rollout.agent import Agent
from art_cli.rollout.rollout import rollout
from art_cli.system.deadline import watchdog
from art_cli.system.progress import Report, silent
from art_cli.types import Scenario, Split, Trajectory, TrajectoryGroup

MAX_SCENARIOS = 1_000_000
LAST_LINES = 12  # that are shown of what a program printed before it failed
BLOCK_GRACE = 30.0  # seconds beyond an episode's own deadline before a standstill ends the program


async def play_groups(
    env_class: type[Env],
    settings: Any,
    services: Services | None,
    groups: list[tuple[Scenario, list[Agent]]],
    *,
    at_once: int | None = None,
    after_each: Callable[[int, TrajectoryGroup], Awaitable[object]] | None = None,
    report: Report = silent,
) -> list[TrajectoryGroup]:
    """One trajectory of each agent, in the order given; at most `at_once` episodes go on together.

    `after_each` is called with each group and its place as soon as it is complete, while others
    still play, unless all of it failed. Where it or an episode raises, all groups are seen through
    first: what was paid for is then kept.
    """
    total, played, finished = sum(len(agents) for _, agents in groups), 0, 0
    turns = asyncio.Semaphore(at_once or max(1, total))

    async def one(scenario: Scenario, agent: Agent) -> Trajectory:
        nonlocal played
        try:
            async with turns:
                metered = MeteredServices(services or NoServices())
                found = await rollout(env_class, settings, scenario, agent, metered)
                found.usd += metered.usd
                return found
        finally:
            agent.close()
            played += 1
            report("rollout", played, total)

    async def group(n: int, scenario: Scenario, agents: list[Agent]) -> TrajectoryGroup:
        nonlocal finished
        trajectories = await asyncio.gather(*(one(scenario, agent) for agent in agents))
        found = TrajectoryGroup(trajectories)
        if after_each and any(not t.failed for t in trajectories):
            await after_each(n, found)
            finished += 1
            if played == total:
                report("scoring", finished, len(groups))
        return found

    limit = env_class.episode_timeout + BLOCK_GRACE
    with watchdog(limit, f"the env {env_class.__name__} or the engine"):
        return await _all([group(n, *job) for n, job in enumerate(groups)])


def eval_seed(seed: int, scenario: Scenario, trial: int) -> int:
    """Of one held-out episode: it depends on nothing else that is evaluated."""
    return seed_of(seed, "eval", "", scenario.id, trial)


def scenarios_in(env: type[Env], settings: Any, split: Split) -> list[Scenario]:
    """All scenarios of a split. Raises UsageError where there is none, or no end of them."""
    try:
        found = list(islice(env.scenarios(settings, split), MAX_SCENARIOS + 1))
    except Exception as e:
        place = blame(e, env)
        raise UsageError(f"{env.__name__}.scenarios() failed for {split}: {place}") from e
    if not 0 < len(found) <= MAX_SCENARIOS:
        count = f"more than {MAX_SCENARIOS}" if found else "no"
        raise UsageError(f"{env.__name__}.scenarios() gives {count} {split} scenarios")
    return found


def why_none(errors: list[str | None]) -> str:
    """Return what the user must know of episodes of which none has a reward."""
    first = next((error for error in errors if error), None)
    if first is None:
        return (
            "score() gave None for every trajectory, so there is no reward; a judge can give one: "
            "judge: {model: openai/o3}"
        )
    return f"all {len(errors)} episodes failed, the first with:\n  {shown(first)}"


def shown(error: str) -> str:
    """Return the lines to show of an episode's error: the first, and what a program said last."""
    lines = error.partition("\nTraceback (")[0].splitlines()  # one of the env's may follow
    return "\n  ".join(lines[:1] + lines[1:][-LAST_LINES:])


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
