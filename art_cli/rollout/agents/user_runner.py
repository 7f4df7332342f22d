"""An agent type of the user's own, named by `agent.use`. Its mistakes are told by place."""

from __future__ import annotations

import inspect
from typing import Any

from art_cli.config.sections.agent import AgentConfig
from art_cli.envs.user_code import blaming, class_named, in_time, make_plugin, named
from art_cli.errors import ArtError, UsageError, blame
from art_cli.keys import short_repr
from art_cli.rollout.agents.hosted import CrashError, Runner
from art_cli.rollout.gateway.hosted_episode import Hosted
from art_cli.types import Trajectory

KEY = "agent.use"
CALL_SECONDS = 600.0  # for open() and close(); agent.timeout limits an episode


def check_agent_class(name: str) -> None:
    """Raise UsageError where `agent.use` names no class that implements Runner."""
    if inspect.isroutine(named(KEY, name, {})):
        raise UsageError(
            f"{KEY}: {name} is a function; write agent.use: function and agent.function: {name}"
        )
    class_named(KEY, name, Runner, ("cfg",))


class UserRunner:
    """Implements Runner: the user's own. In an episode, whatever its code raises is a crash."""

    def __init__(self, cfg: AgentConfig) -> None:
        """Raises UsageError where the class cannot be made, or is no Runner."""
        check_agent_class(cfg.use)
        self._name = cfg.use
        self._runner: Runner = make_plugin(KEY, cfg.use, Runner, cfg=cfg)

    async def open(self) -> None:
        """See Runner. Raises UsageError where the user's code fails."""
        with blaming(KEY, self._name, type(self._runner).open):
            what = f"{KEY}: {self._name}: open()"
            await in_time(what, CALL_SECONDS, self._runner.open(), UsageError)

    async def close(self) -> None:
        """See Runner. Raises UsageError where the user's code fails."""
        with blaming(KEY, self._name, type(self._runner).close):
            what = f"{KEY}: {self._name}: close()"
            await in_time(what, CALL_SECONDS, self._runner.close(), UsageError)

    async def run(self, hosted: Hosted, url: str, trajectory: Trajectory) -> str | None:
        """See Runner."""
        try:
            said: Any = await self._runner.run(hosted, url, trajectory)
        except (CrashError, ArtError):
            raise
        except (Exception, SystemExit) as e:
            raise CrashError(blame(e, type(self._runner))) from e
        if said is not None and not isinstance(said, str):
            raise CrashError(f"run() returned {short_repr(said)}; expected text or None")
        return said
