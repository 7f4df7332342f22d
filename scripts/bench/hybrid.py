"""A model with recurrent layers: what siblings share read once, against one sequence after another.

    python scripts/bench/hybrid.py

A Qwen3.5 of 7.4M parameters (three layers of Gated DeltaNet to one of attention) and 8 siblings of
whose tokens 70% are the same first ones. The two updates alternate in one process; their gradients
must agree. Prints CPU seconds, and how many times fewer are needed.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import time
from dataclasses import replace

os.environ.update(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1")

import torch
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

from art_cli.config.sections.model import TinyConfig
from art_cli.models import tiny
from art_cli.models.policy import Policy
from art_cli.training.algorithm.packing import TrainSequence, pack
from art_cli.training.trainers.forward import Forward

PREFIX, SUFFIX, SIBLINGS, ROUNDS = 448, 192, 8, 3  # tokens
AGREEMENT = 1e-3  # relative, of the gradient: a recurrence is cut in chunks at other places


def main() -> None:
    """Measure both sides in turn, and print the ratio."""
    torch.set_num_threads(1)
    policy = _policy()
    assert policy.ways.update == "nodes", policy.ways
    sequences = _siblings()
    shared = PREFIX / (PREFIX + SUFFIX)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    gradients: dict[bool, torch.Tensor] = {}
    ways = policy.ways
    for _ in range(ROUNDS + 1):  # the first is not counted
        for share in (True, False):
            policy.ways = replace(ways, update="nodes" if share else "rows")
            begun = time.process_time()
            batch = pack(sequences, share)
            loss, _ = Forward(policy, 1.0)(batch, lambda logprobs, rows: -logprobs.sum())
            loss.backward()
            seconds[share].append(time.process_time() - begun)
            gradients[share] = torch.cat([p.grad.flatten() for p in policy.trainable])  # type: ignore[union-attr]
            policy.base.zero_grad()
    apart = float((gradients[True] - gradients[False]).norm() / gradients[False].norm())
    assert apart < AGREEMENT, apart
    once, each = (statistics.median(seconds[share][1:]) for share in (True, False))
    row = {
        "shared": round(shared, 2),
        "gradients_apart": apart,
        "seconds_shared": round(once, 2),
        "seconds_one_after_another": round(each, 2),
        "times_faster": round(each / once, 2),
    }
    print(json.dumps(row))


def _policy() -> Policy:
    torch.manual_seed(0)
    config = Qwen3_5TextConfig(
        vocab_size=1024,
        hidden_size=256,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        intermediate_size=768,
        linear_num_key_heads=4,
        linear_num_value_heads=8,
        linear_key_head_dim=32,
        linear_value_head_dim=32,
    )
    _, tokenizer = tiny.make(TinyConfig(), ["a text"], 0)
    return Policy(Qwen3_5ForCausalLM(config).float(), tokenizer)


def _siblings() -> list[TrainSequence]:
    rng = random.Random(0)
    prefix = [rng.randrange(1024) for _ in range(PREFIX)]
    all_ids = [prefix + [rng.randrange(1024) for _ in range(SUFFIX)] for _ in range(SIBLINGS)]
    return [
        TrainSequence(ids=ids, mask=[0] * PREFIX + [1] * SUFFIX, engine_logprobs=[0.0] * len(ids))
        for ids in all_ids
    ]


if __name__ == "__main__":
    main()
