"""Sequences as a tree of token ids, in which the model reads each shared part once.

A token attends to its ancestors and itself. This is exact: a token's hidden state depends only on
its ancestors, and a node accumulates the gradients of all its descendants.
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

MIN_SAVING = 32  # tokens saved, at least; a split costs one more attention call per layer


@dataclass(slots=True, kw_only=True)
class TokenNode:
    """Consecutive tokens that are shared by the same sequences."""

    ids: list[int]
    parent: TokenNode | None
    level: int
    start: int  # number of tokens before it on its path
    first: int = 0  # packed index of its first token

    @property
    def own(self) -> Indices:
        """The packed indices of the node's own tokens."""
        return np.arange(self.first, self.first + len(self.ids))

    def path(self, shorter: float = inf) -> Indices:
        """Return the packed indices of the ancestors' tokens and the node's own, in order.

        Only ancestors with a length below `shorter` are included.
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
    positions: Tensor  # [n, Q] positions of the queries in their row of keys
    masks: dict[tuple[int | None, int | None], Tensor]  # [n, 1, Q, K], by `Look.reach`

    @property
    def is_causal(self) -> bool:
        """True if no node has a parent among the keys, and all its tokens are queries."""
        return self.queries is self.keys

    def mask(self, look: Look) -> Tensor:
        """Return the mask of a layer with this `look`, True where a query sees a key."""
        if look.reach not in self.masks:
            keys = torch.arange(self.keys.index.shape[1], device=self.positions.device)
            self.masks[look.reach] = look.sees(self.positions[:, None, :, None], keys)
        return self.masks[look.reach]


class TreeLayout:
    """The attention of packed tokens [N]: each attends to its path in the tree."""

    def __init__(
        self, parts: list[list[TokenNode]], spans: list[Span], wanted: Indices | None = None
    ) -> None:
        """Each of `parts` holds nodes that attend in one call. `spans` are all nodes in pre-order.

        With `wanted`, only these packed tokens are queries, in ascending order.
        """
        self.spans = spans
        self._parts = parts
        self._wanted = wanted
        self._narrow: tuple[Tensor, TreeLayout] | None = None  # last result of `of`
        self._trees: dict[int | None, TreeMask] = {}  # for a GPU, by window
        self._blocks: list[_Block] = []  # created on first use, since masks may be large
        self._cascade: tuple[list[Near], list[Far]] | None = None

    def of(self, wanted: Tensor) -> TreeLayout:
        """Return the layout whose queries are these packed tokens [S], in ascending order."""
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
        """Return the blocks that remain when large ancestors are handled separately by `_far`."""
        near = []
        for block in self._blocks_of(torch.device("cpu"), APART):
            mask = None
            if not block.is_causal:
                hidden = ~block.mask(look)
                mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, -torch.inf)
            near.append(Near(block.queries, block.keys, mask))
        return near

    def _far(self) -> list[Far]:
        """Return the descendants of each large node, as queries that attend to it."""
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
    """Return all nodes in pre-order, and the last node of each sequence.

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
        """Add nodes for ordered[lo:hi], whose tokens up to the parent's end have nodes already."""
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
    """Return ids and positions [1, N] of nodes whose `first` is set."""
    in_order = sorted(nodes, key=lambda n: n.first)
    ids = torch.tensor([[i for n in in_order for i in n.ids]])
    positions = [np.arange(n.start, n.start + len(n.ids)) for n in in_order]
    return ids, torch.from_numpy(np.concatenate(positions))[None]


def lay_out(nodes: list[TokenNode]) -> TreeLayout:
    """Set the packed index of each node, in pre-order, and return the layout."""
    placed = 0
    for node in nodes:
        node.first, placed = placed, placed + len(node.ids)
    parts = []
    for level in range(1 + max((n.level for n in nodes), default=-1)):
        members = sorted((n for n in nodes if n.level == level), key=lambda n: len(n.ids))
        parts += _similar(members)
    return TreeLayout(parts, _spans(nodes))


def _similar(nodes: list[TokenNode]) -> list[list[TokenNode]]:
    """Split nodes, shortest first, so that padding each part to one length wastes little."""
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
    """Return the block of these nodes, or None if they have no wanted tokens.

    The keys are the tokens on a node's path, without ancestors of `shorter` tokens or more.
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
    # The position of each query in its row of keys. Padding queries see what the last token sees,
    # because the softmax of a row without any key is undefined.
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
    """Return the tree as a list in pre-order: every node before its children."""
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
