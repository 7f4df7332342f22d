"""A run whose numbers are made by hand: it learns, and faults can be put into it."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from typing import Any

from art_cli.config.schema import Experiment
from art_cli.config.sections.env import EnvConfig
from art_cli.config.sections.model import ModelConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.why.evidence import Evidence

STEPS, GROUPS, SIZE = 18, 4, 4
EXPERIMENT = Experiment(
    name="made",
    env=EnvConfig(use="order_desk"),
    model=ModelConfig(base="tiny"),
    train=TrainConfig(steps=STEPS),
)


def row(step: int, group: int, index: int, split: str = "train", chance: float = 0.5) -> Any:
    """Return a trajectory of a healthy run: what it says decides what it earns."""
    rng = random.Random(f"{split}{step}{group}{index}")
    is_right = rng.random() < chance
    number = step * GROUPS + group if split == "train" else 10_000 + group
    said = f"{'right' if is_right else 'wrong'} {index}"
    return {
        "step": step,
        "split": split,
        "group": group,
        "index": index,
        "scenario_id": f"{split}-{number}",
        "seed": number,
        "scenario": {"answer": f"answer-{number}"},
        "reward": float(is_right),
        "advantage": None,
        "metrics": {},
        "reward_parts": {},
        "stop_reason": "env",
        "truncated": False,
        "error": None,
        "num_sampled": 20 + rng.randrange(9),
        "policy_versions": [step],
        "steps": [{"tool": "look", "result": f"record {number}", "is_error": False}] * 3,
        "messages": [
            {"role": "user", "content": f"question {number}"},
            {"role": "assistant", "content": said},
        ],
        "sequences": [
            {
                "ids": [1, 2, 10 + step, index],
                "mask": [0, 0, 1, 1],
                "engine_logprobs": [0.0, 0.0, -0.5, -0.1],
            }
        ],
    }


def healthy() -> Evidence:
    """Return a run that learns: from 0.3 to 0.7, in training and held out."""
    chances = [0.3 + 0.4 * s / (STEPS - 1) for s in range(STEPS)]
    metrics = [
        {
            "training_step": s + 1,
            "train/reward": chances[s],
            "train/tokens": 25.0,
            "data/groups": 8,
            "data/groups_zero_variance": 1,
            "data/trajectories": 64,
            "data/trajectories_failed": 0,
            "data/truncated": 0,
            "data/context_full": 0,
            "data/forks": 0,
            "loss/entropy": 0.5 - 0.2 * s / STEPS,
            "loss/logprob_gap": 1e-6,
            "loss/ratio_max": 1.0,
            "loss/grad_norm": 0.3,
            "loss/update_kl": 0.02,
            "loss/shortened": 0.6,
            "time/step_s": 10.0,
        }
        for s in range(STEPS)
    ]
    metrics[-1]["val/reward"] = 0.8
    metrics.append({"training_step": 0, "val/reward": 0.2})
    train = {
        s + 1: [[row(s + 1, g, i, chance=chances[s]) for i in range(SIZE)] for g in range(GROUPS)]
        for s in range(STEPS)
    }
    held_out = {
        s: [row(s, g, 0, "val", chance) for g in range(64)]
        for s, chance in ((0, 0.2), (STEPS, 0.8))
    }
    run = Evidence(experiment=EXPERIMENT, metrics=metrics, train=train, held_out=held_out)
    centre(run)
    return run


def centre(run: Evidence) -> None:
    """Set the advantages that follow from the rewards."""
    for group in run.groups:
        middle = statistics.fmean(one["reward"] for one in group)
        for one in group:
            one["advantage"] = one["reward"] - middle


def each(run: Evidence, change: Callable[[Any], None]) -> None:
    """Change every trajectory."""
    for rows in (run.rows, *run.held_out.values()):
        for one in rows:
            change(one)


def metric(run: Evidence, **values: float) -> None:
    """Set metrics at every step; `loss__kl` is `loss/kl`."""
    for line in run.metrics:
        line.update({name.replace("__", "/"): value for name, value in values.items()})


def over_steps(run: Evidence, name: str, value: Callable[[float], float]) -> None:
    """Set a metric by how far the run is, from 0 to 1."""
    for n, line in enumerate(run.metrics[:STEPS]):
        line[name] = value(n / (STEPS - 1))


def call(tool: str, result: str, is_error: bool = False, **arguments: Any) -> dict[str, Any]:
    return {"tool": tool, "arguments": arguments, "result": result, "is_error": is_error}


def calls(made: Callable[[Any], list[dict[str, Any]]]) -> Callable[[Evidence], None]:
    """Return a change that gives every trajectory the calls that `made` returns of it."""
    return lambda run: each(run, lambda r: r.update(steps=made(r)))


def scored(reward: Callable[[Any], float]) -> Callable[[Evidence], None]:
    def change(run: Evidence) -> None:
        each(run, lambda r: r.update(reward=reward(r)))
        centre(run)

    return change


def of_success(reward: Callable[[Any], float], ever: float = 1.0) -> Callable[[Evidence], None]:
    def change(one: Any) -> None:
        one.update(metrics={"success": one["reward"] * ever}, reward=reward(one))

    return lambda run: each(run, change)
