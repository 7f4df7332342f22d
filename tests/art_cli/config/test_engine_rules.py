"""Settings of the engine that are fine on their own but not together."""

from __future__ import annotations

from pathlib import Path

import pytest

from art_cli.config.load import load_experiment
from art_cli.errors import ConfigError

CONFIG = """
env: {use: order_desk}
model: {base: tiny, adapter: {rank: 8}}
train: {steps: 1}
"""
VLLM = "engine.use=vllm"
REFUSED = [
    (["engine.gpus=[1]"], "engine.gpus: has no effect with engine.use=transformers"),
    (["engine.sync=merged"], "engine.sync: has no effect with engine.use=transformers"),
    (["engine.extra={a: 1}"], "engine.extra: has no effect with engine.use=transformers"),
    ([VLLM, "engine.deterministic=false"], "engine.deterministic: has no effect with"),
    ([VLLM, "engine.gpus=[1, 1]", "engine.replicas=2"], "must name as many GPUs as"),
    ([VLLM, "engine.gpus=[1, 2]"], "must name as many GPUs as engine.replicas (1) times"),
    ([VLLM, "engine.tensor_parallel_size=2"], "engine.gpus: is missing: 1 replicas of 2 GPUs"),
    (["engine.nodes=1"], "engine.nodes: has no effect with engine.use=transformers"),
    ([VLLM, "engine.nodes=1", "engine.url=http://x"], "engine.nodes: has no effect with"),
    ([VLLM, "engine.nodes=1", "engine.gpus=[1]"], "engine.gpus: has no effect with engine.nodes=1"),
    ([VLLM, "engine.nodes=2", "engine.replicas=3"], "engine.replicas: is 3, but engine.nodes is 2"),
    ([VLLM, "engine.url=http://x", "engine.extra={a: 1}"], "engine.extra: has no effect with"),
    ([VLLM, "engine.extra={max-model-len: 9}"], "holds an option that this program sets itself"),
    ([VLLM, "model.adapter=null", "engine.sync=adapter"], "engine.sync: is adapter, but model.ad"),
    ([VLLM, "model.adapter.rank=513"], "must be at most 512 with engine.use=vllm, got 513"),
    (["train.max_staleness=1"], "add engine.deterministic: false"),
    (
        ["train.max_staleness=1", "engine.deterministic=false", "train.dynamic_sampling=true"],
        "train.max_staleness: does not go with train.dynamic_sampling",
    ),
]
FINE = [
    [VLLM],
    [VLLM, "engine.gpus=[1, 2, 3, 4]", "engine.replicas=2", "engine.tensor_parallel_size=2"],
    [VLLM, "engine.url=http://127.0.0.1:8000"],
    [VLLM, "engine.nodes=1", "engine.replicas=4", "engine.tensor_parallel_size=2"],
    [VLLM, "train.max_staleness=1"],
    ["train.max_staleness=2", "engine.deterministic=false"],
]


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG)
    return str(file)


@pytest.mark.parametrize(("overrides", "message"), REFUSED)
def test_what_cannot_be_is_refused(config: str, overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_experiment([Path(config)], overrides)
    assert message in str(raised.value), str(raised.value)


@pytest.mark.parametrize("overrides", FINE)
def test_what_goes_together_is_taken(config: str, overrides: list[str]) -> None:
    load_experiment([Path(config)], overrides)
