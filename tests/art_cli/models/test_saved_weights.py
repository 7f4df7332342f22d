"""What stands in the place of weights is told in a line, and runs no code."""

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from art_cli.errors import CheckpointError
from art_cli.models.saved_weights import damage_told
from art_cli.training.trainers.grpo import GRPOTrainer


class Code:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.file,)


def test_an_optimizers_file_runs_no_code(tmp_path: Path) -> None:
    trainer = GRPOTrainer.__new__(GRPOTrainer)
    trainer.optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(2))])
    file = tmp_path / "optimizer.pt"
    for content in (pickle.dumps(Code(tmp_path / "ran")), b"", b"PK\x03\x04", b"x" * 99):
        file.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"optimizer\.pt is not a valid file"):
            trainer.load(file)
    for state in ([1], {"state": 1}, {"state": {}, "param_groups": [{"params": [7, 8]}]}):
        torch.save(state, file)
        with pytest.raises(CheckpointError, match="is not a valid file"):
            trainer.load(file)
    assert not (tmp_path / "ran").exists()


def test_damaged_safetensors_are_told_in_a_line(tmp_path: Path) -> None:
    file = tmp_path / "adapter_model.safetensors"
    for content in (b"", b"\xff" * 8 + b"{}", b"x" * 99):
        file.write_bytes(content)
        with pytest.raises(CheckpointError) as raised, damage_told(file):
            load_file(file)
        assert "\n" not in str(raised.value) and str(file) in str(raised.value)
