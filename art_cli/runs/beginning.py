"""When a run began: what it is told of the time stays the same as long as it is trained."""

from __future__ import annotations

from datetime import datetime

from art_cli.runs.directory import RunDir
from art_cli.system.files import read_lines


def began(run: RunDir) -> datetime | None:
    """Return when the run was first started, in local time; None where it does not say."""
    rows, _ = read_lines(run.made_with)
    at = rows[0].get("at") if rows else None
    try:
        return datetime.fromisoformat(at).astimezone() if isinstance(at, str) else None
    except (ValueError, OverflowError):
        return None
