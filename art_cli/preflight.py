"""Does the env work at all? Asked before anything costs time."""

from __future__ import annotations

import traceback
from typing import Any

from art_cli.deadline import DeadlineError, call
from art_cli.env import Env
from art_cli.errors import UsageError
from art_cli.tools import tools_of


async def check_env(env_class: type[Env], settings: Any) -> None:
    """Make and open one episode. Raises UsageError with the user's own file and line."""
    name = env_class.__name__
    try:
        tools_of(env_class)
        scenario = next(iter(env_class.scenarios(settings, "train")), None)
        if scenario is None:
            raise UsageError(f"{name}.scenarios() gives no train scenario")
        env = env_class(scenario, settings)
        await call(env.start, seconds=env.episode_timeout, what=f"{name}.start()")
        await call(env.close, seconds=env.tool_timeout, what=f"{name}.close()")
    except UsageError:
        raise
    except DeadlineError as e:
        raise UsageError(f"the env does not work: {e}") from None
    except Exception as e:
        frames = traceback.extract_tb(e.__traceback__)
        place = f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""
        raise UsageError(f"the env {name} does not work: {place}{type(e).__name__}: {e}") from e
