"""Sequences into microbatches, with what they share computed once.

Siblings begin alike: the prompt is the same for all, and often the first turns too. Their token ids
form a tree; each node is run through the model once, and every sequence attends over the path from
the root to its own tokens. That is exact: a token's hidden state depends on its ancestors alone,
and the gradients of all that descend from it add up in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from art_cli.models.reading.attention import sdpa
from art_cli.models.reading.tree_attention import Span, TreeMask, works

MIN_SAVING = 32  # tokens that sharing must save; a split costs an attention call in every layer


@dataclass(slots=True, kw_only=True)
class TrainSequence:
    """A sequence with what the loss needs to know of it."""

    ids: list[int]
    mask: list[int]
    engine_logprobs: list[float]
    advantage: float = 0.0
    weight: float = 0.0  # of each sampled token


@dataclass(slots=True, kw_only=True)
class _Node:
    """Consecutive tokens that the same sequences share."""

    ids: list[int]
    parent: _Node | None
    level: int
    start: int  # tokens before it on its path
    first: int = 0  # where its tokens are packed

    def path(self) -> list[int]:
        """Return the packed indices of its ancestors' tokens and its own, in order."""
        before = self.parent.path() if self.parent else []
        return before + list(range(self.first, self.first + len(self.ids)))


@dataclass(frozen=True, slots=True)
class _Block:
    """Nodes of one level that attend in one call, padded to the longest."""

    queries: Tensor  # [n, Q] packed indices
    keys: Tensor  # [n, K]
    mask: Tensor | None  # [n, 1, Q, K]; None: plain causal
    valid: Tensor  # which of the n * Q queries are real

    def to(self, device: torch.device) -> _Block:
        """Return this block on a device."""
        mask = None if self.mask is None else self.mask.to(device)
        return _Block(self.queries.to(device), self.keys.to(device), mask, self.valid.to(device))


class TreeLayout:
    """The attention of packed tokens [N]: each to its path in the tree."""

    def __init__(self, parts: list[list[_Node]], tree: TreeMask) -> None:
        """`parts` are nodes that attend in one call; `tree` is the same for a GPU."""
        self._parts = parts
        self._tree = tree
        self._blocks: list[_Block] = []  # made where they are needed: their masks may be large

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        if q.is_cuda and works(q.shape[1], k.shape[1], q.shape[3], q.dtype, q.device):
            return self._tree.attend(q, k, v, scale)
        self._blocks = self._blocks or [_block(part).to(q.device) for part in self._parts]
        q, k, v = (x[0].transpose(0, 1) for x in (q, k, v))  # [N, H, D]
        out = []
        for block in self._blocks:
            qs, ks, vs = q[block.queries], k[block.keys], v[block.keys]
            qs, ks, vs = (x.transpose(1, 2) for x in (qs, ks, vs))  # [n, H, Q, D]
            o = sdpa(qs, ks, vs, scale, mask=block.mask, causal=block.mask is None)
            out.append(o.transpose(1, 2).flatten(0, 1)[block.valid])
        return torch.cat(out)[None]


@dataclass(slots=True, kw_only=True)
class Microbatch:
    """Packed tokens [N] of a few sequences, and the [T] sampled tokens among them."""

    ids: Tensor  # [1, N]
    positions: Tensor  # [1, N]
    layout: TreeLayout
    hidden_at: Tensor  # [S] packed index of the token that predicts
    targets: Tensor  # [S] the token that is predicted
    row: Tensor  # [T] which of the S predictions each sampled token is; ascending
    engine_logprobs: Tensor  # [T]
    advantages: Tensor  # [T]
    weights: Tensor  # [T]
    sequence: Tensor  # [T]

    def to(self, device: torch.device) -> Microbatch:
        """Return this microbatch on a device."""
        if device.type == "cpu":
            return self
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, Tensor):
                setattr(self, name, value.to(device))
        return self


def partition(groups: list[list[TrainSequence]], max_tokens: int) -> list[list[TrainSequence]]:
    """Split groups of siblings into parts of at most `max_tokens` packed tokens each.

    A group stays together where it fits. A single sequence that is longer gets its own part.
    """
    parts: list[list[TrainSequence]] = []
    room = 0
    for group in groups:
        for sequences in _halve(group, max_tokens):
            size = num_packed([s.ids for s in sequences])
            if not parts or size > room:
                parts.append([])
                room = max_tokens
            parts[-1] += sequences
            room -= size
    return parts


def num_packed(sequences: list[list[int]]) -> int:
    """Return how many tokens the model reads for these sequences."""
    return sum(len(n.ids) for n in _tree(sequences)[0])


def _halve(group: list[TrainSequence], max_tokens: int) -> Iterable[list[TrainSequence]]:
    if len(group) <= 1 or num_packed([s.ids for s in group]) <= max_tokens:
        return [group] if group else []
    middle = len(group) // 2
    return [*_halve(group[:middle], max_tokens), *_halve(group[middle:], max_tokens)]


def pack(sequences: list[TrainSequence]) -> Microbatch:
    """Return one microbatch of these sequences."""
    nodes, leaves = _tree([s.ids for s in sequences])
    parts = _place(nodes)
    paths = [leaf.path() for leaf in leaves]
    sampled = sorted(
        (path[t - 1], s.ids[t], i, t)
        for i, (s, path) in enumerate(zip(sequences, paths, strict=True))
        for t, m in enumerate(s.mask)
        if m
    )
    predictions = sorted({(at, target) for at, target, _, _ in sampled})
    rows = {p: r for r, p in enumerate(predictions)}
    packed = sorted(nodes, key=lambda n: n.first)
    picked = [(sequences[i], t) for _, _, i, t in sampled]
    return Microbatch(
        ids=torch.tensor([[i for n in packed for i in n.ids]]),
        positions=torch.tensor([[n.start + j for n in packed for j in range(len(n.ids))]]),
        layout=TreeLayout(parts, TreeMask(_spans(nodes))),
        hidden_at=torch.tensor([at for at, _ in predictions], dtype=torch.long),
        targets=torch.tensor([target for _, target in predictions], dtype=torch.long),
        row=torch.tensor([rows[at, target] for at, target, _, _ in sampled], dtype=torch.long),
        engine_logprobs=torch.tensor([s.engine_logprobs[t] for s, t in picked]),
        advantages=torch.tensor([s.advantage for s, _ in picked]),
        weights=torch.tensor([s.weight for s, _ in picked]),
        sequence=torch.tensor([i for _, _, i, _ in sampled], dtype=torch.long),
    )


# ------------------------------------------------------------------ the tree


def _tree(sequences: list[list[int]]) -> tuple[list[_Node], list[_Node]]:
    """Return all nodes, in the order of a walk through the tree, and the last of each sequence."""
    order = sorted(range(len(sequences)), key=lambda i: sequences[i])
    ordered = [sequences[i] for i in order]
    shared = [0] + [_common(a, b) for a, b in pairwise(ordered)]
    nodes: list[_Node] = []
    leaves: list[_Node | None] = [None] * len(sequences)

    def grow(lo: int, hi: int, parent: _Node | None) -> None:
        """Place ordered[lo:hi], whose tokens up to the parent's end are placed."""
        start = parent.start + len(parent.ids) if parent else 0
        level = parent.level + 1 if parent else 0
        common = min(shared[lo + 1 : hi]) if hi - lo > 1 else len(ordered[lo])
        if hi - lo == 1 or (common - start) * (hi - lo - 1) >= MIN_SAVING:
            node = parent
            if common > start:
                ids = ordered[lo][start:common]
                node = _Node(ids=ids, parent=parent, level=level, start=start)
                nodes.append(node)
            if hi - lo == 1:
                leaves[order[lo]] = node
                return
            parent = node
        cuts = [i for i in range(lo + 1, hi) if shared[i] == common]
        for a, b in zip([lo, *cuts], [*cuts, hi], strict=True):
            grow(a, b, parent)

    if ordered:
        grow(0, len(ordered), None)
    assert all(leaves), "no sequence is empty"
    return nodes, leaves  # type: ignore[return-value]


def _common(a: list[int], b: list[int]) -> int:
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while high - low > 1:  # list comparison runs in C, a loop over tokens does not
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _place(nodes: list[_Node]) -> list[list[_Node]]:
    """Lay the nodes out level by level. Return those that attend in one call."""
    placed, parts = 0, []
    for level in range(1 + max((n.level for n in nodes), default=-1)):
        members = sorted((n for n in nodes if n.level == level), key=lambda n: len(n.ids))
        for part in _similar(members):
            for node in part:
                node.first, placed = placed, placed + len(node.ids)
            parts.append(part)
    return parts


def _similar(nodes: list[_Node]) -> list[list[_Node]]:
    """Split nodes, shortest first, where padding them to one length would waste too much."""
    parts: list[list[_Node]] = []
    real = 0
    for node in nodes:
        padded = len(node.ids) * (len(parts[-1]) + 1) if parts else 0
        real += len(node.ids)
        if not parts or padded > 1.25 * real + 128:
            parts.append([])
            real = len(node.ids)
        parts[-1].append(node)
    return parts


def _block(nodes: list[_Node]) -> _Block:
    num = [len(n.ids) for n in nodes]
    queries = _padded([list(range(n.first, n.first + len(n.ids))) for n in nodes])
    valid = torch.arange(max(num))[None] < torch.tensor(num)[:, None]
    valid = valid.flatten().nonzero()[:, 0]
    start = torch.tensor([n.start for n in nodes])
    if not start.any():
        return _Block(queries, queries, None, valid)
    keys = _padded([n.path() for n in nodes])
    last = start[:, None] + torch.arange(queries.shape[1])  # path position of each query
    mask = torch.arange(keys.shape[1]) <= last[:, None, :, None]
    return _Block(queries, keys, mask, valid)


def _spans(nodes: list[_Node]) -> list[Span]:
    """Return the tree as a list, every node before its children."""
    place = {id(n): i for i, n in enumerate(nodes)}
    return [
        Span(
            first=n.first,
            num=len(n.ids),
            parent=place[id(n.parent)] if n.parent else None,
            start=n.start,
        )
        for n in nodes
    ]


def _padded(rows: list[list[int]]) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([r + [0] * (longest - len(r)) for r in rows])
