"""generation_config.json goes from a base to what is saved as it was read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from architectures import write_architecture

from art_cli.config.sections.model import AdapterConfig, ModelConfig
from art_cli.models.loading import load_policy
from art_cli.models.merge import merge_folder


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.9, "top_p": 0.6, "eos_token_id": [2, 0]},
        {"do_sample": False, "temperature": 0.6, "top_k": 20, "repetition_penalty": 1.1},
        {"do_sample": True, "temperature": 0.0, "max_length": 20, "eos_token_id": 2},
    ],
)
def test_settings_that_transformers_refuses_to_write_are_written(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    base, adapter, merged = (tmp_path / name for name in ("base", "adapter", "merged"))
    write_architecture("llama", base)
    (base / "generation_config.json").write_text(json.dumps(settings))
    policy = load_policy(ModelConfig(base=str(base), device="cpu"), [], 0)
    policy.save_weights(tmp_path / "whole")
    policy.add_adapter(AdapterConfig(), 0)
    policy.save_weights(adapter)
    merged.mkdir()
    merge_folder(str(base), adapter, merged)
    for folder in (tmp_path / "whole", merged):
        written = json.loads((folder / "generation_config.json").read_text())
        assert settings.items() <= written.items()
