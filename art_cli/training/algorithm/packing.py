"""Sequences into microbatches, with what they share computed once.

Siblings begin alike: the prompt is the same for all, and often the first turns too. Their token ids
form a tree; each node is run through the model once, and every sequence attends over the path from
the root to its own tokens. That is exact: a token's hidden state depends on its ancestors alone,
and the gradients of all that descend from it add up in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from art_cli.models.grammar.allowed import Allowed
from art_cli.models.reading.token_tree import TreeLayout, grow_tree, lay_out, packed
from art_cli.types import Constrained


@dataclass(slots=True, kw_only=True)
class TrainSequence:
    """A sequence with what the loss needs to know of it."""

    ids: list[int]
    mask: list[int]
    engine_logprobs: list[float]
    advantages: list[float] | float = 0.0  # of each token, or of all that were sampled
    weight: float = 0.0  # of each sampled token
    # A number: its sequences have one ratio, and so stay in one microbatch. None: each for itself.
    trajectory: int | None = None
    constrained: list[Constrained] = field(default_factory=list)  # see Sequence

    def advantage(self, token: int) -> float:
        """Return the advantage of a token of it."""
        return self.advantages[token] if isinstance(self.advantages, list) else self.advantages


@dataclass(frozen=True, slots=True)
class Masks:
    """What grammars allowed where tokens of some sequences were sampled."""

    bits: Tensor  # [U, W] int32, each mask once; see unpacked
    rows: list[dict[int, int]]  # of each sequence: the row of `bits` of each of its trained tokens

    def allowed(self, of: list[int]) -> Allowed:
        """Return it for predictions that have these rows; -1: all is allowed."""
        which = [i for i, row in enumerate(of) if row >= 0]
        return Allowed(torch.tensor(which), torch.tensor([of[i] for i in which]), self.bits)


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
    unit: Tensor  # [T] the first sequence of its trajectory, or its own
    repeats: Tensor  # [N] sequences that each packed token is read for
    allowed: Allowed | None = None  # what the predictions may be, where grammars restrict some

    def to(self, device: torch.device) -> Microbatch:
        """Return this microbatch on a device."""
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

    A group stays together where it fits. A single sequence that is longer gets its own part; so
    does a trajectory that must not be split. `share` says whether what siblings share counts once.
    """
    parts: list[list[TrainSequence]] = []
    room = 0
    for group in groups:
        for sequences in _halve(group, max_tokens, share):
            size = num_packed([s.ids for s in sequences], share)
            if not parts or size > room:
                parts.append([])
                room = max_tokens
            parts[-1] += sequences
            room -= size
    return parts


def num_packed(sequences: list[list[int]], share: bool = True) -> int:
    """Return how many tokens the model reads for these sequences."""
    return sum(len(n.ids) for n in grow_tree(sequences, share)[0])


def _halve(
    group: list[TrainSequence], max_tokens: int, share: bool
) -> Iterable[list[TrainSequence]]:
    middle = _middle(group)
    if middle is None or num_packed([s.ids for s in group], share) <= max_tokens:
        return [group] if group else []
    halves = group[:middle], group[middle:]
    return [part for half in halves for part in _halve(half, max_tokens, share)]


def _middle(group: list[TrainSequence]) -> int | None:
    """Return where to cut it into halves, without cutting a trajectory; None: nowhere."""
    units = _units(group)
    cuts = [i for i in range(1, len(group)) if units[i] == i]
    return min(cuts, key=lambda i: abs(i - len(group) // 2), default=None)


def _units(sequences: list[TrainSequence]) -> list[int]:
    """Return the first sequence of each one's trajectory, or itself."""
    first: dict[int, int] = {}
    return [
        i if s.trajectory is None else first.setdefault(s.trajectory, i)
        for i, s in enumerate(sequences)
    ]


def pack(
    sequences: list[TrainSequence], share: bool = True, masks: Masks | None = None
) -> Microbatch:
    """Return one microbatch of these sequences. `share`: what they share is read once.

    Where siblings have the same tokens under other grammars, they share what is read, not what is
    predicted.
    """
    nodes, leaves = grow_tree([s.ids for s in sequences], share)
    layout = lay_out(nodes)
    paths = [leaf.path() for leaf in leaves]
    sampled = sorted(
        (path[t - 1], s.ids[t], masks.rows[i].get(t, -1) if masks else -1, i, t)
        for i, (s, path) in enumerate(zip(sequences, paths, strict=True))
        for t, m in enumerate(s.mask)
        if m
    )
    predictions = sorted({(at, target, row) for at, target, row, _, _ in sampled})
    rows = {p: r for r, p in enumerate(predictions)}
    ids, positions = packed(nodes)
    picked = [(sequences[i], t) for *_, i, t in sampled]
    units = _units(sequences)
    return Microbatch(
        ids=ids,
        positions=positions,
        layout=layout,
        hidden_at=torch.tensor([at for at, _, _ in predictions], dtype=torch.long),
        targets=torch.tensor([target for _, target, _ in predictions], dtype=torch.long),
        row=torch.tensor([rows[each[:3]] for each in sampled], dtype=torch.long),
        engine_logprobs=torch.tensor([s.engine_logprobs[t] for s, t in picked]),
        advantages=torch.tensor([s.advantage(t) for s, t in picked]),
        weights=torch.tensor([s.weight for s, _ in picked]),
        unit=torch.tensor([units[i] for *_, i, _ in sampled], dtype=torch.long),
        repeats=torch.bincount(torch.tensor([at for path in paths for at in path])),
        allowed=masks and masks.allowed([row for _, _, row in predictions]),
    )
