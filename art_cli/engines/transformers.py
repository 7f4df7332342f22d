"""The embedded engine: many multi-turn episodes batched over the trainer's own model.

Each episode is a row of one KV cache. A row's keys and values stay between its turns, so that a
turn costs only its new tokens; a prompt prefix that the first rows share is computed once and
copied; rows that finish leave and new ones join between steps. The weights are the trainer's own,
so nothing has to be sent anywhere; or a copy of them, where rollouts go on while they are updated.

With `deterministic`, a step waits until every episode that is with its env has come back: batches
then depend on nothing but seeds, and a run repeats bit for bit. Without, rows go ahead alone.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import torch
from torch import Tensor

from art_cli.config.schema import EngineConfig, SamplingConfig
from art_cli.engines.kv_cache import KVCache
from art_cli.errors import EngineError
from art_cli.policy import Policy, Reference
from art_cli.types import Completion

PREFILL_TOKENS = 16384  # at most in one forward, padding included
SHORTEST_PREFIX = 8  # tokens; a shorter one is not worth a forward of its own
SHORTEST_SHARED = 64  # tokens; a shorter one is read as quickly from each row
IDLE_ROWS = 0.5  # of all: run along in a decoding step, rather than copied around
JOIN_AT = 0.34  # of the rows waiting for prefill: let them join, else decode the others further


@dataclass(eq=False, slots=True)
class _Session:
    """One episode at the engine, and its row."""

    engine: TransformersEngine
    order: int  # of opening: batches are laid out by it, not by who came first
    uniforms: random.Random
    awaited: bool
    is_open: bool = True
    shares: bool = False  # its row begins with the prefix that the engine keeps
    row: int | None = None
    cached: list[int] = field(default_factory=list)  # ids whose keys and values are in the row
    pending: list[int] = field(default_factory=list)  # ids to prefill
    sampled: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    max_tokens: int = 0
    stop: tuple[str, ...] = ()
    answer: asyncio.Future[Completion] | None = None

    async def generate(
        self, ids: list[int], *, max_tokens: int | None = None, stop: tuple[str, ...] = ()
    ) -> Completion:
        """See Session."""
        most = self.engine.max_tokens
        self.max_tokens, self.stop = min(max_tokens or most, most), stop
        same = len(self.cached)
        if ids[:same] != self.cached:  # a fork: keep what still stands
            same = _common_prefix([ids, self.cached])
            self.shares = False
        same = min(same, len(ids) - 1)
        self.cached, self.pending = ids[:same], ids[same:]
        self.answer = asyncio.get_running_loop().create_future()
        self.engine._arrived(self)
        try:
            return await self.answer
        finally:
            if self.answer.cancelled():  # whoever asked has left in the middle
                self.engine._gave_up(self)
            self.answer = None

    def close(self) -> None:
        """See Session."""
        self.is_open = False
        self.engine._left(self)

    @property
    def is_asking(self) -> bool:
        """Whether someone waits for its turn."""
        return self.answer is not None and not self.answer.done()

    @property
    def is_idle(self) -> bool:
        """Whether its row may be given to another: it can be read again if need be."""
        return not self.awaited and self.answer is None


class TransformersEngine:
    """See the head of this file; implements Engine."""

    def __init__(
        self,
        policy: Policy | Reference,
        cfg: EngineConfig,
        sampling: SamplingConfig,
        stop_ids: frozenset[int],
        source: Policy | None = None,
    ) -> None:
        """`source` is the trainer's policy, where `policy` is a twin of it."""
        self.policy_version = 0
        self.max_tokens = sampling.max_tokens  # of one turn
        self._policy = policy
        self._source = source
        self._cfg = cfg
        self._sampling = sampling
        self._stop_ids = stop_ids
        self._opened = 0
        self._away: set[_Session] = set()  # open, and with their env
        self._queue: list[_Session] = []  # waiting for a row
        self._rows: list[_Session | None] = []
        self._cache: KVCache | None = None
        self._prefix: tuple[list[int], KVCache] | None = None
        self._dead: Exception | None = None  # why it can never answer again
        self._drained: asyncio.Future[None] | None = None  # a sync waits for it
        self._late: list[_Session] = []  # with a turn to sample once the sync is through
        self._wake = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None

    def open(self, seed: int, *, awaited: bool = True) -> _Session:
        """See Engine."""
        self._opened += 1
        session = _Session(self, self._opened, random.Random(seed), awaited)
        if awaited:
            self._away.add(session)
        return session

    async def sync(self, version: int) -> None:
        """See Engine. What was computed with the old weights goes."""
        if self._num_asking():
            self._drained = asyncio.get_running_loop().create_future()
            try:
                await self._drained
            finally:
                self._drained = None
        if self._source:
            assert isinstance(self._policy, Policy)
            self._policy.copy_weights(self._source)
        late, self._late = self._late, []
        for session in late:
            session.pending, session.cached = session.cached + session.pending, []
        for session in self._rows:
            if session:
                session.row, session.cached, session.shares = None, [], False
        self._forget()
        self.policy_version = version
        for session in late:
            self._arrived(session)

    def _num_asking(self) -> int:
        """Sessions with a turn that is being sampled, or waits for a row."""
        return sum(s.is_asking for s in [*self._queue, *self._rows] if s)

    def _check_drained(self) -> None:
        if self._drained and not self._drained.done() and not self._num_asking():
            self._drained.set_result(None)

    def _forget(self) -> None:
        self._prefix = self._cache = None
        self._rows = []

    async def rest(self) -> None:
        """See Engine. The weights are the trainer's own, and what else there is, a sync drops."""

    async def close(self) -> None:
        """See Engine."""
        if self._pump:
            self._pump.cancel()
        self._fail(RuntimeError("it was closed"))

    # -------------------------------------------------------------- sessions come and go

    def _arrived(self, session: _Session) -> None:
        if self._dead:
            raise EngineError(f"the engine failed before: {self._dead}")
        self._away.discard(session)
        if self._drained:
            self._late.append(session)
            return
        if session.row is None:
            self._queue.append(session)
        if self._pump is None or self._pump.done():
            self._wake = asyncio.Event()  # it belongs to the event loop that first waits on it
            self._pump = asyncio.ensure_future(self._run())
        self._wake.set()

    def _gave_up(self, session: _Session) -> None:
        session.sampled, session.logprobs = [], []
        self._remove(session)
        if session.awaited and session.is_open:
            self._away.add(session)
        self._check_drained()
        self._wake.set()

    def _remove(self, session: _Session) -> None:
        for waiting in (self._queue, self._late):
            if session in waiting:
                waiting.remove(session)

    def _left(self, session: _Session) -> None:
        self._away.discard(session)
        self._remove(session)
        if session.row is not None and self._rows:
            self._rows[session.row] = None
        session.row = None
        self._check_drained()
        if not (self._away or self._queue or any(self._rows)):
            self._forget()  # the next batch must not depend on this one
        self._wake.set()

    async def _run(self) -> None:
        """Step as long as anyone waits for an answer."""
        while True:
            await asyncio.sleep(0)  # let envs take their answers and come back
            ready = self._ready()
            if not (ready or self._away or self._queue):
                return
            if not ready or (self._away and self._cfg.deterministic):
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                self._step()
            except Exception as e:
                self._fail(e)
                return

    def _ready(self) -> bool:
        """Whether a step has anyone to answer; one who gave up, or has no row, does not count."""
        if any(s and s.is_asking for s in self._rows):
            return True
        taken = sum(s is not None and not s.is_idle for s in self._rows)
        return bool(self._queue) and taken < self._cfg.max_concurrent

    def _fail(self, error: Exception) -> None:
        for session in [*self._queue, *self._late, *(s for s in self._rows if s)]:
            if session.is_asking and session.answer:
                failure = EngineError(f"the engine failed: {type(error).__name__}: {error}")
                failure.__cause__ = error
                session.answer.set_exception(failure)
        self._queue, self._late, self._dead = [], [], error
        self._forget()
        self._check_drained()

    # -------------------------------------------------------------- one step

    @torch.inference_mode()
    def _step(self) -> None:
        self._seat()
        rows = [s for s in self._rows if s and s.is_asking]
        joining = [s for s in rows if s.pending]
        decoding = [s for s in rows if not s.pending]
        if joining and (not decoding or len(joining) >= JOIN_AT * len(rows)):
            self._prefill(joining)
        else:
            self._decode(decoding)

    def _seat(self) -> None:
        """Give rows to those who wait for one, and drop rows that nobody needs."""
        self._queue.sort(key=lambda s: s.order)
        self._evict()
        if not self._rows:
            self._cache = None
        free = [i for i, s in enumerate(self._rows) if s is None]
        room = self._cfg.max_concurrent - len(self._rows) + len(free)
        arriving, self._queue = self._queue[:room], self._queue[room:]
        new = max(0, len(arriving) - len(free))
        if self._cache is None:
            longest = max(len(s.pending) for s in arriving)
            self._cache = KVCache(self._policy, new, longest + self._sampling.max_tokens)
        elif new:
            self._cache.add_rows(new)
        free += range(len(self._rows), len(self._rows) + new)
        self._rows += [None] * new
        for session, row in zip(arriving, free, strict=False):
            session.row, self._rows[row] = row, session
        if arriving:
            self._share_prefix(arriving)
        elif self._rows.count(None) > 0.3 * len(self._rows):
            self._compact()

    def _evict(self) -> None:
        """Take rows back from those that may never ask again, where others wait for one."""
        taken = len(self._rows) - self._rows.count(None)
        missing = len(self._queue) + taken - self._cfg.max_concurrent
        idle = [s for s in self._rows if s and s.is_idle]
        for session in sorted(idle, key=lambda s: s.order)[: max(0, missing)]:
            self._rows[session.row or 0] = None
            session.row, session.cached, session.shares = None, [], False

    def _compact(self) -> None:
        assert self._cache is not None
        keep = [i for i, s in enumerate(self._rows) if s]
        self._cache.select(keep)
        self._rows = [self._rows[i] for i in keep]
        for row, session in enumerate(self._rows):
            assert session is not None
            session.row = row

    def _share_prefix(self, arriving: list[_Session]) -> None:
        """Compute a prefix that many prompts share once, and copy it into their rows."""
        assert self._cache is not None
        if self._prefix is None and len(arriving) > 1:
            shared = _common_prefix([s.pending[:-1] for s in arriving])
            if shared >= SHORTEST_PREFIX:
                ids = arriving[0].pending[:shared]
                cache = KVCache(self._policy, 1, shared)
                self._forward(cache, [0], [ids], [0])
                self._prefix = (ids, cache)
        if self._prefix is None:
            return
        ids, cache = self._prefix
        takers = [s for s in arriving if len(s.pending) > len(ids) and s.pending[: len(ids)] == ids]
        if takers:
            self._cache.copy_prefix(cache, [s.row for s in takers if s.row is not None], len(ids))
        for session in takers:
            session.shares = True
            session.cached, session.pending = list(ids), session.pending[len(ids) :]

    def _prefill(self, sessions: list[_Session]) -> None:
        """Read the new tokens of these rows and sample the first one of their turns.

        Siblings that have read and said the same so far are read once, and copied.
        """
        assert self._cache is not None
        alike: dict[tuple[int, ...], list[_Session]] = {}
        for s in sessions:
            alike.setdefault((len(s.cached), *s.cached, *s.pending), []).append(s)
        groups = sorted(alike.values(), key=lambda g: (len(g[0].pending), g[0].row))
        while groups:
            count = 1
            for g in groups[1:]:
                if len(g[0].pending) * (count + 1) > PREFILL_TOKENS:
                    break
                count += 1
            # In the order of rows: where all take part, nothing has to be gathered.
            part, groups = sorted(groups[:count], key=lambda g: g[0].row or 0), groups[count:]
            first = [g[0] for g in part]
            rows, tokens = [s.row or 0 for s in first], [s.pending for s in first]
            logits = self._forward(self._cache, rows, tokens, [len(s.cached) for s in first])
            everyone = [s for g in part for s in g]
            self._cache.copy(
                [(g[0].row or 0, s.row or 0) for g in part for s in g[1:]],
                min(len(s.cached) for s in first),
                max(len(s.cached) + len(s.pending) for s in first),
            )
            for s in everyone:
                s.cached, s.pending = s.cached + s.pending, []
            which = [i for i, g in enumerate(part) for _ in g]
            self._sample(everyone, logits[which])

    def _decode(self, sessions: list[_Session]) -> None:
        """One more token for these rows."""
        assert self._cache is not None
        shared = self._shared_by(sessions)
        idle = len(self._rows) - len(sessions)
        if 0 < idle <= IDLE_ROWS * len(self._rows):
            logits = self._decode_all(sessions, shared)
        else:
            tokens = [[s.sampled[-1]] for s in sessions]
            rows = [s.row or 0 for s in sessions]
            starts = [len(s.cached) for s in sessions]
            logits = self._forward(self._cache, rows, tokens, starts, shared)
        for s in sessions:
            s.cached.append(s.sampled[-1])
        self._sample(sessions, logits)

    def _shared_by(self, sessions: list[_Session]) -> KVCache | None:
        """The prefix that these rows begin with, where it is worth being read from one place."""
        if self._prefix is None or not all(s.shares for s in sessions):
            return None
        return self._prefix[1] if len(self._prefix[0]) >= SHORTEST_SHARED else None

    def _decode_all(self, sessions: list[_Session], shared: KVCache | None) -> Tensor:
        """The same with idle rows run along: cheaper than to copy the others' keys out and back.

        An idle row gets a token behind its last; what comes next will overwrite it.
        """
        assert self._cache is not None
        tokens = [[0] for _ in self._rows]
        starts = [len(s.cached) if s else 0 for s in self._rows]
        rows = [s.row or 0 for s in sessions]
        for session, row in zip(sessions, rows, strict=True):
            tokens[row] = [session.sampled[-1]]
        return self._forward(self._cache, list(range(len(tokens))), tokens, starts, shared)[rows]

    def _forward(
        self,
        cache: KVCache,
        rows: list[int],
        tokens: list[list[int]],
        starts: list[int],
        shared: KVCache | None = None,
    ) -> Tensor:
        """Logits [R, V] behind the last token of each row."""
        hidden = self._hidden(cache, rows, tokens, starts, shared)
        last = torch.tensor([len(t) - 1 for t in tokens], device=hidden.device)
        hidden = hidden[torch.arange(len(tokens), device=hidden.device), last]
        return hidden @ self._policy.head.T

    def _hidden(
        self,
        cache: KVCache,
        rows: list[int],
        tokens: list[list[int]],
        starts: list[int],
        shared: KVCache | None = None,
    ) -> Tensor:
        """Hidden states [R, T, D] of new tokens that begin at `starts`, padded on the right."""
        device = self._policy.device
        width = max(map(len, tokens))
        ids = torch.tensor([t + [0] * (width - len(t)) for t in tokens], device=device)
        positions = torch.tensor(starts, device=device)[:, None] + torch.arange(
            width, device=device
        )
        everyone = rows == list(range(cache.keys[0].shape[0]))
        index = None if everyone else torch.tensor(rows, device=device)
        return self._policy.hidden(ids, positions, cache.at(index, positions, shared))

    def _sample(self, sessions: list[_Session], logits: Tensor) -> None:
        """Draw a token for each row from its own stream of random numbers."""
        logprobs = log_distribution(logits, self._sampling)
        uniforms = [s.uniforms.random() for s in sessions]
        cumulative = logprobs.double().exp().cumsum(-1)
        total = cumulative[:, -1:]
        if not torch.isfinite(total).all():
            raise FloatingPointError("the model's logits are not finite")
        points = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)[:, None] * total
        ids = torch.searchsorted(cumulative, points, right=True).clamp_(max=logits.shape[1] - 1)
        chosen = logprobs.gather(1, ids)
        for session, i, logprob in zip(
            sessions, ids[:, 0].tolist(), chosen[:, 0].tolist(), strict=True
        ):
            session.sampled.append(i)
            session.logprobs.append(logprob)
            self._finish(session)

    def _finish(self, session: _Session) -> None:
        """Answer the session if its turn is over."""
        stopped = session.sampled[-1] in self._stop_ids or self._has_stop_text(session)
        length = len(session.cached) + 1
        full = len(session.sampled) >= session.max_tokens or length >= self._cfg.max_model_len
        if not (stopped or full):
            return
        assert session.answer is not None
        completion = Completion(
            token_ids=session.sampled,
            logprobs=session.logprobs,
            finish_reason="stop" if stopped else "length",
            policy_version=self.policy_version,
        )
        session.sampled, session.logprobs = [], []
        if session.awaited:
            self._away.add(session)
        session.answer.set_result(completion)
        self._check_drained()

    def _has_stop_text(self, session: _Session) -> bool:
        if not session.stop:
            return False
        longest = max(len(s.encode()) for s in session.stop)  # a token is at least a byte
        text = str(self._policy.tokenizer.decode(session.sampled[-longest:]))
        return any(s in text for s in session.stop)


def log_distribution(logits: Tensor, sampling: SamplingConfig) -> Tensor:
    """Log-probabilities [R, V], fp32, of the distribution that is sampled from.

    Temperature first, then the top k, then the smallest set of tokens that holds top_p.
    """
    scaled = logits.float() / sampling.temperature
    if 0 < sampling.top_k < scaled.shape[1]:
        least = scaled.topk(sampling.top_k, -1).values[:, -1:]
        scaled = scaled.masked_fill(scaled < least, -torch.inf)
    if sampling.top_p < 1:
        ordered, index = scaled.sort(-1, descending=True)
        before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
        outside = (before >= sampling.top_p).gather(1, index.argsort(-1))
        scaled = scaled.masked_fill(outside, -torch.inf)
    return torch.log_softmax(scaled, -1)


def _common_prefix(lists: list[list[int]]) -> int:
    first, last = min(lists), max(lists)
    shared = 0
    for a, b in zip(first, last, strict=False):
        if a != b:
            break
        shared += 1
    return shared
