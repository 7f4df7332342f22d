"""Concurrent episodes, for any agents."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Coroutine
from itertools import islice
from typing import Any

from art_cli.config.sections.env import EnvConfig
from art_cli.config.sections.reward import RewardConfig
from art_cli.envs.base import Env, Services, seed_of
from art_cli.errors import UsageError, blame
from art_cli.rollout.agent import Agent
from art_cli.rollout.match import Match
from art_cli.rollout.rollout import rollout
from art_cli.system.files import json_line
from art_cli.system.progress import Report, silent
from art_cli.system.watchdog import watchdog
from art_cli.types import Scenario, Split, Trajectory, TrajectoryGroup

Slots = asyncio.Semaphore  # limits open episodes of an env, shared by all who play it

MAX_SCENARIOS = 1_000_000
LAST_LINES = 12  # of a failed program's output that are shown
BLOCK_GRACE = 30.0  # seconds past an episode's deadline until a blocked loop ends the program


async def play_groups(
    env_class: type[Env],
    settings: Any,
    services: Services | None,
    groups: list[tuple[Scenario, list[Agent]]],
    *,
    at_once: int | None = None,
    slots: Slots | None = None,
    weights: RewardConfig | None = None,
    report: Report = silent,
) -> AsyncGenerator[tuple[int, TrajectoryGroup], None]:
    """Yield each group and its index in `groups`, as soon as all its agents have played.

    A game in which the policy plays every seat yields one group per seat, all with the same index.
    `weights` combine the parts of each reward.

    Other groups continue meanwhile. At most `at_once` episodes run concurrently, and each holds one
    of the `slots` from the creation of its env until it is closed. Raises an episode's exception
    only after all episodes have ended, so that finished work is not lost. A caller that may stop
    early must close the generator (`contextlib.aclosing`), which cancels running episodes.
    """
    waiting = deque(
        (n, k, scenario, agent)
        for n, (scenario, agents) in enumerate(groups)
        for k, agent in enumerate(agents)
    )
    total, num_played = len(waiting), 0
    played: list[dict[int, list[Trajectory]]] = [{} for _ in groups]
    errors: dict[tuple[int, int], BaseException] = {}
    running: dict[asyncio.Task[Trajectory], tuple[int, int]] = {}
    ended: asyncio.Queue[asyncio.Task[Trajectory]] = asyncio.Queue()
    limit = env_class.episode_timeout + BLOCK_GRACE
    try:
        with watchdog(limit, f"the env {env_class.__name__} or the engine"):
            while waiting or running:
                while waiting and len(running) < (at_once or total):
                    n, k, scenario, agent = waiting.popleft()
                    episode = rollout(env_class, settings, scenario, agent, services, weights)
                    task = asyncio.ensure_future(_in_its_turn(episode, slots) if slots else episode)
                    task.add_done_callback(ended.put_nowait)
                    running[task] = n, k
                task = await ended.get()
                n, k = running.pop(task)
                num_played += 1
                report("rollout", num_played, total)
                if error := task.exception():
                    errors[n, k] = error
                    continue
                played[n][k] = _seats_of(task.result(), groups[n][1][k])
                if len(played[n]) == len(groups[n][1]):
                    for seat in zip(*(played[n][i] for i in sorted(played[n])), strict=True):
                        yield n, TrajectoryGroup(list(seat))
    finally:
        for task in running:
            task.cancel()
        for _, _, _, agent in waiting:
            agent.close()
    if errors:
        raise errors[min(errors)]


def _seats_of(trajectory: Trajectory, agent: Agent) -> list[Trajectory]:
    """Return the trajectories to train on: one, or one per seat of a game with self-play."""
    return [trajectory, *(agent.siblings(trajectory) if isinstance(agent, Match) else ())]


def slots_of(cfg: EnvConfig) -> Slots | None:
    """Return the slots of `env.concurrency`; None if there is no limit."""
    return Slots(cfg.concurrency) if cfg.concurrency else None


async def _in_its_turn(episode: Coroutine[Any, Any, Trajectory], slots: Slots) -> Trajectory:
    """Play an episode once it has a slot. Its deadlines and duration begin then."""
    try:
        async with slots:
            return await episode
    finally:
        episode.close()  # if it never started


def eval_seed(seed: int, scenario: Scenario, trial: int) -> int:
    """Return the seed of a held-out episode, which is independent of other episodes."""
    return seed_of(seed, "eval", "", scenario.id, trial)


def scenarios_in(
    env: type[Env], settings: Any, split: Split, num: int = MAX_SCENARIOS + 1
) -> list[Scenario]:
    """Return the scenarios of a split, or its first `num`.

    Raises UsageError if there are none, more than `MAX_SCENARIOS`, or one that JSON cannot hold.
    """
    try:
        found = list(islice(env.scenarios(settings, split), num))
    except UsageError:
        raise
    except Exception as e:
        place = blame(e, env)
        raise UsageError(f"{env.__name__}.scenarios() failed for {split}: {place}") from e
    if not 0 < len(found) <= MAX_SCENARIOS:
        count = f"more than {MAX_SCENARIOS}" if found else "no"
        raise UsageError(f"{env.__name__}.scenarios() gives {count} {split} scenarios")
    for scenario in found:
        try:
            json_line({"data": scenario.data})  # it is written into each line of trajectories
        except (TypeError, ValueError, RecursionError) as e:
            what = f"{env.__name__}.scenarios(): the data of {scenario.id!r} cannot be written"
            raise UsageError(f"{what} as JSON: {e}") from None
    return found


def why_none(errors: list[str | None]) -> str:
    """Return the error message for episodes none of which has a reward."""
    first = next((error for error in errors if error), None)
    if first is None:
        return (
            "score() gave None for every trajectory, so there is no reward: let it `return` a "
            "number, or let a judge give one: judge: {model: openai/o3}"
        )
    return f"all {len(errors)} episodes failed, the first with:\n  {shown(first)}"


def why_crashed(trajectories: list[Trajectory]) -> str:
    """Return the error message for episodes that all ended in a crash of the agent."""
    said = (trajectories[0].crash or "").replace("\n", "\n  ")
    return (
        f"all {len(trajectories)} episodes ended in a crash of the agent, the first so:\n  {said}"
    )


def shown(error: str) -> str:
    """Return the lines of an episode's error to show: the first line, and the last output."""
    lines = error.splitlines()
    return "\n  ".join(lines[:1] + lines[1:][-LAST_LINES:])
