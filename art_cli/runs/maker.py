"""The mark that shows that a run directory belongs to this account.

A run directory is yours if its config.yaml is unchanged since `art run` of your account on this
machine wrote it. `art run` writes a mark beside it, which requires the key in your state folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
from pathlib import Path

from art_cli.errors import PreflightError
from art_cli.runs.directory import RunDir
from art_cli.system.files import LARGEST, atomic_write, make_folder, read_text

MARK = ".made-by"  # hidden, so that copies of runs from a cluster do not include a foreign mark
KEY_BYTES = 32


def write_config(run: RunDir, text: str) -> None:
    """Write config.yaml and its mark. Raises ArtError."""
    atomic_write(run.config, text)
    mark_own(run)


def mark_own(run: RunDir) -> None:
    """Write the mark, unless the account has no place for its key. Raises ArtError."""
    if mark := _mark(run):
        atomic_write(run.root / MARK, f"{mark}\n")


def is_own(run: RunDir) -> bool:
    """Return whether this account wrote the run's config.yaml on this machine."""
    mark = _mark(run)
    with contextlib.suppress(OSError, ValueError):
        there = read_text(run.root / MARK, 2 * KEY_BYTES + 1).strip()
        return mark is not None and hmac.compare_digest(there.encode(), mark.encode())
    return False


def holds_run(run: RunDir) -> bool:
    """Return whether the directory has any file of a run besides the config."""
    made = (run.metrics, run.status, run.made_with, run.trajectories, run.checkpoints)
    return any(map(os.path.lexists, made))


def _mark(run: RunDir) -> str | None:
    """Return the mark for the current config.yaml."""
    key = _key()
    with contextlib.suppress(OSError, ValueError):
        text = read_text(run.config, LARGEST)
        return hmac.new(key, text.encode(), hashlib.sha256).hexdigest() if key else None
    return None


def _key() -> bytes | None:
    """Return the account's key, created at its first use; None if it cannot be stored."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    file = Path(state) / "art" / "run-key"
    made = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        if not file.exists():
            make_folder(file.parent)
            try:
                with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as new:
                    new.write(secrets.token_bytes(KEY_BYTES))
                with contextlib.suppress(FileExistsError):  # the first of two created stays
                    os.link(made, file)
            finally:
                made.unlink(missing_ok=True)
        key = file.read_bytes()
    except (OSError, PreflightError):
        return None
    return key if len(key) == KEY_BYTES else None
