"""Sequences as a tree of token ids: what they share is a node that is run through the model once.

A token attends to its ancestors and itself. That is exact: a token's hidden state depends on its
ancestors alone, and the gradients of all that descend from it add up in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import inf

import numpy as np
import torch
from torch import Tensor

from art_cli.models.forward.attention import Look, attention
from art_cli.models.forward.cascade import (
    APART,
    CascadeAttention,
    Far,
    Indices,
    Near,
    PaddedRows,
    pad,
)
from art_cli.models.forward.tree_attention import Span, TreeMask, ends_of, works

MIN_SAVING = 32  # tokens that sharing must save; a split costs an attention call in every layer


@dataclass(slots=True, kw_only=True)
class TokenNode:
    """Consecutive tokens that the same sequences share."""

    ids: list[int]
    parent: TokenNode | None
    level: int
    start: int  # tokens before it on its path
    first: int = 0  # where its tokens are packed

    @property
    def own(self) -> Indices:
        """The packed indices of its own tokens."""
        return np.arange(self.first, self.first + len(self.ids))

    def path(self, shorter: float = inf) -> Indices:
        """Return the packed indices of its ancestors' tokens and its own, in order.

        Of ancestors, only those with a length below `shorter`.
        """
        nodes: list[TokenNode] = [self]
        while ancestor := nodes[-1].parent:
            nodes.append(ancestor)
        near = [n for n in nodes if n is self or len(n.ids) < shorter]
        return np.concatenate([n.own for n in reversed(near)])


@dataclass(frozen=True, slots=True)
class _Block:
    """Nodes of one level that attend in one call, padded to the longest."""

    queries: PaddedRows
    keys: PaddedRows
    positions: Tensor  # [n, Q] of the queries in the rows of keys
    masks: dict[tuple[int | None, int | None], Tensor]  # [n, 1, Q, K], by the reach of a layer

    @property
    def is_causal(self) -> bool:
        """True if no node has a parent among the keys, and all its tokens ask."""
        return self.queries is self.keys

    def mask(self, look: Look) -> Tensor:
        """Return who sees whom in a layer that looks so."""
        if look.reach not in self.masks:
            keys = torch.arange(self.keys.index.shape[1], device=self.positions.device)
            self.masks[look.reach] = look.sees(self.positions[:, None, :, None], keys)
        return self.masks[look.reach]


class TreeLayout:
    """The attention of packed tokens [N]: each to its path in the tree."""

    def __init__(
        self, parts: list[list[TokenNode]], spans: list[Span], wanted: Indices | None = None
    ) -> None:
        """`parts` are nodes that attend in one call; `spans` are all, in the order of a walk.

        With `wanted`, the queries are of these packed tokens alone; they ascend.
        """
        self.spans = spans
        self._parts = parts
        self._wanted = wanted
        self._narrow: tuple[Tensor, TreeLayout] | None = None  # the last that `of` made
        self._trees: dict[int | None, TreeMask] = {}  # for a GPU, by the window of a layer
        self._blocks: list[_Block] = []  # made where they are needed: their masks may be large
        self._cascade: tuple[list[Near], list[Far]] | None = None

    def of(self, wanted: Tensor) -> TreeLayout:
        """Return the layout of the queries of these packed tokens [S], which ascend."""
        if self._narrow is None or self._narrow[0] is not wanted:
            self._narrow = wanted, TreeLayout(self._parts, self.spans, wanted.cpu().numpy())
        return self._narrow[1]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, look: Look) -> Tensor:
        fused = look.chunk is None and look.softcap is None and look.sinks is None
        if fused and q.is_cuda and works(q.shape[1], k.shape[1], q.shape[3], q.dtype, q.device):
            if look.window not in self._trees:
                self._trees[look.window] = TreeMask(self.spans, look.window)
            return self._trees[look.window].attend(q, k, v, look.scale)
        q, k, v = (x[0].transpose(0, 1) for x in (q, k, v))  # [N, H, D]
        if look.is_plain and q.device.type == "cpu" and q.shape[2] == v.shape[2]:
            if self._cascade is None:
                self._cascade = self._near(look, q.dtype), self._far()
            return CascadeAttention.apply(q, k, v, *self._cascade, look.scale)[None]
        if not self._blocks:
            self._blocks = self._blocks_of(q.device)
        out = []
        for block in self._blocks:
            qs, ks, vs = block.queries.take(q), block.keys.take(k), block.keys.take(v)
            causal = block.is_causal and look.is_plain
            mask = None if causal else block.mask(look)
            o = attention(qs, ks, vs, look, mask, causal)
            out.append(block.queries.without_padding(o))
        tokens = torch.cat([block.queries.tokens for block in self._blocks])
        return torch.cat(out)[tokens.argsort()][None]

    def _blocks_of(self, device: torch.device, shorter: float = inf) -> list[_Block]:
        blocks = (_block(part, self._wanted, device, shorter) for part in self._parts)
        return [block for block in blocks if block]

    def _near(self, look: Look, dtype: torch.dtype) -> list[Near]:
        """Return what is left for blocks where large ancestors are looked at apart."""
        near = []
        for block in self._blocks_of(torch.device("cpu"), APART):
            mask = None
            if not block.is_causal:
                hidden = ~block.mask(look)
                mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, -torch.inf)
            near.append(Near(block.queries, block.keys, mask))
        return near

    def _far(self) -> list[Far]:
        """Return who looks at each large node from below."""
        far = []
        for span, end in zip(self.spans, ends_of(self.spans), strict=True):
            last = self.spans[end - 1]
            low, high = span.first + span.num, last.first + last.num
            keys = slice(span.first, low)
            if self._wanted is not None:
                low, high = np.searchsorted(self._wanted, (low, high)).tolist()
            if span.num >= APART and high > low:
                far.append(Far(slice(low, high), keys))
        return far


def grow_tree(
    sequences: list[list[int]], share: bool = True
) -> tuple[list[TokenNode], list[TokenNode]]:
    """Return all nodes, in the order of a walk through the tree, and the last of each sequence.

    Without `share`, each sequence is one node.
    """
    if not share:
        alone = [TokenNode(ids=ids, parent=None, level=0, start=0) for ids in sequences]
        return alone, alone
    order = sorted(range(len(sequences)), key=lambda i: sequences[i])
    ordered = [sequences[i] for i in order]
    shared = [0] + [_common(a, b) for a, b in pairwise(ordered)]
    nodes: list[TokenNode] = []
    leaves: list[TokenNode | None] = [None] * len(sequences)

    def grow(lo: int, hi: int, parent: TokenNode | None) -> None:
        """Place ordered[lo:hi], whose tokens up to the parent's end are placed."""
        start = parent.start + len(parent.ids) if parent else 0
        level = parent.level + 1 if parent else 0
        common = min(shared[lo + 1 : hi]) if hi - lo > 1 else len(ordered[lo])
        if hi - lo == 1 or (common - start) * (hi - lo - 1) >= MIN_SAVING:
            node = parent
            if common > start:
                ids = ordered[lo][start:common]
                node = TokenNode(ids=ids, parent=parent, level=level, start=start)
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


def packed(nodes: list[TokenNode]) -> tuple[Tensor, Tensor]:
    """Return ids and positions [1, N] of nodes that have their places."""
    in_order = sorted(nodes, key=lambda n: n.first)
    ids = torch.tensor([[i for n in in_order for i in n.ids]])
    positions = [np.arange(n.start, n.start + len(n.ids)) for n in in_order]
    return ids, torch.from_numpy(np.concatenate(positions))[None]


def lay_out(nodes: list[TokenNode]) -> TreeLayout:
    """Give the nodes their places among the packed tokens, in the order of the walk."""
    placed = 0
    for node in nodes:
        node.first, placed = placed, placed + len(node.ids)
    parts = []
    for level in range(1 + max((n.level for n in nodes), default=-1)):
        members = sorted((n for n in nodes if n.level == level), key=lambda n: len(n.ids))
        parts += _similar(members)
    return TreeLayout(parts, _spans(nodes))


def _similar(nodes: list[TokenNode]) -> list[list[TokenNode]]:
    """Split nodes, shortest first, where padding them to one length would waste too much."""
    parts: list[list[TokenNode]] = []
    real = 0
    for node in nodes:
        padded = len(node.ids) * (len(parts[-1]) + 1) if parts else 0
        real += len(node.ids)
        if not parts or padded > 1.25 * real + 128:
            parts.append([])
            real = len(node.ids)
        parts[-1].append(node)
    return parts


def _block(
    nodes: list[TokenNode], wanted: Indices | None, device: torch.device, shorter: float
) -> _Block | None:
    """Return the block of these nodes; of their wanted tokens alone. None where there is none.

    The keys are of a node's path, without ancestors that are not `shorter`.
    """
    if wanted is None:
        asked = rows = [n.own for n in nodes]
    else:
        ends = [np.searchsorted(wanted, (n.first, n.first + len(n.ids))) for n in nodes]
        nodes = [n for n, (low, high) in zip(nodes, ends, strict=True) if high > low]
        rows = [np.arange(low, high) for low, high in ends if high > low]
        asked = [wanted[row] for row in rows]
    if not nodes:
        return None
    paths = [n.path(shorter) for n in nodes]
    queries = PaddedRows(rows, device)
    is_whole = all(map(np.array_equal, rows, paths))
    # The place of a token in its row of keys. Padding sees what the last token sees: a row that
    # sees nothing would have no softmax.
    place = pad(
        [
            at + (len(path) - len(n.ids) - n.first)
            for n, at, path in zip(nodes, asked, paths, strict=True)
        ]
    )
    return _Block(
        queries=queries,
        keys=queries if is_whole else PaddedRows(paths, device),
        positions=torch.from_numpy(place).to(device),
        masks={},
    )


def _spans(nodes: list[TokenNode]) -> list[Span]:
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
