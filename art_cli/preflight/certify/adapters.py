"""Is an adapter trained in every part that has one, and is what is saved what others load?"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from peft import PeftModel
from torch import Tensor

from art_cli.config.schema import AdapterConfig
from art_cli.preflight.certify.numbers import apart, compared, objective_of, values, values_of
from art_cli.preflight.certify.subject import SEED, Subject, Trial
from art_cli.training.algorithm.packing import pack
from art_cli.training.trainers.forward import Forward

SHOWN = 8  # names


def check_adapter(subject: Subject) -> Iterator[Trial]:
    """Put the adapter of the default config on the policy, and follow it to where it is loaded."""
    policy = subject.policy
    policy.add_adapter(AdapterConfig(), SEED)
    generator = torch.Generator().manual_seed(SEED)
    for p in policy.trainable:  # B is zero in a fresh one, and lets nothing through
        p.data += 0.05 * torch.randn(p.shape, generator=generator)
    yield _targets(subject)
    expected = values(subject)
    with TemporaryDirectory() as name:
        folder = Path(name)
        policy.save_weights(folder / "adapter")
        yield _reloaded(subject, folder / "adapter", expected)
        loaded = PeftModel.from_pretrained(subject.reference(), str(folder / "adapter")).eval()
        yield _same(subject, "PEFT", loaded, expected, "the adapter as PEFT loads it")
        merged = folder / "merged"
        merged.mkdir()
        policy.save_merged(merged)
        shutil.copy(subject.folder / "config.json", merged)
        model = subject.reference(merged)
        yield _same(subject, "merged", model, expected, "merged weights as transformers loads them")


def _targets(subject: Subject) -> Trial:
    """Return which modules have an adapter, and whether each of them gets a gradient."""
    policy = subject.policy
    batch = pack(subject.sequences)
    loss, _ = Forward(policy, 1.0)(batch, objective_of(subject, batch))
    loss.backward()
    adapted = [(n, p) for n, p in policy.model.named_parameters() if ".lora_" in n]
    kinds = Counter(_module(name) for name, _ in adapted if ".lora_A" in name)
    idle = {_module(n) for n, p in adapted if p.grad is None or not p.grad.abs().max() > 0}
    policy.model.zero_grad(set_to_none=True)
    if idle:
        what = f"no gradient reaches {', '.join(sorted(idle)[:SHOWN])}"
        return Trial(name="adapter", status="failed", what=what)
    return Trial(name="adapter", status="passed", what=f"LoRA on {', '.join(sorted(kinds))}")


def _module(parameter: str) -> str:
    """Return the name of the module of an adapter's weight, without the number of its layer."""
    name = parameter.partition(".lora_")[0].removeprefix("base_model.model.")
    name = name.replace(".base_layer", "")
    return re.sub(r"^.*\.\d+\.", "", name)


def _reloaded(subject: Subject, folder: Path, expected: list[Tensor]) -> Trial:
    """Return whether what was saved comes back, as a run that is resumed reads it."""
    for p in subject.policy.trainable:
        p.data.zero_()
    subject.policy.load(folder)
    gap = max(apart(a, b) for a, b in zip(values(subject), expected, strict=True))
    return compared("saved", gap, "the adapter saved and read again")


def _same(
    subject: Subject, name: str, model: torch.nn.Module, expected: list[Tensor], what: str
) -> Trial:
    theirs = values_of(model, subject.sequences)
    gap = max(apart(a, b) for a, b in zip(expected, theirs, strict=True))
    return compared(name, gap, what)
