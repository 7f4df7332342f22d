"""Start of vLLM servers: options, environment, and checks before."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import httpx
import torch

from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.engines.vllm.worker import Reload
from art_cli.errors import PreflightError, UsageError
from art_cli.models.experts import adapts_experts
from art_cli.models.policy import Policy
from art_cli.system.child_server import ChildServer

START_TIMEOUT = 1800.0  # seconds: large weights from a slow disk, and CUDA graphs
BASE = "base"  # name of the weights that a server was started with
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # maximum ranks that vLLM supports
MAX_LORAS = 2  # the newest, and that of turns in flight
ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
    "VLLM_SERVER_DEV_MODE": "1",  # enables sleep and reload; it listens on 127.0.0.1 only
}
CPU_KV_CACHE_GB = "1"
ANSWER_TIMEOUT = 10.0  # seconds, for a server that the user started
LAST_LINES = 10
EXCEPTION = re.compile(r"[\w.]+(?:Error|Exception): .+")
CPU_BATCH = 8192  # tokens of one forward
SCRATCH = "art-weights-"
ROOM = 64 * 2**30  # free bytes that a RAM disk must keep
NEEDS_GPU = ("enable_sleep_mode", "gpu_memory_utilization")
DRAFTS = ("speculative_", "spec_")  # prefixes of vLLM's options for speculative decoding


def check_vllm(cfg: EngineConfig, train: TrainConfig) -> None:
    """Raise PreflightError if vLLM cannot run here. Called before a model is loaded."""
    if cfg.url is not None:
        return _check_answers(cfg.url)
    if why := what_is_missing():
        raise PreflightError(f"{why}; or use this program's own: engine.use=transformers")
    if not torch.cuda.is_available():
        return _check_drafts(cfg)
    if cfg.shares_gpu and train.max_staleness:
        raise PreflightError(
            "train.max_staleness needs GPUs for vLLM alone, e.g. engine.gpus=[1]: on the trainer's "
            "it sleeps during updates"
        )
    num = torch.cuda.device_count()
    if missing := [gpu for gpu in cfg.gpus or [] if gpu >= num]:
        raise PreflightError(
            f"engine.gpus names GPU {', '.join(map(str, missing))}, but there are {num}: "
            f"0 to {num - 1}"
        )
    training = int(os.environ.get("LOCAL_WORLD_SIZE", train.num_processes))  # on this machine
    if shared := [gpu for gpu in cfg.gpus or [] if gpu < training]:
        raise PreflightError(
            f"engine.gpus names GPU {', '.join(map(str, shared))}, where the trainer is (0 to "
            f"{training - 1}); name others, or leave it out and they take turns"
        )


def what_is_missing() -> str | None:
    """Return why no vLLM server can run on this machine, or None."""
    if importlib.util.find_spec("vllm") is None:
        return (
            "engine.use is vllm, which is not installed. On a machine with a GPU: pip install "
            "'art-cli[vllm]'"
        )
    if not torch.cuda.is_available() and not _is_cpu_build():
        return "engine.use is vllm, but there is no GPU"
    return None


def _check_answers(url: str) -> None:
    try:
        httpx.get(f"{api_root(url)}/v1/models", timeout=ANSWER_TIMEOUT, trust_env=False)
    except (httpx.HTTPError, httpx.InvalidURL) as e:
        raise PreflightError(
            f"engine.url: nothing answers at {url} ({e}); start vLLM there, or remove "
            "engine.url to have it started"
        ) from None


def _check_drafts(cfg: EngineConfig) -> None:
    """Reject speculative decoding on a CPU, where vLLM 0.32 samples noise without an error."""
    if drafts := [key for key in cfg.extra if key.replace("-", "_").startswith(DRAFTS)]:
        raise PreflightError(
            f"engine.extra: {drafts[0]} needs a GPU: on a CPU vLLM divides the logits of drafted "
            "tokens by a temperature that it never sets (vllm-project/vllm issue 55005); remove it"
        )


def api_root(url: str) -> str:
    """Return the root of vLLM's own paths, with or without OpenAI's /v1 in the URL."""
    return url.rstrip("/").removesuffix("/v1")


def check_model(cfg: EngineConfig, policy: Policy) -> None:
    """Raise UsageError if the model cannot be split over engine.tensor_parallel_size GPUs."""
    heads = policy.base.config.num_attention_heads
    if heads % cfg.tensor_parallel_size:
        raise UsageError(
            f"engine.tensor_parallel_size must divide the model's {heads} attention heads, got "
            f"{cfg.tensor_parallel_size}"
        )


async def start(options: dict[str, Any], gpus: list[int], log: Path) -> ChildServer:
    """Start one replica on these GPUs of this machine, and wait until it answers.

    `options` are those of `options_of`, the same on every machine. Raises PreflightError with
    vLLM's last output.
    """
    environment = dict(ENVIRONMENT)
    options = {"host": "127.0.0.1"} | options
    if torch.cuda.is_available():
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(_name_of_gpu, gpus))
    else:
        environment["VLLM_CPU_KVCACHE_SPACE"] = CPU_KV_CACHE_GB
        options = {k: v for k, v in options.items() if k not in NEEDS_GPU}
        # vLLM rewinds the random generator after a partly read prompt, which fails for CPU
        # generators and ends the engine. Prompts read in one piece avoid that.
        options["enable_chunked_prefill"] = False
        options["max_num_batched_tokens"] = max(options["max_model_len"], CPU_BATCH)
    if Path(options["model"]).is_dir():
        environment["HF_HUB_OFFLINE"] = "1"
    command = ["{python}", "-m", "vllm.entrypoints.openai.api_server", "--port", "{port}"]
    command += flags_of(options)
    return await ChildServer.start(command, START_TIMEOUT, env=environment, log=log)


def _name_of_gpu(index: int) -> str:
    """Return the name of our GPU for a child process, considering CUDA_VISIBLE_DEVICES."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    return shown.split(",")[index] if shown else str(index)


def last_errors(log: Path) -> str:
    """Return the distinct exceptions in a vLLM log; its last lines only report the shutdown."""
    said = log.read_text(errors="replace")
    found = list(dict.fromkeys(EXCEPTION.findall(said))) or said.splitlines()
    return "\n".join(found[-LAST_LINES:])


def options_of(policy: Policy, cfg: EngineConfig) -> dict[str, Any]:
    """Return the options of `vllm serve` that are the same on every machine."""
    options: dict[str, Any] = {
        "model": policy.source,
        "served_model_name": BASE,
        "dtype": str(policy.dtype).removeprefix("torch."),
        "max_model_len": cfg.max_model_len,
        "max_num_seqs": cfg.max_num_seqs,
        "tensor_parallel_size": cfg.tensor_parallel_size,
        "logprobs_mode": "processed_logprobs",  # after temperature, top_p, top_k and grammars
        "max_logprobs": 21,  # OpenAI's limit is 20; see TurnRequest
        "structured_outputs_config": {"backend": "guidance"},  # like the masks of updates
        "generation_config": "vllm",  # ignores the model's own sampling settings
        "enable_scale_out": True,  # token ids in, token ids out
        "worker_extension_cls": f"{Reload.__module__}.{Reload.__qualname__}",
        "uvicorn_log_level": "warning",
        "enable_sleep_mode": cfg.shares_gpu,
        "gpu_memory_utilization": cfg.gpu_memory_utilization or _free(cfg),
    }
    if policy.has_adapter:
        rank = policy.adapter_rank
        options["enable_lora"] = True
        options["max_lora_rank"] = min(r for r in LORA_RANKS if r >= rank)
        options["max_loras"] = MAX_LORAS
        options["max_cpu_loras"] = 2 * MAX_LORAS
        if adapts_experts(policy.model):
            options["enable_mixed_moe_lora_format"] = True  # PEFT's format, for any family
    return options | {k.replace("-", "_"): v for k, v in cfg.extra.items()}


def load_request(policy: Policy, name: str, path: str) -> dict[str, Any]:
    """Return the request that loads the adapter at `path`."""
    request: dict[str, Any] = {"lora_name": name, "lora_path": path}
    if adapts_experts(policy.model):
        request["is_3d_lora_weight"] = True
    return request


def _free(cfg: EngineConfig) -> float:
    """Return the share of a GPU that vLLM may take: nearly all of its own, else the free memory."""
    if not cfg.shares_gpu or not torch.cuda.is_available():
        return 0.9
    free, total = torch.cuda.mem_get_info()
    return round(0.9 * free / total, 2)


def quick_disk(size: int = 0) -> str:
    """Return a folder for `size` bytes of weights that are written and read once.

    It is on a RAM disk if there is one with enough room.
    """
    shm = Path("/dev/shm")
    has_room = shm.is_dir() and shutil.disk_usage(shm).free > ROOM + size
    return str(shm) if has_room else tempfile.gettempdir()


def scratch(disk: str) -> Path:
    """Make a folder for this process's weights, and remove those of killed processes.

    Those would take memory. Each folder has a lock that ends with its process.
    """
    for other in Path(disk).glob(f"{SCRATCH}*"):
        with contextlib.suppress(OSError):  # in use, or another user's
            lock = os.open(other, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(other)
            finally:
                os.close(lock)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=disk))
        lock = os.open(folder, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():  # else another process has just removed it
            return folder
        os.close(lock)


def flags_of(options: dict[str, Any]) -> list[str]:
    """Return options as command-line arguments."""
    return [word for key, value in options.items() for word in _flag(key, value)]


def _flag(key: str, value: Any) -> list[str]:
    name = f"--{key.replace('_', '-')}"
    if isinstance(value, bool):
        return [name] if value else [f"--no-{name[2:]}"]
    return [name, json.dumps(value) if isinstance(value, dict | list) else str(value)]


def _is_cpu_build() -> bool:
    try:
        return bool(importlib.metadata.version("vllm-cpu"))
    except importlib.metadata.PackageNotFoundError:
        return False
