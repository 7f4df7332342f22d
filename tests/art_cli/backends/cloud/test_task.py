"""What SkyPilot would be asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from art_cli.backends.cloud.task import (
    cluster_of,
    cluster_task,
    extras,
    place_of,
    run_task,
    secret_names,
    shipped_config,
)
from art_cli.config.load import LoadedExperiment, load_experiment
from art_cli.envs.registry import env_class

CONFIG = """
project: my.Shop
name: first
env: {use: retail, args: {level: 2, user: {model: anthropic/claude-sonnet-4-5}}}
model: {base: tiny, adapter: null}
judge: {model: openai/o3, fallbacks: [groq/llama], params: {seed: "${oc.env:ART_TEST_SEED}"}}
agent: {use: program, command: [node], pass_env: [MY_KEY]}
train: {steps: 1, num_processes: 4}
track: {wandb: {mode: auto}}
backend:
  use: skypilot
  num_nodes: 2
  resources: {accelerators: "H100:1", cpuss: 2}
  envs: {LEVEL: "7"}
  secrets: [OTHER]
  setup: make things
"""


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedExperiment:
    monkeypatch.setenv("ART_TEST_SEED", "s-e-e-d")
    (tmp_path / "config.yaml").write_text(CONFIG)
    return load_experiment(
        [tmp_path / "config.yaml"], plugin_config=lambda use: env_class(use).Config
    )


def test_the_variables_that_a_config_names_travel_as_secrets(loaded: LoadedExperiment) -> None:
    names = "ANTHROPIC_API_KEY ART_TEST_SEED GROQ_API_KEY HF_TOKEN MY_KEY OPENAI_API_KEY OTHER"
    assert secret_names(loaded) == [*names.split(), "WANDB_API_KEY"]


def test_the_shipped_config_is_the_same_experiment_without_secrets(
    loaded: LoadedExperiment, tmp_path: Path
) -> None:
    text = shipped_config(loaded)
    assert "s-e-e-d" not in text
    (tmp_path / "shipped.yaml").write_text(text)
    there = load_experiment([tmp_path / "shipped.yaml"]).experiment
    assert (there.project, there.name, there.backend.use) == ("my.Shop", "first", "local")
    assert there.judge == loaded.experiment.judge and there.train == loaded.experiment.train


def test_a_run_is_what_makes_a_cluster_ready_and_a_command(loaded: LoadedExperiment) -> None:
    ready = cluster_task(loaded, Path("/ship"), "art.whl")
    run = run_task(loaded, Path("/ship"), "art.whl", {"OTHER": "x"}, going_on=["--resume"])
    assert run["setup"] == ready["setup"] and run["setup"].endswith("make things")
    assert ready["envs"] == {"LEVEL": "7"} and ready["num_nodes"] == 2 and "secrets" not in ready
    assert run["secrets"] == {"OTHER": "x"} and "x" not in yaml.safe_dump(ready["envs"])
    assert run["file_mounts"]["~/.art/configs/my.Shop/first"] == "/ship/config"
    assert "--run my.Shop/first --processes 4 --resume" in run["run"]


def test_a_bucket_is_mounted_and_its_run_resumes_by_itself(tmp_path: Path) -> None:
    (tmp_path / "spot.yaml").write_text(CONFIG.replace("${oc.env:ART_TEST_SEED}", "7"))
    spot = ["backend.resources={use_spot: true}", "backend.storage={name: b, mode: MOUNT}"]
    loaded = load_experiment([tmp_path / "spot.yaml"], spot)
    task = run_task(loaded, Path("/ship"), "art.whl", {}, going_on=[])
    assert task["file_mounts"]["/art-storage"] == {"name": "b", "mode": "MOUNT"}
    assert "--resume --storage /art-storage" in task["run"]


def test_nodes_that_serve_get_a_token_of_their_own_each_time(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "env: {use: x}\nmodel: {base: tiny, adapter: null}\ntrain: {steps: 1}\n"
        "engine: {use: vllm, nodes: 1}\nbackend: {use: skypilot, num_nodes: 2}\n"
    )
    loaded = load_experiment([tmp_path / "c.yaml"])
    tasks = [run_task(loaded, Path("/s"), "a.whl", {"A": "b"}, going_on=[]) for _ in "12"]
    assert all("--processes 1 --engine-nodes 1" in task["run"] for task in tasks)
    first, second = (task["secrets"].pop("ART_ENGINE_TOKEN") for task in tasks)
    assert len(first) > 40 and first != second and tasks[0]["secrets"] == {"A": "b"}
    assert first not in yaml.safe_dump(tasks[0])
    (tmp_path / "shipped.yaml").write_text(shipped_config(loaded))
    assert load_experiment([tmp_path / "shipped.yaml"]).experiment.engine.nodes == 1


def test_a_message_of_skypilot_gets_the_place_of_the_key(loaded: LoadedExperiment) -> None:
    message = "Instead of 'cpuss', did you mean 'cpus'?"
    assert place_of(message, loaded.origins) == "config.yaml:13: backend.resources.cpuss: "
    assert place_of("something else", loaded.origins) == "config.yaml:11: backend: "
    assert place_of(message, {"backend.use": "default"}) == ""


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], ""),
        (["engine.use=vllm"], "[vllm]"),
        (["engine.use=vllm", "engine.url=http://x"], ""),
        (
            [
                "engine={use: vllm, sync: adapter}",
                "model.base=b",
                "model.adapter={}",
                "model.quantize=4bit",
            ],
            None,
        ),
    ],
)
def test_what_the_config_needs_is_installed(
    tmp_path: Path, overrides: list[str], expected: str | None
) -> None:
    (tmp_path / "c.yaml").write_text("env: {use: x}\nmodel: {base: tiny}\ntrain: {steps: 1}\n")
    cfg = load_experiment([tmp_path / "c.yaml"], overrides).experiment
    assert extras(cfg) == ("[vllm,quantize]" if expected is None else expected)
    assert cluster_of(cfg) == "art-default"
