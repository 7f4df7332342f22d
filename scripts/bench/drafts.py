"""Bound what drafts could save the embedded engine, over sizes of a model and numbers of rows.

A draft of n tokens is verified by one forward of n + 1 tokens a row. Where each drafted token is
what is then drawn with probability a, independently, that forward yields 1 + a + ... + a^n tokens;
it costs what is measured here, in forwards of one token. The table has the best n for each a (0:
no drafts), and the speed-up: a bound, for guessing, verifying to the last bit and taking back what
was not drawn cost nothing in it. Of one token drawn from a distribution, no draft is right more
often than its likeliest token is drawn.

For each size: behind a prompt of 150 tokens that all rows share and 60 of their own. The widths
alternate; each time is the least of some.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

from typing import Any, cast

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from art_cli.models.forward.kv_cache import KVCache
from art_cli.models.policy import Policy

NAMES = (
    *("hidden_size", "num_hidden_layers", "intermediate_size"),
    *("num_attention_heads", "num_key_value_heads", "vocab_size"),
)
SIZES = {
    "0.13M": (64, 2, 192, 2, 1, 600),
    "10M": (384, 6, 1024, 6, 2, 4096),
    "0.5B": (896, 24, 4864, 14, 2, 151936),
}
ROWS = (1, 4, 16, 64)
DRAFTS = (0, 1, 3, 7)  # tokens
RIGHT = (0.5, 0.7, 0.8, 0.9, 0.95)  # probabilities that a drafted token is accepted
SHARED, OWN = 150, 60


def main() -> None:
    """Measure all sizes, and print a table for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sizes", nargs="*", default=list(SIZES), help=f"of {', '.join(SIZES)}")
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="of CPU, for each row of a table"
    )
    args = parser.parse_args()
    if unknown := set(args.sizes) - set(SIZES):
        parser.error(f"unknown size {', '.join(sorted(unknown))}; there are {', '.join(SIZES)}")
    for name in args.sizes:
        torch.manual_seed(0)
        sizes: dict[str, Any] = dict(zip(NAMES, SIZES[name], strict=True))
        config = Qwen2Config(**sizes, tie_word_embeddings=True)
        policy = Policy(Qwen2ForCausalLM(config).eval(), cast(Any, None))  # nothing is said
        print(f"\n{name}, ms of CPU for a step and what forwards of 2, 4 and 8 tokens a row cost;")
        print("then the speed-up at most (and the draft's tokens), by how often one is right")
        print(" rows     ms " + "".join(f"{'x' + str(n + 1):>6}" for n in DRAFTS[1:]), end="  ")
        print("".join(f"{a:>10}" for a in RIGHT))
        for rows in ROWS:
            print(line_of(policy, rows, args.seconds), flush=True)


@torch.inference_mode()
def line_of(policy: Policy, rows: int, seconds: float) -> str:
    """Return a row: the cost of forward passes with this many rows, and the possible speedup."""
    every = list(range(rows))
    prefix = KVCache(policy, 1, SHARED)
    prefix.read([0], [[5] * SHARED], [0], None)
    cache = KVCache(policy, rows, SHARED + OWN + max(DRAFTS) + 1, policy.ways.quick)
    cache.copy_prefix(prefix, every, SHARED)
    cache.read(every, [[6 + r % 9] * OWN for r in every], [SHARED] * rows, None)

    def forward(num: int) -> float:
        """Return the seconds of a forward pass over `num` tokens of each row, with all logits."""
        began = time.process_time()
        ids = torch.full((rows, num), 7)
        positions = (SHARED + OWN + torch.arange(num)).expand(rows, num)
        if num == 1:
            hidden = cache.read(every, [[7]] * rows, [SHARED + OWN] * rows, prefix)
        else:
            layout = cache.at(None, positions, SHARED + OWN + num)
            hidden = policy.hidden(ids, positions, layout).flatten(0, 1)
        policy.head.logits(hidden)
        return time.process_time() - began

    least = {n: forward(n + 1) for n in DRAFTS}
    until = time.process_time() + seconds
    while time.process_time() < until:
        for n in DRAFTS:
            least[n] = min(least[n], forward(n + 1))
    costs = {n: least[n] / least[0] for n in DRAFTS}
    bounds = []
    for a in RIGHT:
        gain, best = max((sum(a**i for i in range(n + 1)) / costs[n], -n) for n in DRAFTS)
        bounds.append(f"{gain:.2f} ({-best})")
    shown = "".join(f"{costs[n]:6.2f}" for n in DRAFTS[1:])
    return f"{rows:5} {least[0] * 1e3:7.2f}{shown}  " + "".join(f"{b:>10}" for b in bounds)


if __name__ == "__main__":
    main()
