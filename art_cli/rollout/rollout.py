"""Rollout of one episode: an env and an agent produce a trajectory."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable
from typing import Any

from art_cli.config.sections.reward import RewardConfig
from art_cli.envs.base import Env, NoServices, Services
from art_cli.errors import AgentError, ArtError, EnvError, LLMError, UsageError, blame
from art_cli.llms.meter import MeteredServices
from art_cli.rollout.agent import Agent, TurnAgent
from art_cli.rollout.episode import Episode
from art_cli.system.deadline import DeadlineError, user_code
from art_cli.system.untrusted import storable
from art_cli.types import Message, Scenario, Trajectory


async def rollout(
    env_class: type[Env],
    settings: Any,
    scenario: Scenario,
    agent: Agent,
    services: Services | None = None,
    weights: RewardConfig | None = None,
) -> Trajectory:
    """Play one episode and close the agent. `weights` combine the parts of its reward.

    A failure of the env (an exception, a missed deadline, no answer of a model that it asks) gives
    reward None and a reason in `error`. Bad play never raises. Raises EngineError if the engine
    fails, EnvError if calls of the env hang repeatedly, BudgetError.
    """
    trajectory = Trajectory(scenario=scenario)
    began = time.monotonic()
    metered = MeteredServices(services or NoServices())
    episode = None
    try:
        with user_code():
            env = env_class(scenario, settings)
        env.services = metered
        episode = Episode(env, trajectory, weights=weights)
        trajectory.stop_reason = await agent.play(episode)
        agent.record(trajectory)
        await episode.finish()
    except DeadlineError as e:
        trajectory.stop_reason, trajectory.error = "timeout", str(e)
    except (LLMError, AgentError, UsageError) as e:  # such as a refusal of the chat template
        trajectory.stop_reason, trajectory.error = "error", str(e)
    except ArtError:  # of the engine or the budget; the env's own errors have other types
        raise
    except Exception as e:
        trajectory.stop_reason, trajectory.error = "error", blame(e, env_class)
        trajectory.traceback = storable(traceback.format_exc(limit=-6))
    finally:
        agent.close()
        if episode is not None:
            await _close(episode, trajectory)
    agent.record(trajectory)  # again, in case score() was not reached
    trajectory.error = trajectory.error and storable(trajectory.error)
    trajectory.crash = trajectory.crash and storable(trajectory.crash)
    trajectory.logs = [storable(text) for text in trajectory.logs]
    trajectory.duration = time.monotonic() - began
    trajectory.usd += metered.usd
    return trajectory


def play(env: Env, answer: Callable[[], str]) -> list[Message]:
    """Return the messages of a whole episode, with `answer` as the assistant.

    For demonstrations. Raises the env's exceptions.
    """
    return play_episode(env, answer).messages


def play_episode(env: Env, answer: Callable[[], str]) -> Trajectory:
    """Return a whole episode with its reward, with `answer` as the assistant.

    For tests. Raises the env's exceptions.
    """
    trajectory = Trajectory(scenario=env.scenario)

    class Scripted(TurnAgent):
        async def act(self, messages: list[Message]) -> str:
            trajectory.policy_versions.append(0)
            return answer()

    async def go() -> None:
        episode = Episode(env, trajectory)
        try:
            trajectory.stop_reason = await Scripted().play(episode)
            await episode.finish()
        finally:
            await episode.close()

    asyncio.run(go())
    return trajectory


async def _close(episode: Episode, trajectory: Trajectory) -> None:
    try:
        await episode.close()
    except EnvError:
        raise
    except Exception as e:  # keep the reward and report the error
        trajectory.error = trajectory.error or f"close() failed: {e!r}"
