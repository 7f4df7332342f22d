"""Checks of log-probabilities and gradients against transformers' own forward."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import torch
from torch import Tensor

from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.engines.embedded.engine import TransformersEngine
from art_cli.preflight.certify.specimen import SEED, Specimen, Trial, logprobs
from art_cli.training.algorithm.logprobs import Objective
from art_cli.training.algorithm.packing import Microbatch, TrainSequence, pack
from art_cli.training.trainers.forward import Forward

# Rounding in float32. A layer that is computed wrongly is off by 0.05 or more.
MOST, MOST_GRADIENT = 1e-3, 2e-3
EPISODES, TURNS = 4, 2


def compared(name: str, difference: float, what: str, most: float = MOST) -> Trial:
    """Return the trial of a comparison with transformers."""
    passed = difference <= most  # False for NaN
    limit = f"at most {difference:.1e} apart" if passed else f"{difference:.2g} apart"
    return Trial(
        name=name,
        status="passed" if passed else "failed",
        what=f"{what}: {limit}",
        difference=difference,
    )


def check_numbers(specimen: Specimen) -> Iterator[Trial]:
    """Compare log-probabilities of single sequences and of the packed tree, and gradients."""
    reference = specimen.reference()
    theirs: list[Tensor] = []
    loss = torch.tensor(0.0)
    for sequence, weights in zip(specimen.sequences, specimen.weights, strict=True):
        mask = torch.tensor(sequence.mask[1:]).bool()
        found = logprobs(reference, sequence.ids)
        theirs.append(found.detach()[mask])
        loss = loss - (found * weights[1:])[mask].sum()
    loss.backward()

    forward = Forward(specimen.policy, 1.0)
    with torch.no_grad():
        alone = [
            sampled(forward, pack([s], specimen.policy.ways.shares)) for s in specimen.sequences
        ]
    gap = max(apart(a, b) for a, b in zip(alone, theirs, strict=True))
    yield compared("sequences", gap, f"{len(alone)} sequences, one by one")

    batch = pack(specimen.sequences, specimen.policy.ways.shares)
    mine_loss, found = forward(batch, objective_of(specimen, batch))
    mine_loss.backward()
    gap = max(
        apart(found[batch.row][batch.unit == i].detach(), expected)
        for i, expected in enumerate(theirs)
    )
    num = sum(len(s.ids) for s in specimen.sequences)
    yield compared("tree", gap, f"together, {batch.ids.shape[1]} of {num} tokens read")
    difference, worst = _gradients_apart(specimen, reference)
    yield compared("gradients", difference, f"of all weights ({worst})", MOST_GRADIENT)
    specimen.policy.base.zero_grad(set_to_none=True)


def sampled(forward: Forward, batch: Microbatch) -> Tensor:
    """Return the log-probabilities of the batch's sampled tokens."""
    return forward(batch)[batch.row]


def apart(mine: Tensor, theirs: Tensor) -> float:
    """Return the largest absolute difference, or NaN if any value is."""
    return float((mine - theirs).abs().max())


def objective_of(specimen: Specimen, batch: Microbatch) -> Objective:
    """Return an objective in which every sampled token has a different weight."""
    weights = torch.zeros(len(batch.row))
    for i, sequence in enumerate(specimen.sequences):
        weights[batch.unit == i] = specimen.weights[i][torch.tensor(sequence.mask).bool()]

    def objective(found: Tensor, rows: slice) -> Tensor:
        ends = torch.tensor([rows.start, rows.stop])
        first, last = torch.searchsorted(batch.row, ends).tolist()
        return -(found[batch.row[first:last] - rows.start] * weights[first:last]).sum()

    return objective


def _gradients_apart(specimen: Specimen, reference: torch.nn.Module) -> tuple[float, str]:
    """Return the relative difference of the gradients, and the weight where it is largest."""
    theirs = dict(reference.named_parameters())
    total = squares = 0.0
    worst, most = "", -1.0
    for name, p in specimen.policy.base.named_parameters():
        expected = theirs[name].grad
        expected = torch.zeros_like(p) if expected is None else expected
        mine = torch.zeros_like(p) if p.grad is None else p.grad
        error = float((mine - expected).square().sum())
        total, squares = total + error, squares + float(expected.square().sum())
        if not error <= most:
            worst, most = name, error
    return (total / max(squares, 1e-30)) ** 0.5, f"most in {worst}"


def check_engine(specimen: Specimen) -> Iterator[Trial]:
    """Compare the embedded engine's log-probabilities of its samples, over turns and a fork."""
    turns = asyncio.run(_play(specimen))
    reference = specimen.reference()
    with torch.no_grad():
        gap = max(
            apart(torch.tensor(found), logprobs(reference, ids)[start - 1 :])
            for ids, start, found in turns
        )
    num = sum(len(found) for _, _, found in turns)
    yield compared("engine", gap, f"{num} sampled tokens, {TURNS} turns of {EPISODES} episodes")


async def _play(specimen: Specimen) -> list[tuple[list[int], int, list[float]]]:
    """Return for each turn the sequence up to its end, its start, and its log-probabilities."""
    engine = TransformersEngine(
        specimen.policy, EngineConfig(max_model_len=320), SamplingConfig(max_tokens=24), frozenset()
    )
    words = random.Random(SEED)
    vocab = int(specimen.policy.base.get_input_embeddings().weight.shape[0])  # type: ignore[arg-type]
    turns: list[tuple[list[int], int, list[float]]] = []

    def text(length: int) -> list[int]:
        return [words.randrange(3, vocab) for _ in range(length)]

    async def episode(seed: int, ids: list[int]) -> None:
        session = engine.open(seed)
        for _ in range(TURNS):
            answer = await session.generate(ids)
            whole = ids + answer.token_ids
            turns.append((whole, len(ids), answer.logprobs))
            ids = whole + text(7)
        fork = ids[: len(ids) // 2] + text(9)  # earlier turns are rewritten
        answer = await session.generate(fork)
        turns.append((fork + answer.token_ids, len(fork), answer.logprobs))
        session.close()

    prompt = text(40)
    starts = [prompt + text(5 * i + 1) for i in range(EPISODES)]
    try:
        await asyncio.gather(*(episode(seed, ids) for seed, ids in enumerate(starts)))
    finally:
        await engine.close()
    return turns


def values(specimen: Specimen) -> list[Tensor]:
    """Return the policy's log-probabilities of each sequence's sampled tokens."""
    forward = Forward(specimen.policy, 1.0)
    with torch.no_grad():
        return [
            sampled(forward, pack([s], specimen.policy.ways.shares)) for s in specimen.sequences
        ]


def values_of(model: torch.nn.Module, sequences: list[TrainSequence]) -> list[Tensor]:
    """Return the same log-probabilities by transformers' own forward."""
    with torch.no_grad():
        return [logprobs(model, s.ids)[torch.tensor(s.mask[1:]).bool()] for s in sequences]
