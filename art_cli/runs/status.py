"""status.json: the state and progress that a run reports."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, get_args

from art_cli.runs.stored_fields import is_count
from art_cli.system.files import read_object

WrittenState = Literal["running", "done", "failed", "interrupted"]
FIELDS = {str: ("state", "updated", "message"), int: ("step", "steps", "pid")}  # by type


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The last status of a run."""

    state: WrittenState
    step: int  # the last finished one
    steps: int
    pid: int
    updated: str  # ISO 8601, UTC
    message: str  # the reason, if failed or interrupted


def parse_status(file: Path) -> Status:
    """Parse a status.json. Raises OSError, or ValueError that says what is wrong."""
    row = read_object(file, FIELDS)
    status = Status(**{field.name: row[field.name] for field in fields(Status)})
    if status.state not in get_args(WrittenState):
        raise ValueError("its state is unknown")
    if not is_count(status.step) or not is_count(status.steps):
        raise ValueError("its step is not a count")
    return status


def damaged_status(file: Path) -> list[str]:
    """Return the damage to a status.json; [] if it is intact or missing."""
    try:
        parse_status(file)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as e:
        why = e.strerror if isinstance(e, OSError) else e
        return [f"{file} is damaged and left out: {why}"]
    return []
