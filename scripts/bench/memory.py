"""Measure the bounds of an update's memory: the chunk of logits, and a microbatch's packed tokens.

    vocabulary  the peak of the log-probability step (loss and gradient of the hidden states and of
                the head) for 2,048 scored tokens, hidden size 256, vocabularies of 32k to 152k.
                Beside the head's own weights and their gradient it must be flat within 10%.
    packing     tokens run through the model for trajectories of skewed lengths: a row each, padded
                to the longest, in batches of as many tokens; against ours, packed with what
                siblings share computed once. And the largest microbatch against its budget.

Each vocabulary is measured in a process of its own. With --device cuda the peak is the allocator's.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("OMP_NUM_THREADS", "1")

if TYPE_CHECKING:
    from art_cli.training.algorithm.packing import TrainSequence

VOCABULARIES = (32_000, 64_000, 128_000, 151_936)
SCORED, HIDDEN = 2048, 256
FLAT = 0.10
BUDGET = 16_384


def main() -> None:
    """Measure all, or be the process of one vocabulary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results/memory.json")
    parser.add_argument("--vocabulary", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.vocabulary:
        return print(json.dumps(peak_of_logprobs(args.vocabulary, args.device)))
    found = {"vocabulary": vocabularies(args.device), "packing": packing()}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({"device": args.device} | found, indent=1) + "\n")
    print(f"\nwritten: {args.out}")
    return None


def vocabularies(device: str) -> list[dict[str, float]]:
    """One process for each; ends the program where the peaks are not flat."""
    rows = []
    print(f"{'vocabulary':>10} {'peak MB':>9} {'head MB':>9} {'beside':>9} {'all logits':>11}")
    for vocab in VOCABULARIES:
        command = [sys.executable, __file__, "--vocabulary", str(vocab), "--device", device]
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        row = json.loads(out.splitlines()[-1])
        rows.append(row)
        print(
            f"{vocab:>10,} {row['peak_mb']:>9.0f} {row['head_mb']:>9.0f} {row['beside_mb']:>9.0f} "
            f"{SCORED * vocab * 4 / 2**20:>11,.0f}",
            flush=True,
        )
    peaks = [row["beside_mb"] for row in rows]
    spread = max(peaks) / min(peaks) - 1
    print(f"beside the head: {spread:.1%} between the least and the most (at most {FLAT:.0%})")
    if spread > FLAT:
        sys.exit("error: the peak grows with the vocabulary")
    return rows


def peak_of_logprobs(vocab: int, device: str) -> dict[str, float]:
    """In this process: memory that one loss and gradient took, in MB."""
    import torch

    from art_cli.models.forward.head import Head
    from art_cli.training.algorithm.logprobs import head_loss

    torch.manual_seed(0)
    head = torch.nn.Parameter(torch.empty(vocab, HIDDEN, device=device).normal_(0, 0.02))
    hidden = torch.randn(SCORED, HIDDEN, device=device).requires_grad_()
    ids = torch.randint(0, vocab, (SCORED,), device=device)
    head_mb = 2 * head.numel() * head.element_size() / 2**20  # with the gradient

    before = memory_mb(device) - head_mb / 2  # the weights are there already
    loss, _ = head_loss(
        hidden, Head(head), ids, 1.0, lambda logprobs, rows: -logprobs.sum() / SCORED
    )
    loss.backward()
    peak = memory_mb(device, peak=True) - before
    return {
        "vocabulary": vocab,
        "peak_mb": peak,
        "head_mb": head_mb,
        "beside_mb": peak - head_mb,
    }


def memory_mb(device: str, peak: bool = False) -> float:
    """Of this process, now or at its highest."""
    import psutil
    import torch

    if device == "cuda":
        used = torch.cuda.max_memory_allocated() if peak else torch.cuda.memory_allocated()
        return used / 2**20
    if not peak:
        return psutil.Process().memory_info().rss / 2**20
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return highest / (2**20 if sys.platform == "darwin" else 2**10)


def packing() -> dict[str, int]:
    """Tokens of three layouts of the same trajectories, and how full microbatches are."""
    from art_cli.training.algorithm.packing import num_packed, partition

    groups = skewed_groups()
    lengths = sorted(len(s.ids) for group in groups for s in group)
    padded = padded_by_length(lengths)
    in_order = sum(len(group) * max(len(s.ids) for s in group) for group in groups)
    parts = partition(groups, BUDGET)
    sizes = [num_packed([s.ids for s in part]) for part in parts]
    alone = [size for part, size in zip(parts, sizes, strict=True) if len(part) == 1]
    found = {
        "real": sum(lengths),
        "padded": in_order,
        "padded_sorted": padded,
        "packed": sum(sizes),
        "largest_microbatch": max(sizes),
        "budget": BUDGET,
    }
    print(f"\n{len(lengths)} trajectories of {lengths[0]:,} to {lengths[-1]:,} tokens")
    print(f"{'real tokens':28} {sum(lengths):>10,}")
    print(f"{'padded, in groups':28} {in_order:>10,}  {in_order / sum(sizes):.2f}x of packed")
    print(f"{'padded, sorted by length':28} {padded:>10,}  {padded / sum(sizes):.2f}x of packed")
    print(f"{'packed':28} {sum(sizes):>10,}")
    print(f"{'largest microbatch':28} {max(sizes):>10,}  of a budget of {BUDGET:,}")
    if max(sizes) > max(BUDGET, *alone, 0):
        sys.exit("error: a microbatch exceeds its budget")
    return found


def padded_by_length(lengths: list[int]) -> int:
    """Tokens where rows of like length share a batch of the budget, as a careful padder does."""
    total, batch = 0, 0
    for i, length in enumerate(lengths):
        batch += 1
        is_full = i + 1 == len(lengths) or (batch + 1) * lengths[i + 1] > BUDGET
        if is_full:
            total, batch = total + batch * length, 0
    return total


def skewed_groups() -> list[list[TrainSequence]]:
    """16 prompts, 8 trajectories each; most are short and a few are very long (Pareto)."""
    from art_cli.training.algorithm.packing import TrainSequence

    rng = random.Random(0)

    def ids(num: int) -> list[int]:
        return [rng.randrange(1000) for _ in range(num)]

    groups = []
    for _ in range(16):
        prompt = ids(rng.randrange(400, 1600))
        rows = [prompt + ids(min(12_000, int(150 * rng.paretovariate(1.1)))) for _ in range(8)]
        groups.append(
            [TrainSequence(ids=r, mask=[0] * len(r), engine_logprobs=[0.0] * len(r)) for r in rows]
        )
    return groups


if __name__ == "__main__":
    main()
