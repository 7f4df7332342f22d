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

One instance is one episode, with its state in `self`. Methods may be plain `def`. These run in a
thread, so a blocking one fails at its deadline and is counted. An `async def` runs on the event
loop and must not block it.
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
    """Returned by `reply` or a tool to end the episode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFacts:
    """Facts about an env that runs in its own interpreter (`env.python`)."""

    tools: list[Tool]  # tools that are methods
    digest: str  # of its code
    places: dict[str, str]  # file:line by method name; "" for the class


@dataclass(frozen=True)
class NoSettings:
    """The settings of an env without settings."""


class Services(Protocol):
    """The services of a run that its envs can use."""

    def llm(self, cfg: LLMConfig) -> LLM:
        """Return the model of a setting of type LLMConfig, shared by all episodes.

        It was started and tested before the run began. An LLMError that it raises counts as an
        infrastructure failure of the episode.
        """
        ...


class NoServicesError(Exception):
    """An episode outside a run, such as a demonstration, called a model."""


class NoServices:
    """Services outside a run; implements `Services`."""

    def llm(self, cfg: LLMConfig) -> LLM:
        raise NoServicesError(f"{cfg.model} cannot be asked: this episode is not part of a run")


def seed_of(*parts: object) -> int:
    """Return a 63-bit seed that depends only on the parts, and is the same on every machine."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


class Env:
    """One episode of a task. Subclasses override `start`, `reply` or tools, and `score`."""

    Config: ClassVar[type] = NoSettings  # a dataclass; `env.args` of the YAML is read into it
    system: ClassVar[str] = ""  # the system prompt, if `start` returns a string
    max_turns: int = 30  # `__init__` may set it from a setting
    tool_timeout: ClassVar[float] = 10.0  # seconds for one tool call
    episode_timeout: ClassVar[float] = 600.0  # seconds for one episode, without the engine's time
    num_scenarios: ClassVar[dict[Split, int]] = {"train": 4096, "val": 512, "test": 512}
    # Whether changes by tools with `writes` outlive the episode, as on a user's server. Commands
    # that make up calls themselves then skip such tools, unless --allow-writes is given.
    has_side_effects: ClassVar[bool] = False
    services: Services  # set before `start`
    # The folder in which the user's own program or function plays this episode, set before `files`.
    # It exists until `close` has returned. None if the policy plays by itself, or the agent has no
    # folder of its own (`agent.workdir`).
    workdir: Path | None = None
    # The number of tool calls that the model makes in this turn; set before the first of them. An
    # agent that makes its own calls makes one at a time.
    calls_in_turn: int = 1
    art_remote: ClassVar[RemoteFacts | None] = None  # set if this class is a proxy for an env

    def __init__(self, scenario: Scenario, cfg: Any) -> None:
        self.scenario = scenario
        self.cfg = cfg
        self.rng = random.Random(scenario.seed)
        self.metrics: dict[str, float] = {}  # logged as train/<name> and val/<name>

    @classmethod
    def scenarios(cls, cfg: Any, split: Split) -> Iterable[Scenario]:
        """Return the scenarios of a split: deterministic, and disjoint between splits."""
        for i in range(cls.num_scenarios[split]):
            yield Scenario(id=f"{split}-{i}", split=split, seed=seed_of(split, i))

    @classmethod
    def task_list(cls) -> dict[str, str]:
        """Return the tasks that a setting selects, for `art envs tasks`.

        Keys are arguments of `art envs check`, such as `dataset=gcd`; values are one-line
        descriptions.
        """
        return {}

    @classmethod
    def demonstrations(cls, cfg: Any, num: int) -> Iterable[list[Message]]:
        """Return at most `num` complete conversations for SFT, which need not be perfect.

        `art_cli.play` makes one from an episode and a function that answers. The texts also train
        the tokenizer of `model.base: tiny`.
        """
        return ()

    def gold(self) -> Iterator[str] | None:
        """Return the turns of a perfect player of this episode, or None if there is no such player.

        Each turn is requested when it is due, and may use everything that the env knows. `art envs
        check` plays them; they must earn the maximum reward.
        """
        return None

    async def start(self) -> str | list[Message]:
        """Return the first user message, or the whole opening."""
        raise NotImplementedError(f"{type(self).__name__} must override start()")

    def tools(self) -> list[Tool]:
        """Return the tools of this episode. Called once, after `start`.

        The default is the methods marked with `@tool`. An env whose tools are known only when the
        episode starts returns them here, and implements `call_tool`.
        """
        return list(offered_by(type(self)))

    def files(self) -> Mapping[str, str | bytes] | Awaitable[Mapping[str, str | bytes]]:
        """Return the files that an agent finds in `workdir`, by paths such as `src/main.py`.

        Called once, after `start`, if the episode has such a folder. The env may also write files
        into the folder itself.
        """
        return {}

    def read_workdir(self, path: str, limit: int = MOST_BYTES) -> bytes | None:
        """Return the content of a file in `workdir`, or None if there is no such file.

        Links, pipes and files larger than `limit` bytes do not count as files. An agent could leave
        a link to one of the user's files, which `open(self.workdir / path)` would read.
        """
        return read_below(self.workdir, path, limit) if self.workdir else None

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        """Return the result of a tool from `tools()` that is not a method: text, or Done().

        `arguments` are as the model wrote them, so check them. Raise ToolError to refuse the call,
        InvalidCallError if they are invalid.
        """
        raise InvalidCallError(f"there is no tool {name!r:.200}")

    async def reply(self, text: str) -> str | Done:
        """Return the message that the model reads next after a turn without a tool call.

        The default ends the episode.
        """
        return Done()

    async def score(self, trajectory: Trajectory) -> float | None:
        """Return the reward of the finished episode, or None if a judge must decide."""
        raise NotImplementedError(f"{type(self).__name__} must override score()")

    async def judge_context(self) -> str:
        """Return facts for a judge beside the transcript: the goal, and what really changed."""
        return ""

    async def close(self) -> None:
        """Release resources that `start` opened. Runs after every episode, even a failed one."""
