"""Check of a model at load time against transformers' own eager attention.

The check reads two siblings in a tree, with windows shortened so that they end inside it. It also
reads a padded batch, and engine steps over a fork. The fastest ways whose log-probabilities match
within rounding are used. A model without any is refused.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from art_cli.errors import UsageError
from art_cli.models.forward.attention import NAME
from art_cli.models.forward.decoder import decoder_of, fits
from art_cli.models.forward.head import Head
from art_cli.models.forward.memory import Memory, Reader
from art_cli.models.forward.token_tree import grow_tree, lay_out, packed
from art_cli.models.forward.ways import Engine, Update, Ways, make_memory

# Mean |log-probability - transformers'| that counts as rounding. bf16 keeps 8 bits of a logit, so
# 1e-2 is usual (2510.26788). A wrong mask or cap is off by 0.1 or more.
ROUNDING = {torch.float32: 2e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}
TRUNK, BRANCHES = 36, (14, 11)  # tokens; the trunk is long enough for a node of its own
WINDOW, CHUNK = 8, 16  # tokens, replacing longer ones
SHORTENED = {
    "sliding_window": WINDOW,
    "attention_window_size": WINDOW,
    "attention_chunk_size": CHUNK,
    "floor_scale": WINDOW,  # of Llama 4, whose scale grows with the index
}
COLUMNS = 8  # of the vocabulary, compared at each position


class Probed(Reader, Protocol):
    """A policy under test: it reads in the ways that are set."""

    ways: Ways

    @property
    def head(self) -> Head:
        """See `Policy`."""
        ...

    def use_attention(self, name: str) -> None:
        """Make the model's layers use this attention implementation."""
        ...


def find_ways(model: Probed) -> Ways:
    """Return the fastest correct ways to read the model. Raises UsageError if there are none."""
    with torch.no_grad(), _short_windows(model.base):
        sample = _Sample(model)
        sample.check_head()
        tried: list[str] = []

        def first(options: list[Ways], right: Callable[[Ways], float]) -> Ways | None:
            return next((w for w in options if _passes(model, sample, w, right, tried)), None)

        model.use_attention(NAME)
        quick = [Ways(quick=True)] if fits(decoder_of(model.base)) else []
        if first(quick, sample.update_gap) and first(quick, sample.engine_gap):
            return quick[0]
        updates: tuple[Update, ...] = ("tree", "nodes", "rows")
        engines: tuple[Engine, ...] = ("batch", "row", "anew")
        for attention in (NAME, sample.own):
            model.use_attention(attention)
            most = slice(0 if attention == NAME else 1, None)  # the fastest needs our attention
            update = first(
                [Ways(attention=attention, update=u) for u in updates[most]], sample.update_gap
            )
            engine = first(
                [Ways(attention=attention, engine=e) for e in engines[most]], sample.engine_gap
            )
            if update and engine:
                return replace(update, engine=engine.engine, why="; ".join(tried))
    raise UsageError(
        f"{type(model.base).__name__} cannot be read exactly here ({'; '.join(tried)}); use "
        "another base"
    )


def _passes(
    model: Probed, sample: _Sample, ways: Ways, right: Callable[[Ways], float], tried: list[str]
) -> bool:
    """Return whether these ways read the model correctly. If not, add the reason to `tried`."""
    model.ways = ways
    what = ways.update if right == sample.update_gap else ways.engine
    try:
        gap = right(ways)
    except Exception as e:  # any of the model's own code
        first = str(e).strip().partition("\n")[0]
        tried.append(f"{what} by {ways.attention} attention: {type(e).__name__}: {first:.150}")
        return False
    if gap <= ROUNDING[sample.dtype]:
        return True
    tried.append(f"{what} by {ways.attention} attention: log-probabilities are off by {gap:.2g}")
    return False


class _Sample:
    """Two sequences with a common prefix, and transformers' log-probabilities for them."""

    def __init__(self, model: Probed) -> None:
        self._model, base = model, model.base
        self.dtype = model.head.weight.dtype
        self.own = "sdpa" if base._supports_sdpa else "eager"
        rng = random.Random(0)
        tokens = _ordinary_tokens(base)
        draw = lambda num: [rng.choice(tokens) for _ in range(num)]  # noqa: E731
        trunk = draw(TRUNK)
        self._ids = [trunk + draw(num) for num in BRANCHES]
        vocab = model.head.weight.shape[0]
        longest = max(map(len, self._ids))
        columns = [[rng.randrange(vocab) for _ in range(COLUMNS)] for _ in range(longest)]
        self._columns = torch.tensor(columns, device=model.device)
        model.use_attention("eager")
        self._logits = [self._their_logits(ids) for ids in self._ids]
        self._expected = [self._picked(x) for x in self._logits]

    def check_head(self) -> None:
        """Raise UsageError if `Head` does not reproduce the model's logits."""
        positions = torch.arange(len(self._ids[0]), device=self._model.device)[None]
        ids = torch.tensor(self._ids[:1], device=positions.device)
        mine = self._model.head.logits(self._model.decode(ids, positions))[0]
        gap = float((self._picked(mine) - self._expected[0]).abs().mean())
        if not gap <= ROUNDING[self.dtype]:
            raise UsageError(
                f"{type(self._model.base).__name__} computes its logits in a way that this program "
                f"does not know (they differ by {gap:.2g}); use another base"
            )

    def update_gap(self, ways: Ways) -> float:
        """Return the differences of log-probabilities and a gradient when read as in an update."""
        nodes, leaves = grow_tree(self._ids, ways.shares)
        layout = lay_out(nodes)
        ids, positions = (x.to(self._model.device) for x in packed(nodes))

        def read() -> list[Tensor]:
            hidden = self._model.hidden(ids, positions, layout)[0]
            return [self._picked(self._model.head.logits(hidden[leaf.path()])) for leaf in leaves]

        mine = read()
        gaps = [(a - b).abs().mean() for a, b in zip(mine, self._expected, strict=True)]
        gap = float(torch.stack(gaps).max())
        if ways.update == "nodes":  # states written in place would change it
            gap = max(gap, self._gradient_gap(read))
        return gap

    def _gradient_gap(self, read: Callable[[], list[Tensor]]) -> float:
        """Return the relative difference of one gradient to that of sequences without sharing."""
        scales = [p for p in decoder_of(self._model.base).parameters() if p.ndim == 1]
        scales = [p for p in scales if p.requires_grad][:1]
        if not scales:
            return 0.0

        def gradient(values: Callable[[], list[Tensor]]) -> Tensor:
            with torch.enable_grad():
                total = sum(x.sin().sum() for x in values())
                assert isinstance(total, Tensor)
                return torch.autograd.grad(total, scales)[0].float()

        def alone() -> list[Tensor]:
            return [self._picked(self._their_logits(ids)) for ids in self._ids]

        mine, theirs = gradient(read), gradient(alone)
        return float((mine - theirs).norm() / theirs.norm().clamp(min=1e-12)) / 5

    def engine_gap(self, ways: Ways) -> float:
        """Return the mean difference of log-probabilities if read as by the engine, over a fork."""
        gaps: list[Tensor] = []

        def read(memory: Memory, starts: list[int], ends: list[int], which: list[int]) -> None:
            """Read parts of these sequences into the first rows, or into the only row."""
            rows = list(range(len(which))) if memory.num_rows > 1 else [0]
            tokens = [self._ids[i][s:e] for i, s, e in zip(which, starts, ends, strict=True)]
            logits = self._model.head.logits(memory.read(rows, tokens, starts, None))
            for i, end, row in zip(which, ends, logits, strict=True):
                mine, theirs = self._picked(row[None], end - 1), self._expected[i][end - 1 : end]
                gaps.append((mine - theirs).abs().mean())

        shared, num = TRUNK - 5, 4
        prefix = make_memory(self._model, ways, 1, num)
        memory = make_memory(self._model, ways, 2, num)
        read(prefix, [0], [shared], [0])
        memory.copy_prefix(prefix, [0, 1], shared)
        for row in (0, 1):
            memory.mark(row, shared)
        read(memory, [shared, shared], [TRUNK, TRUNK + 3], [0, 1])  # padded, if allowed
        for step in range(num):
            at = [TRUNK + step, TRUNK + 3 + step]
            read(memory, at, [i + 1 for i in at], [0, 1])
        end = TRUNK + num
        memory.copy([(0, 1)], end)  # like a sibling that continues differently
        read(memory, [end, end], [end + 1, end + 1], [0, 0])
        back = [memory.rewind(row, end + 1, TRUNK) for row in (0, 1)]  # then differ
        read(memory, back, [len(self._ids[1])] * 2, [1, 1])
        return float(torch.stack(gaps).mean())

    def _picked(self, logits: Tensor, first: int = 0) -> Tensor:
        """Return the log-probabilities [T, COLUMNS] of some tokens, from position `first` on."""
        logprobs = logits.float().log_softmax(-1)
        return logprobs.gather(1, self._columns[first : first + len(logits)])

    def _their_logits(self, ids: list[int]) -> Tensor:
        given = torch.tensor([ids], device=self._model.device)
        return self._model.base(input_ids=given, use_cache=False).logits[0]


def _ordinary_tokens(base: Any) -> list[int]:
    """Return ids of text tokens, without special ones such as image placeholders."""
    size = min(
        base.get_input_embeddings().weight.shape[0], base.config.get_text_config().vocab_size
    )
    named = {
        value
        for config in (base.config, base.config.get_text_config())
        for name, value in vars(config).items()
        if isinstance(value, int) and "token" in name
    }
    return [i for i in range(min(size, 4096)) if i not in named]


@contextmanager
def _short_windows(base: nn.Module) -> Iterator[None]:
    """Shorten windows and chunks inside this context, so that a few tokens exceed them."""
    before: list[tuple[Any, str, Any]] = []
    seen: set[int] = set()
    owners = [owner for m in base.modules() for owner in (m, getattr(m, "config", None))]
    owners += [getattr(base.config, "text_config", None)]  # type: ignore[union-attr]
    for owner in owners:
        if owner is None or id(owner) in seen:
            continue
        seen.add(id(owner))
        for name, short in SHORTENED.items():
            value = vars(owner).get(name)
            if isinstance(value, int) and value > short:
                before.append((owner, name, value))
                setattr(owner, name, short)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
