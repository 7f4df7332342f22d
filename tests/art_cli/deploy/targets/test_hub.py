"""`art deploy --to hf` against a hub on loopback, through huggingface_hub itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub.constants as constants
import pytest
import torch
import yaml
from hub_server import LoopbackHub
from huggingface_hub import HfApi
from transformers import AutoModelForCausalLM

from art_cli.deploy.store import Store
from art_cli.deploy.targets import hub
from art_cli.errors import EXIT_FAILED, EXIT_PREFLIGHT, EXIT_USAGE
from art_cli.runs.directory import RunDir

REPO = "somebody/test-short-2"
FLAGS = ["--to", "hf", "--checkpoint", "last"]

# huggingface_hub's own way of calling httpx
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<:DeprecationWarning")


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    with LoopbackHub() as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(hub, "HfApi", lambda: HfApi(endpoint=running.url))
        monkeypatch.setenv("HF_TOKEN", running.token)
        yield running


def code(result: Any) -> int:
    return getattr(result.exception, "exit_code", result.exit_code)


def test_a_base_of_this_machine_goes_with_its_adapter_merged(
    art: Any, service: LoopbackHub, run: RunDir, tmp_path: Path
) -> None:
    result = art("deploy", *FLAGS)
    assert code(result) == 0, f"{result.output}{result.exception}"
    assert service.private[REPO] and f"{service.url}/{REPO}" in result.output
    files = service.repos[REPO]
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= set(files)
    assert not {"optimizer.pt", "progress.json", "adapter_config.json"} & set(files)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    loaded: Any = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.isfinite(loaded(torch.arange(8)[None]).logits).all()


def test_the_card_says_how_it_was_made_and_nothing_of_this_machine(
    art: Any, service: LoopbackHub, run: RunDir
) -> None:
    art("eval", "--checkpoint", "last", "--episodes", "4", "--split", "test")
    art("deploy", *FLAGS)
    _, head, body = service.repos[REPO]["README.md"].decode().split("---\n", 2)
    about = yaml.safe_load(head)
    assert about["library_name"] == "transformers" and "grpo" in about["tags"]
    (metric,) = about["model-index"][0]["results"][0]["metrics"]
    vals = {r["training_step"]: r.get("val/reward") for r in run.read_metrics()}
    assert metric["value"] == pytest.approx(vals[2], abs=1e-4)
    assert f"| 2 | {vals[2]:.3f} |" in body and "| untrained |" in body
    assert str(run.root.absolute()) not in body and str(Path(__file__).parents[4]) not in body
    config = yaml.safe_load(body.split("```yaml\n")[1].split("```")[0])
    assert config["train"]["steps"] == 2 and config["env"]["use"] == "colours.py:Opposites"


def test_the_same_again_changes_nothing_and_undeploy_deletes_it(
    art: Any, service: LoopbackHub
) -> None:
    art("deploy", *FLAGS)
    before = dict(service.repos[REPO])
    assert code(art("deploy", *FLAGS)) == 0 and service.repos[REPO] == before
    assert code(art("undeploy", "--yes")) == 0 and not service.repos


def test_a_repository_that_is_there_is_not_written_to(art: Any, service: LoopbackHub) -> None:
    service.repos[REPO], service.private[REPO] = {"README.md": b"mine"}, False
    result = art("deploy", *FLAGS)
    assert code(result) == EXIT_USAGE and f"{REPO} is there already" in str(result.exception)
    assert service.repos[REPO] == {"README.md": b"mine"}


def test_what_is_wrong_with_a_token_is_told(
    art: Any, service: LoopbackHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.may_write = False
    result = art("deploy", *FLAGS)
    assert code(result) == EXIT_USAGE and "it needs write access" in str(result.exception)
    monkeypatch.setenv("HF_TOKEN", "hf_bad")
    result = art("deploy", *FLAGS)
    assert code(result) == EXIT_PREFLIGHT and "refuses the token" in str(result.exception)
    monkeypatch.setattr(hub, "get_token", lambda: None)
    result = art("deploy", *FLAGS)
    assert code(result) == EXIT_PREFLIGHT and "hf auth login" in str(result.exception)


def test_an_adapter_alone_is_of_no_use_without_its_base(art: Any, service: LoopbackHub) -> None:
    result = art("deploy", *FLAGS, "weights=adapter")
    assert code(result) == EXIT_USAGE and "weights=merged" in str(result.exception)


def test_a_record_deletes_no_repository_of_another_name(
    art: Any, service: LoopbackHub, run: RunDir
) -> None:
    art("deploy", *FLAGS)
    (known,) = Store(run).all()
    known.made["repo"] = "somebody/precious"
    Store(run).keep(known)
    service.repos["somebody/precious"] = {}
    result = art("undeploy", "--yes")
    assert code(result) == EXIT_FAILED and "names the repository somebody/precious" in str(
        result.exception
    )
    assert set(service.repos) == {REPO, "somebody/precious"}


def test_a_dry_run_needs_no_token(
    art: Any, service: LoopbackHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "get_token", lambda: None)
    result = art("deploy", *FLAGS, "--dry-run")
    assert code(result) == 0 and "/YOU/test-short-2, private" in result.output
    assert "hf auth login" in result.output
