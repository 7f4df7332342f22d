"""A small shop, an engine that says what a test wants, and an episode through the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from art_cli.chat.grammar.grammars import Grammars, Vocabulary
from art_cli.chat.render import Renderer
from art_cli.engines.base import Engine
from art_cli.envs.base import Done, Env, ToolError, tool
from art_cli.models.policy import Policy
from art_cli.rollout.agents.function import FunctionRunner
from art_cli.rollout.agents.hosted import HostedAgents, Runner
from art_cli.rollout.gateway.served import Served
from art_cli.rollout.gateway.server import Gateway
from art_cli.rollout.rollout import rollout
from art_cli.system.progress import silent
from art_cli.system.scratch import remove
from art_cli.types import Completion, Scenario, Trajectory

SCENARIO = Scenario(id="train-0", split="train", seed=7)
ROOM = 2048  # tokens


class Shop(Env):
    """Sells things; says what was bought."""

    max_turns = 6
    tool_timeout = 300.0
    system = "You sell."

    async def start(self) -> str:
        self.sold: list[str] = []
        self.heard: list[str] = []
        return "I want a mug."

    @tool()
    async def price(self, item: str) -> str:
        """Tell a price."""
        return f"{len(item)} euros"

    @tool(writes=True)
    async def sell(self, item: str) -> str:
        """Sell a thing."""
        if self.sold:
            raise ToolError("one thing only")
        self.sold.append(item)
        return "sold"

    @tool()
    async def close_shop(self) -> Done:
        """End."""
        return Done()

    @tool()
    async def crash(self) -> str:
        """Fail."""
        return {}["key"]

    async def reply(self, text: str) -> str | Done:
        self.heard.append(text)
        return Done() if "bye" in text else "and?"

    async def score(self, trajectory: Trajectory) -> float:
        self.metrics["heard"] = len(self.heard)
        return float(self.sold == ["mug"]) + 0.1 * len(self.heard)


class Cut(str):
    """A turn that hit the limit of tokens."""


@dataclass
class ScriptEngine:
    """Implements Engine: its turns are given texts, in the order in which they are asked for."""

    renderer: Renderer
    texts: list[str | Exception | Callable[[], Awaitable[str]]]
    asked: list[list[int]] = field(default_factory=list)
    limits: list[Any] = field(default_factory=list)
    num_open: int = 0
    policy_version: int = 3
    cached_tokens: int = 8

    @property
    def grammars(self) -> Grammars:
        tokenizer = self.renderer._tokenizer
        return Grammars(lambda: Vocabulary.of(tokenizer, len(tokenizer)))

    def open(self, seed: int, *, awaited: bool = True) -> Any:
        assert not awaited, "a program may never come back"
        self.num_open += 1
        return _Session(self)


@dataclass
class _Session:
    engine: ScriptEngine

    async def generate(
        self,
        ids: list[int],
        *,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        **_: Any,
    ) -> Completion:
        engine = self.engine
        engine.asked.append(ids)
        engine.limits.append((max_tokens, stop))
        text = engine.texts.pop(0)
        if callable(text):
            text = await text()
        if isinstance(text, Exception):
            raise text
        said = list(engine.renderer.encode(text))
        if not isinstance(text, Cut):
            said += engine.renderer.encode(engine.renderer.end_of_turn)
        finish = "length" if isinstance(text, Cut) else "stop"
        return Completion(
            token_ids=said, logprobs=[-0.5] * len(said), finish_reason=finish, policy_version=3
        )

    def close(self) -> None:
        self.engine.num_open -= 1


Agent = Callable[[Any, Any], Awaitable[str | None]]


async def host(
    policy: Policy,
    engine: Engine | Any,
    runner: Runner | Agent,
    *,
    env: type[Env] = Shop,
    seed: int = 0,
    on_crash: str = "score",
    timeout: float = 300.0,
    crashes: bool = False,
    say: Callable[[str], None] = silent,
    times: int = 1,
    **served: Any,
) -> Trajectory:
    """One episode, the last of so many, of an agent that is reached through a real gateway.

    A crash of the agent fails the test, unless it is meant to: to a run it would be bad play.
    """
    gateway = Gateway(Served(engine, partial(Renderer, policy.tokenizer), ROOM, **served), say=say)
    await gateway.start()
    agents = HostedAgents(
        gateway=gateway,
        runner=runner if hasattr(runner, "run") else FunctionRunner(runner),  # type: ignore[arg-type]
        timeout=timeout,
        on_crash=on_crash,
        turns=asyncio.Semaphore(4),
    )
    try:
        for _ in range(times):
            trajectory = await rollout(env, None, SCENARIO, agents.open(seed))
    finally:
        await gateway.close()
    said = "\n".join([*trajectory.logs, trajectory.crash or ""])
    refused = "the policy answered none of its calls" in said  # which is what such a test tries
    assert crashes or refused or not trajectory.metrics.get("crashed"), said
    assert "pop from empty list" not in f"{trajectory.error}", "the policy was asked too often"
    return trajectory


class Alone:
    """An episode without a gateway and an env, for a runner; `close` ends it."""

    def __init__(self) -> None:
        self.opening: list[Any] = []
        self.tools: list[Any] = []
        self.given: str | None = None
        self.folders: list[Path] = []

    async def work_in(self, folder: Path, workdir: Path | None) -> None:
        self.folders.append(folder)

    async def close(self) -> None:
        for folder in self.folders:
            assert await remove(folder) == ""


def script(policy: Policy, *texts: Any) -> ScriptEngine:
    """An engine that says these texts."""
    return ScriptEngine(Renderer(policy.tokenizer), list(texts))
