"""The deployments of a run: what is known of each is in its folder, and outlives every kill."""

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
# What `Deployment.made` holds, by its key; all else is an id, which is text.
MADE = {"pid": int, "port": int, "stays": bool, "created": bool, "sent": dict}
RECORDS = TypeAdapter(Deployment)


class Store:
    """Reads and writes them.

    A run directory may be a copy of another, or come from someone else. The records of a copy are
    those of its original for as long as that is there, and what they name is not touched from the
    copy. A record of a directory that was moved is its own.
    """

    def __init__(self, run: RunDir) -> None:
        self._run = run

    def all(self) -> list[Deployment]:
        """Return the deployments of this run, stopped ones too, by name."""
        return [d for d, original in self._records() if original is None]

    def originals(self) -> list[Path]:
        """Return the runs that this one is a copy of, by its records."""
        return sorted({o.parents[1] for _, o in self._records() if o is not None})

    def find(self, target: str, name: str) -> Deployment | None:
        """Return the one of this name there, if there ever was one."""
        path = self._home(target, name) / RECORD
        if not path.exists():
            return None
        deployment, original = self._read(path)
        return deployment if original is None else None

    def new(self, target: str, name: str, step: int) -> Deployment:
        """Return one of which nothing is made yet."""
        return Deployment(
            target=target, name=name, step=step, home=str(self._home(target, name).absolute())
        )

    def keep(self, deployment: Deployment) -> None:
        """Write it, whole or not at all, but for a key."""
        deployment.updated = now()
        folder = self._home(deployment.target, deployment.name)
        atomic_write(folder / RECORD, json_line(asdict(deployment) | {"key": None}))

    @contextmanager
    def alone(self, target: str, name: str) -> Iterator[None]:
        """Hold it: two that deploy the same would both make, and pay for, what is missing.

        Raises UsageError where another process does.
        """
        folder = self._home(target, name)
        make_folder(folder)
        busy = f"another process is at {name} on {target}; wait for it"
        with hold(folder / "lock", 0.0, lambda: UsageError(busy)):
            yield

    def is_busy(self, deployment: Deployment) -> bool:
        """Return whether a process is deploying it or ending it."""
        return is_held(self._home(deployment.target, deployment.name) / "lock")

    def _home(self, target: str, name: str) -> Path:
        """Return its folder. Raise ArtError where a link leads out of the run."""
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
        """Return a record, and the folder of the one that it is a copy of. Raises ArtError."""
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
    """Let the paths below the folder of a deployment be where that is now."""

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
    since = datetime.fromisoformat(deployment.billed_since).astimezone(UTC)
    hours = (datetime.now(UTC) - since).total_seconds() / HOUR
    return deployment.usd + hours * deployment.usd_per_hour


def now() -> str:
    """Return the time as ISO 8601, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
