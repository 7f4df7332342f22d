"""The rows of one KV cache: who has which, and the steps that answer them.

A step reads what is new in the rows that wait for it, or samples one more token in those that have
been read. A prompt prefix that the first rows share is computed once and copied.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from art_cli.config.schema import EngineConfig, SamplingConfig
from art_cli.engines.embedded.stops import StopTexts
from art_cli.engines.embedded.turn import Reason, TurnSoFar, sample
from art_cli.models.policy import Policy, Reference
from art_cli.models.reading.memory import Memory
from art_cli.models.reading.ways import make_memory

PREFILL_TOKENS = 16384  # at most in one forward, padding included
PADDING = 256  # tokens; fewer are not worth another forward
SHORTEST_PREFIX = 8  # tokens; a shorter one is not worth a forward of its own
SHORTEST_SHARED = 64  # tokens; a shorter one is read as quickly from each row
IDLE_ROWS = 0.5  # of all: run along in a decoding step, rather than copied around
FREE_ROWS = 0.3  # of all: the others are moved together
JOIN_AT = 0.34  # of the rows waiting for prefill: let them join, else decode the others further


@dataclass(eq=False, slots=True)
class Occupant:
    """One episode: what its row holds, and what its turn has come to."""

    order: int  # of opening: batches are laid out by it, not by who came first
    uniforms: random.Random
    awaited: bool
    shares: bool = False  # its row begins with the prefix that is kept
    row: int | None = None
    cached: list[int] = field(default_factory=list)  # ids whose keys and values are in the row
    pending: list[int] = field(default_factory=list)  # ids to prefill
    is_asking: bool = False  # for a turn
    turn: TurnSoFar = field(default_factory=lambda: TurnSoFar(room=0))

    def end_turn(self) -> TurnSoFar:
        """Return the turn that is over."""
        self.is_asking = False
        return self.turn

    def lose_row(self) -> None:
        """Give up the row: what was in it has to be read again."""
        self.pending = self.cached + self.pending
        self.row, self.cached, self.shares = None, [], False

    @property
    def is_idle(self) -> bool:
        """Whether its row may be given to another: it may never ask again."""
        return not self.awaited and not self.is_asking


class Rows:
    """At most `max_concurrent` rows, and those who wait for one."""

    def __init__(
        self,
        policy: Policy | Reference,
        cfg: EngineConfig,
        sampling: SamplingConfig,
        stop_ids: frozenset[int],
        finished: Callable[[Occupant, Reason], None],
    ) -> None:
        """`finished` is told of each turn that is over."""
        self.queue: list[Occupant] = []
        self._policy = policy
        self._cfg = cfg
        self._sampling = sampling
        self._stop_ids = stop_ids
        self._finished = finished
        self._rows: list[Occupant | None] = []
        self._cache: Memory | None = None
        self._prefix: tuple[list[int], Memory] | None = None
        # A GPU replays a step of all rows quicker than Python calls one of some; see replay.py.
        on_gpu = policy.device.type == "cuda"
        self._most_idle, self._most_free = (1.0, 0.5) if on_gpu else (IDLE_ROWS, FREE_ROWS)
        self._may_share = not on_gpu
        self._widest = (0, 0)  # the most rows that a cache had, and how long they became

    @property
    def everyone(self) -> list[Occupant]:
        """All that have a row, or wait for one."""
        return [*self.queue, *(s for s in self._rows if s)]

    @property
    def is_ready(self) -> bool:
        """Whether a step has anyone to answer; one who gave up, or has no row, does not count."""
        if any(s and s.is_asking for s in self._rows):
            return True
        taken = sum(s is not None and not s.is_idle for s in self._rows)
        return bool(self.queue) and taken < self._cfg.max_concurrent

    def turn(
        self, room: int, stop: tuple[str, ...], grammar: str | None, top_logprobs: int
    ) -> TurnSoFar:
        """Return a turn of which there is nothing yet. Raises ConstraintError."""
        return TurnSoFar(
            room=room,
            stops=StopTexts(stop, self._decode) if stop else None,
            grammar=grammar,
            matcher=None if grammar is None else self._policy.grammars.start(grammar),
            num_top=top_logprobs,
        )

    def prepare(self, occupant: Occupant, ids: list[int], turn: TurnSoFar) -> None:
        """Make ready for a turn behind these ids. What is cached of them is not read again."""
        length = same = len(occupant.cached)
        if ids[:same] != occupant.cached:  # a fork: keep what still stands
            same = _common_prefix([ids, occupant.cached])
            occupant.shares = False
        same = min(same, len(ids) - 1)
        if same < length and occupant.row is not None and self._cache:
            with torch.inference_mode():
                same = self._cache.rewind(occupant.row, length, same)
        occupant.cached, occupant.pending = ids[:same], ids[same:]
        occupant.turn = turn

    def add(self, occupant: Occupant) -> None:
        """Let an occupant ask for the turn that it is prepared for."""
        occupant.is_asking = True
        if occupant.row is None:
            self.queue.append(occupant)

    def release(self, occupant: Occupant) -> None:
        """Take an occupant's row back: it will not ask again."""
        if occupant.row is not None:
            self._rows[occupant.row] = None
        occupant.row = None

    def clear(self) -> None:
        """Take all rows back, and drop the cache."""
        for occupant in self._rows:
            if occupant:
                occupant.lose_row()
        self._prefix = self._cache = None
        self._rows = []

    @torch.inference_mode()
    def step(self) -> None:
        """Run one forward (or a few) for some of those who ask."""
        self._seat()
        asking = [s for s in self._rows if s and s.is_asking]
        joining = [s for s in asking if s.pending]
        decoding = [s for s in asking if not s.pending]
        if joining and (not decoding or len(joining) >= JOIN_AT * len(asking)):
            self._prefill(joining)
        else:
            self._sample_next(decoding)

    def _seat(self) -> None:
        """Give rows to those who wait for one, and drop rows that nobody needs."""
        self.queue.sort(key=lambda s: s.order)
        self._evict()
        if not self._rows:
            self._cache = None
        if self._cache and self._cache.num_rows >= self._widest[0]:
            self._widest = (self._cache.num_rows, self._cache.length)
        free = [i for i, s in enumerate(self._rows) if s is None]
        room = self._cfg.max_concurrent - len(self._rows) + len(free)
        arriving, self.queue = self.queue[:room], self.queue[room:]
        new = max(0, len(arriving) - len(free))
        if self._cache is None:
            longest = max(len(s.pending) for s in arriving) + self._sampling.max_tokens
            before = self._widest[1] if new <= self._widest[0] else 0  # saves it from growing again
            self._cache = self._memory(new, max(longest, before))
        elif new:
            self._cache.add_rows(new)
        free += range(len(self._rows), len(self._rows) + new)
        self._rows += [None] * new
        for occupant, row in zip(arriving, free, strict=False):
            occupant.row, self._rows[row] = row, occupant
        if arriving:
            self._share_prefix(arriving)
        elif self._rows.count(None) > self._most_free * len(self._rows):
            self._compact()

    def _evict(self) -> None:
        """Take rows back from those that may never ask again, where others wait for one."""
        taken = len(self._rows) - self._rows.count(None)
        missing = len(self.queue) + taken - self._cfg.max_concurrent
        if missing <= 0:
            return
        idle = [s for s in self._rows if s and s.is_idle]
        for occupant in sorted(idle, key=lambda s: s.order)[:missing]:
            self._rows[occupant.row or 0] = None
            occupant.lose_row()

    def _compact(self) -> None:
        assert self._cache is not None
        keep = [i for i, s in enumerate(self._rows) if s]
        self._cache.select(keep)
        self._rows = [self._rows[i] for i in keep]
        for row, occupant in enumerate(self._rows):
            assert occupant is not None
            occupant.row = row

    def _share_prefix(self, arriving: list[Occupant]) -> None:
        """Compute a prefix that many prompts share once, and copy it into their rows."""
        assert self._cache is not None
        if self._prefix is None and len(arriving) > 1:
            shared = _common_prefix([s.pending[:-1] for s in arriving])
            if shared >= SHORTEST_PREFIX:
                ids = arriving[0].pending[:shared]
                cache = self._memory(1, shared)
                self._forward(cache, [0], [ids], [0])
                self._prefix = (ids, cache)
        if self._prefix is None:
            return
        ids, cache = self._prefix
        takers = [s for s in arriving if len(s.pending) > len(ids) and s.pending[: len(ids)] == ids]
        if takers:
            self._cache.copy_prefix(cache, [s.row for s in takers if s.row is not None], len(ids))
        for occupant in takers:
            occupant.shares = True
            occupant.cached, occupant.pending = list(ids), occupant.pending[len(ids) :]

    def _prefill(self, asking: list[Occupant]) -> None:
        """Read the new tokens of these rows and sample the first one of their turns.

        Siblings that have read and said the same so far are read once, and copied.
        """
        assert self._cache is not None
        alike: dict[tuple[int, ...], list[Occupant]] = {}
        for s in asking:
            alike.setdefault((len(s.cached), *s.cached, *s.pending), []).append(s)
        groups = sorted(alike.values(), key=lambda g: (len(g[0].pending), g[0].row))
        while groups:
            lengths = [len(g[0].pending) for g in groups]
            count = _worth_padding(lengths) if self._cache.may_pad else lengths.count(lengths[0])
            # In the order of rows: where all take part, nothing has to be gathered.
            part, groups = sorted(groups[:count], key=lambda g: g[0].row or 0), groups[count:]
            first = [g[0] for g in part]
            for s in (s for g in part for s in g):
                self._cache.mark(s.row or 0, len(s.cached))
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

    def _sample_next(self, asking: list[Occupant]) -> None:
        """Sample one more token for these rows."""
        assert self._cache is not None
        shared = self._shared_by(asking)
        idle = len(self._rows) - len(asking)
        if self._cache.may_pad and 0 < idle <= self._most_idle * len(self._rows):
            logits = self._decode_all(asking, shared)
        else:
            tokens = [[s.turn.sampled[-1]] for s in asking]
            rows = [s.row or 0 for s in asking]
            starts = [len(s.cached) for s in asking]
            logits = self._forward(self._cache, rows, tokens, starts, shared)
        for s in asking:
            s.cached.append(s.turn.sampled[-1])
        self._sample(asking, logits)

    def _shared_by(self, asking: list[Occupant]) -> Memory | None:
        """Return the prefix that these rows share, where reading it from one place is worth it."""
        assert self._cache is not None
        if self._prefix is None or not self._cache.may_pad or not self._may_share:
            return None
        if not all(s.shares for s in asking):
            return None
        return self._prefix[1] if len(self._prefix[0]) >= SHORTEST_SHARED else None

    def _decode_all(self, asking: list[Occupant], shared: Memory | None) -> Tensor:
        """Return the logits of these rows from a forward of all rows, idle ones too.

        That is cheaper than copying the keys of those that ask out and back. An idle row gets a
        token behind its last, which its next one overwrites.
        """
        assert self._cache is not None
        tokens = [[0] for _ in self._rows]
        starts = [len(s.cached) if s else 0 for s in self._rows]
        rows = [s.row or 0 for s in asking]
        for occupant, row in zip(asking, rows, strict=True):
            tokens[row] = [occupant.turn.sampled[-1]]
        return self._forward(self._cache, list(range(len(tokens))), tokens, starts, shared)[rows]

    def _forward(
        self,
        cache: Memory,
        rows: list[int],
        tokens: list[list[int]],
        starts: list[int],
        shared: Memory | None = None,
    ) -> Tensor:
        """Return the logits [R, V] behind the last of the new tokens of each row.

        `rows` ascend. The tokens of each begin at its position in `starts`.
        """
        return self._policy.head.logits(cache.read(rows, tokens, starts, shared))

    def _memory(self, rows: int, length: int) -> Memory:
        return make_memory(self._policy, self._policy.ways, rows, length)

    def _sample(self, asking: list[Occupant], logits: Tensor) -> None:
        """Draw a token for each row from its own stream of random numbers."""
        uniforms = [s.uniforms.random() for s in asking]
        turns = [s.turn for s in asking]
        ids, logprobs = sample(turns, logits, self._sampling, uniforms, self._policy.grammars)
        for occupant, i, logprob in zip(asking, ids, logprobs, strict=True):
            if reason := occupant.turn.take(i, logprob, i in self._stop_ids):
                self._finished(occupant, reason)

    def _decode(self, ids: list[int]) -> str:
        return str(self._policy.tokenizer.decode(ids))


def _worth_padding(lengths: list[int]) -> int:
    """Return how many of these ascending lengths, from the first on, to read in one forward."""
    tokens = 0
    for count, length in enumerate(lengths):
        tokens += length
        padded = length * (count + 1)
        if count and padded > min(PREFILL_TOKENS, tokens + max(PADDING, tokens / 2)):
            return count
    return len(lengths)


def _common_prefix(lists: list[list[int]]) -> int:
    first, last = min(lists), max(lists)
    shared = 0
    for a, b in zip(first, last, strict=False):
        if a != b:
            break
        shared += 1
    return shared
