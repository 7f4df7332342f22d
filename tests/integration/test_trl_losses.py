"""What docs/losses.md says of TRL is so: TRL's own trainer finds the same loss and gradient.

TRL is in an environment of its own, with our torch and transformers.
"""

from __future__ import annotations

import os
import re
import subprocess
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from batches import (
    SAMPLING,
    MakePolicy,
    config,
    distance,
    gradient_of,
    make_groups,
    with_a_failure_made_likely,
)
from own_venv import python_with

from art_cli.config.sections.engine import MAX_MODEL_LEN
from art_cli.models.policy import Policy
from art_cli.training.algorithm.advantage import set_advantages
from art_cli.training.algorithm.loss import LOSSES
from art_cli.training.trainers import grpo
from art_cli.training.trainers.grpo import GRPOTrainer
from art_cli.types import TrajectoryGroup

PAGE = Path(__file__).parents[2] / "docs" / "losses.md"
KL_COEF = 0.1
# TRL's own words for each loss of ours, as the page has them: `loss_type="dapo", ...`
ROWS = {
    name: eval(f"dict({words})", {"engine": SimpleNamespace(max_model_len=MAX_MODEL_LEN)})
    for name, words in re.findall(r"^\| `(\w+)` \| `(loss_type=[^`]*)` \|", PAGE.read_text(), re.M)
}
KL = {"beta": KL_COEF, "use_bias_correction_kl": True}
CASES = [(name, kl_coef) for name in ROWS for kl_coef in (0.0, KL_COEF)]


def test_the_page_says_of_every_loss_what_it_is_in_trl() -> None:
    not_there = re.findall(r"^\| `(\w+)` \| \|", PAGE.read_text(), re.M)
    assert sorted([*ROWS, *not_there]) == sorted(LOSSES) and len(ROWS) >= 7
    assert "`beta=kl_coef, use_bias_correction_kl=True`" in PAGE.read_text()


@pytest.fixture
def policy(make_policy: MakePolicy) -> Policy:
    """It is no longer its reference."""
    policy = make_policy()
    policy.keep_reference()
    torch.manual_seed(7)
    for p in policy.trainable:
        p.data += 0.02 * torch.randn_like(p)
    return policy


def test_trl_finds_the_same_losses_and_gradients(
    policy: Policy, make_policy: MakePolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(grpo.MAX_LOGPROB_GAP, torch.float32, 100.0)  # ratios are far from one
    groups = with_a_failure_made_likely(unforked(make_groups(policy, noise=0.25)))
    theirs = by_trl(policy, make_policy(), groups, tmp_path)
    weights = {k: v.clone() for k, v in policy.base.state_dict().items()}
    for (name, kl_coef), (loss, gradient) in theirs.items():
        for microbatch in (100_000, 100):
            cfg = config(loss=name, kl_coef=kl_coef, microbatch_tokens=microbatch)
            metrics = GRPOTrainer(policy, cfg, SAMPLING).step(groups, 0)
            assert distance(gradient_of(policy.model), gradient) < 1e-5, (name, kl_coef)
            assert metrics["loss/policy"] == pytest.approx(loss, rel=1e-5), (name, kl_coef)
            policy.base.load_state_dict(weights)
    # One row could not stand for another, but for the two names of one loss.
    alike = {
        (a[0], b[0])
        for a, b in combinations(theirs, 2)
        if a[1] == b[1] and distance(theirs[a][1], theirs[b][1]) < 1e-3
    }
    assert alike == {("token_mean", "dapo")}


def unforked(groups: list[TrajectoryGroup]) -> list[TrajectoryGroup]:
    """With one sequence a trajectory, as TRL has it, and nothing that failed."""
    out = []
    for group in groups:
        for t in group.valid:
            t.sequences = t.sequences[:1]
        out.append(TrajectoryGroup(group.valid))
    set_advantages(out, "mean")
    return out


def by_trl(
    policy: Policy, reference: Policy, groups: list[TrajectoryGroup], folder: Path
) -> dict[tuple[str, float], tuple[float, torch.Tensor]]:
    """Return (loss, gradient) of each case."""
    for name, saved in (("model", policy), ("reference", reference)):
        saved.base.save_pretrained(folder / name)
        saved.tokenizer.save_pretrained(folder / name)
    cases = [ROWS[name] | (KL if kl_coef else {}) for name, kl_coef in CASES]
    batch = {
        "model": str(folder / "model"),
        "reference": str(folder / "reference"),
        "temperature": SAMPLING.temperature,
        "inputs": inputs_of(groups),
        "cases": cases,
    }
    torch.save(batch, folder / "batch.pt")
    python = python_with(
        "trl", "trl==1.16.*", *(f"{n}=={version(n)}" for n in ("torch", "transformers"))
    )
    script = Path(__file__).with_name("trl_losses.py")
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "TRL_EXPERIMENTAL_SILENCE": "1",
    }
    # -P: TRL would take the folder vllm beside the script for a vLLM.
    words = [str(python), "-P", str(script), str(folder / "batch.pt"), str(folder / "out.pt")]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    names = [n for n, _ in policy.base.named_parameters()]
    return {
        case: (loss, torch.cat([gradient[n].flatten() for n in names]))
        for case, (loss, gradient) in zip(
            CASES, torch.load(folder / "out.pt", weights_only=True), strict=True
        )
    }


def inputs_of(groups: list[TrajectoryGroup]) -> dict[str, Any]:
    """The batch as TRL has it: prompts padded on the left, completions on the right."""
    rows: list[dict[str, list[float]]] = []
    for t in (t for g in groups for t in g.trajectories):
        (s,) = t.sequences
        start = s.mask.index(1)
        rows.append(
            {
                "prompt_ids": s.ids[:start],
                "prompt_mask": [1] * start,
                "completion_ids": s.ids[start:],
                "completion_mask": [1] * (len(s.ids) - start),
                "tool_mask": s.mask[start:],
                "old_per_token_logps": s.engine_logprobs[start:],
            }
        )
    inputs: dict[str, Any] = {}
    for key in rows[0]:
        width = max(len(row[key]) for row in rows)
        padding = [[0] * (width - len(row[key])) for row in rows]
        left = key.startswith("prompt")
        padded = [p + r[key] if left else r[key] + p for p, r in zip(padding, rows, strict=True)]
        dtype = torch.float64 if key == "old_per_token_logps" else torch.long
        inputs[key] = torch.tensor(padded, dtype=dtype)
    advantages = [t.advantage for g in groups for t in g.trajectories]
    inputs["advantages"] = torch.tensor(advantages, dtype=torch.float64)
    inputs["num_items_in_batch"] = inputs["tool_mask"].sum()
    return inputs
