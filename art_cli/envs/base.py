"""The base class of task environments.

    class GuessNumber(Env):
        '''Guess a number between 1 and 100.'''

        async def start(self) -> str:
            self.secret = self.rng.randint(1, 100)
            return "I think of a number between 1 and 100. Guess it."

        async def reply(self, text: str) -> str | Done:
            if text.strip() == str(self.secret):
                return Done()
            return "Wrong."

        async def score(self, trajectory: Trajectory) -> float:
            return 1 / trajectory.num_turns if trajectory.stop_reason == "env" else 0.0

One instance is one episode; `self` is its state. Methods may be plain `def`: they then run in a
thread, so that one that blocks ends in a counted failure at its deadline. An `async def` runs on
the event loop and must not block it.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from art_cli.config.sections.llm import LLMConfig
from art_cli.envs.files import MOST_BYTES, read_below
from art_cli.envs.tools import InvalidCallError, Tool, ToolError, offered_by, tool
from art_cli.types import Message, Scenario, Split, Trajectory

if TYPE_CHECKING:
    from art_cli.llms.base import LLM

__all__ = ["Done", "Env", "InvalidCallError", "Tool", "ToolError", "seed_of", "tool"]


class Done:
    """Returned by `reply` or a tool: the episode is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFacts:
    """The facts about an env in an interpreter of its own (`env.python`)."""

    tools: list[Tool]  # those that are methods
    digest: str  # of its code
    places: dict[str, str]  # file:line by method; of the class by ""


@dataclass(frozen=True)
class NoSettings:
    """The settings of an env that has none."""


class Services(Protocol):
    """The services of a run for its envs."""

    def llm(self, cfg: LLMConfig) -> LLM:
        """Return the model behind a setting of type LLMConfig, one for all episodes.

        It was started and asked a question before the run began. An LLMError that it raises is an
        infrastructure failure of the episode.
        """
        ...


class NoServicesError(Exception):
    """An episode outside of a run, as a demonstration is, asked for a model."""


class NoServices:
    """Implements Services where there is no run."""

    def llm(self, cfg: LLMConfig) -> LLM:
        raise NoServicesError(f"{cfg.model} cannot be asked: this episode is not part of a run")


def seed_of(*parts: object) -> int:
    """Return a 63-bit seed that depends on nothing but the parts: the same on every machine."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


class Env:
    """One episode of a task. Subclasses override `start`, `reply` or tools, and `score`."""

    Config: ClassVar[type] = NoSettings  # a dataclass; `env.args` of the YAML is read into it
    system: ClassVar[str] = ""  # the system prompt, where `start` returns a string
    max_turns: int = 30  # `__init__` may set it from a setting
    tool_timeout: ClassVar[float] = 10.0  # seconds, of one tool call
    episode_timeout: ClassVar[float] = 600.0  # seconds, without the engine's time
    num_scenarios: ClassVar[dict[Split, int]] = {"train": 4096, "val": 512, "test": 512}
    # Whether what a tool with `writes` changes outlives its episode, as on a user's server. Then
    # commands that make up calls themselves leave such tools alone, unless --allow-writes is given.
    has_side_effects: ClassVar[bool] = False
    services: Services  # set before `start`
    # The folder in which a program or a function of the user's plays this episode, set before
    # `files`. It is there until `close` has returned. None: the policy plays by itself, or the
    # agent has no folder of its own (`agent.workdir`).
    workdir: Path | None = None
    # Calls of tools that the model makes in this turn, side by side; set before the first of them.
    # An agent that makes its own calls makes one at a time.
    calls_in_turn: int = 1
    art_remote: ClassVar[RemoteFacts | None] = None  # set where this class only stands for the env

    def __init__(self, scenario: Scenario, cfg: Any) -> None:
        self.scenario = scenario
        self.cfg = cfg
        self.rng = random.Random(scenario.seed)
        self.metrics: dict[str, float] = {}  # logged as train/<name> and val/<name>

    @classmethod
    def scenarios(cls, cfg: Any, split: Split) -> Iterable[Scenario]:
        """Return the instances of the task: deterministic, and disjoint between splits."""
        for i in range(cls.num_scenarios[split]):
            yield Scenario(id=f"{split}-{i}", split=split, seed=seed_of(split, i))

    @classmethod
    def task_list(cls) -> dict[str, str]:
        """Return the tasks that a setting chooses among, for `art envs tasks`.

        Each as it is written behind `art envs check`, as in `dataset=gcd`, with a line about it.
        """
        return {}

    @classmethod
    def demonstrations(cls, cfg: Any, num: int) -> Iterable[list[Message]]:
        """At most `num` whole conversations to warm up on; they need not be perfect.

        `art_cli.play` makes one from an episode and a function that answers. The texts also train
        the tokenizer of `model.base: tiny`.
        """
        return ()

    def gold(self) -> Iterator[str] | None:
        """Return the turns of a perfect player of this episode, each asked for when it is due.

        It may look at all that the env knows. `art envs check` plays it: it must earn the most that
        can be earned. None: there is no such player.
        """
        return None

    async def start(self) -> str | list[Message]:
        """Return the first user message, or the whole opening."""
        raise NotImplementedError(f"{type(self).__name__} must override start()")

    def tools(self) -> list[Tool]:
        """Return the tools of this episode; asked for once, after `start`.

        The default: the methods that are marked with `@tool`. An env whose tools are known only as
        the episode begins gives them here, together with `call_tool`.
        """
        return list(offered_by(type(self)))

    def files(self) -> Mapping[str, str | bytes] | Awaitable[Mapping[str, str | bytes]]:
        """Return what an agent finds in `workdir`, by paths such as `src/main.py`.

        Asked for once, after `start`, where the episode has such a folder. It may also put files
        into the folder itself.
        """
        return {}

    def read_workdir(self, path: str, limit: int = MOST_BYTES) -> bytes | None:
        """Return the content of a file in `workdir`, or None.

        A link counts as no file, and so do a pipe and what is larger than `limit` bytes: an agent
        can leave a link to a file of the user's, which `open(self.workdir / path)` would read.
        """
        return read_below(self.workdir, path, limit) if self.workdir else None

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        """Return what a tool of `tools()` that is no method gives: text, or Done().

        `arguments` are what the model wrote: check them. Raise ToolError to
        refuse, InvalidCallError where they do not fit.
        """
        raise InvalidCallError(f"there is no tool {name!r:.200}")

    async def reply(self, text: str) -> str | Done:
        """Return what the model reads next when its turn called no tool.

        The default ends the episode.
        """
        return Done()

    async def score(self, trajectory: Trajectory) -> float | None:
        """Return the reward of the finished episode. None: only a judge can say."""
        raise NotImplementedError(f"{type(self).__name__} must override score()")

    async def judge_context(self) -> str:
        """Return what a judge should know beside the transcript: the goal, what really changed."""
        return ""

    async def close(self) -> None:
        """Release what `start` opened. Runs after every episode, failed ones too."""
