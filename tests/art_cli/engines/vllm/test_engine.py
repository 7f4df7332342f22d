"""What must hold before vLLM is started, and how it is told of new weights. The servers themselves
are in tests/integration/vllm."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.model import AdapterConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.engines.vllm import server as vllm_server
from art_cli.engines.vllm import sync_choice
from art_cli.engines.vllm.engine import VLLMEngine
from art_cli.engines.vllm.server import options_of
from art_cli.engines.vllm.sync_choice import SyncChoice
from art_cli.errors import EngineError, PreflightError, UsageError
from art_cli.models.policy import Policy
from tests import tiny_moe


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch, installed: None) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


def check(max_staleness: int = 0, num_processes: int = 1, **settings: Any) -> None:
    train = TrainConfig(steps=1, max_staleness=max_staleness, num_processes=num_processes)
    vllm_server.check_vllm(EngineConfig(use="vllm", **settings), train)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PreflightError, match=r"art-cli\[vllm\].*engine.use=transformers"):
        check()


def test_a_server_of_someone_elses_must_answer() -> None:
    with pytest.raises(PreflightError, match=r"engine.url: nothing answers at http://127.0.0.1:9 "):
        check(url="http://127.0.0.1:9")


def test_without_a_gpu_it_says_so(installed: None) -> None:
    with pytest.raises(PreflightError, match=r"there is no GPU; .*engine.use=transformers"):
        check()


@pytest.mark.parametrize("key", ["speculative_config", "speculative-config", "spec-method"])
def test_drafts_need_a_gpu(
    monkeypatch: pytest.MonkeyPatch, installed: None, request: pytest.FixtureRequest, key: str
) -> None:
    monkeypatch.setattr(vllm_server, "_is_cpu_build", lambda: True)
    check(extra={"specialize-active-lora": True})
    with pytest.raises(PreflightError, match=rf"engine.extra: {key} needs a GPU: .* remove it"):
        check(extra={key: {"method": "ngram"}})
    request.getfixturevalue("two_gpus")
    check(extra={key: {"method": "ngram"}})


def test_gpus_that_are_not_there_are_named(two_gpus: None) -> None:
    with pytest.raises(PreflightError, match="names GPU 2, 5, but there are 2: 0 to 1"):
        check(gpus=[1, 2, 5], replicas=3)
    check(gpus=[1])


def test_a_gpu_that_trains_is_not_for_vllm_alone(two_gpus: None) -> None:
    with pytest.raises(PreflightError, match=r"names GPU 0, where the trainer is \(0 to 0\)"):
        check(gpus=[0, 1], replicas=2)
    with pytest.raises(PreflightError, match=r"names GPU 1, where the trainer is \(0 to 1\)"):
        check(gpus=[1], num_processes=2)


def test_gpus_are_named_to_vllm_as_the_machine_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert vllm_server._name_of_gpu(1) == "1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-7a")
    assert [vllm_server._name_of_gpu(i) for i in (0, 1)] == ["4", "GPU-7a"]


def test_rollouts_that_run_ahead_need_a_gpu_that_does_not_sleep(two_gpus: None) -> None:
    with pytest.raises(PreflightError, match=r"train.max_staleness needs .* engine.gpus=\[1\]"):
        check(max_staleness=1)
    check(max_staleness=1, gpus=[1])


def test_heads_that_cannot_be_shared_out_are_told(make_policy: Any) -> None:
    with pytest.raises(UsageError, match=r"size must divide the model's 2 .* got 3"):
        vllm_server.check_model(EngineConfig(use="vllm", tensor_parallel_size=3), make_policy())


def test_options_go_to_the_server_as_its_command_line_wants_them(make_policy: Any) -> None:
    policy = make_policy(rank=12)
    options = vllm_server.options_of(policy, EngineConfig(use="vllm", max_num_seqs=7))
    assert options["max_lora_rank"] == 16  # the next that vLLM makes room for
    assert options["max_num_seqs"] == 7 and options["dtype"] == "float32"
    assert vllm_server._flag("enable_lora", True) == ["--enable-lora"]
    assert vllm_server._flag("enable_prefix_caching", False) == ["--no-enable-prefix-caching"]
    assert vllm_server._flag("speculative_config", {"a": 1}) == [
        "--speculative-config",
        '{"a": 1}',
    ]


def test_a_server_elsewhere_that_does_not_answer_is_told(make_policy: Any, tmp_path: Path) -> None:
    cfg = EngineConfig(use="vllm", url="http://127.0.0.1:9")

    async def sync() -> None:
        engine = await VLLMEngine.start(
            make_policy(rank=4), cfg, SamplingConfig(), frozenset(), logs=tmp_path
        )
        try:
            await engine.sync(0)
        finally:
            await engine.close()

    with pytest.raises(EngineError, match=r"the vLLM server at http://127.0.0.1:9 does not answer"):
        asyncio.run(sync())


def test_merged_weights_are_those_of_the_policy_with_its_adapter(
    make_policy: Any, tmp_path: Path
) -> None:
    policy = make_policy(rank=4)
    before = [p.clone() for p in policy.model.parameters()]
    policy.save_merged(tmp_path)
    policy.base.config.save_pretrained(tmp_path)
    assert all(map(torch.equal, before, policy.model.parameters()))
    assert not any("lora" in name for name in load_file(tmp_path / "model.safetensors"))
    merged: Any = AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = torch.arange(9)[None]
    hidden = policy.hidden(ids, torch.arange(9)[None]).detach()
    assert torch.allclose(merged(ids).logits, policy.head.logits(hidden), atol=1e-4)


def test_auto_tries_both_ways_and_keeps_the_quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(sync_choice.time, "monotonic", lambda: now[0])

    def chosen(adapter_s: float, merged_s: float, merged_sync_s: float) -> str:
        choice = SyncChoice("auto")
        for way, sync_s, sampling_s in (
            ("adapter", 0.1, adapter_s),
            ("merged", merged_sync_s, merged_s),
        ):
            assert choice.next(least=1000) is None and choice.way == way
            choice.synced(sync_s)
            began = time.monotonic()
            now[0] += sampling_s
            choice.sampled(1000, began)
        told = choice.next(least=1000)
        assert told and choice.way in told and choice.next(least=1000) is None
        return choice.way

    assert chosen(adapter_s=13, merged_s=10, merged_sync_s=1) == "merged"
    assert chosen(adapter_s=13, merged_s=10, merged_sync_s=8) == "adapter"


def test_auto_waits_until_enough_was_sampled() -> None:
    choice = SyncChoice("auto")
    choice.synced(0.1)
    choice.sampled(10, time.monotonic())
    assert choice.next(least=1000) is None and choice.way == "adapter"


@pytest.mark.slow
def test_what_a_killed_process_has_left_in_memory_is_removed_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "of someone else").mkdir()
    script = (
        "import os, sys; from art_cli.engines.vllm.server import scratch; "
        "print(scratch(sys.argv[1]), flush=True); os.kill(os.getpid(), 9)"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    left = Path(subprocess.run(command, capture_output=True, text=True).stdout.strip())
    assert left.parent == tmp_path and left.is_dir()
    first, second = vllm_server.scratch(str(tmp_path)), vllm_server.scratch(str(tmp_path))
    assert first.is_dir() and second.is_dir() and not left.exists()
    assert len(list(tmp_path.iterdir())) == 3


def test_why_a_server_ended_is_found_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "engine-0.log"
    log.write_text(
        "(Worker) ERROR [executor.py:1] RuntimeError: no such kernel\n"
        "(Worker) ERROR [executor.py:1] RuntimeError: no such kernel\n"
        "(APIServer) INFO [shutdown] complete\n"
    )
    assert vllm_server.last_errors(log) == "RuntimeError: no such kernel"
    log.write_text("Killed\n")
    assert vllm_server.last_errors(log) == "Killed"


def test_adapters_on_experts_are_sent_merged_unless_the_config_says_adapter() -> None:
    tokenizer: Any = None
    policy = Policy(tiny_moe.make("qwen3_moe"), tokenizer)
    policy.add_adapter(AdapterConfig(rank=2, target_modules=["experts"]), 0)
    way: dict[str, str] = {}
    for cfg in (EngineConfig(use="vllm"), EngineConfig(use="vllm", sync="adapter")):
        engine = VLLMEngine(policy, cfg, SamplingConfig(), frozenset(), [], print)
        way[cfg.sync] = engine._choice.way
        assert options_of(policy, cfg)["enable_mixed_moe_lora_format"]
        asyncio.run(engine.close())
    assert way == {"auto": "merged", "adapter": "adapter"}
