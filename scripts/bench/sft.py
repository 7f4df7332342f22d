"""Measure supervised fine-tuning: the loss of demonstrations that it has not read, and its CPU
time.

    python scripts/bench/sft.py configs/quickstart.yaml --seeds 4
    python scripts/bench/sft.py configs/tic-tac-toe.yaml sft.epochs=1 --factor 5

Demonstrations that leave something to chance have a least loss of their own: compare rows, and
take no zero for granted. CPU s are of this machine, and rise with what else it does.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

from typing import Any
from unittest import mock

import torch

from art_cli.chat.render import Renderer
from art_cli.cli.inputs import load
from art_cli.config.load import LoadedExperiment
from art_cli.envs.registry import env_class
from art_cli.envs.tools import schemas_of
from art_cli.errors import ArtError
from art_cli.models.loading import load_policy
from art_cli.models.policy import Policy
from art_cli.training.algorithm.logprobs import head_loss
from art_cli.training.algorithm.packing import TrainSequence, pack
from art_cli.training.demonstrations import load_demonstrations, texts_of
from art_cli.training.trainers import muon, sft
from art_cli.training.trainers.budget import TokenBudget
from art_cli.types import Message

HELD_OUT = 256  # demonstrations, the last ones: where there are no more, fewer are read
AT_ONCE = 8  # of them, in a forward


def main() -> None:
    """Warm up once a seed, and print a row for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", help="with model.base: tiny")
    parser.add_argument("overrides", nargs="*", help="key=value, as for art run")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--factor", type=float, default=sft.MUON_FACTOR, help="see MUON_FACTOR")
    parser.add_argument("--momentum", type=float, default=muon.MOMENTUM, help="Muon's")
    args = parser.parse_args()
    try:
        loaded = load([args.config, *args.overrides])
    except ArtError as e:
        parser.error(str(e))
    cfg = loaded.experiment
    if cfg.sft is None or cfg.model.base != "tiny":
        parser.error("the config needs a section sft, and model.base: tiny")
    torch.set_num_threads(1)
    env, num = env_class(cfg.env.use), cfg.sft.num_demonstrations
    found = load_demonstrations(cfg.sft.demonstrations, env, loaded.env_settings, num + HELD_OUT)
    read, held_out = found[:-HELD_OUT], found[-HELD_OUT:]
    if not read:
        parser.error(
            f"{len(found)} demonstrations: {HELD_OUT} are held out, and none is left to read"
        )
    print(
        "| seed | demonstrations | updates | nats each, held out | CPU s |\n|---|---|---|---|---|"
    )
    losses = []
    with (
        mock.patch.object(muon, "MOMENTUM", args.momentum),
        mock.patch.object(sft, "MUON_FACTOR", args.factor),
        mock.patch.object(sft.CachedSft, "load", lambda _: None),
        mock.patch.object(sft.CachedSft, "save", lambda *_: None),
    ):
        for seed in range(args.seeds):
            policy, renderer = _fresh(loaded, env, read, seed)
            began, updates = time.process_time(), 0
            budget = TokenBudget(cfg.train.microbatch_tokens, print)
            length = cfg.engine.max_model_len
            for done, _, _ in sft.fine_tune(policy, renderer, read, cfg.sft, seed, budget, length):
                updates = done
            took = time.process_time() - began
            losses.append(_loss(policy, renderer, held_out))
            print(
                f"| {seed} | {len(read)} | {updates} | {losses[-1]:.3f} | {took:.1f} |", flush=True
            )
    print(f"\nmean {statistics.fmean(losses):.3f}")


def _fresh(
    loaded: LoadedExperiment, env: Any, read: list[list[Message]], seed: int
) -> tuple[Policy, Renderer]:
    model = loaded.experiment.model
    policy = load_policy(model, texts_of(read, schemas_of(env)), seed)
    stop, how = policy.eos_token_ids, model.tool_format
    return policy, Renderer(policy.tokenizer, schemas_of(env), stop, how, model.template_args)


@torch.no_grad()
def _loss(policy: Policy, renderer: Renderer, conversations: list[list[Message]]) -> float:
    """Return -log p of what the assistant says in a conversation, in nats, on average."""
    total = 0.0
    for i in range(0, len(conversations), AT_ONCE):
        several = [sft.demonstration(renderer, c) for c in conversations[i : i + AT_ONCE]]
        sequences = [
            TrainSequence(ids=s.ids, mask=s.mask, engine_logprobs=s.engine_logprobs)
            for each in several
            for s in each
        ]
        batch = pack(sequences, policy.ways.shares)
        hidden = policy.hidden(batch.ids, batch.positions, batch.layout, batch.hidden_at)
        repeats = torch.bincount(batch.row, minlength=len(batch.targets)).float()
        loss, _ = head_loss(hidden, policy.head, batch.targets, 1.0, sft._nll(repeats))
        total += float(loss)
    return total / len(conversations)


if __name__ == "__main__":
    main()
