"""A first episode of an env, to see that it works before anything costs time."""

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

BLOCK_GRACE = 10.0  # seconds beyond start's deadline before a standstill ends the program


class FirstEpisode(NamedTuple):
    """The beginning of the first train episode, and the JSON schemas of the tools it offers."""

    opening: list[Message]
    tools: list[dict[str, Any]]
    side_effects: list[str]  # tools that may change what outlives an episode

    @property
    def warnings(self) -> list[str]:
        """Return what a user should know before any of these tools is called."""
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
    """Make and open one episode, and return how it begins.

    That is with nothing where it asks a model first and there are no `services`.

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
    """Return the JSON schemas of what an episode offers; some envs know it as one begins.

    Raises UsageError where that one does not begin.
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
        with suppress(Exception):  # what went wrong first is what the user must know
            await episode.close()
        if not isinstance(e, NoServicesError):
            raise
        tools = schemas_of(env_class)
        with suppress(Exception):  # some envs know theirs only once an episode has begun
            tools = [tool.schema() for tool in tools_in(env_class, env.tools())]
        return FirstEpisode([], tools, [])
    await episode.close()
    return FirstEpisode(messages, trajectory.tools, episode.side_effects)
