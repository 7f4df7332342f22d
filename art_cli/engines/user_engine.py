"""An engine of the user's own, named by `engine.use`. Its mistakes are told by place."""

from __future__ import annotations

import math
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.engines.base import Engine, Session
from art_cli.envs.user_code import blaming, class_named, in_time, make_plugin, misfits
from art_cli.errors import EngineError, UsageError
from art_cli.types import Completion

if TYPE_CHECKING:
    from art_cli.models.policy import Policy  # torch, which `art validate` does without

KEY = "engine.use"
CALL_SECONDS = 1800.0  # for a call of it; the longest, generate(), may queue behind all other rows


def check_engine_class(name: str) -> None:
    """Raise UsageError where `engine.use` names no class that implements Engine."""
    class_named(KEY, name, Engine, ("policy", "cfg", "sampling", "stop_ids"))


class UserEngine:
    """Implements Engine: the user's own, whose completions are checked.

    Whatever its code raises is an EngineError, which ends the run.
    """

    def __init__(
        self,
        policy: Policy,
        cfg: EngineConfig,
        sampling: SamplingConfig,
        stop_ids: frozenset[int],
    ) -> None:
        """Raises UsageError where the class cannot be made, or is no Engine."""
        self._name = cfg.use
        self._engine: Engine = make_plugin(
            KEY, cfg.use, Engine, policy=policy, cfg=cfg, sampling=sampling, stop_ids=stop_ids
        )
        self._vocab_size = len(policy.head.weight)
        self.policy_version = self._engine.policy_version
        self.cached_tokens, self.grammars = self._engine.cached_tokens, self._engine.grammars
        for each in ("policy_version", "cached_tokens"):
            if type(getattr(self, each)) is not int:
                said = f"{each} is {getattr(self, each)!r:.80}, expected an integer"
                raise UsageError(f"{KEY}: {self._name}: {said}")

    def open(self, seed: int, *, awaited: bool = True) -> UserSession:
        """See Engine."""
        with self._telling("open"):
            session = self._engine.open(seed, awaited=awaited)
        if lacks := misfits(type(session), Session):
            what = f"a {type(session).__name__}, which does not implement Session"
            raise EngineError(
                f"{KEY}: {self._name}.open() returned {what}: it {'; it '.join(lacks)}"
            )
        return UserSession(self._name, session, self._vocab_size)

    async def sync(self, version: int) -> None:
        """See Engine."""
        with self._telling("sync"):
            await self._in_time("sync", self._engine.sync(version))
        self.policy_version = self._engine.policy_version

    async def rest(self) -> None:
        """See Engine."""
        with self._telling("rest"):
            await self._in_time("rest", self._engine.rest())

    async def close(self) -> None:
        """See Engine."""
        with self._telling("close"):
            await self._in_time("close", self._engine.close())

    async def _in_time(self, method: str, call: Awaitable[None]) -> None:
        await in_time(f"{KEY}: {self._name}: {method}()", CALL_SECONDS, call, EngineError)

    def _telling(self, method: str) -> Any:
        return blaming(KEY, self._name, getattr(type(self._engine), method), EngineError)


class UserSession:
    """Implements Session: one of the user's own engine."""

    def __init__(self, name: str, session: Session, vocab_size: int) -> None:
        self._name, self._session, self._vocab_size = name, session, vocab_size

    async def generate(
        self,
        ids: list[int],
        *,
        max_tokens: int | None = None,
        stop: tuple[str, ...] = (),
        grammar: str | None = None,
        top_logprobs: int = 0,
    ) -> Completion:
        """See Session. Raises EngineError, also for a completion that does not fit."""
        with self._telling("generate"):
            asked = self._session.generate(
                list(ids),
                max_tokens=max_tokens,
                stop=stop,
                grammar=grammar,
                top_logprobs=top_logprobs,
            )
            what = f"{KEY}: {self._name}: generate()"
            given: Any = await in_time(what, CALL_SECONDS, asked, EngineError)
        if wrong := _wrong(given, self._vocab_size):
            raise EngineError(f"{KEY}: {self._name}: generate() returned {wrong}")
        return given

    def expect(self, coming: bool) -> None:
        """See Session."""
        with self._telling("expect"):
            self._session.expect(coming)

    def close(self) -> None:
        """See Session."""
        with self._telling("close"):
            self._session.close()

    def _telling(self, method: str) -> Any:
        return blaming(KEY, self._name, getattr(type(self._session), method), EngineError)


def _wrong(given: Any, vocab_size: int) -> str:
    """Return what is wrong with a completion, or ""."""
    if not isinstance(given, Completion):
        return f"{type(given).__name__}, not a Completion"
    ids, logprobs = given.token_ids, given.logprobs
    if not ids or len(ids) != len(logprobs):
        return (
            f"{len(ids)} token_ids and {len(logprobs)} logprobs; expected one for each, at least 1"
        )
    if odd := [i for i in ids if type(i) is not int or not 0 <= i < vocab_size]:
        return f"the token id {odd[0]!r:.80}; expected integers from 0, below {vocab_size}"
    if not all(math.isfinite(logprob) for logprob in logprobs):
        return f"logprobs that are not finite: {logprobs!r:.200}"
    return ""
