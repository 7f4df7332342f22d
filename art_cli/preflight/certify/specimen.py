"""A small checkpoint of the base's architecture with sample sequences, for certification."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel

from art_cli.config.sections.model import ModelConfig, TinyConfig
from art_cli.models import tiny
from art_cli.models.loading import load_policy
from art_cli.models.policy import Policy
from art_cli.preflight.small_model.build import small_model, spread, vocabulary_of
from art_cli.training.algorithm.packing import TrainSequence

SEED = 0
Status = Literal["passed", "failed", "skipped"]
WORDS = ["You are a desk. Cancel order 17, late: it is done. tool call name arguments " * 20]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One row of the certification report."""

    name: str
    status: Status
    what: str  # what was measured, or why it failed
    difference: float | None = None  # largest difference, if numbers were compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Specimen:
    """The small checkpoint, loaded as by `art`, and the sequences that it reads.

    The sequences are siblings that share prompts and first turns, longer than a window or a chunk.
    """

    folder: Path
    policy: Policy
    sequences: list[TrainSequence]
    weights: list[Tensor]  # of each token's log-probability in the objective

    def reference(self, folder: Path | None = None) -> PreTrainedModel:
        """Return transformers' own model of this checkpoint or another one, in eager mode."""
        model_class = type(self.policy.base)
        loaded = model_class.from_pretrained(
            folder or self.folder, attn_implementation="eager", dtype=torch.float32
        )
        return loaded.eval()


@contextmanager
def specimen_of(config: dict[str, Any]) -> Iterator[Specimen]:
    """Create the checkpoint, and remove it afterwards.

    Raises UsageError if there is no such architecture, or `art` refuses to load it.
    """
    _, tokenizer = tiny.make(TinyConfig(), WORDS, SEED)
    with TemporaryDirectory() as name:
        folder = Path(name)
        model = small_model(config, vocabulary_of(tokenizer), SEED)
        spread(model, SEED)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        yield specimen_in(folder)


def specimen_in(folder: Path) -> Specimen:
    """Load the checkpoint in a folder. Raises UsageError if `art` refuses it."""
    base = ModelConfig(base=str(folder), adapter=None, device="cpu", dtype="float32")
    policy = load_policy(base, [], SEED)
    sequences, weights = _siblings(vocabulary_of(policy.tokenizer))
    return Specimen(folder=folder, policy=policy, sequences=sequences, weights=weights)


def _siblings(vocab: int) -> tuple[list[TrainSequence], list[Tensor]]:
    words = random.Random(SEED)

    def text(length: int) -> list[int]:
        return [words.randrange(3, vocab) for _ in range(length)]

    prompt = text(50)
    one, other = prompt + text(35), prompt + text(40)
    ids = [one + text(30), one + text(20), other + text(15), other + text(45), prompt + text(8)]
    ids.append(text(33))  # another group
    sequences = []
    for each in ids:
        mask = [0] * 20 + [int(words.random() < 0.7) for _ in each[20:]]
        sequences.append(TrainSequence(ids=each, mask=mask, engine_logprobs=[0.0] * len(each)))
    generator = torch.Generator().manual_seed(SEED)
    return sequences, [torch.randn(len(each), generator=generator) for each in ids]


def logprobs(model: torch.nn.Module, ids: list[int]) -> Tensor:
    """Return the log-probability of each token except the first, by transformers' own forward."""
    logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()
    chosen = torch.tensor(ids[1:])[:, None]
    return torch.log_softmax(logits[:-1], -1).gather(1, chosen)[:, 0]
