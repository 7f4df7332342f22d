"""Weave's official client, in an environment of its own, sends spans where `art run` sends them.

What it does is the contract: the path, the headers that say whose project it is, the body's type.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from loopback_wandb import LoopbackWandb
from own_venv import python_with

from art_cli.config.schema import Experiment
from art_cli.config.sections.env import EnvConfig
from art_cli.config.sections.model import ModelConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.runs.directory import RunDir
from art_cli.runs.trackers.wandb.weave import weave_mirror
from art_cli.types import Scenario, Trajectory, TrajectoryGroup

SEND = """
import os, sys
from opentelemetry import trace
from weave.trace.weave_init import _setup_conversation_tracing
from weave.wandb_interface.auth import ApiKeyCredentials

url, key = sys.argv[1:]
os.environ["WF_TRACE_SERVER_URL"] = url
_setup_conversation_tracing("us", "p", ApiKeyCredentials(key))
with trace.get_tracer("weave.conversation").start_as_current_span("invoke_agent first"):
    pass
assert trace.get_tracer_provider().force_flush(10_000)
"""
ROUTING = ("project_id", "authorization", "content-type")


@pytest.fixture(scope="module")
def python() -> Path:
    """That of an environment with the official client."""
    return python_with("weave", "weave==0.54.*")


def test_the_official_client_sends_to_the_same_place(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDir(tmp_path / "runs" / "p" / "first")
    run.trajectories.mkdir(parents=True)
    scenario = Scenario(id="train-0", split="train", seed=1)
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    one = Trajectory(scenario=scenario, messages=said, reward=1.0)  # type: ignore[arg-type]
    run.write_trajectories(4, "train", [TrajectoryGroup([one])])
    cfg = Experiment(
        name="first",
        env=EnvConfig(use="order_desk"),
        model=ModelConfig(base="tiny"),
        train=TrainConfig(steps=4),
    )
    with LoopbackWandb() as ours, LoopbackWandb() as theirs:
        monkeypatch.setenv("WANDB_BASE_URL", ours.url)
        monkeypatch.setenv("WANDB_API_KEY", ours.key)
        told: list[str] = []
        mirror = weave_mirror(cfg, run, "us/p", told.append)
        mirror.log({"training_step": 4, "train/reward": 1.0})
        mirror.finish("done")
        assert told == []
        subprocess.run(
            [str(python), "-c", SEND, f"{theirs.url}/traces", theirs.key],
            env={"WANDB_ERROR_REPORTING": "false", "HOME": str(tmp_path)},
            check=True,
            timeout=600,
        )
        assert {"invoke_agent first", "chat tiny"} <= {s["name"] for s in ours.spans.values()}
        assert [span["name"] for span in theirs.spans.values()] == ["invoke_agent first"]
        for name in ROUTING:
            assert ours.trace_headers[name] == theirs.trace_headers[name], name
