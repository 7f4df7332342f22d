"""Record of the bases that passed `art certify`, so `art run` can warn about others."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from art_cli.system.files import atomic_write, cache_folder

KEPT = 1000  # number of newest entries


def record_file() -> Path:
    """Return the file with the record of this machine."""
    return cache_folder("certified.json")


def key_of(config: dict[str, Any]) -> str:
    """Return the key of a base in the record: a hash of its config and of package versions."""
    versions = [f"{name} {version(name)}" for name in ("art-cli", "transformers", "torch", "peft")]
    said = json.dumps([versions, config], sort_keys=True, default=str)
    return hashlib.sha256(said.encode()).hexdigest()


def remember(config: dict[str, Any], base: str) -> None:
    """Record that the base has passed. Raises OSError."""
    file = record_file()
    known = {k: v for k, v in _read(file).items() if k != key_of(config)}
    known[key_of(config)] = base
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(file, json.dumps(dict(list(known.items())[-KEPT:]), indent=1))


def is_certified(config: dict[str, Any]) -> bool:
    """Return whether the base with this config has passed here, with these versions."""
    return key_of(config) in _read(record_file())


def _read(file: Path) -> dict[str, str]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
