"""An adapter is trained in all its parts, in every architecture, and others load what is saved."""

from __future__ import annotations

from pathlib import Path

import pytest
from architectures import NAMES, make_config, write_architecture
from peft.utils import get_peft_model_state_dict

from art_cli.config.sections.model import AdapterConfig
from art_cli.models.adapter import adapted_names, with_adapter
from art_cli.models.classes import class_of
from art_cli.preflight.certify.adapters import check_adapter
from art_cli.preflight.certify.specimen import specimen_in

REFUSED = {"llama:dynamic", "phi3:longrope"}  # by the probe of how they are read
EVERY = [name for names in NAMES.values() for name in names if name not in REFUSED]
QUICK = ("zamba2", "qwen3_moe", "gpt2", "gemma3")  # shared blocks, experts, transposed, a wrapper


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in EVERY]
)
def test_an_adapter_learns_in_each_part_and_is_the_same_saved_loaded_and_merged(
    name: str, tmp_path: Path
) -> None:
    write_architecture(name, tmp_path)
    wrong = [t for t in check_adapter(specimen_in(tmp_path)) if t.status != "passed"]
    assert not wrong, wrong


def test_layers_that_repeat_a_block_have_one_adapter_of_it() -> None:
    """Zamba2's second and third layer are one block, twice."""
    config = make_config("zamba2")
    adapted = with_adapter(class_of(config)._from_config(config), AdapterConfig())
    names = [n for n in adapted_names(adapted) if n.endswith("q_proj")]
    assert len(names) == 2
    learned = [n for n, p in adapted.named_parameters() if p.requires_grad and "q_proj" in n]
    assert len(learned) == 2  # A and B, once
    saved = [n for n in get_peft_model_state_dict(adapted) if "q_proj" in n]
    assert len(saved) == 4  # whoever loads it finds them at both
