"""Self-play teaches seats to look before they move, and to win by it."""

from pathlib import Path

import hidden_nim
import pytest
from in_folder import art

from art_cli.runs.directory import RunDir

CONFIG = f"""
project: test
name: game
env: {{use: "{hidden_nim.__file__}:HiddenNim", opponents: {{train: policy, eval: start}}}}
model: {{base: tiny, adapter: null, tiny: {{vocab_size: 400}}}}
sft: {{num_demonstrations: 1200, epochs: 4, learning_rate: 5.0e-3, optimizer: muon}}
sampling: {{max_tokens: 40}}
train: {{steps: 24, scenarios_per_step: 8, group_size: 8, learning_rate: 1.0e-3}}
eval: {{every: 24, episodes: 200}}
"""


@pytest.mark.slow
def test_seats_learn_to_look_and_to_win(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    art(tmp_path, "run", "config.yaml")
    rows = RunDir(tmp_path / "runs/test/game").read_metrics()
    before, after = [r for r in rows if "val/success" in r]
    assert after["val/looks"] > before["val/looks"] + 0.25
    assert after["val/success"] > before["val/success"]
