"""Grammar masks of a microbatch, recomputed from the sampled tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from art_cli.chat.grammar.allowed import has
from art_cli.chat.grammar.grammars import Grammars
from art_cli.errors import TrainerError
from art_cli.training.algorithm.packing import Masks, TrainSequence


def masks_of(sequences: list[TrainSequence], grammars: Grammars) -> Masks | None:
    """Return the masks of the tokens that are trained on, or None if no grammar was used.

    Raises TrainerError if a sampled token was not allowed by its grammar.
    """
    places = [(i, s, part) for i, s in enumerate(sequences) for part in s.constrained]
    if not places:
        return None
    turns = [(part.grammar, s.ids[part.begin : part.end]) for _, s, part in places]
    rows: list[dict[int, int]] = [{} for _ in sequences]
    known: dict[bytes, int] = {}  # masks repeat often within a text
    kept: list[Tensor] = []
    for (i, s, part), bits in zip(places, grammars.replay(turns), strict=True):
        ends = range(part.begin, min(part.end, len(s.ids)))
        trained = [t for t in ends if s.mask[t]]
        mine = bits[torch.tensor(trained, dtype=torch.long) - part.begin]
        if not bool(has(mine, torch.tensor([s.ids[t] for t in trained], dtype=torch.long)).all()):
            raise TrainerError(
                "a turn has tokens that its grammar does not allow: the engine that sampled "
                "them has another tokenizer, or another version of llguidance"
            )
        for t, mask in zip(trained, mine, strict=True):
            row = known.setdefault(mask.numpy().tobytes(), len(known))
            rows[i][t] = row
            if row == len(kept):
                kept.append(mask)
    return Masks(torch.stack(kept), rows) if kept else None
