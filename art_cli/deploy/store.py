"""Records of a run's deployments, each in a folder of its own and safe against a kill."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from art_cli.config.plugins import PATTERN
from art_cli.config.sections.deploy import TARGETS
from art_cli.deploy.base import Deployment
from art_cli.errors import ArtError, UsageError
from art_cli.runs.directory import RunDir
from art_cli.system.files import atomic_write, is_another, json_line, make_folder, read_text
from art_cli.system.lock import hold, is_held

HOUR = 3600.0  # seconds
RECORD = "deployment.json"
# The types of the values of `Deployment.made`, by key. All other values are ids, which are text.
MADE = {"pid": int, "port": int, "stays": bool, "created": bool, "sent": dict}
RECORDS = TypeAdapter(Deployment)


class Store:
    """Reads and writes the records of a run's deployments.

    A run directory may be a copy of another, or come from someone else. The records of a copy
    belong to the original as long as the original exists, and the copy does not touch the resources
    they name. The records of a moved directory remain its own.
    """

    def __init__(self, run: RunDir) -> None:
        self._run = run

    def all(self) -> list[Deployment]:
        """Return the deployments of this run, stopped ones too, by name."""
        return [d for d, original in self._records() if original is None]

    def originals(self) -> list[Path]:
        """Return the runs that this one is a copy of, according to its records."""
        return sorted({o.parents[1] for _, o in self._records() if o is not None})

    def find(self, target: str, name: str) -> Deployment | None:
        """Return the deployment of this name at the target, or None if there never was one."""
        path = self._home(target, name) / RECORD
        if not path.exists():
            return None
        deployment, original = self._read(path)
        return deployment if original is None else None

    def new(self, target: str, name: str, step: int) -> Deployment:
        """Return a new deployment without any resources."""
        return Deployment(
            target=target, name=name, step=step, home=str(self._home(target, name).absolute())
        )

    def keep(self, deployment: Deployment) -> None:
        """Write the record atomically, without a key."""
        deployment.updated = now()
        folder = self._home(deployment.target, deployment.name)
        atomic_write(folder / RECORD, json_line(asdict(deployment) | {"key": None}))

    @contextmanager
    def alone(self, target: str, name: str) -> Iterator[None]:
        """Lock a deployment, because two concurrent calls would both create and pay for resources.

        Raise UsageError if another process holds the lock.
        """
        folder = self._home(target, name)
        make_folder(folder)
        busy = f"another process is at {name} on {target}; wait for it"
        with hold(folder / "lock", 0.0, lambda: UsageError(busy)):
            yield

    def is_busy(self, deployment: Deployment) -> bool:
        """Return whether a process is deploying or ending it."""
        return is_held(self._home(deployment.target, deployment.name) / "lock")

    def _home(self, target: str, name: str) -> Path:
        """Return the folder of a deployment. Raise ArtError if a link leads out of the run."""
        folder = self._run.deployment(target, name)
        if folder.resolve() != self._run.root.resolve() / folder.relative_to(self._run.root):
            raise ArtError(
                f"{folder} is reached by a link, which may lead to another run; put the folder "
                "itself there, or remove the link"
            )
        return folder

    def _records(self) -> list[tuple[Deployment, Path | None]]:
        files = [folder / RECORD for folder in self._run.deployments()]
        return [self._read(path) for path in files if path.exists()]

    def _read(self, path: Path) -> tuple[Deployment, Path | None]:
        """Return a record, and the folder of its original if it is a copy. Raise ArtError."""
        try:
            deployment = RECORDS.validate_json(read_text(path), strict=True)
            check_record(deployment)
            home = self._home(deployment.target, deployment.name)
            if home != path.parent:
                raise ValueError(f"it is the record of {home.name}")
        except (OSError, ValueError) as e:
            raise ArtError(
                f"{path} is damaged ({wrong_in(e)}). What was made there may go on "
                "and cost money: end it with the service itself, then remove this file"
            ) from None
        written, deployment.home = Path(deployment.home), str(home.absolute())
        if written.is_absolute() and is_another(written / RECORD, path):
            return deployment, written
        _follow(deployment, written)
        return deployment, None


def check_record(deployment: Deployment) -> None:
    """Raise ValueError where a record cannot be written, or read again."""
    RECORDS.validate_json(json_line(asdict(deployment)), strict=True)
    if deployment.target not in TARGETS and not re.match(PATTERN, deployment.target):
        raise ValueError(f"there is no target {deployment.target!r}")
    for key, value in deployment.made.items():
        if type(value) is not MADE.get(key, str):
            raise ValueError(f"made.{key} is {type(value).__name__}")
    folder = Path(deployment.made.get("folder", deployment.home or "/nowhere"))
    if not folder.is_absolute() or not folder.name:
        raise ValueError(f"{folder} is no folder of a deployment")
    if deployment.billed_since is not None:
        datetime.fromisoformat(deployment.billed_since)


def _follow(deployment: Deployment, written: Path) -> None:
    """Adjust the paths inside the folder of a deployment to the folder's current location."""

    def moved(path: str) -> str:
        return path.replace(f"{written}/", f"{deployment.home}/", 1)

    if (folder := deployment.made.get("folder", "")).startswith(f"{written}/"):
        deployment.made["folder"] = moved(folder)
    if deployment.url and deployment.url.startswith(f"{written}/"):
        deployment.url = moved(deployment.url)


def wrong_in(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return ": ".join((*map(str, first["loc"]), first["msg"]))
    return str(error)


def begin_billing(deployment: Deployment, usd_per_hour: float | None) -> None:
    """Record that a deployment costs money from now on."""
    deployment.usd_per_hour = usd_per_hour
    deployment.billed_since = deployment.billed_since or now()


def end_billing(deployment: Deployment) -> None:
    """Record that a deployment costs nothing from now on."""
    deployment.usd = cost(deployment) or 0.0
    deployment.billed_since = None


def cost(deployment: Deployment) -> float | None:
    """Return the cost so far in US dollars at the recorded price, or None if no price is known."""
    if deployment.billed_since is None:
        return deployment.usd
    if deployment.usd_per_hour is None:
        return None
    since = datetime.fromisoformat(deployment.billed_since).astimezone(UTC)
    hours = (datetime.now(UTC) - since).total_seconds() / HOUR
    return deployment.usd + hours * deployment.usd_per_hour


def now() -> str:
    """Return the time as ISO 8601, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
