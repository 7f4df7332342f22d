"""The stand-in class for an env in a separate interpreter."""

from __future__ import annotations

import copy
from base64 import b64decode
from collections.abc import Iterable, Iterator
from dataclasses import field, make_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from pydantic import TypeAdapter

from art_cli.config.sections.llm import LLMConfig
from art_cli.envs.base import Done, Env, RemoteFacts
from art_cli.envs.tools import Tool
from art_cli.errors import RemoteError, UsageError
from art_cli.rollout.env_worker.process import READY_SECONDS, EnvWorker
from art_cli.rollout.env_worker.replay import PlayedEpisode
from art_cli.rollout.env_worker.wire import given_of, plain
from art_cli.system.deadline import DeadlineError
from art_cli.types import Message, Scenario, Split, Trajectory

LISTING_SECONDS = 600.0  # seconds to list scenarios or demonstrations


def log_env(env: type[Env], file: Path) -> None:
    """Append the output of an env in a separate interpreter to a file. Ignores other envs."""
    if issubclass(env, RemoteEnv):
        env.worker.keep(file)


class RemoteEnv(Env):
    """One episode that is played in another process."""

    worker: ClassVar[EnvWorker]

    def __init__(self, scenario: Scenario, cfg: Any) -> None:
        super().__init__(scenario, cfg)
        self._offered: list[Tool] = []
        self._there = PlayedEpisode(self.worker, self, plain(cfg))

    def _now(self, do: str) -> Any:
        return self._there.now(do, self.episode_timeout)

    @classmethod
    def scenarios(cls, cfg: Any, split: Split) -> Iterable[Scenario]:
        found = cls.worker.now("scenarios", LISTING_SECONDS, args=plain(cfg), split=split)
        return [Scenario(**each) for each in found]

    @classmethod
    def task_list(cls) -> dict[str, str]:
        return cls.worker.now("task_list", LISTING_SECONDS)

    @classmethod
    def demonstrations(cls, cfg: Any, num: int) -> Iterable[list[Message]]:
        return cls.worker.now("demonstrations", LISTING_SECONDS, args=plain(cfg), num=num)

    async def start(self) -> str | list[Message]:
        begun = await self._there.ask("start")
        self._offered = [Tool(**each) for each in begun["tools"]]
        self.max_turns = begun["max_turns"]
        self.tool_timeout = begun["tool_timeout"]  # type: ignore[misc] (of this episode)
        return begun["opening"]

    def tools(self) -> list[Tool]:
        return list(self._offered)

    async def files(self) -> dict[str, bytes]:
        """See Env. Also sets the workdir of the env in the other process."""
        told = await self._there.ask("files", workdir=str(self.workdir))
        return {name: b64decode(content) for name, content in told.items()}

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        told = {"name": name, "arguments": arguments, "calls_in_turn": self.calls_in_turn}
        return given_of(await self._there.ask("call", **told))

    async def _reply(self, text: str) -> str | Done:
        return given_of(await self._there.ask("reply", text=text))

    def _gold(self) -> Iterator[str] | None:
        return iter(lambda: self._now("next_gold"), None) if self._now("gold") else None

    async def judge_context(self) -> str:
        return await self._there.ask("judge_context")

    async def score(self, trajectory: Trajectory) -> float | None:
        told = await self._there.ask("score", trajectory=trajectory)
        self.metrics = told["metrics"]
        self.worker.works()
        return told["reward"]

    async def close(self) -> None:
        await self._there.close()


@lru_cache(maxsize=16)  # a config is resolved repeatedly and must get the same class
def remote_class(python: str, use: str) -> type[Env]:
    """Start the process. Return a class with everything that is known about the env without it."""
    worker = EnvWorker(python, use)
    try:
        told = worker.now("describe", READY_SECONDS)
    except (RemoteError, DeadlineError, UsageError) as e:
        worker.close()
        raise UsageError(f"env.python: {python} cannot run {use}: {e}") from None
    body = {
        "__doc__": told["doc"],
        "__module__": __name__,
        "worker": worker,
        "art_remote": RemoteFacts(
            tools=[Tool(**each) for each in told["tools"]],
            digest=told["digest"],
            places=told["places"],
        ),
        "Config": _settings_class(worker, told["settings"]),
        **told["class"],
    }
    own = {"reply": RemoteEnv._reply, "gold": RemoteEnv._gold}
    body |= {name: method for name, method in own.items() if name in told["own"]}
    return type(told["name"], (RemoteEnv,), body)


def _settings_class(worker: EnvWorker, told: list[dict[str, Any]]) -> type:
    """Return the env's Config class: names and defaults are here, checks run in the process."""

    def check(self: Any) -> None:
        """Raise ValueError with the mistakes in the settings."""
        try:
            wrong = worker.now("check", READY_SECONDS, args=plain(self))
        except (RemoteError, DeadlineError) as e:
            wrong = str(e)
        if wrong:
            raise ValueError(wrong)

    kinds: dict[str, Any] = {"any": Any, "llm": LLMConfig, "llm or null": LLMConfig | None}
    fields = [(each["name"], kinds[each["kind"]], _default(each)) for each in told]
    namespace = {"__post_init__": check, "__module__": __name__}
    return make_dataclass("Config", fields, kw_only=True, frozen=True, namespace=namespace)


def _default(told: dict[str, Any]) -> Any:
    if "default" not in told:
        return field()
    value = told["default"]
    if told["kind"] != "any" and value is not None:
        value = TypeAdapter(LLMConfig).validate_python(value)
        return field(default=value)
    return field(default_factory=lambda: copy.deepcopy(value))
