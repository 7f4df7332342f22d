"""The update alone: shared prefixes computed once, and log-probabilities of a large vocabulary.

    tree      8 siblings whose first 800 tokens are the same (70% of all tokens), 48M parameters:
              one GRPOTrainer step of ours against the same step on a padded batch
    prefix    64 siblings whose first 2,000 tokens are the same, against a step that copies the
              prefix's keys and values for each, as layers with a window or sinks still do
    bound     as in tree: a step of which it is told how far it moved the policy (train.max_kl),
              against one that is just taken
    adapter   as in tree, LoRA of rank 16 on all linear maps: against PEFT's own layers
    logprobs  1,024 scored tokens, hidden size 512, 151,936 words: our loss on the output head
              against a plain log_softmax, with the head trained and frozen

Each measurement runs in a process of its own, so that its peak memory is its own; the two sides
alternate. Loss and gradient of both sides must agree to 1e-5.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.update(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1")

if TYPE_CHECKING:
    import torch

    from art_cli.models.policy import Policy
    from art_cli.types import TrajectoryGroup

AGREEMENT = 1e-5  # relative, of loss and gradient
SIBLINGS = {  # and their tokens
    "tree": (8, 800, (200, 472)),
    "bound": (8, 800, (200, 472)),
    "adapter": (8, 800, (200, 472)),
    "prefix": (64, 2000, (100, 268)),
}
SCORED, HIDDEN, VOCAB = 1024, 512, 151_936
VARIANTS = {
    "tree": ("padded", "art"),
    "bound": ("bounded", "free"),
    "adapter": ("peft", "art"),
    "prefix": ("copied", "art"),
    "logprobs": ("plain", "art"),
    "logprobs-frozen": ("plain", "art"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One process: CPU seconds of its second run, and what memory grew by at most."""

    seconds: float
    peak_mb: float
    loss: float
    tokens: int  # run through the model, or scored


def main() -> None:
    """Measure all, or be the process of one measurement."""
    args = parse()
    if args.worker:
        what, side, *files = args.worker
        print(
            json.dumps(compare(*files) if side == "compare" else asdict(work(what, side, *files)))
        )
        return
    results: dict[str, Any] = {
        "machine": {"arch": platform.machine(), "cores": os.cpu_count(), "threads": 1},
        "settings": {"what": args.what, "rounds": args.rounds},
    }
    tables = []
    for what in args.what:
        with tempfile.TemporaryDirectory() as folder:
            results[what] = measure(what, args.rounds, Path(folder))
        tables.append(table(what, results[what]))
    print("\n" + "\n\n".join(tables))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(results, indent=1) + "\n")
    print(f"\nwritten: {args.out}")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what", nargs="*", default=list(VARIANTS), help=f"among {', '.join(VARIANTS)}; default: all"
    )
    parser.add_argument("--rounds", type=int, default=3, help="processes of each side")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / "update.json"
    )
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if unknown := set(args.what) - set(VARIANTS):
        parser.error(f"unknown {', '.join(sorted(unknown))}; there are {', '.join(VARIANTS)}")
    return args


def measure(what: str, rounds: int, folder: Path) -> dict[str, Any]:
    """Alternate the sides, each in a process; then compare what they computed."""
    sides = VARIANTS[what]
    files = {side: str(folder / f"{side}.pt") for side in sides}
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for i in range(rounds):
        for side in sides:
            print(f"{what}: {side}, round {i + 1} of {rounds} ...", end=" ", flush=True)
            one = child(what, side, files[side])
            found[side].append(one)
            print(f"{one['seconds']:.2f} s, {one['peak_mb']:.0f} MB", flush=True)
    agreement = child(what, "compare", *files.values())
    worst = ", ".join(f"{name} {difference:.1e}" for name, difference in agreement.items())
    print(f"{what}: relative differences between the sides: {worst}", flush=True)
    if not all(difference < AGREEMENT for difference in agreement.values()):
        sys.exit(f"error: {what}: the sides differ by more than {AGREEMENT:g}")
    return {"rounds": found, "agreement": agreement}


def child(*worker: str) -> dict[str, Any]:
    """Return what a process of its own prints. This one stays small: its peak would become the
    child's.
    """
    command = [sys.executable, __file__, "--worker", *worker]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(out.splitlines()[-1])


def table(what: str, result: dict[str, Any]) -> str:
    """Medians and their ratios."""

    def median(side: str, key: str) -> float:
        return statistics.median(r[key] for r in result["rounds"][side])

    rows = [f"{what:16} {'CPU s':>8} {'peak MB':>9} {'tokens':>8}"]
    sides = VARIANTS[what]
    for side in sides:
        seconds, peak, tokens = (median(side, k) for k in ("seconds", "peak_mb", "tokens"))
        rows.append(f"{side:16} {seconds:8.2f} {peak:9.0f} {tokens:8.0f}")
    reference, ours = sides
    time_ratio = median(reference, "seconds") / median(ours, "seconds")
    memory_ratio = median(reference, "peak_mb") / median(ours, "peak_mb")
    rows.append(f"{f'{reference}/{ours}':16} {time_ratio:7.2f}x {memory_ratio:8.2f}x")
    agreement = (f"{name} {x:.1e}" for name, x in result["agreement"].items())
    rows.append(f"relative differences: {', '.join(agreement)}")
    return "\n".join(rows)


# ------------------------------------------------------------------ in the measured process


def work(what: str, side: str, file: str) -> Measured:
    """One measurement; the gradient goes to `file`."""
    import psutil
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    if what in SIBLINGS:
        run, gradient, tokens = tree(what, side)
    else:
        run, gradient, tokens = logprobs(side, trained=what == "logprobs")
    before = psutil.Process().memory_info().rss / 2**20
    run()  # the allocator's first touch of its memory is not what is measured
    began = time.process_time()
    loss = run()
    seconds = time.process_time() - began
    peak = peak_mb() - before
    torch.save(gradient() | {"loss": torch.tensor(loss)}, file)
    return Measured(seconds=seconds, peak_mb=peak, loss=loss, tokens=tokens)


def compare(theirs_file: str, mine_file: str) -> dict[str, float]:
    """Relative differences of the loss and, at most over all parameters, of the gradient."""
    import torch

    theirs, mine = (torch.load(f) for f in (theirs_file, mine_file))
    assert theirs.keys() == mine.keys()
    differ = {
        name: float((mine[name].double() - x.double()).norm() / x.double().norm())
        for name, x in theirs.items()
    }
    return {"loss": differ.pop("loss"), "gradient": max(differ.values())}


def peak_mb() -> float:
    """The most memory that this process ever had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


Run = Callable[[], float]
Gradient = Callable[[], dict[str, "torch.Tensor"]]


def tree(what: str, side: str) -> tuple[Run, Gradient, int]:
    """-> (one optimizer step, its gradient by parameter, tokens run through the model)"""
    import torch

    from art_cli.config.sections.sampling import SamplingConfig
    from art_cli.config.sections.train import TrainConfig
    from art_cli.models.forward.attention import Look
    from art_cli.training.trainers.grpo import GRPOTrainer

    policy, group = siblings(*SIBLINGS[what])
    if side == "copied":
        never = property(lambda look: False)
        setattr(Look, "is_plain", never)  # noqa: B010
    if what == "adapter":
        put_adapter(policy, by_peft=side == "peft")
    config = TrainConfig(
        steps=1,
        learning_rate=1e-30,  # the weights stay, so that every run is the same
        max_grad_norm=math.inf,
        microbatch_tokens=16384,
        max_kl=0.01 if side == "bounded" else None,
    )
    trainer = GRPOTrainer(policy, config, SamplingConfig())

    def art() -> float:
        metrics = trainer.step([group], 0)
        return metrics["loss/policy"]

    def padded() -> float:
        trainer.optimizer.zero_grad(set_to_none=True)
        loss = padded_loss(policy, group)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.trainable, config.max_grad_norm)
        trainer.optimizer.step()
        return float(loss.detach())

    def gradient() -> dict[str, torch.Tensor]:
        named = policy.base.named_parameters()
        return {n: p.grad for n, p in named if p.grad is not None}

    lengths = [len(t.sequences[0].ids) for t in group.trajectories]
    if side != "padded":
        prefix = SIBLINGS[what][1]
        return art, gradient, prefix + sum(n - prefix for n in lengths)
    policy.base.set_attn_implementation("sdpa")
    return padded, gradient, len(lengths) * max(lengths)


def siblings(
    num: int, prefix_tokens: int, suffix_tokens: tuple[int, int]
) -> tuple[Policy, TrajectoryGroup]:
    """A policy of 48M parameters, and a group whose trajectories it could have sampled."""
    import torch
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    from art_cli.config.sections.sampling import SamplingConfig
    from art_cli.config.sections.train import TrainConfig
    from art_cli.models.policy import Policy
    from art_cli.training.algorithm.advantage import set_advantages
    from art_cli.training.algorithm.packing import TrainSequence
    from art_cli.training.trainers.grpo import GRPOTrainer
    from art_cli.types import Scenario, Sequence, Trajectory, TrajectoryGroup

    config = Qwen3Config(
        vocab_size=32000,
        hidden_size=512,
        num_hidden_layers=10,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=64,
        intermediate_size=1536,
        tie_word_embeddings=True,
        max_position_embeddings=4096,
    )
    no_words = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()))
    policy = Policy(Qwen3ForCausalLM(config), no_words)
    trainer = GRPOTrainer(policy, TrainConfig(steps=1), SamplingConfig())
    rng = random.Random(0)
    prefix = [rng.randrange(config.vocab_size) for _ in range(prefix_tokens)]
    trajectories = []
    scenario = Scenario(id="0", split="train", seed=0)
    for _ in range(num):
        ids = [*prefix, *(rng.randrange(32000) for _ in range(rng.randint(*suffix_tokens)))]
        # As in episodes with tools, 60% of what follows the prompt is the policy's own.
        mask = [0] * prefix_tokens + [int(rng.random() < 0.6) for _ in ids[prefix_tokens:]]
        unknown = TrainSequence(ids=ids, mask=mask, engine_logprobs=[0.0] * len(ids))
        logprobs = iter(trainer.logprobs(unknown).tolist())
        sampled_from = [next(logprobs) + rng.gauss(0, 1e-4) if m else 0.0 for m in mask]
        sequence = Sequence(ids=ids, mask=mask, engine_logprobs=sampled_from)
        trajectories.append(
            Trajectory(scenario=scenario, sequences=[sequence], reward=rng.random())
        )
    torch.manual_seed(0)
    group = TrajectoryGroup(trajectories)
    set_advantages([group], "group_std")
    return policy, group


def put_adapter(policy: Policy, by_peft: bool) -> None:
    """Adapt all linear maps, so little that the group is still the policy's own."""
    import torch
    from peft.tuners.lora import Linear

    from art_cli.config.sections.model import AdapterConfig
    from art_cli.models.lora import LoraLinear

    policy.add_adapter(AdapterConfig(rank=16, alpha=32), seed=0)
    layers: list[Any] = [m for m in policy.model.modules() if isinstance(m, LoraLinear)]
    for layer in layers:
        torch.nn.init.normal_(layer.lora_B["default"].weight, std=1e-5)
        layer.__class__ = Linear if by_peft else LoraLinear


def padded_loss(policy: Policy, group: TrajectoryGroup) -> torch.Tensor:
    """Do as other trainers: a row a trajectory, padded on the right, through transformers' model.

    Better than they do: no padding mask, which attention from left to right does not need, and
    logits of the sampled tokens alone.
    """
    import torch

    sequences = [t.sequences[0] for t in group.trajectories]
    width = max(len(s.ids) for s in sequences)

    def rows(lists: list[list[Any]]) -> torch.Tensor:
        return torch.tensor([x + [0] * (width - len(x)) for x in lists])

    ids, mask = rows([s.ids for s in sequences]), rows([s.mask for s in sequences]).bool()[:, 1:]
    old = rows([s.engine_logprobs for s in sequences])[:, 1:][mask]
    advantage = torch.tensor([t.advantage for t in group.trajectories])
    advantage = advantage[:, None].expand(mask.shape)[mask]
    decoder = policy.base.get_decoder()
    hidden = decoder(input_ids=ids, use_cache=False).last_hidden_state[:, :-1][mask]
    logprobs = torch.log_softmax(policy.head.logits(hidden), -1)
    ratio = torch.exp(logprobs.gather(1, ids[:, 1:][mask][:, None])[:, 0] - old)
    return -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage).mean()


def logprobs(side: str, *, trained: bool) -> tuple[Run, Gradient, int]:
    """-> (loss and gradient of the head's input, and of the head if `trained`, ...)"""
    import torch

    from art_cli.models.forward.head import Head
    from art_cli.training.algorithm.logprobs import head_loss
    from art_cli.training.algorithm.loss import LOSSES, Tokens

    head = torch.nn.Parameter(torch.empty(VOCAB, HIDDEN).normal_(0, 0.02), requires_grad=trained)
    hidden = torch.randn(SCORED, HIDDEN).requires_grad_()
    ids = torch.randint(0, VOCAB, (SCORED,))
    tokens = Tokens(
        engine_logprobs=-math.log(VOCAB) + 0.3 * torch.randn(SCORED),
        advantages=torch.randn(SCORED),
        weights=torch.full((SCORED,), 1 / SCORED),
        unit=torch.zeros(SCORED, dtype=torch.long),
    )

    def objective(logprobs: torch.Tensor, rows: slice) -> torch.Tensor:
        mine = tokens[rows]
        return (LOSSES["token_mean"].term(logprobs, mine, 0.2, 0.28) * mine.weights).sum()

    def run() -> float:
        hidden.grad = head.grad = None
        if side == "art":
            loss, _ = head_loss(hidden, Head(head), ids, 1.0, objective)
        else:
            logits = torch.nn.functional.linear(hidden, head)
            chosen = torch.log_softmax(logits, -1).gather(1, ids[:, None])[:, 0]
            loss = objective(chosen, slice(0, SCORED))
        loss.backward()
        return float(loss.detach())

    def gradient() -> dict[str, torch.Tensor]:
        named = {"hidden": hidden.grad, "head": head.grad}
        return {n: g for n, g in named.items() if g is not None}

    return run, gradient, SCORED


if __name__ == "__main__":
    main()
