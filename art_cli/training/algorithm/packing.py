"""Packing of sequences into microbatches, with shared prefixes computed once.

Siblings share the prompt, and often the first turns too. Their token ids form a tree. The model
reads each node once, and every sequence attends over the path from the root to its own tokens. This
is exact: a token's hidden state depends only on its ancestors, and a node accumulates the gradients
of all its descendants.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain, compress, repeat

import numpy as np
import torch
from torch import Tensor

from art_cli.chat.grammar.allowed import Allowed
from art_cli.models.forward.token_tree import TreeLayout, grow_tree, lay_out, packed
from art_cli.types import Constrained


@dataclass(slots=True, kw_only=True)
class TrainSequence:
    """A token sequence with the inputs of the loss."""

    ids: list[int]
    mask: list[int]
    engine_logprobs: list[float]
    advantages: list[float] | float = 0.0  # one per token, or one for all sampled tokens
    weight: float = 0.0  # of each sampled token
    # Sequences with the same number share one ratio and stay in one microbatch. None: alone.
    trajectory: int | None = None
    constrained: list[Constrained] = field(default_factory=list)  # see `Sequence`

    def each_advantage(self) -> Iterable[float]:
        """Return the advantage of each token; endless if one value applies to all tokens."""
        return self.advantages if isinstance(self.advantages, list) else repeat(self.advantages)


@dataclass(frozen=True, slots=True)
class Masks:
    """The tokens that grammars allowed when some sequences were sampled."""

    bits: Tensor  # [U, W] int32, bit masks without duplicates; see `unpacked`
    rows: list[dict[int, int]]  # for each sequence: trained token -> row of `bits`

    def each(self, sequences: list[TrainSequence]) -> Iterable[Iterable[int]]:
        """Yield for each sequence the mask's row for each token; -1 allows every token."""
        for s, rows in zip(sequences, self.rows, strict=True):
            yield (rows.get(t, -1) for t in range(len(s.ids)))

    def allowed(self, of: list[int]) -> Allowed:
        """Return the masks for predictions with these rows; -1 allows every token."""
        which = [i for i, row in enumerate(of) if row >= 0]
        return Allowed(torch.tensor(which), torch.tensor([of[i] for i in which]), self.bits)


@dataclass(slots=True, kw_only=True)
class Microbatch:
    """Packed tokens [N] of a few sequences, and the [T] sampled tokens among them."""

    ids: Tensor  # [1, N]
    positions: Tensor  # [1, N]
    layout: TreeLayout
    hidden_at: Tensor  # [S] packed index of the token before the predicted one
    targets: Tensor  # [S] the token that is predicted
    row: Tensor  # [T] index into the S predictions of each sampled token; ascending
    engine_logprobs: Tensor  # [T]
    advantages: Tensor  # [T]
    weights: Tensor  # [T]
    unit: Tensor  # [T] index of the first sequence of its trajectory, or its own
    repeats: Tensor  # [N] number of sequences that share each packed token
    allowed: Allowed | None = None  # tokens that grammars allow at the predictions

    def to(self, device: torch.device) -> Microbatch:
        """Move this microbatch to a device, in place, and return it."""
        if device.type == "cpu":
            return self
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, Tensor):
                setattr(self, name, value.to(device))
        self.allowed = self.allowed and self.allowed.to(device)
        return self


def partition(
    groups: list[list[TrainSequence]], max_tokens: int, share: bool = True
) -> list[list[TrainSequence]]:
    """Split groups of siblings into parts of at most `max_tokens` packed tokens each.

    A group stays together if it fits. A sequence that is longer gets a part of its own, and so does
    a trajectory that must not be split. With `share`, a shared prefix counts once.
    """
    parts: list[list[TrainSequence]] = []
    room = 0
    for group in groups:
        for sequences, size in _halve(group, max_tokens, share):
            if not parts or size > room:
                parts.append([])
                room = max_tokens
            parts[-1] += sequences
            room -= size
    return parts


def num_packed(sequences: list[list[int]], share: bool = True) -> int:
    """Return the number of tokens that the model reads for these sequences."""
    return sum(len(n.ids) for n in grow_tree(sequences, share)[0])


def _halve(
    group: list[TrainSequence], max_tokens: int, share: bool
) -> list[tuple[list[TrainSequence], int]]:
    """Return the parts of a group, each with its number of packed tokens."""
    size = num_packed([s.ids for s in group], share)
    middle = None if size <= max_tokens else _middle(group)
    if middle is None:
        return [(group, size)] if group else []
    halves = group[:middle], group[middle:]
    return [part for half in halves for part in _halve(half, max_tokens, share)]


def _middle(group: list[TrainSequence]) -> int | None:
    """Return the cut nearest to the middle that splits no trajectory, or None if there is none."""
    units = _units(group)
    cuts = [i for i in range(1, len(group)) if units[i] == i]
    return min(cuts, key=lambda i: abs(i - len(group) // 2), default=None)


def _units(sequences: list[TrainSequence]) -> list[int]:
    """Return for each sequence the index of the first one of its trajectory, or its own index."""
    first: dict[int, int] = {}
    return [
        i if s.trajectory is None else first.setdefault(s.trajectory, i)
        for i, s in enumerate(sequences)
    ]


def pack(
    sequences: list[TrainSequence], share: bool = True, masks: Masks | None = None
) -> Microbatch:
    """Pack these sequences into one microbatch. With `share`, the model reads shared prefixes once.

    Siblings with equal tokens but different grammars share the hidden states, not the predictions.
    """
    nodes, leaves = grow_tree([s.ids for s in sequences], share)
    layout = lay_out(nodes)
    ids, positions = packed(nodes)
    paths = [leaf.path() for leaf in leaves]

    def sampled(values: Iterable[Iterable[float]], dtype: type = np.float32) -> Tensor:
        """Return [T] values of the sampled tokens, in the order of the sequences."""
        chosen = map(compress, values, (s.mask for s in sequences))
        return torch.from_numpy(np.fromiter(chain.from_iterable(chosen), dtype))

    # A prediction is (position, token, mask). After sorting by these, equal ones are adjacent.
    at = sampled((np.append(-1, path[:-1]).tolist() for path in paths), np.int64)
    target = sampled((s.ids for s in sequences), np.int64)
    mask = sampled(masks.each(sequences) if masks else repeat(repeat(-1)), np.int64)
    keys = torch.stack([at, target, mask])
    order = torch.from_numpy(np.lexsort(keys.numpy()[::-1]))
    keys = keys[:, order]
    is_new = keys.diff(prepend=torch.full((3, 1), -1)).any(0)
    hidden_at, targets, allowed = keys[:, is_new]
    return Microbatch(
        ids=ids,
        positions=positions,
        layout=layout,
        hidden_at=hidden_at,
        targets=targets,
        row=is_new.cumsum(0) - 1,
        engine_logprobs=sampled(s.engine_logprobs for s in sequences)[order],
        advantages=sampled(s.each_advantage() for s in sequences)[order],
        weights=sampled(repeat(s.weight) for s in sequences)[order],
        unit=sampled(map(repeat, _units(sequences)), np.int64)[order],
        repeats=torch.from_numpy(np.bincount(np.concatenate(paths))),
        allowed=masks and masks.allowed(allowed.tolist()),
    )
