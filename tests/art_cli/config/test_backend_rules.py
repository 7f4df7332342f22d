"""Settings of the backend that are fine on their own but not together."""

from __future__ import annotations

from pathlib import Path

import pytest

from art_cli.config.load import load_experiment
from art_cli.errors import ConfigError

CONFIG = """
env: {use: order_desk}
model: {base: tiny, adapter: null}
train: {steps: 1}
"""
SKY = "backend.use=skypilot"
SPOT = "backend.resources={use_spot: true}"
SERVING = ("engine.use=vllm", "engine.nodes=1")
ANY_SPOT = "backend.resources={any_of: [{use_spot: true}, {infra: aws}]}"
REFUSED = [
    (["backend.cluster=mine"], "backend.cluster: has no effect with backend.use=local"),
    (["backend.resources={cpus: 2}"], "backend.resources: has no effect with backend.use=local"),
    (["backend.num_nodes=2", "train.num_processes=2"], "backend.num_nodes: has no effect with"),
    (["backend.autostop_minutes=5"], "backend.autostop_minutes: has no effect with"),
    (["backend.workdir=src"], "backend.workdir: has no effect with"),
    (["backend.envs={A: b}"], "backend.envs: has no effect with"),
    (["backend.secrets=[A]"], "backend.secrets: has no effect with"),
    (["backend.setup=make"], "backend.setup: has no effect with"),
    (["backend.storage=/nfs"], "backend.storage: has no effect with"),
    ([SKY, "backend.num_nodes=2"], "is 2, but train.num_processes is 1: each node takes the same"),
    ([SKY, "backend.num_nodes=2", "train.num_processes=3"], "write a multiple of 2"),
    ([SKY, *SERVING], "engine.nodes: is 1, but backend.num_nodes is 1: at least one must be left"),
    ([SKY, *SERVING, "backend.num_nodes=3"], "all but 1 (engine.nodes) train, but train.num_pro"),
    ([SKY, SPOT], "backend.storage: is missing: a machine that may be taken away"),
    ([SKY, ANY_SPOT], "backend.storage: is missing: a machine that may be taken away"),
    ([SKY, "backend.storage=/nfs"], "has no effect without backend.resources.use_spot"),
    ([SKY, SPOT, "backend.storage=/nfs", "backend.cluster=a"], "backend.cluster: has no effect"),
]
FINE = [
    [SKY],
    [SKY, "backend.num_nodes=2", "train.num_processes=4"],
    [SKY, *SERVING, "backend.num_nodes=2"],
    [SKY, *SERVING, "backend.num_nodes=3", "train.num_processes=4", "engine.replicas=8"],
    [SKY, SPOT, "backend.storage={name: bucket}"],
    [SKY, "backend.resources={job_recovery: {strategy: FAILOVER}}", "backend.storage=/nfs"],
]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(CONFIG)
    return tmp_path / "config.yaml"


@pytest.mark.parametrize(("overrides", "message"), REFUSED)
def test_what_has_no_effect_or_cannot_be_is_refused(
    config: Path, overrides: list[str], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        load_experiment([config], overrides)
    assert message in str(error.value)


@pytest.mark.parametrize("overrides", FINE)
def test_what_goes_together_is_taken(config: Path, overrides: list[str]) -> None:
    assert load_experiment([config], overrides).experiment.backend.use == "skypilot"
