"""The update on one GPU: tokens a second, model FLOPs, memory, and the error of bfloat16.

    python scripts/bench/gpu.py                 Qwen3 of 0.6B and 4B parameters, on a GPU
    python scripts/bench/gpu.py --tiny          a model of nothing on a CPU: does the script work
    python scripts/bench/gpu.py --trl           and TRL's GRPOTrainer on the same trajectories

Weights are random, configs are built here: nothing is downloaded. LoRA of rank 16 on all linear
layers, bfloat16 weights, about 8k packed tokens a microbatch: groups of 8 siblings of one prompt,
60% of whose answers are sampled tokens, as in episodes with tools.

FLOPs are the model's, not the machine's. For each packed token twice the weights of the linear
layers for the forward and as much again for the gradient of what goes into them; frozen weights get
no gradient, so 4 a weight (6 where all weights are trained). Attention: 4 a pair of tokens that see
each other, a head's width and a head, in the forward, and twice that in the backward; pairs are
counted in the tree, not in the square. The head: the same as a linear layer, for tokens that are
predicted. What is recomputed does not count. Utilisation is that over the time of a step, against
the card's dense bfloat16 peak. Packed tokens are those that are run; `trajectory tokens` counts a
shared prompt once for each sibling, as who does not share it would have to run.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from art_cli.config.sections.engine import MAX_MODEL_LEN
from art_cli.config.sections.model import AdapterConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.models.forward.tree_attention import works
from art_cli.models.policy import Policy
from art_cli.training.algorithm.advantage import set_advantages
from art_cli.training.algorithm.logprobs import chosen_logprobs
from art_cli.training.algorithm.packing import TrainSequence, num_packed, pack, partition
from art_cli.training.trainers.grpo import GRPOTrainer
from art_cli.training.trainers.sequences import training_sequences
from art_cli.types import Scenario, Sequence, Trajectory, TrajectoryGroup

PEAK_TFLOPS = {"H200": 989, "H100": 989, "A100": 312, "L40S": 362, "4090": 165}  # dense bf16
RANK = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of a Qwen3, and of the batch that it trains on."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    mlp: int
    vocab: int = 151_936
    width: int = 128  # of a head
    groups: int = 4
    prompt: int = 1024
    answer: tuple[int, int] = (600, 1150)
    microbatch: int = 8192


SIZES = {
    "0.6b": Size(hidden=1024, layers=28, heads=16, kv_heads=8, mlp=3072),
    "4b": Size(hidden=2560, layers=36, heads=32, kv_heads=8, mlp=9728),
    "tiny": Size(
        hidden=64,
        layers=2,
        heads=4,
        kv_heads=2,
        mlp=192,
        vocab=512,
        width=16,
        groups=2,
        prompt=100,
        answer=(20, 60),
        microbatch=256,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The measurements of one way to train one model."""

    model: str
    side: str  # art or trl
    checkpointing: bool
    seconds: float  # of a step
    packed_tokens_s: float
    trajectory_tokens_s: float
    model_tflops: float  # of a step
    utilisation: float | None  # of the card's peak
    peak_gb: float | None


def main() -> None:
    """Measure, print and write the results."""
    args = parse()
    sizes = ["tiny"] if args.tiny else args.models
    device = torch.device("cpu" if args.tiny else "cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        sys.exit("error: torch sees no CUDA device; --tiny runs on a CPU")
    card = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    peak = args.peak_tflops or next((v for k, v in PEAK_TFLOPS.items() if k in card), None)
    print(f"{card}, torch {torch.__version__}, peak {peak or 'unknown'} TFLOPs (bf16, dense)")
    found: dict[str, Any] = {"card": card, "torch": torch.__version__, "peak_tflops": peak}
    found |= {"rows": [], "logprob_error": {}, "fused_attention": {}}
    for name in sizes:
        size = SIZES[name]
        policy = make_policy(size, device)
        groups = make_groups(size, policy)
        if device.type == "cuda":
            args_ = (size.heads, size.kv_heads, size.width, policy.dtype, device)
            found["fused_attention"][name] = works(*args_)
            print(f"{name}: fused attention over shared prefixes: {works(*args_)}")
        error = logprob_error(size, policy, groups)
        found["logprob_error"][name] = error
        print(
            f"{name}: |logprob bf16 - fp32| " + ", ".join(f"{k} {v:.2g}" for k, v in error.items())
        )
        for checkpointing in (False, True):
            row = measure(name, policy, groups, checkpointing, args.steps, peak)
            found["rows"].append(asdict(row))
            show(row)
        if args.trl:
            found["rows"] += trl_rows(name, policy, groups, args.steps, peak)
        del policy
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(found, indent=1) + "\n")
        print(f"written: {args.out}")


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=["0.6b", "4b"], choices=["0.6b", "4b"])
    parser.add_argument("--tiny", action="store_true", help="a tiny model, on a CPU")
    parser.add_argument("--trl", action="store_true", help="TRL too; it must be importable")
    parser.add_argument("--steps", type=int, default=5, help="timed ones; two more come before")
    parser.add_argument("--peak-tflops", type=float, help="of a card that the script does not know")
    parser.add_argument("--out", type=Path, help="a JSON file")
    return parser.parse_args()


def make_policy(size: Size, device: torch.device, dtype: torch.dtype = torch.bfloat16) -> Policy:
    """Return a model with random weights and a LoRA adapter."""
    config = Qwen3Config(
        vocab_size=size.vocab,
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        head_dim=size.width,
        intermediate_size=size.mlp,
        tie_word_embeddings=True,
        max_position_embeddings=32768,
    )
    torch.manual_seed(0)
    no_words = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE()), pad_token="<pad>", eos_token="<end>"
    )
    with torch.device(device):
        model = Qwen3ForCausalLM(config).to(dtype)  # pyright: ignore[reportArgumentType]
    policy = Policy(model, no_words)
    policy.add_adapter(AdapterConfig(rank=RANK, alpha=32), seed=0)
    return policy


def make_groups(size: Size, policy: Policy) -> list[TrajectoryGroup]:
    """Return trajectories the policy could have sampled: random tokens with its logprobs."""
    rng = random.Random(0)

    def ids(num: int) -> list[int]:
        return [rng.randrange(size.vocab) for _ in range(num)]

    groups = []
    for g in range(size.groups):
        scenario = Scenario(id=str(g), split="train", seed=g)
        prompt, trajectories = ids(size.prompt), []
        for _ in range(8):
            words = prompt + ids(rng.randint(*size.answer))
            mask = [0] * size.prompt + [
                int(rng.random() < 0.6) for _ in range(len(words) - size.prompt)
            ]
            exact = [0.0, *logprobs(policy, words).tolist()]
            engine = [x * m for x, m in zip(exact, mask, strict=True)]
            sequence = Sequence(ids=words, mask=mask, engine_logprobs=engine)
            trajectories.append(
                Trajectory(scenario=scenario, sequences=[sequence], reward=rng.random())
            )
        groups.append(TrajectoryGroup(trajectories))
    set_advantages(groups, "mean")
    return groups


@torch.no_grad()
def logprobs(policy: Policy, words: list[int]) -> torch.Tensor:
    """Return the log-probability of each token except the first."""
    ids = torch.tensor([words], device=policy.device)
    positions = torch.arange(len(words), device=policy.device)[None]
    hidden = policy.hidden(ids, positions)[0, :-1]
    return chosen_logprobs(hidden, policy.head, ids[0, 1:], 1.0).cpu()


def logprob_error(size: Size, policy: Policy, groups: list[TrajectoryGroup]) -> dict[str, float]:
    """Return the error of bfloat16 relative to the same weights in float32."""
    exact = make_policy(size, policy.device, torch.float32)
    with torch.no_grad():
        theirs = dict(policy.model.named_parameters())
        for name, p in exact.model.named_parameters():
            p.copy_(theirs[name])
    words = groups[0].trajectories[0].sequences[0].ids
    gap = (logprobs(policy, words) - logprobs(exact, words)).abs()
    packed = packed_gap(policy, groups)
    return {"mean": float(gap.mean()), "max": float(gap.max()), "packed to plain": packed}


@torch.no_grad()
def packed_gap(policy: Policy, groups: list[TrajectoryGroup]) -> float:
    """Return the mean difference between packed and single sequences, both in bfloat16."""
    sequence = [t.sequences[0] for t in groups[0].trajectories]
    rows = [
        TrainSequence(ids=s.ids, mask=s.mask, engine_logprobs=s.engine_logprobs) for s in sequence
    ]
    batch = pack(rows).to(policy.device)
    hidden = policy.hidden(batch.ids, batch.positions, batch.layout, batch.hidden_at)
    mine = chosen_logprobs(hidden, policy.head, batch.targets, 1.0)[batch.row]
    return float((mine - batch.engine_logprobs).abs().mean())


def measure(
    name: str,
    policy: Policy,
    groups: list[TrajectoryGroup],
    checkpointing: bool,
    steps: int,
    peak: float | None,
) -> Measured:
    """Measure steps of our trainer, after two that compile and allocate."""
    cfg = TrainConfig(steps=steps, learning_rate=1e-6, microbatch_tokens=SIZES[name].microbatch)
    policy.recompute_layers("on" if checkpointing else "off")
    trainer = GRPOTrainer(policy, cfg, SamplingConfig(), lambda line: print(f"  {line}"))
    seconds, memory = timed(lambda i: trainer.step(groups, i), steps, policy.device)
    packed, flops = work(SIZES[name], groups, policy, cfg)
    return measured(name, "art", checkpointing, seconds, memory, packed, groups, flops, peak)


def timed(step: Any, steps: int, device: torch.device) -> tuple[float, float | None]:
    """Return (median seconds of a step, peak GB)."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    laps = []
    for i in range(steps + 2):
        synchronize(device)
        began = time.perf_counter()
        step(0 if i < 2 else i - 2)
        synchronize(device)
        laps.append(time.perf_counter() - began)
    memory = torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else None
    return sorted(laps[2:])[steps // 2], memory


def synchronize(device: torch.device) -> None:
    """Wait until the GPU is idle."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def work(
    size: Size, groups: list[TrajectoryGroup], policy: Policy, cfg: TrainConfig
) -> tuple[int, float]:
    """-> (packed tokens of a step, FLOPs of the model in it); see the head of this file"""
    sequences, _ = training_sequences(groups, cfg, MAX_MODEL_LEN)
    linear = sum(
        p.numel() for n, p in policy.model.named_parameters() if p.ndim == 2 and ".layers." in n
    )
    packed, flops = 0, 0.0
    for part in partition(sequences, cfg.microbatch_tokens):
        batch = pack(part)
        num = num_packed([s.ids for s in part])
        pairs = int((batch.positions + 1).sum())  # a token attends to all tokens before it
        packed += num
        flops += 4.0 * linear * num
        flops += 12.0 * pairs * size.heads * size.width * size.layers
        flops += 4.0 * size.vocab * size.hidden * len(batch.targets)
    return packed, flops


def measured(
    name: str,
    side: str,
    checkpointing: bool,
    seconds: float,
    memory: float | None,
    packed: int,
    groups: list[TrajectoryGroup],
    flops: float,
    peak: float | None,
) -> Measured:
    """Return a row of the table."""
    whole = sum(len(s.ids) for g in groups for t in g.trajectories for s in t.sequences)
    return Measured(
        model=name,
        side=side,
        checkpointing=checkpointing,
        seconds=seconds,
        packed_tokens_s=packed / seconds,
        trajectory_tokens_s=whole / seconds,
        model_tflops=flops / 1e12,
        utilisation=None if peak is None else flops / seconds / 1e12 / peak,
        peak_gb=memory,
    )


def show(row: Measured) -> None:
    """Print a row."""
    share = "" if row.utilisation is None else f", {row.utilisation:.1%} of the peak"
    memory = "" if row.peak_gb is None else f", {row.peak_gb:.1f} GB at most"
    print(
        f"{row.model} {row.side:4} checkpointing {'on ' if row.checkpointing else 'off'}: "
        f"{row.seconds:.3f} s a step, {row.packed_tokens_s:,.0f} packed tokens/s, "
        f"{row.trajectory_tokens_s:,.0f} trajectory tokens/s, "
        f"{row.model_tflops / row.seconds:.3g} TFLOP/s{share}{memory}",
        flush=True,
    )


def trl_rows(
    name: str, policy: Policy, groups: list[TrajectoryGroup], steps: int, peak: float | None
) -> list[dict[str, Any]]:
    """Train on the same trajectories with TRL. FLOPs are ours: those that the update needs."""
    try:
        import gpu_trl
    except ImportError as e:
        print(f"TRL is not importable here ({e}); left out")
        return []
    size, device, rows = SIZES[name], policy.device, []
    cfg = TrainConfig(steps=1, microbatch_tokens=size.microbatch)
    packed, flops = work(size, groups, policy, cfg)
    policy.to("cpu")
    for checkpointing in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            with torch.device(device):
                model = Qwen3ForCausalLM(policy.base.config).to(torch.bfloat16)  # pyright: ignore[reportArgumentType]
            row_tokens = max(len(t.sequences[0].ids) for g in groups for t in g.trajectories)
            rows_at_once = max(1, min(8, size.microbatch // row_tokens))
            while 8 * len(groups) % rows_at_once:
                rows_at_once -= 1
            seconds, memory = gpu_trl.measure(
                model,
                policy.tokenizer,
                groups,
                rank=RANK,
                rows_at_once=rows_at_once,
                checkpointing=checkpointing,
                steps=steps,
                folder=folder,
            )
        row = measured(name, "trl", checkpointing, seconds, memory, packed, groups, flops, peak)
        show(row)
        rows.append(asdict(row))
    policy.to(str(device))
    return rows


if __name__ == "__main__":
    main()
