"""`art doctor`: what is wrong with a machine, and what to do."""

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from loopback_judge import LoopbackJudge
from qwen_7b import QWEN_7B
from short_run import CONFIG
from typer.testing import CliRunner, Result

from art_cli.cli.main import app
from art_cli.errors import EXIT_PREFLIGHT, ConfigError
from art_cli.preflight import machine, services
from art_cli.preflight.machine import check_driver, clash_of, free_memory

BIG = "model={base: big, adapter: {rank: 16}, tiny: null}", "model.tiny={}", "sft=null"
Art = Callable[..., Result]


@pytest.fixture
def art(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Art]:
    """`art doctor` in a folder with a config of a tiny model; no key, no GPU, a dead hub."""
    monkeypatch.chdir(tmp_path)
    for name in (*services.KEYS.values(), *services.OTHER_KEYS, "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    Path("config.yaml").write_text(CONFIG)
    Path("big").mkdir()
    Path("big/config.json").write_text(json.dumps(QWEN_7B))
    smi("raise SystemExit(9)")
    yield lambda *words: CliRunner().invoke(app, ["doctor", *words])


def smi(body: str) -> None:
    Path("nvidia-smi").write_text(f"#!{sys.executable}\n{body}\n")
    Path("nvidia-smi").chmod(0o755)


def failed(result: Result) -> list[str]:
    results = json.loads(result.stdout)["findings"]
    return [f"{f['check']}: {f['what']}" for f in results if f["status"] == "failed"]


def test_a_machine_without_a_gpu_can_run_a_tiny_model(art: Art) -> None:
    result = art("config.yaml")
    assert result.exit_code == 0, result.output
    assert "no NVIDIA GPU; tiny models and --smoke run on the CPU" in result.stdout
    assert "torch 2." in result.stdout and "transformers 5." in result.stdout
    assert json.loads(art("config.yaml", "--json").stdout)["ready"] is True


def test_how_long_a_cpu_takes_follows_from_the_size_of_the_run(art: Art) -> None:
    small = json.dumps(QWEN_7B | {"hidden_size": 64, "intermediate_size": 64, "vocab_size": 999})
    Path("big/config.json").write_text(small)
    shown = art("config.yaml", *BIG).stdout
    assert "trains on the CPU, which takes minutes" in " ".join(shown.split())
    shown = art("config.yaml", *BIG, "train.steps=10000000", "train.group_size=640").stdout
    assert "which takes days where turns" in " ".join(shown.split())


def test_a_mistake_in_the_config_is_told_as_ever(art: Art) -> None:
    assert isinstance(art("config.yaml", "train.stps=1").exception, ConfigError)


def test_a_driver_that_is_broken_is_a_failure_in_its_own_words(art: Art) -> None:
    smi("print('Driver/library version mismatch'); raise SystemExit(18)")
    assert failed(art("--json")) == ["gpu: nvidia-smi: Driver/library version mismatch"]


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch is built for GPUs")
def test_a_gpu_that_torch_is_not_built_for_is_a_failure(art: Art) -> None:
    smi("print('0, GPU-0, NVIDIA L4, 23034, 2000, 580.65.06')")
    result = art("config.yaml", "--json")
    assert result.exit_code == EXIT_PREFLIGHT
    assert any(line.startswith("torch: ") and "CPUs" in line for line in failed(result))
    assert "20.5 GiB of it are in use already" in result.stdout


@pytest.mark.parametrize(
    ("build", "driver", "todo"),
    [
        ("13.0", "580.65.06", ""),
        ("12.8", "550.54.14", ""),
        ("12.8", "590.10", ""),
        ("13.0", "570.124.06", "update the driver, or install torch for CUDA 12"),
        ("12.6", "470.82", "update the driver, or install torch for CUDA 11"),
    ],
)
def test_a_driver_runs_the_builds_of_its_major_version(build: str, driver: str, todo: str) -> None:
    (result,) = check_driver(build, driver)
    assert (result.status, result.todo) == ("failed" if todo else "ok", todo)


@pytest.mark.parametrize(
    ("line", "clash"),
    [
        ("torch==2.13.*", "torch==2.13.*, but 2.14.0 is installed"),
        ("torch>=2.10; python_version > '3'", None),
        ("torch==1.0; python_version < '3'", None),
        ("torch==1.0; extra == 'old'", None),
        ("somebody==1.0", None),
    ],
)
def test_packages_go_together_by_their_own_word(line: str, clash: str | None) -> None:
    assert clash_of(line, {"torch": "2.14.0"}) == clash


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
    monkeypatch.setattr(machine, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    assert free_memory() == 8000 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1024\n")
    assert free_memory() == 8000 * 1024
    (tmp_path / "memory.max").write_text("4096\n")
    assert free_memory() == 3072


def test_a_base_that_does_not_fit_is_a_failure_with_the_line_to_change(
    art: Art, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("art_cli.preflight.doctor.free_memory", lambda: 10 * 2**30)
    result = art("config.yaml", *BIG, "--json")
    assert result.exit_code == EXIT_PREFLIGHT
    assert failed(result) == ["model: big is 28.4 GiB, and 10.0 GiB of memory are free"]
    smi("print('0, GPU-0, NVIDIA L4, 15360, 15000, 580.65.06')")
    assert any(
        line.startswith("model: the rollout does not fit")
        for line in failed(art("config.yaml", *BIG, "--json"))
    )


def test_a_disk_without_room_is_a_failure(art: Art, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("art_cli.preflight.doctor.free_disk", lambda folder: 2**20)
    result = art("config.yaml", "--json")
    assert result.exit_code == EXIT_PREFLIGHT and len(failed(result)) == 2
    assert art("--json").exit_code == 0  # nothing is known of what shall run here


def test_keys_are_named_and_never_shown(art: Art, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "hush-1234567890")
    monkeypatch.setenv("SECRET_BASE", "http://who:hush@127.0.0.1:1/hush")
    judge = "judge={model: openai/mine, api_base: '${oc.env:SECRET_BASE}'}"
    for words in ((), ("config.yaml", judge), ("config.yaml", "judge={model: openai/o3}")):
        for result in (art(*words), art(*words, "--json")):
            assert "ANTHROPIC_API_KEY" in result.output and "hush" not in result.output
    assert "judge (openai/o3) needs OPENAI_API_KEY, which is not set" in result.output
    assert result.exit_code == EXIT_PREFLIGHT


def test_services_of_the_config_are_asked(art: Art) -> None:
    with LoopbackJudge() as server:
        judge = f"judge={{model: openai/mine, api_base: '{server.api_base}'}}"
        result = art("config.yaml", judge, "--json")
        assert result.exit_code == 0 and "answers" in result.stdout
    result = art("config.yaml", judge, "track.wandb={mode: auto}", "--json")
    assert result.exit_code == EXIT_PREFLIGHT
    (line,) = failed(result)  # without W&B a run goes on
    assert line.startswith("services: judge (127.0.0.1:") and "does not answer" in line


def test_services_that_hang_have_one_deadline(art: Art, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "SECONDS", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        servers = [services.Service(name=str(n), url=url) for n in range(8)]
        began = time.monotonic()
        results = list(services.check_servers(servers))
    assert time.monotonic() - began < 14 and {f.status for f in results} == {"warning"}


@pytest.mark.skipif(find_spec("vllm") is not None, reason="it is installed")
def test_an_engine_that_is_not_installed_is_a_failure(art: Art) -> None:
    result = art("config.yaml", "engine.use=vllm", "--json")
    assert result.exit_code == EXIT_PREFLIGHT
    assert any(line.startswith("engine: engine.use is vllm, which") for line in failed(result))


def test_an_engine_elsewhere_must_answer(art: Art) -> None:
    result = art("config.yaml", "engine.use=vllm", "engine.url=http://127.0.0.1:1", "--json")
    assert "services: engine.url (127.0.0.1:1) does not answer" in str(failed(result))


def test_an_agent_that_is_not_there_is_a_failure(art: Art) -> None:
    result = art("config.yaml", "agent={use: program, command: [no-such-program]}", "--json")
    assert any("there is no program 'no-such-program'" in line for line in failed(result))
