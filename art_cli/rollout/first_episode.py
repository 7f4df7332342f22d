"""A first episode of an env, as a check that it works before expensive work begins."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from art_cli.envs.base import Env, NoServices, NoServicesError, Services
from art_cli.envs.tools import named_tools, schemas_of, tools_of
from art_cli.errors import ArtError, UsageError, blame
from art_cli.llms.meter import MeteredServices
from art_cli.rollout.episode import Episode, tools_in
from art_cli.system.deadline import DeadlineError, user_code
from art_cli.system.watchdog import watchdog
from art_cli.types import Message, Trajectory

BLOCK_GRACE = 10.0  # seconds beyond start's deadline before a blocked event loop ends the program


class FirstEpisode(NamedTuple):
    """The beginning of the first train episode, and the JSON schemas of the tools it offers."""

    opening: list[Message]
    tools: list[dict[str, Any]]
    side_effects: list[str]  # tools that may change data that outlives an episode

    @property
    def warnings(self) -> list[str]:
        """Warnings for the user before any of these tools is called."""
        if not self.side_effects:
            return []
        return [
            "the policy may call tools that write to the server's own data, and what they change "
            f"stays: {named_tools(self.side_effects)}. Run the server on a copy of the data, or "
            "leave them out (env.args)"
        ]


async def check_env(
    env_class: type[Env], settings: Any, services: Services | None = None
) -> FirstEpisode:
    """Start one episode, close it, and return its beginning.

    Without `services`, the opening is empty if the env asks a model first.

    Raises UsageError with the user's own file and line.
    """
    name = env_class.__name__
    try:
        with watchdog(env_class.episode_timeout + BLOCK_GRACE, f"the env {name}"):
            return await _open_one(env_class, settings, services or NoServices())
    except ArtError:
        raise
    except DeadlineError as e:
        raise UsageError(f"the env {name} does not work: {e}") from None
    except Exception as e:
        place = blame(e, env_class)
        raise UsageError(f"the env {name} does not work: {place}") from e


async def offered_tools(env_class: type[Env], settings: Any) -> list[dict[str, Any]]:
    """Return the JSON schemas of the tools that an episode offers.

    Starts an episode if the env overrides `tools`. Raises UsageError if that fails.
    """
    if env_class.tools is Env.tools:
        return schemas_of(env_class)
    return (await check_env(env_class, settings)).tools


async def _open_one(env_class: type[Env], settings: Any, services: Services) -> FirstEpisode:
    name = env_class.__name__
    tools_of(env_class)
    with user_code():
        scenario = next(iter(env_class.scenarios(settings, "train")), None)
        if scenario is None:
            raise UsageError(f"{name}.scenarios() gives no train scenario")
        env = env_class(scenario, settings)
    env.services = MeteredServices(services)
    trajectory = Trajectory(scenario=scenario)
    episode = Episode(env, trajectory)
    try:
        messages = await episode.start()
    except Exception as e:
        with suppress(Exception):  # the first error is the one to report
            await episode.close()
        if not isinstance(e, NoServicesError):
            raise
        tools = schemas_of(env_class)
        with suppress(Exception):  # some envs know their tools only after the start
            tools = [tool.schema() for tool in tools_in(env_class, env.tools())]
        return FirstEpisode([], tools, [])
    await episode.close()
    return FirstEpisode(messages, trajectory.tools, episode.side_effects)
