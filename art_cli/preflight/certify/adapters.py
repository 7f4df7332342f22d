"""Checks of adapters: all parts are trained, and other libraries can load saved adapters."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from art_cli.config.sections.model import AdapterConfig
from art_cli.models.saved_adapter import with_saved_adapter
from art_cli.preflight.certify.numbers import apart, compared, objective_of, values, values_of
from art_cli.preflight.certify.specimen import SEED, Specimen, Trial
from art_cli.training.algorithm.packing import pack
from art_cli.training.trainers.forward import Forward

SHOWN = 8  # names


def check_adapter(specimen: Specimen) -> Iterator[Trial]:
    """Add the default config's adapter to the policy. Check its training, saving and merging."""
    policy = specimen.policy
    policy.add_adapter(AdapterConfig(), SEED)
    generator = torch.Generator().manual_seed(SEED)
    for p in policy.trainable:  # B is zero in a new adapter, which blocks gradients of A
        p.data += 0.05 * torch.randn(p.shape, generator=generator)
    yield _targets(specimen)
    expected = values(specimen)
    with TemporaryDirectory() as name:
        folder = Path(name)
        policy.save_weights(folder / "adapter")
        yield _reloaded(specimen, folder / "adapter", expected)
        loaded = with_saved_adapter(specimen.reference(), folder / "adapter")
        yield _same(specimen, "PEFT", loaded, expected, "the adapter as PEFT loads it")
        merged = folder / "merged"
        merged.mkdir()
        policy.save_merged(merged)
        shutil.copy(specimen.folder / "config.json", merged)
        model = specimen.reference(merged)
        yield _same(
            specimen, "merged", model, expected, "merged weights as transformers loads them"
        )


def _targets(specimen: Specimen) -> Trial:
    """Report the modules with an adapter, and check that each gets a gradient."""
    policy = specimen.policy
    batch = pack(specimen.sequences, specimen.policy.ways.shares)
    loss, _ = Forward(policy, 1.0)(batch, objective_of(specimen, batch))
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
    """Return the module name of an adapter's weight, without its layer number."""
    name = parameter.partition(".lora_")[0].removeprefix("base_model.model.")
    name = name.replace(".base_layer", "")
    return re.sub(r"^.*\.\d+\.", "", name)


def _reloaded(specimen: Specimen, folder: Path, expected: list[Tensor]) -> Trial:
    """Check that the saved adapter loads unchanged, as in a resumed run."""
    for p in specimen.policy.trainable:
        p.data.zero_()
    specimen.policy.load(folder)
    gap = max(apart(a, b) for a, b in zip(values(specimen), expected, strict=True))
    return compared("saved", gap, "the adapter saved and read again")


def _same(
    specimen: Specimen, name: str, model: torch.nn.Module, expected: list[Tensor], what: str
) -> Trial:
    theirs = values_of(model, specimen.sequences)
    gap = max(apart(a, b) for a, b in zip(expected, theirs, strict=True))
    return compared(name, gap, what)
