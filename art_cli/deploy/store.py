"""The deployments of a run: what is known of each is in its folder, and outlives every kill."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from art_cli.deploy.base import Deployment
from art_cli.errors import ArtError, UsageError
from art_cli.runs.directory import RunDir
from art_cli.system.files import atomic_write, json_line, make_folder
from art_cli.system.lock import hold

HOUR = 3600.0  # seconds
RECORD = "deployment.json"


class Store:
    """Reads and writes them."""

    def __init__(self, run: RunDir) -> None:
        self._run = run

    def all(self) -> list[Deployment]:
        """Return the deployments of this run, stopped ones too, by name."""
        files = [folder / RECORD for folder in self._run.deployments()]
        return [_read(path) for path in files if path.exists()]

    def find(self, target: str, name: str) -> Deployment | None:
        """Return the one of this name there, if there ever was one."""
        path = self._run.deployment(target, name) / RECORD
        return _read(path) if path.exists() else None

    def keep(self, deployment: Deployment) -> None:
        """Write it, whole or not at all, but for a key."""
        deployment.updated = now()
        folder = self._run.deployment(deployment.target, deployment.name)
        atomic_write(folder / RECORD, json_line(asdict(deployment) | {"key": None}))

    @contextmanager
    def alone(self, target: str, name: str) -> Iterator[None]:
        """Hold it: two that deploy the same would both make, and pay for, what is missing.

        Raises UsageError where another process does.
        """
        folder = self._run.deployment(target, name)
        make_folder(folder)
        busy = f"another process is at {name} on {target}; wait for it"
        with hold(folder / "lock", 0.0, lambda: UsageError(busy)):
            yield


def _read(path: Path) -> Deployment:
    try:
        return Deployment(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError, RecursionError) as e:
        raise ArtError(
            f"{path} is damaged ({e}). What was made there may go on and cost money: end it with "
            "the service itself, then remove this file"
        ) from None


def begin_billing(deployment: Deployment, usd_per_hour: float | None) -> None:
    """Note that a deployment costs money from now on."""
    deployment.usd_per_hour = usd_per_hour
    deployment.billed_since = deployment.billed_since or now()


def end_billing(deployment: Deployment) -> None:
    """Note that a deployment costs nothing from now on."""
    deployment.usd = cost(deployment) or 0.0
    deployment.billed_since = None


def cost(deployment: Deployment) -> float | None:
    """Return US dollars so far, by the price at its beginning; None: no price is known."""
    if deployment.billed_since is None:
        return deployment.usd
    if deployment.usd_per_hour is None:
        return None
    since = datetime.fromisoformat(deployment.billed_since)
    hours = (datetime.now(UTC) - since).total_seconds() / HOUR
    return deployment.usd + hours * deployment.usd_per_hour


def now() -> str:
    """Return the time as ISO 8601, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
