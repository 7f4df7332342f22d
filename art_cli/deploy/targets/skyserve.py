"""A service file for SkyServe: vLLM on rented GPUs, with readiness checks and a load balancer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from art_cli.config.sections.deploy import SkyServeConfig
from art_cli.deploy.base import Deployment, Job, Plan, Source
from art_cli.deploy.chat_template import parser_words
from art_cli.deploy.targets.merged import (
    WEIGHTS,
    has_merged,
    make_merged,
    merged_words,
    remove_merged,
)
from art_cli.errors import UsageError
from art_cli.preflight.memory.gpus import CARDS, MIB
from art_cli.preflight.memory.shape import UnknownSizeError, shape_of_base
from art_cli.system.files import atomic_write

PORT = 8000
VLLM = "vllm==0.32.*"
# The GPUs that clouds rent, smallest first, and the maximum number of the largest.
RENTED = (("L4", 1), ("L40S", 1), ("A100-80GB", 1), ("H100", 2), ("H100", 4), ("H100", 8))
ROOM = 1.5  # GPU memory relative to the weights, for the KV cache and vLLM's buffers
START_SECONDS = 1800


class SkyServeTarget:
    """Implements Target."""

    def __init__(self, settings: SkyServeConfig) -> None:
        self._settings = settings

    def plan(self, source: Source, name: str) -> Plan:
        accelerators = self._settings.accelerators or smallest(source)
        folder = source.run.deployment("skyserve", name)
        return Plan(
            source=source,
            name=name,
            lines=[
                ("what", merged_words(source)),
                ("on", f"{self._settings.replicas} x {accelerators}, rented by SkyPilot"),
                ("file", str(folder / "service.yaml")),
                ("then", f"sky serve up {folder / 'service.yaml'} -n {name}"),
            ],
            details=accelerators,
        )

    def deploy(self, plan: Plan, job: Job) -> None:
        """See Target. Only writes the file; `sky serve up` rents the machines."""
        folder = plan.source.run.deployment("skyserve", plan.name)
        make_merged(plan.source, folder / WEIGHTS, job)
        service = service_of(plan.name, folder / WEIGHTS, plan.details, self._settings.replicas)
        cfg = plan.source.experiment
        words = ["--max-model-len", str(cfg.engine.max_model_len)]
        words += parser_words(folder / WEIGHTS, cfg.model)
        service["run"] += f" {' '.join(words)}\n"
        atomic_write(folder / "service.yaml", yaml.safe_dump(service, sort_keys=False))
        job.deployment.url = str(folder / "service.yaml")
        job.deployment.state = "ready"

    def state(self, deployment: Deployment) -> str:
        return "ready" if has_merged(deployment) else "gone"

    def undeploy(self, job: Job) -> str:
        done = remove_merged(job.deployment)
        return f"{done}; a service that was started from it: sky serve down {job.deployment.name}"


def service_of(name: str, weights: Path, accelerators: str, replicas: int) -> dict[str, Any]:
    """Return the content of the service file."""
    count = accelerators.partition(":")[2] or "1"
    return {
        "name": name,
        "service": {
            "readiness_probe": {"path": "/v1/models", "initial_delay_seconds": START_SECONDS},
            "replicas": replicas,
        },
        "resources": {"accelerators": accelerators, "ports": PORT, "disk_size": 256},
        "file_mounts": {"/weights": str(weights)},
        "setup": (
            "command -v uv || pip install uv\n"
            "uv venv --seed ~/serve --python 3.11 --allow-existing\n"
            f"uv pip install --python ~/serve/bin/python '{VLLM}'\n"
        ),
        "run": (
            f"~/serve/bin/vllm serve /weights --served-model-name {name} --host 0.0.0.0 "
            f"--port {PORT} --tensor-parallel-size {count}"
        ),
    }


def smallest(source: Source) -> str:
    """Return the smallest GPUs that hold the weights in bfloat16.

    Raise UsageError if the size of the weights is unknown.
    """
    try:
        num_bytes = 2 * shape_of_base(source.base).num_params
    except UnknownSizeError as e:
        raise UsageError(f"how large the base is, is not known ({e}); accelerators=H100:1") from e
    for card, count in RENTED:
        if CARDS[card] * MIB * count >= ROOM * num_bytes:
            return f"{card}:{count}"
    raise UsageError(
        f"{num_bytes / 2**30:.0f} GiB of weights do not fit on one machine of {RENTED[-1][1]} "
        f"{RENTED[-1][0]}; say what they fit on: accelerators=B200:8"
    )
