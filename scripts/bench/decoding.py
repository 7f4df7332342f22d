"""A decoding step of a tiny model: with joined matrices against its layers' own modules.

For each size and number of rows: one token of each, behind a prompt of 150 tokens that all share
and 60 of their own. The sides alternate; each number is the least of 30. `calls` are torch's own
operations in a step.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch.profiler import ProfilerActivity, profile

from art_cli.config.sections.model import ModelConfig, TinyConfig
from art_cli.models.forward.kv_cache import KVCache
from art_cli.models.loading import load_policy
from art_cli.models.policy import Policy

SIZES = ((64, 2), (128, 4))  # width and layers: 0.13M and 0.8M parameters
ROWS = (1, 16, 64, 128)
SHARED, OWN, STEPS, REPEATS = 150, 60, 10, 30


def main() -> None:
    """Measure all sizes and numbers of rows."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    for width, layers in SIZES:
        tiny = TinyConfig(hidden_size=width, num_layers=layers)
        cfg = ModelConfig(base="tiny", adapter=None, device="cpu", tiny=tiny)
        policy = load_policy(cfg, ["the words of a tokenizer " * 100], 0)
        size = sum(p.numel() for p in policy.base.parameters()) / 1e6
        print(f"{size:.2f}M    modules    joined   ratio   calls   (us of CPU)")
        for rows in ROWS:
            compare(policy, rows)


@torch.inference_mode()
def compare(policy: Policy, rows: int) -> None:
    """Print the time of a step and the number of calls of both sides."""
    prefix = KVCache(policy, 1, SHARED)
    prefix.read([0], [[5] * SHARED], [0], None)
    sides = [KVCache(policy, rows, SHARED + OWN + 1, quick) for quick in (False, True)]
    for cache in sides:
        cache.copy_prefix(prefix, list(range(rows)), SHARED)
        cache.read(
            list(range(rows)), [[6 + r % 9] * OWN for r in range(rows)], [SHARED] * rows, None
        )
        step(cache, prefix, STEPS)
    least = [float("inf")] * 2
    for _ in range(REPEATS):
        for i, cache in enumerate(sides):
            started = time.process_time()
            step(cache, prefix, STEPS)
            least[i] = min(least[i], (time.process_time() - started) / STEPS * 1e6)
    calls = [num_calls(cache, prefix) for cache in sides]
    modules, joined = least
    print(
        f"{rows:5} rows {modules:7.0f} {joined:9.0f} {modules / joined:6.2f}x"
        f"   {calls[0]} -> {calls[1]}",
        flush=True,
    )


def step(cache: KVCache, prefix: KVCache, num: int) -> None:
    """Decode a few tokens of each row."""
    rows = list(range(cache.num_rows))
    for _ in range(num):
        cache.read(rows, [[7]] * len(rows), [SHARED + OWN] * len(rows), prefix)


def num_calls(cache: KVCache, prefix: KVCache) -> int:
    """Return the number of torch operations in a step, including views."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        step(cache, prefix, 1)
    return sum(e.count for e in seen.key_averages() if e.key.startswith("aten::"))


if __name__ == "__main__":
    main()
