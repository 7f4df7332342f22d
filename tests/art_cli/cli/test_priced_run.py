"""`reward.invalid_action_cost` from a config to what is learned, shown and evaluated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import colours
import pytest
from short_run import CONFIG
from typer.testing import CliRunner

from art_cli.cli.main import app
from art_cli.runs.directory import RunDir

ENV = f"""
import sys
sys.path.insert(0, {str(Path(colours.__file__).parent)!r})
from colours import Opposites

class Counts(Opposites):
    async def score(self, trajectory):
        self.metrics["invalid_actions"] = 3.0 - self.right
        return await super().score(trajectory)
"""
PRICE = "reward={env: 1.0, invalid_action_cost: 0.25, max_invalid_cost: 0.5}"


def art(*words: str) -> Any:
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def test_the_price_is_learned_from_shown_and_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """n right answers and 3 - n invalid actions earn n/2 - min((3-n)/4, 1/2)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "env.py").write_text(ENV)
    (tmp_path / "config.yaml").write_text(
        CONFIG.replace(f"{colours.__file__}:Opposites", "env.py:Counts")
    )
    assert art("run", "config.yaml", "train.steps=1", PRICE).exit_code == 0
    run = RunDir(tmp_path / "runs/test/short")
    rows = run.read_trajectories(1, "train") + run.read_trajectories(0, "val")
    assert len({row["reward"] for row in rows}) > 1
    for row in rows:
        right = 2 * row["reward_parts"]["env"]
        assert row["reward_parts"]["cost"] == min((3 - right) / 4, 0.5)
        assert row["reward"] == right / 2 - min((3 - right) / 4, 0.5)
    [learned] = [row for row in run.read_metrics() if "train/reward" in row]
    assert learned["train/env_reward"] - learned["train/reward"] == pytest.approx(
        learned["train/invalid_action_cost"]
    )
    priced = next(row for row in run.read_metrics() if "val/reward" in row)
    shown = art("show", "runs/test/short", "1", "0").output
    assert "invalid actions -0.5" in shown and ", env 0" in shown
    ask = "eval", "runs/test/short", "--candidate", "untrained", "--episodes", "8", "--json"
    found = [
        json.loads(art(*ask, *more).stdout)["untrained"]["metrics"]["reward"]["value"]
        for more in ([], ["reward.invalid_action_cost=0", "reward.max_invalid_cost=0.5"])
    ]
    assert found[0] == pytest.approx(priced["val/reward"])
    assert found[1] == pytest.approx(priced["val/env_reward"])
