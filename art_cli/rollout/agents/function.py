"""`agent.use: function`: an async Python function that receives an OpenAI client per episode.

async def agent(client: openai.AsyncOpenAI, task: Task) -> str | None:
    answer = await client.chat.completions.create(
        model="policy", messages=task.messages, tools=task.tools
    )
    ...
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from art_cli.errors import blame
from art_cli.keys import short_repr
from art_cli.rollout.agents.hosted import CrashError
from art_cli.rollout.agents.workdir import Workdir
from art_cli.rollout.gateway.hosted_episode import Hosted
from art_cli.system.scratch import make_scratch
from art_cli.types import Trajectory


@dataclass(slots=True)
class Task:
    """The episode in the form that a function receives."""

    messages: list[dict[str, Any]]  # the opening, in OpenAI's form
    tools: list[dict[str, Any]]  # in OpenAI's form
    # A folder for this episode, which the env may have filled, or the folder of `agent.workdir`.
    # The function's working directory is art's own, because episodes run concurrently.
    workdir: Path
    _hosted: Hosted

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        """Return the result of a tool call. A refusal is a text that begins with `error: `."""
        return (await self._hosted.call_tool(name, arguments))["content"]

    async def reply(self, text: str) -> str:
        """Send a text to the env, which speaks for the user. Return its answer."""
        return await self._hosted.reply(text)

    @property
    def is_over(self) -> bool:
        """True if the env has ended the episode."""
        return self._hosted.ended.done()


AgentFunction = Callable[[Any, Task], Awaitable[str | None]]


class FunctionRunner:
    """Implements Runner."""

    def __init__(self, function: AgentFunction, workdir: Workdir | None = None) -> None:
        self._function = function
        self._workdir = workdir or Workdir()
        module = sys.modules[function.__module__]
        self._file = Path(getattr(module, "__file__", None) or "")

    async def open(self) -> None:
        """See Runner."""

    async def close(self) -> None:
        """See Runner."""

    async def run(self, hosted: Hosted, url: str, trajectory: Trajectory) -> str | None:
        import openai  # takes a second, which other kinds of agents need not wait for

        workdir = self._workdir.shared
        if self._workdir.is_fresh:
            workdir = make_scratch("episode")
            await hosted.work_in(workdir, workdir)
        task = Task([dict(m) for m in hosted.opening], hosted.tools, workdir, hosted)
        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        try:
            said = await self._function(client, task)
        except (Exception, SystemExit) as e:
            raise CrashError(blame(e, self._file)) from e
        finally:
            with contextlib.suppress(Exception):
                await client.close()
        if said is not None and not isinstance(said, str):
            raise CrashError(f"returned {short_repr(said)}; expected text or None")
        return said
