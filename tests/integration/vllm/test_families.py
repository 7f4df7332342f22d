"""`art run` with vLLM on other families: it samples from what is trained, as policies read it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from architectures import chatml_tokenizer, make_config
from transformers import AutoModelForCausalLM

from art_cli.preflight.small_model.build import spread

ROOT = Path(__file__).parents[3]
ART = str(Path(sys.executable).with_name("art"))
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32}  # as vLLM wants them
CONFIG = """
project: test
name: small
env: {{use: "{env}:Letters"}}
model: {{base: base, adapter: {adapter}}}
sampling: {{max_tokens: 6}}
train: {{steps: 2, scenarios_per_step: 2, group_size: 4, learning_rate: 1.0e-3}}
engine: {{use: vllm, max_model_len: 256, sync: {sync}, extra: {{enforce_eager: true}}}}
"""
BASES = {
    "biases, merged": ("qwen2", "{rank: 4}", "merged"),
    "windows": ("gemma3_text", "{rank: 4}", "auto"),
    "experts, all weights": ("qwen3_moe", "null", "auto"),
}


def write_base(name: str, folder: Path) -> None:
    config: Any = make_config(name)
    for key, value in HEADS.items():
        setattr(config, key, value)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    spread(model, seed=1)
    model.save_pretrained(folder)
    chatml_tokenizer().save_pretrained(folder)


@pytest.mark.parametrize("kind", BASES)
def test_a_run_samples_from_the_weights_that_it_trains(tmp_path: Path, kind: str) -> None:
    name, adapter, sync = BASES[kind]
    write_base(name, tmp_path / "base")
    env = ROOT / "tests" / "colours.py"
    (tmp_path / "c.yaml").write_text(CONFIG.format(env=env, adapter=adapter, sync=sync))
    done = subprocess.run(
        [ART, "run", "c.yaml", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=1000,
    )
    log = tmp_path / "runs" / "test" / "small" / "logs" / "engine-0.log"
    said = log.read_text()[-4000:] if log.exists() else ""
    assert done.returncode == 0, done.stderr + said
    lines = (log.parents[1] / "metrics.jsonl").read_text().splitlines()
    gaps = [row["loss/logprob_gap"] for row in map(json.loads, lines) if "loss/logprob_gap" in row]
    assert len(gaps) == 2 and max(gaps) < 1e-4, gaps
