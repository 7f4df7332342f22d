"""`art deploy --to together` against a service that follows Together's contract, and fails."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import slow_but
from peft import PeftModel
from together_server import BASE, LoopbackTogether
from transformers import AutoModelForCausalLM
from typer.testing import Result

import art_cli as art_module
from art_cli.cli.inputs import load
from art_cli.deploy.store import Store, cost
from art_cli.deploy.targets.together import target as together
from art_cli.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_PREFLIGHT, EXIT_USAGE
from art_cli.runs.directory import RunDir

NAME = "test-short-2"
FLAGS = ["--to", "together", f"base={BASE}", "--checkpoint", "last", "--yes"]


@pytest.fixture
def deploy(art: Any, service: LoopbackTogether) -> Any:
    return lambda *words: art("deploy", *FLAGS, *words)


def said(result: Result) -> str:
    """The command's output, or what `main` would print of the error that ended it."""
    return f"{result.output}{result.exception or ''}"


def code(result: Result) -> int:
    return getattr(result.exception, "exit_code", result.exit_code)


def test_it_is_served_and_what_was_uploaded_is_the_adapter(
    deploy: Any, service: LoopbackTogether, run: RunDir, tmp_path: Path
) -> None:
    result = deploy()
    assert code(result) == 0, said(result)
    assert f"model: acme/{NAME}" in result.output and "$1.49 an hour" in result.output
    (endpoint,) = service.endpoints.values()
    assert [t["deploymentId"] for t in endpoint["trafficSplit"]] == list(service.deployments)
    (deployment,) = service.deployments.values()
    assert deployment["config"] == "projects/proj_pub/configs/cr_small"  # the cheapest
    assert deployment["autoscaling"] == {"minReplicas": 1, "maxReplicas": 1}
    (model,) = service.models
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (tmp_path / name).write_bytes(service.file(model, name))
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == BASE
    ids = torch.arange(12)[None]
    here, there = (logits_of(run, f, ids) for f in (run.checkpoint(2), tmp_path))
    assert torch.equal(here, there)
    assert not torch.equal(here, logits_of(run, None, ids))


def logits_of(run: RunDir, adapter: Path | None, ids: torch.Tensor) -> torch.Tensor:
    model: Any = AutoModelForCausalLM.from_pretrained(run.base)
    if adapter:
        model = PeftModel.from_pretrained(model, str(adapter))
    with torch.no_grad():
        return model(ids).logits


def test_the_same_command_again_makes_nothing(deploy: Any, service: LoopbackTogether) -> None:
    deploy()
    asked = [a for a in service.asked if a.method != "GET"]
    result = deploy()
    assert code(result) == 0 and f"acme/{NAME}" in result.output
    assert [a for a in service.asked if a.method != "GET"] == asked


def test_it_is_asked_before_it_costs_money(
    art: Any, service: LoopbackTogether, run: RunDir
) -> None:
    result = art("deploy", *FLAGS[:-1])
    assert code(result) == EXIT_USAGE and "--yes" in said(result)
    result = art("deploy", *FLAGS, "--dry-run")
    assert code(result) == 0 and "$1.49 an hour" in result.output
    assert not [a for a in service.asked if a.method != "GET"]
    assert Store(run).all() == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["models", "endpoints", "deployments"])
@pytest.mark.parametrize("does", [True, False])
@pytest.mark.parametrize("status", [0, 503])
def test_what_was_made_although_no_answer_came_is_not_made_twice(
    deploy: Any, service: LoopbackTogether, kind: str, does: bool, status: int
) -> None:
    service.fault("POST", f"/{kind}$", status, does=does)
    result = deploy()
    assert code(result) == 0, said(result)
    assert len(service.models) == len(service.endpoints) == len(service.deployments) == 1


@pytest.mark.slow
@pytest.mark.parametrize("at", ["/models$", "/endpoints$", "/deployments$", "/complete$"])
def test_an_interrupted_one_goes_on(
    deploy: Any, service: LoopbackTogether, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """The process is killed after the service did what it was asked, before it was told so."""
    killed = together.TogetherAPI.send

    def send(self: Any, method: str, path: str, body: Any = None, **query: Any) -> Any:
        answer = killed(self, method, path, body, **query)
        if path.endswith(at.strip("$")):
            raise KeyboardInterrupt
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(together.TogetherAPI, "send", send)
        patch.setattr(together.TogetherAPI, "insist", send)
        result = deploy()
        assert code(result) == EXIT_INTERRUPTED, said(result)
        assert ("MAY BE RUNNING" in said(result)) == (at == "/deployments$")
    result = deploy()
    assert code(result) == 0, said(result)
    assert len(service.models) == len(service.endpoints) == len(service.deployments) == 1


def test_too_many_requests_wait_as_long_as_they_are_told(
    deploy: Any, service: LoopbackTogether
) -> None:
    service.fault("POST", "/deployments$", 429, headers={"Retry-After": "0.01"}, times=3)
    service.fault("GET", "/whoami$", 503, times=2)
    assert code(deploy()) == 0
    assert service.num_asked("POST", "/deployments$") == 4


def test_one_that_cannot_be_started_says_that_it_may_cost_money_and_how_to_end_it(
    deploy: Any, art: Any, service: LoopbackTogether, run: RunDir
) -> None:
    service.ends = "FAILED"
    result = deploy()
    assert code(result) == EXIT_FAILED and "could not start it (failed)" in said(result)
    assert "IT MAY BE RUNNING AND COSTING MONEY, $1.49 an hour: art undeploy" in said(result)
    result = art("undeploy", "--yes")
    assert code(result) == 0 and not service.deployments and not service.endpoints
    (known,) = Store(run).all()
    assert known.state == "stopped" and known.billed_since is None and (cost(known) or 0) >= 0


def test_no_quota_leaves_nothing_that_is_billed(deploy: Any, service: LoopbackTogether) -> None:
    service.fault("POST", "/deployments$", 403, "the quota of 0 H100 is used up")
    result = deploy()
    assert code(result) == EXIT_FAILED and "the quota of 0 H100 is used up" in said(result)
    assert "Nothing is billed. Made so far: endpoint, model" in said(result)
    assert not service.deployments


def test_undeploy_ends_all_even_what_is_not_known_to_be_there(
    deploy: Any, art: Any, service: LoopbackTogether, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.fault("POST", "/deployments$", 503, does=True)
    service.fault("GET", "/deployments$", 503, times=99)  # nor can it be looked for
    assert code(deploy()) == EXIT_FAILED and service.running
    service.heal()
    result = art("undeploy", NAME, "--yes")
    assert code(result) == 0, said(result)
    assert not service.deployments and not service.endpoints
    assert "nothing of it is left" in result.output and not service.models
    assert code(deploy()) == 0 and service.running


def test_what_somebody_else_has_ended_is_no_error(
    deploy: Any, art: Any, service: LoopbackTogether
) -> None:
    deploy()
    service.endpoints.clear()
    service.deployments.clear()
    listed = art("deployments", "--json")
    assert json.loads(listed.output)[0]["now"] == "gone"
    assert code(art("undeploy", "--yes")) == 0


def test_a_name_that_is_taken_stays_its_owners(deploy: Any, service: LoopbackTogether) -> None:
    other = {"id": "ep_77", "name": f"acme/{NAME}", "etag": "e1", "trafficSplit": []}
    service.endpoints["ep_77"] = other
    result = deploy()
    assert code(result) == EXIT_USAGE
    assert f"another endpoint named {NAME}" in said(result) and "--name" in said(result)
    assert code(deploy()) == EXIT_USAGE, "asking twice must not make it ours"
    assert service.endpoints["ep_77"] is other and not service.deployments
    assert code(deploy("--name", "mine")) == 0


def test_a_base_that_is_not_served_is_told_with_those_that_are(
    art: Any, service: LoopbackTogether
) -> None:
    result = art("deploy", "--to", "together", "--yes")
    assert code(result) == EXIT_USAGE
    assert "does not serve adapters of tiny" in said(result) and f"serves {BASE}" in said(result)
    result = art("deploy", "--to", "together", "base=Qwen/Qwen3.5-9b-it", "--yes")
    assert f"Did you mean {BASE!r}?" in said(result)
    result = art("deploy", "--to", "together", f"base={BASE}", "gpu=B200", "--yes")
    assert code(result) == EXIT_USAGE and "1x H100, 1x L40S" in said(result)


def test_without_a_key_or_with_a_wrong_one_it_says_what_to_do(
    deploy: Any, service: LoopbackTogether, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.fault("GET", "/whoami", 401, "Invalid API key")
    result = deploy()
    assert code(result) == EXIT_PREFLIGHT and "refuses TOGETHER_API_KEY" in said(result)
    monkeypatch.delenv("TOGETHER_API_KEY")
    result = deploy()
    assert code(result) == EXIT_PREFLIGHT and "TOGETHER_API_KEY is not set" in said(result)
    monkeypatch.setenv("TOGETHER_API_KEY", "a-key")
    monkeypatch.setenv("TOGETHER_BASE_URL", "http://127.0.0.1:9")
    result = deploy()
    assert code(result) == EXIT_PREFLIGHT and "cannot be reached" in said(result)


def test_a_dry_run_needs_no_key_and_says_what_it_could_not_look_up(
    deploy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOGETHER_API_KEY")
    result = deploy("--dry-run")
    assert code(result) == 0, said(result)
    assert f"{BASE} (not looked up" in result.output and "a dry run" in result.output
    assert "TOGETHER_API_KEY is not set" in result.output
    shown = json.loads(deploy("--dry-run", "--json").output)
    assert "TOGETHER_API_KEY is not set" in shown["lacks"] and shown["usd_per_hour"] is None


@pytest.mark.parametrize("kind", ["model", "endpoint"])
@pytest.mark.parametrize(
    "other", slow_but(("theirs",), ("theirs", "../projects/proj_1/endpoints/theirs"))
)
def test_a_record_ends_nothing_of_another_name(
    deploy: Any, art: Any, service: LoopbackTogether, run: RunDir, kind: str, other: str
) -> None:
    deploy()
    deploy("--name", "theirs")
    mine, theirs = Store(run).all()
    mine.made[kind] = theirs.made[kind] if other == "theirs" else other
    Store(run).keep(mine)
    result = art("undeploy", NAME, "--yes")
    assert code(result) == EXIT_FAILED and "the record of test-short-2" in said(result)
    assert len(service.endpoints) == len(service.models) == len(service.deployments) == 2


def test_the_key_is_sent_to_no_address_of_a_record(
    deploy: Any, service: LoopbackTogether, run: RunDir
) -> None:
    deploy()
    (known,) = Store(run).all()
    known.url, known.key_env = "http://127.0.0.1:9/v1", "HF_TOKEN"
    Store(run).keep(known)
    made = json.loads(deploy("--json").output)
    assert made["url"] == f"{service.url}/v1" and made["key_env"] == "TOGETHER_API_KEY"


def test_without_waiting_it_is_found_ready_later(deploy: Any, service: LoopbackTogether) -> None:
    result = deploy("--no-wait")
    assert code(result) == 0 and "on its way" in result.output
    (endpoint,) = service.endpoints.values()
    assert endpoint["trafficSplit"] == []
    assert code(deploy()) == 0 and endpoint["trafficSplit"]


def test_another_checkpoint_needs_another_name(deploy: Any, service: LoopbackTogether) -> None:
    deploy("--name", "mine")
    result = deploy("--name", "mine", "--checkpoint", "1")
    assert code(result) == EXIT_USAGE and "is step 2, not step 1" in said(result)


def test_the_time_it_may_idle_is_the_services_to_keep(
    deploy: Any, service: LoopbackTogether
) -> None:
    assert "or 30 minutes without a call" in deploy("idle_minutes=30", "replicas=2").output
    (made,) = [a for a in service.asked if a.path.endswith("/deployments") and a.method == "POST"]
    assert made.body["inactiveTimeout"] == 30 and made.body["autoscaling"]["maxReplicas"] == 2


def test_from_python_it_is_one_call(service: LoopbackTogether, run: RunDir) -> None:
    async def both() -> Any:
        experiment = load([str(run.config)])
        model = art_module.TrainableModel.of(
            experiment.experiment, experiment.env_settings, experiment.to_yaml()
        )
        async with art_module.LocalBackend() as backend:
            await model.open(backend)
            return await art_module.deploy_model(
                model=model, deploy_to="together", step=2, base=BASE
            )

    found = asyncio.run(both())
    assert found.state == "ready" and found.model == f"acme/{NAME}" and service.running
