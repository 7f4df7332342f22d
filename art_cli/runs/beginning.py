"""The time of a run's first start, which its chat templates use throughout."""

from __future__ import annotations

from datetime import datetime

from art_cli.runs.directory import RunDir
from art_cli.system.files import read_lines


def began(run: RunDir) -> datetime | None:
    """Return the local time of the run's first start; None if the run does not record it."""
    rows, _ = read_lines(run.made_with)
    at = rows[0].get("at") if rows else None
    try:
        return datetime.fromisoformat(at).astimezone() if isinstance(at, str) else None
    except (ValueError, OverflowError):
        return None
