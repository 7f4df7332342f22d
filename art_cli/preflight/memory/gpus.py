"""The GPUs of this machine, and GPU models that can be rented."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass

from art_cli.errors import UsageError

MIB, GIB = 2**20, 2**30
SECONDS = 10.0  # for nvidia-smi, which is slow if it has to load the driver

# Total memory in MiB, as nvidia-smi reports it.
CARDS = {
    "T4": 15360,
    "RTX3090": 24576,
    "RTX4090": 24564,
    "RTX5090": 32607,
    "A10": 23028,
    "A10G": 23028,
    "L4": 23034,
    "A40": 46068,
    "L40S": 46068,
    "A100": 81920,
    "A100-40GB": 40960,
    "A100-80GB": 81920,
    "H100": 81559,
    "H200": 143771,
    "B200": 183359,
}
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:GB|GiB|G)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU."""

    name: str
    size: int  # bytes
    free: int | None = None  # bytes; None: not on this machine
    driver: str | None = None


def named(text: str) -> Gpu:
    """Return a GPU by name (`H100`) or size (`24GB`, in units of 2**30). Raises UsageError."""
    wanted = re.sub(r"^NVIDIA[ -]|[ _]", "", text.strip().upper())
    if wanted in CARDS:
        return Gpu(name=wanted, size=CARDS[wanted] * MIB)
    if found := SIZE.fullmatch(text.strip()):
        return Gpu(name=text.strip(), size=int(float(found[1]) * GIB))
    raise UsageError(f"--gpu {text}: expected a size such as 24GB, or one of {', '.join(CARDS)}")


def present() -> list[Gpu]:
    """Return the GPUs that are visible to a CUDA program started here, in its order."""
    found: dict[str, Gpu] = {}
    for line in _ask()[0].splitlines():
        index, uuid, name, size, free, driver = (part.strip() for part in line.split(","))
        if size.isdecimal() and free.isdecimal():  # else a device without its own memory
            gpu = Gpu(name=name, size=int(size) * MIB, free=int(free) * MIB, driver=driver)
            found[index] = found[uuid] = gpu
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return [gpu for key, gpu in found.items() if key.isdecimal()]
    wanted = [key.strip() for key in visible.split(",")]
    return [found[key] for key in wanted if key in found]


def complaint() -> str:
    """Return the driver's error message; "" if there is no driver, or no error."""
    return _ask()[1]


def _ask() -> tuple[str, str]:
    """Return the GPUs, one per line, or nvidia-smi's error message."""
    query = "index,uuid,name,memory.total,memory.free,driver_version"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    try:
        out = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except OSError:
        return "", ""
    except subprocess.TimeoutExpired:
        return "", f"it does not answer within {SECONDS:g} s"
    said = " ".join((out.stdout + out.stderr).split())
    return (out.stdout, "") if out.returncode == 0 else ("", said)
