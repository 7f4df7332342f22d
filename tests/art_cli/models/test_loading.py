"""A base from its folder: with all of its weights, by the class that they are saved by."""

from pathlib import Path

import pytest
import torch
from architectures import write_architecture
from batches import MakePolicy
from safetensors.torch import load_file, save_file

from art_cli.config.sections.model import ModelConfig
from art_cli.errors import UsageError
from art_cli.models.loading import load_policy


def test_a_base_without_some_of_its_weights_is_refused_not_made_up(tmp_path: Path) -> None:
    file = write_architecture("llama", tmp_path) / "model.safetensors"
    weights = load_file(file)
    del weights["lm_head.weight"], weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(UsageError, match=r"has no weights for lm_head.weight, model\.layers\.1"):
        load_policy(ModelConfig(base=str(tmp_path), device="cpu"), [], 0)


@pytest.mark.parametrize("name", ["llama:tied", "qwen3_5", "gemma3"])
def test_a_head_that_is_tied_is_not_missing(tmp_path: Path, name: str) -> None:
    folder = write_architecture(name, tmp_path)
    policy = load_policy(ModelConfig(base=str(folder), device="cpu"), [], 0)
    assert type(policy.base).__name__ in (folder / "config.json").read_text()


def test_weights_from_a_file_begin_where_a_product_rounds_like_that_of_weights_made_here(
    make_policy: MakePolicy, tmp_path: Path
) -> None:
    """Or a run that goes on rounds otherwise than one that was never stopped."""
    made = make_policy()
    made.save(tmp_path)
    in_file = load_file(tmp_path / "model.safetensors").values()
    assert any(p.data_ptr() % 64 for p in in_file)
    loaded = load_policy(ModelConfig(base=str(tmp_path), adapter=None, device="cpu"), [], 0)
    for policy in (made, loaded):
        assert {p.data_ptr() % 64 for p in policy.base.parameters()} == {0}
    assert all(map(torch.equal, made.base.parameters(), loaded.base.parameters()))
