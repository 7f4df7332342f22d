"""Fetching of a managed job's run directory from its storage, since its machines are gone."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from art_cli.backends.cloud import fetch, skypilot, snapshots
from art_cli.backends.cloud.task import STORAGE, storage_folder
from art_cli.errors import UsageError
from art_cli.runs.directory import RunDir

IDLE_MINUTES = 10  # until the machine ends itself if this process is killed


def bring_stored(
    storage: str | dict[str, Any], infra: str | None, run: RunDir, say: Callable[[str], None]
) -> bool:
    """Replace `run` by the newest snapshot on the storage. Return whether there is one.

    A folder that is visible here is read directly. Otherwise a small machine at `infra` is rented,
    and terminated afterwards, to mount the storage. Raises ArtError, PreflightError.
    """
    own = f"{run.root.parent.name}/{run.root.name}"
    if isinstance(storage, str) and Path(storage).is_dir():
        return _take(Path(storage) / own, run)
    say("renting a small machine for a moment, to read the storage")
    host = f"art-fetch-{os.getpid()}"
    task: dict[str, Any] = {"name": "art-fetch", "resources": {"cpus": "1+"}}
    if infra:
        task["resources"]["infra"] = infra
    if isinstance(storage, dict):
        task["file_mounts"] = {STORAGE: storage}
    try:
        skypilot.launch(skypilot.parse(task, {}), host, idle_minutes=IDLE_MINUTES, down=True)
        skypilot.write_ssh_config(host)
        with tempfile.TemporaryDirectory() as scratch:
            fetch.copy(host, f"{storage_folder(storage)}/{own}", Path(scratch))
            return _take(Path(scratch), run)
    finally:
        with suppress(UsageError):  # the machine was never created
            skypilot.down(host)


def _take(folder: Path, run: RunDir) -> bool:
    beside = RunDir(run.root.with_name(f".{run.root.name}.coming"))
    with fetch.alone(run):
        shutil.rmtree(beside.root, ignore_errors=True)
        if not snapshots.restore(folder, beside.root):
            return False
        for path in beside.root.iterdir():  # local files, such as deployments, stay
            here = run.root / path.name
            if here in (run.config, run.cloud) and here.exists():
                continue
            if here.is_dir():
                shutil.rmtree(here)
            os.replace(path, here)
        shutil.rmtree(beside.root)
    return True
