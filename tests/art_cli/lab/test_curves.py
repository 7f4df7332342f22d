from __future__ import annotations

import json
from pathlib import Path

import pytest

from art_cli.errors import UsageError
from art_cli.lab.curves import Curve, Measured, read_curve
from art_cli.runs.directory import RunDir


def curve(*rewards: float) -> Curve:
    return Curve(
        [
            Measured(step=10.0 * i, tokens=100.0 * i * i, cpu_s=2.0 * i, reward=r)
            for i, r in enumerate(rewards)
        ]
    )


def test_the_area_is_the_mean_over_the_steps() -> None:
    assert curve(0.0, 0.5, 0.75).area == pytest.approx((0.25 + 0.625) / 2)
    assert curve(0.5).area == 0.5


def test_between_two_evaluations_the_reward_is_on_a_line() -> None:
    c = curve(0.0, 0.5, 0.7)
    assert c.at("step", 15) == pytest.approx(0.6)
    assert c.at("tokens", 250) == pytest.approx(0.6)
    assert c.at("cpu_s", 0) == 0.0 and c.at("cpu_s", 99) == 0.7


def test_a_target_is_reached_at_the_first_evaluation_that_has_it() -> None:
    found = curve(0.1, 0.6, 0.5).reaches(0.5)
    assert found and (found.step, found.tokens, found.cpu_s) == (10, 100, 2)
    assert curve(0.1, 0.4).reaches(0.5) is None


def test_a_fall_from_the_best_is_a_collapse() -> None:
    assert curve(0.1, 0.7, 0.49).is_collapsed and not curve(0.1, 0.7, 0.51).is_collapsed


def test_a_run_is_read_with_what_it_had_used_at_each_evaluation(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    rows = [
        {"training_step": 0, "val/reward": 0.1},
        {"training_step": 1, "data/tokens_sampled": 7, "time/cpu_s": 0.5},
        {"training_step": 2, "data/tokens_sampled": 9, "time/cpu_s": 0.25},
        {"training_step": 2, "val/reward": None},
        {"training_step": 2, "val/reward": 0.4},
    ]
    run.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_curve(run).points == [
        Measured(step=0, tokens=0, cpu_s=0, reward=0.1),
        Measured(step=2, tokens=16, cpu_s=0.75, reward=0.4),
    ]
    run.metrics.write_text(json.dumps(rows[1]) + "\n")
    with pytest.raises(UsageError, match="no held-out reward"):
        read_curve(run)
