"""The rows of a KV cache: scheduling of episodes into rows, and the steps that answer them.

A step either reads the new tokens of rows that wait for it, or samples one more token in rows that
have been read. A prompt prefix shared by the first rows is computed once and copied.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.engines.embedded.row import Occupant, Row
from art_cli.engines.embedded.slots import Slots
from art_cli.engines.embedded.stops import StopTexts
from art_cli.engines.embedded.turn import Reason, TurnSoFar, sample
from art_cli.models.forward.memory import Memory
from art_cli.models.forward.ways import make_memory
from art_cli.models.policy import Policy, Reference

PREFILL_TOKENS = 16384  # tokens per forward at most, padding included
PADDING = 256  # tokens; less padding is not worth another forward
SHORTEST_PREFIX = 8  # tokens; a shorter prefix is not worth a separate forward
SHORTEST_SHARED = 64  # tokens; a shorter prefix is read as fast from each row
IDLE_ROWS = 0.5  # maximum share of idle rows that a decoding step includes
JOIN_AT = 0.34  # share of rows waiting for prefill from which prefill goes first


class Rows:
    """Rows for at most `max_num_seqs` occupants, and the queue of those who wait for one."""

    def __init__(
        self,
        policy: Policy | Reference,
        cfg: EngineConfig,
        sampling: SamplingConfig,
        stop_ids: frozenset[int],
        finished: Callable[[Occupant, Reason], None],
        raw_logprobs: bool,
    ) -> None:
        """`finished` is called for each turn that ends. `raw_logprobs` is as in `sample`."""
        self.queue: list[Occupant] = []
        self._policy = policy
        self._cfg = cfg
        self._sampling = sampling
        self._stop_ids = stop_ids
        self._finished = finished
        self._raw_logprobs = raw_logprobs
        self._prefix: tuple[list[int], Memory] | None = None
        # A GPU replays a step of all rows faster than Python launches one of some; see replay.py.
        self._on_gpu = policy.device.type == "cuda"
        self._most_idle = 1.0 if self._on_gpu else IDLE_ROWS
        self._slots = Slots(self._memory, self._on_gpu)

    @property
    def everyone(self) -> list[Occupant]:
        """All occupants, with a row or in the queue."""
        return [*self.queue, *self._slots.occupants]

    @property
    def _cache(self) -> Memory:
        assert self._slots.cache is not None
        return self._slots.cache

    @property
    def is_ready(self) -> bool:
        """True if a step can answer someone. Cancelled turns and full caches do not count."""
        placed = self._slots.occupants
        if any(s.is_asking for s in placed):
            return True
        taken = sum(not s.is_idle for s in placed)
        return bool(self.queue) and taken < self._cfg.max_num_seqs

    def turn(
        self, room: int, stop: tuple[str, ...], grammar: str | None, top_logprobs: int
    ) -> TurnSoFar:
        """Return a new turn without tokens. Raises ConstraintError."""
        return TurnSoFar(
            room=room,
            stops=StopTexts(stop, self._decode) if stop else None,
            grammar=grammar,
            matcher=None if grammar is None else self._policy.grammars.start(grammar),
            num_top=top_logprobs,
        )

    def prepare(self, occupant: Occupant, ids: list[int], turn: TurnSoFar) -> None:
        """Prepare an occupant for a turn after these ids. Cached tokens are not read again."""
        length = same = len(occupant.cached)
        if ids[:same] != occupant.cached:  # a fork: keep the common prefix
            same = _common_prefix([ids, occupant.cached])
        same = min(same, len(ids) - 1)
        if same < length:
            same = self._rewind(occupant, length, same)
        occupant.pending, occupant.turn = ids[same:], turn

    @torch.inference_mode()
    def _rewind(self, occupant: Occupant, length: int, wanted: int) -> int:
        """Rewind an occupant's row to at most `wanted` tokens. Return the number left."""
        row = occupant.row
        assert row is not None
        if len(row.occupants) > 1:
            [row] = self._slots.copy([(row, [occupant])])
        same = self._cache.rewind(row.index, length, wanted)
        row.cached, row.shares = row.cached[:same], False
        return same

    def add(self, occupant: Occupant) -> None:
        """Start the turn that an occupant is prepared for."""
        occupant.is_asking = True
        if occupant.row is None:
            self.queue.append(occupant)

    def release(self, occupant: Occupant) -> None:
        """Remove an occupant that will not ask again from its row."""
        occupant.leave()
        self._slots.free_empty()

    def clear(self) -> None:
        """Free all rows, and drop the cache."""
        self._slots.clear()
        self._prefix = None

    @torch.inference_mode()
    def step(self) -> None:
        """Run one forward (or a few) for some of the occupants that ask for a turn."""
        self._admit()
        asking = [s for s in self._slots.occupants if s.is_asking]
        joining = [s for s in asking if s.pending]
        decoding = [s for s in asking if not s.pending]
        if joining and (not decoding or len(joining) >= JOIN_AT * len(asking)):
            self._prefill(self._own_rows(joining))
        else:
            self._sample_next(self._own_rows(decoding))

    # ---------------------------------------------------------------- who is in which row

    def _admit(self) -> None:
        """Give rows to queued occupants, or compact the rows if nobody waits."""
        if not self.queue:
            self._slots.pack()
            return
        self.queue.sort(key=lambda s: s.order)
        self._evict()
        room = self._cfg.max_num_seqs - len(self._slots.occupants)
        arriving, self.queue = self.queue[:room], self.queue[room:]
        alike = {(*row.cached, *row.following): row for row in self._slots.taken}
        new: list[Row] = []
        for occupant in arriving:
            ids = tuple(occupant.pending)
            if ids not in alike:
                alike[ids] = Row()
                new.append(alike[ids])
            row = alike[ids]
            row.enter(occupant)
            occupant.pending = occupant.pending[len(row.cached) :]
        if new:
            self._slots.place(new, self._sampling.max_tokens)
            self._share_prefix(new)

    def _evict(self) -> None:
        """Evict occupants that may never ask again, if others wait for a row."""
        placed = self._slots.occupants
        missing = len(self.queue) + len(placed) - self._cfg.max_num_seqs
        if missing <= 0:
            return
        idle = [s for s in placed if s.is_idle]
        for occupant in sorted(idle, key=lambda s: s.order)[:missing]:
            occupant.lose_row()
        self._slots.free_empty()

    def _own_rows(self, asking: list[Occupant]) -> list[Row]:
        """Return, in ascending order, rows that hold only these occupants.

        An occupant that differs from others in its row gets a copy of the row.
        """
        stay: list[Row] = []
        parted: list[tuple[Row, list[Occupant]]] = []
        for row, members in groupby(asking, key=lambda s: s.row):
            assert row is not None
            if len(row.occupants) == 1:
                stay.append(row)
                continue
            alike: dict[Any, list[Occupant]] = {}
            for occupant in members:
                follows = tuple(occupant.pending) or occupant.turn.sampled[-1]
                alike.setdefault(follows, []).append(occupant)
            groups = list(alike.values())
            if sum(map(len, groups)) == len(row.occupants):
                stay.append(row)
                groups = groups[1:]
            parted += [(row, group) for group in groups]
        return sorted([*stay, *self._slots.copy(parted)], key=lambda row: row.index)

    def _share_prefix(self, arriving: list[Row]) -> None:
        """Compute a prefix that many prompts share once, and copy it into their rows."""
        if self._prefix is None and len(arriving) > 1:
            shared = _common_prefix([row.following[:-1] for row in arriving])
            if shared >= SHORTEST_PREFIX:
                ids = arriving[0].following[:shared]
                cache = self._memory(1, shared)
                self._forward(cache, [0], [ids], [0])
                self._prefix = (ids, cache)
        if self._prefix is None:
            return
        ids, cache = self._prefix
        num = len(ids)
        takers = [r for r in arriving if len(r.following) > num and r.following[:num] == ids]
        if takers:
            self._cache.copy_prefix(cache, [row.index for row in takers], num)
        for row in takers:
            row.cached, row.shares = list(ids), True
            for occupant in row.occupants:
                occupant.pending = occupant.pending[num:]

    # ---------------------------------------------------------------- forwards

    def _prefill(self, rows: list[Row]) -> None:
        """Read the new tokens of these rows and sample the first token of their turns."""
        rows = sorted(rows, key=lambda row: len(row.following))
        while rows:
            lengths = [len(row.following) for row in rows]
            count = _worth_padding(lengths) if self._cache.may_pad else lengths.count(lengths[0])
            # In the order of rows, because the first rows need no gather.
            part, rows = sorted(rows[:count], key=lambda row: row.index), rows[count:]
            for row in part:
                self._cache.mark(row.index, len(row.cached))
            self._go_on(part, self._read(part))

    def _sample_next(self, rows: list[Row]) -> None:
        """Sample one more token in these rows."""
        shared = self._shared_by(rows)
        span = self._slots.span
        if self._cache.may_pad and 0 < span - len(rows) <= self._most_idle * span:
            self._go_on(rows, self._read_all(rows, shared))
        else:
            self._go_on(rows, self._read(rows, shared))

    def _shared_by(self, rows: list[Row]) -> Memory | None:
        """Return the prefix that these rows share, or None if it is not worth a shared read."""
        if self._prefix is None or not self._cache.may_pad or self._on_gpu:
            return None
        if not all(row.shares for row in rows):
            return None
        return self._prefix[1] if len(self._prefix[0]) >= SHORTEST_SHARED else None

    def _read(self, rows: list[Row], shared: Memory | None = None) -> Tensor:
        """Return the logits after the following tokens of these rows."""
        tokens, starts = [row.following for row in rows], [len(row.cached) for row in rows]
        return self._forward(self._cache, [row.index for row in rows], tokens, starts, shared)

    def _read_all(self, rows: list[Row], shared: Memory | None) -> Tensor:
        """Return the logits of these rows from a forward of all rows, including idle ones.

        That is cheaper than copying keys out and back. An idle row gets a token after its last,
        which its next real token overwrites.
        """
        everyone = self._slots.rows[: self._slots.span]
        tokens = [[0] for _ in everyone]
        starts = [len(row.cached) if row else 0 for row in everyone]
        indices = [row.index for row in rows]
        for row, index in zip(rows, indices, strict=True):
            tokens[index] = row.following
        all_of_them = list(range(len(everyone)))
        return self._forward(self._cache, all_of_them, tokens, starts, shared)[indices]

    def _forward(
        self,
        cache: Memory,
        rows: list[int],
        tokens: list[list[int]],
        starts: list[int],
        shared: Memory | None = None,
    ) -> Tensor:
        """Return the logits [R, V] after the last new token of each row.

        `rows` must ascend. The tokens of each begin at its position in `starts`.
        """
        return self._policy.head.logits(cache.read(rows, tokens, starts, shared))

    def _memory(self, rows: int, length: int) -> Memory:
        return make_memory(self._policy, self._policy.ways, rows, length)

    def _go_on(self, rows: list[Row], logits: Tensor) -> None:
        """Draw a token for each occupant of these rows from its own random stream."""
        for row in rows:
            row.go_on()
        asking = [s for row in rows for s in row.occupants]
        which = [i for i, row in enumerate(rows) for _ in row.occupants]
        uniforms = [s.uniforms.random() for s in asking]
        turns = [s.turn for s in asking]
        grammars, raw = self._policy.grammars, self._raw_logprobs
        drawn = sample(turns, logits, which, self._sampling, uniforms, grammars, raw)
        for occupant, i, logprob in zip(asking, *drawn, strict=True):
            if reason := occupant.turn.take(i, logprob, i in self._stop_ids):
                self._finished(occupant, reason)

    def _decode(self, ids: list[int]) -> str:
        return str(self._policy.tokenizer.decode(ids))


def _worth_padding(lengths: list[int]) -> int:
    """Return the number of the first of these ascending lengths to read in one forward."""
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
