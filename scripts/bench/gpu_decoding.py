"""A decoding step of the embedded engine on a GPU: recorded and replayed, or called by Python.

    python scripts/bench/gpu_decoding.py              Qwen3 of 0.6B and 4B, random weights
    python scripts/bench/gpu_decoding.py --models 0.6b --rows 8 64

Each row reads one token behind a prompt of 200 tokens and 100 of its own, then one is drawn from
its logits. LoRA of rank 16 on all linear layers, bfloat16; and the base alone. The sides alternate;
each number is the median of 20 steps. `recording` is what it costs once for a shape.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import torch
from gpu import SIZES, make_policy, synchronize

from art_cli.config.sections.sampling import SamplingConfig
from art_cli.engines.embedded.sampler import draw
from art_cli.models.forward.kv_cache import KVCache
from art_cli.models.policy import Policy

PROMPT, OWN, STEPS = 200, 100, 20


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=["0.6b", "4b"], choices=["0.6b", "4b"])
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 8, 64, 256])
    parser.add_argument("--out", type=Path, help="a JSON file")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("error: torch sees no CUDA device; steps are recorded on a GPU alone")
    card = torch.cuda.get_device_name()
    print(f"{card}, torch {torch.__version__}; ms a step, and tokens a second of all rows")
    found = []
    for name in asked.models:
        policy = make_policy(SIZES[name], torch.device("cuda"))
        for adapter in (True, False):
            off: Any = nullcontext() if adapter else policy.model.disable_adapter()  # type: ignore[operator]
            with off:
                found += [measure(policy, name, adapter, rows) for rows in asked.rows]
        del policy
    if asked.out:
        asked.out.write_text(
            json.dumps({"card": card, "torch": torch.__version__, "rows": found}, indent=1) + "\n"
        )
        print(f"written: {asked.out}")


@torch.inference_mode()
def measure(policy: Policy, name: str, adapter: bool, rows: int) -> dict[str, Any]:
    """Return a row of the table."""
    caches = [KVCache(policy, rows, PROMPT + OWN + 8, quick=True) for _ in range(2)]
    caches[0]._replayed = None
    everyone = list(range(rows))
    rng = random.Random(0)
    text = [[rng.randrange(1000) for _ in range(PROMPT + OWN)] for _ in everyone]
    for cache in caches:
        for row in everyone:
            cache.read([row], [text[row]], [0], None)

    def step(cache: KVCache) -> None:
        hidden = cache.read(everyone, [[7]] * rows, [PROMPT + OWN] * rows, None)
        uniforms = [rng.random() for _ in everyone]
        draw(policy.head.logits(hidden), everyone, SamplingConfig(), uniforms)

    for _ in range(2):
        step(caches[0])
    step(caches[1])
    recording = timed(lambda: step(caches[1]))
    laps: list[list[float]] = [[], []]
    for _ in range(STEPS):
        for i, cache in enumerate(caches):
            laps[i].append(timed(lambda: step(cache)))  # noqa: B023
    called, replayed = (1000 * median(each) for each in laps)
    print(
        f"{name} {'LoRA' if adapter else 'base'} {rows:4} rows: called {called:7.2f}, "
        f"replayed {replayed:6.2f}: {called / replayed:5.1f} times; "
        f"{1000 * rows / replayed:8,.0f} tokens/s; recording {1000 * recording:.0f} ms",
        flush=True,
    )
    return {"model": name, "adapter": adapter, "rows": rows, "called_ms": called} | {
        "replayed_ms": replayed,
        "recording_ms": 1000 * recording,
    }


def timed(do: Callable[[], None]) -> float:
    """Return the seconds that a function takes, including the GPU's work."""
    synchronize(torch.device("cuda"))
    began = time.perf_counter()
    do()
    synchronize(torch.device("cuda"))
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
