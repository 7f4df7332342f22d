"""The embedded engine: many multi-turn episodes batched over the trainer's own model.

Each episode has a row of one KV cache; siblings share one until they part. A row's keys and values
stay between its turns, so that a turn costs only its new tokens; a prompt prefix that the first
rows share is computed once and copied; rows that finish leave and new ones join between steps. The
weights are the trainer's own, so nothing has to be sent anywhere; or a copy of them, where rollouts
go on while they are updated.

With `deterministic`, a step waits until every episode that is with its env has come back: batches
then depend on nothing but seeds, and a run repeats bit for bit. Without, rows go ahead alone.
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
    """See Session."""

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
            if self.answer.cancelled():  # whoever asked has left in the middle
                self.engine._gave_up(self)

    def expect(self, coming: bool) -> None:
        self.awaited = coming
        self.engine._expects(self)

    def close(self) -> None:
        self.is_open = False
        self.engine._left(self)


class TransformersEngine:
    """See the head of this file; implements Engine."""

    def __init__(
        self,
        policy: Policy | Reference,
        cfg: EngineConfig,
        sampling: SamplingConfig,
        stop_ids: frozenset[int],
        source: Policy | None = None,
        raw_logprobs: bool = False,
    ) -> None:
        """`source` is the trainer's policy, where `policy` is a twin of it.

        `raw_logprobs` are for users of an API, and not to be trained on: see `sample`.
        """
        self.policy_version, self.cached_tokens = 0, SHORTEST_PREFIX
        self.grammars = policy.grammars
        self._policy = policy
        self._source = source
        self._cfg = cfg
        self._sampling = sampling
        self._opened = 0
        self._away: set[_Session] = set()  # open, and with their env
        self._rows = Rows(policy, cfg, sampling, stop_ids, self._finished, raw_logprobs)
        self._dead: Exception | None = None  # why it can never answer again
        self._drained: asyncio.Future[None] | None = None  # a sync waits for it
        self._late: list[_Session] = []  # with a turn to sample once the sync is through
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
        """Return how many tokens a turn behind a prompt of so many tokens may have."""
        most = self._sampling.max_tokens
        return max(1, min(max_tokens or most, most, self._cfg.max_model_len - prompt))

    async def sync(self, version: int) -> None:
        """See Engine. Drops what was computed with the old weights.

        Turns that are still waiting for a row begin after the sync. They cannot be waited for: the
        rows may be held by episodes whose own next turn waits for the sync.
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
        """See Engine. Does nothing: weights are the trainer's own, and a sync drops the cache."""

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
            self._wake = asyncio.Event()  # it belongs to the event loop that first waits on it
            self._pump = asyncio.ensure_future(self._run())
        self._wake.set()

    def _finished(self, session: Occupant, reason: Reason) -> None:
        assert isinstance(session, _Session) and session.answer
        completion = session.end_turn().completion(reason, self.policy_version)
        if session.awaited:
            self._away.add(session)
        if not session.answer.done():  # or it has just been cancelled
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
        """Step as long as anyone waits for an answer."""
        while True:
            await asyncio.sleep(0)  # let envs take their answers and come back
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
