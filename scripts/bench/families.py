"""Train a tiny model of each other family on the order desk.

    python scripts/bench/families.py [qwen3_5 gpt_oss gemma3 qwen3_moe lfm2] --seeds 2

Each is made with random weights from transformers' own config class, two or three layers of 64
numbers, with the tokenizer that `art` makes for the task. It is warmed up and trained by
`configs/quickstart.yaml` in fewer updates, with all weights; then an adapter is trained on what
that SFT made. Prints a Markdown table: the reward of 256 held-out scenarios before the first
update and after the last, with the 95% confidence interval.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1")

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from art_cli.config.sections.model import TinyConfig
from art_cli.envs.tools import schemas_of
from art_cli.models import tiny
from art_cli.training.demonstrations import texts_of
from art_envs.order_desk import OrderDesk

QUICKSTART = Path(__file__).parents[2] / "configs/quickstart.yaml"
WIDTH, WINDOW, CONTEXT = 64, 64, 4096
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2}
LINEAR = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_conv_kernel_dim": 4}
FULL, SLIDING = "full_attention", "sliding_attention"

# The config of each family: its layers, and the sizes that only it has.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3_5": (
        "qwen3_5_text",
        {
            "layer_types": [FULL, "linear_attention"],
            **LINEAR,
            **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim"), 32),
        },
    ),
    "gpt_oss": ("gpt_oss", {"layer_types": [SLIDING, FULL], "sliding_window": WINDOW, **EXPERTS}),
    "gemma3": (
        "gemma3_text",
        {
            "layer_types": [SLIDING, FULL],
            "sliding_window": WINDOW,
            "rope_parameters": None,  # one for each kind of layer
        },
    ),
    "qwen3_moe": ("qwen3_moe", {"moe_intermediate_size": 32, **EXPERTS}),
    "lfm2": ("lfm2", {"layer_types": [FULL, "conv", FULL]}),
}
# By default an adapter leaves routed experts alone, and gpt-oss has no other dense layers.
TARGETS = {"gpt_oss": "[attention, experts]"}


def main() -> None:
    """Train every family with every seed, with all weights and with an adapter."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("families", nargs="*", default=list(FAMILIES), metavar="family")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--keep", type=Path, help="a folder for the runs, instead of one that goes")
    args = parser.parse_args()
    print("| family | seed | weights | untrained | trained | change | s |")
    print("|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for seed in args.seeds:
            for family in args.families:
                both(family, seed, args.steps, args.keep or Path(folder))


def both(family: str, seed: int, steps: int, root: Path) -> None:
    """Train all weights, then an adapter on the base after the first run's SFT."""
    fresh = make_base(family, seed, root / "fresh" / f"{family}-{seed}")
    name = f"{family}-{seed}-all"
    train(name, seed, steps, root, [f"model.base={fresh}"])
    warm = root / "families" / name / "base"
    rank = "rank: 16, alpha: 32" + (f", targets: {TARGETS[family]}" if family in TARGETS else "")
    adapter = ["sft=null", f"model.adapter={{{rank}}}", "train.learning_rate=5.0e-3"]
    train(f"{family}-{seed}-LoRA", seed, steps, root, [f"model.base={warm}", *adapter])


def make_base(family: str, seed: int, folder: Path) -> Path:
    """Write an untrained model, and the tokenizer of the task."""
    played = OrderDesk.demonstrations(OrderDesk.Config(), 400)
    _, tokenizer = tiny.make(TinyConfig(), texts_of(list(played), schemas_of(OrderDesk)), seed)
    model_type, own = FAMILIES[family]
    sizes = {
        "vocab_size": len(tokenizer),
        "hidden_size": WIDTH,
        "intermediate_size": 96,
        "num_hidden_layers": len(own.get("layer_types", (FULL, FULL))),
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},  # texts are short
        "initializer_range": 0.6 / WIDTH**0.5,  # as the tiny model's
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    config_class: Any = CONFIG_MAPPING[model_type]
    torch.manual_seed(seed)
    config = config_class(**sizes | own)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def train(name: str, seed: int, steps: int, root: Path, overrides: list[str]) -> None:
    """Run one experiment and print its row."""
    begun = time.monotonic()
    art = str(Path(sys.executable).with_name("art"))
    same = [f"seed={seed}", "project=families", f"name={name}", f"train.steps={steps}"]
    same += ["train.num_minibatches=1", "train.num_iterations=1"]
    evaluated = [f"eval.every={steps // 2}", "eval.episodes=256", f"checkpoint.every={steps}"]
    out = subprocess.run(
        [art, "run", str(QUICKSTART), *same, *evaluated, *overrides, "--runs-dir", str(root)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if out.returncode:
        sys.exit(f"{name} failed:\n{out.stderr}")
    lines = (root / "families" / name / "metrics.jsonl").read_text().splitlines()
    values = [row for row in map(json.loads, lines) if "val/reward" in row]
    before, after = values[0], values[-1]
    change = after["val/reward"] - before["val/reward"]
    family, _, how = name.split("-")
    print(
        f"| `{family}` | {seed} | {how} | {_cell(before)} "
        f"| {_cell(after)} | {change:+.3f} | {time.monotonic() - begun:.0f} |",
        flush=True,
    )


def _cell(row: dict[str, float]) -> str:
    return f"{row['val/reward']:.3f} ± {row['val/reward_ci']:.3f}"


if __name__ == "__main__":
    main()
