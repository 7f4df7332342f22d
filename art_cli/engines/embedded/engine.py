"""The embedded engine: many multi-turn episodes batched over the trainer's own model.

Each episode has a row of a KV cache; siblings share one until they diverge. A row's keys and values
stay between its turns, so a turn costs only its new tokens. A prompt prefix shared by the first
rows is computed once and copied. Rows leave and join between steps. The weights are the trainer's
own, so nothing has to be sent; or a copy of them, if rollouts continue during updates.

With `deterministic`, a step waits until every episode that is with its env has come back. Batches
then depend only on seeds, and a run repeats bit for bit. Without it, ready rows do not wait.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import cast

from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.engines.embedded.row import Occupant
from art_cli.engines.embedded.rows import SHORTEST_PREFIX, Rows
from art_cli.engines.embedded.turn import Reason
from art_cli.errors import EngineError
from art_cli.models.policy import Policy, Reference
from art_cli.types import Completion


@dataclass(eq=False, slots=True, kw_only=True)
class _Session(Occupant):
    """An episode at the embedded engine; implements `Session`."""

    engine: TransformersEngine
    is_open: bool = True
    answer: asyncio.Future[Completion] | None = None

    async def generate(
        self,
        ids: list[int],
        *,
        max_tokens: int | None = None,
        stop: tuple[str, ...] = (),
        grammar: str | None = None,
        top_logprobs: int = 0,
    ) -> Completion:
        if grammar is not None:
            await self.engine.grammars.compile(grammar)
        room = self.engine.room_behind(len(ids), max_tokens)
        turn = self.engine._rows.turn(room, stop, grammar, top_logprobs)
        self.engine._rows.prepare(self, ids, turn)
        self.answer = asyncio.get_running_loop().create_future()
        self.engine._arrived(self)
        try:
            return await self.answer
        finally:
            if self.answer.cancelled():  # the caller was cancelled
                self.engine._gave_up(self)

    def expect(self, coming: bool) -> None:
        self.awaited = coming
        self.engine._expects(self)

    def close(self) -> None:
        self.is_open = False
        self.engine._left(self)


class TransformersEngine:
    """Engine in this process, as described for this module; implements `Engine`."""

    def __init__(
        self,
        policy: Policy | Reference,
        cfg: EngineConfig,
        sampling: SamplingConfig,
        stop_ids: frozenset[int],
        source: Policy | None = None,
        raw_logprobs: bool = False,
    ) -> None:
        """`source` is the trainer's policy if `policy` is a twin of it.

        `raw_logprobs` are for API users and not for training; see `sample`.
        """
        self.policy_version, self.cached_tokens = 0, SHORTEST_PREFIX
        self.grammars = policy.grammars
        self._policy = policy
        self._source = source
        self._cfg = cfg
        self._sampling = sampling
        self._opened = 0
        self._away: set[_Session] = set()  # open sessions that are with their env
        self._rows = Rows(policy, cfg, sampling, stop_ids, self._finished, raw_logprobs)
        self._dead: Exception | None = None  # error after which it cannot answer any more
        self._drained: asyncio.Future[None] | None = None  # set while a sync waits for turns to end
        self._late: list[_Session] = []  # sessions whose turn starts after the sync
        self._wake = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None

    def open(self, seed: int, *, awaited: bool = True) -> _Session:
        self._opened += 1
        session = _Session(
            engine=self, order=self._opened, uniforms=random.Random(seed), awaited=awaited
        )
        if awaited:
            self._away.add(session)
        return session

    def room_behind(self, prompt: int, max_tokens: int | None) -> int:
        """Return the maximum number of tokens of a turn after a prompt of this length."""
        most = self._sampling.max_tokens
        return max(1, min(max_tokens or most, most, self._cfg.max_model_len - prompt))

    async def sync(self, version: int) -> None:
        """See `Engine`. Drops cached states of the old weights.

        Turns that still wait for a row start after the sync. Waiting for them could deadlock: the
        rows may be held by episodes whose next turn waits for the sync.
        """
        self._late += cast("list[_Session]", self._rows.queue)
        self._rows.queue = []
        try:
            if self._num_asking():
                self._drained = asyncio.get_running_loop().create_future()
                await self._drained
            if self._source:
                assert isinstance(self._policy, Policy)
                self._policy.copy_weights(self._source)
            self._rows.clear()
            self.policy_version = version
        finally:
            self._drained = None
            late, self._late = self._late, []
            for session in late:
                self._arrived(session)

    def _num_asking(self) -> int:
        """Return the number of sessions with a turn that is being sampled or waits for a row."""
        return sum(s.is_asking for s in self._rows.everyone)

    def _check_drained(self) -> None:
        if self._drained and not self._drained.done() and not self._num_asking():
            self._drained.set_result(None)

    async def rest(self) -> None:
        """See `Engine`. Nothing to do: weights are the trainer's, and a sync drops the cache."""

    async def close(self) -> None:
        if self._pump:
            self._pump.cancel()
        self._fail(RuntimeError("it was closed"))

    # -------------------------------------------------------------- sessions come and go

    def _expects(self, session: _Session) -> None:
        if session.awaited:
            self._away.add(session)
        else:
            self._away.discard(session)
            self._wake.set()

    def _arrived(self, session: _Session) -> None:
        if self._dead:
            raise EngineError(f"the engine failed before: {self._dead}")
        self._away.discard(session)
        if self._drained:
            self._late.append(session)
            return
        self._rows.add(session)
        if self._pump is None or self._pump.done():
            self._wake = asyncio.Event()  # bound to the event loop that first waits on it
            self._pump = asyncio.ensure_future(self._run())
        self._wake.set()

    def _finished(self, session: Occupant, reason: Reason) -> None:
        assert isinstance(session, _Session) and session.answer
        completion = session.end_turn().completion(reason, self.policy_version)
        if session.awaited:
            self._away.add(session)
        if not session.answer.done():  # done if it has just been cancelled
            session.answer.set_result(completion)
        self._check_drained()

    def _gave_up(self, session: _Session) -> None:
        session.end_turn()
        self._dequeue(session)
        if session.awaited and session.is_open:
            self._away.add(session)
        self._check_drained()
        self._wake.set()

    def _left(self, session: _Session) -> None:
        self._away.discard(session)
        self._dequeue(session)
        self._rows.release(session)
        self._check_drained()
        if not (self._away or self._rows.everyone):
            self._rows.clear()  # the next batch must not depend on this one
        self._wake.set()

    def _dequeue(self, session: _Session) -> None:
        for waiting in (self._rows.queue, self._late):
            if session in waiting:
                waiting.remove(session)

    async def _run(self) -> None:
        """Run steps as long as a session waits for an answer."""
        while True:
            await asyncio.sleep(0)  # let envs process their answers and return
            ready = self._rows.is_ready
            if not (ready or self._away or self._rows.queue):
                return
            if not ready or (self._away and self._cfg.deterministic):
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                self._rows.step()
            except Exception as e:
                self._fail(e)
                return

    def _fail(self, error: Exception) -> None:
        for session in [*self._rows.everyone, *self._late]:
            assert isinstance(session, _Session)
            if session.answer and not session.answer.done():
                failure = EngineError(f"the engine failed: {type(error).__name__}: {error}")
                failure.__cause__ = error
                session.answer.set_exception(failure)
                session.end_turn()
        self._rows.queue, self._late, self._dead = [], [], error
        self._rows.clear()
        self._check_drained()
