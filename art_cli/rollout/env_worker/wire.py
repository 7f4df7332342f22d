"""Encoding of messages between art and an env's interpreter as JSON, including errors."""

from __future__ import annotations

import json
import traceback
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from art_cli.envs.base import Done, InvalidCallError, NoServicesError, ToolError
from art_cli.errors import ArtError, RemoteError, blame
from art_cli.types import Constrained, Scenario, Sequence, Step, Trajectory

# Errors that the env's caller handles by type. All others fail the episode with their text.
KNOWN: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (InvalidCallError, ToolError, NoServicesError, *ArtError.__subclasses__())
    if kind is not RemoteError
}


def line_of(message: dict[str, Any]) -> bytes:
    """Encode a message as a line. Raises TypeError, ValueError if JSON cannot represent it.

    Dataclasses are written field by field, so a trajectory of many tokens is not copied first.
    """
    return json.dumps(message, default=_fields_of).encode() + b"\n"


def _fields_of(value: Any) -> dict[str, Any]:
    if not is_dataclass(value):
        raise TypeError(f"{value!r:.200} is no JSON")
    return {field.name: getattr(value, field.name) for field in fields(value)}


def trajectory_of(told: dict[str, Any]) -> Trajectory:
    """Decode a trajectory."""
    sequences = [
        Sequence(**{**each, "constrained": [Constrained(**c) for c in each["constrained"]]})
        for each in told["sequences"]
    ]
    steps = [Step(**step) for step in told["steps"]]
    scenario = Scenario(**told["scenario"])
    return Trajectory(**{**told, "scenario": scenario, "steps": steps, "sequences": sequences})


def told_of(error: BaseException, owner: type | Path) -> dict[str, Any]:
    """Encode an error. Its text contains the line in `owner`, the env's class or file."""
    kind = next((name for name, known in KNOWN.items() if isinstance(error, known)), None)
    if kind:
        ends_run = isinstance(error, ArtError) and error.ends_run
        return {"type": kind, "text": str(error), "trace": "", "ends_run": ends_run}
    trace = "".join(traceback.format_exception(error, limit=-6))
    return {"type": None, "text": blame(error, owner), "trace": trace}


def error_of(told: dict[str, Any]) -> Exception:
    """Decode an error. An unknown type becomes a RemoteError."""
    if kind := KNOWN.get(told["type"] or ""):
        known = kind(told["text"])
        if isinstance(known, ArtError):
            known.ends_run = told["ends_run"]
        return known
    error = RemoteError(told["text"])
    error.add_note(told["trace"])
    return error


def outcome_of(given: str | Done) -> dict[str, Any]:
    """Encode the result of a tool or of `reply`."""
    return {"done": True} if isinstance(given, Done) else {"text": given}


def given_of(outcome: dict[str, Any]) -> str | Done:
    """Decode the result of a tool or of `reply`."""
    return Done() if "done" in outcome else outcome["text"]


def plain(settings: Any) -> Any:
    """Return an env's settings as JSON values."""
    return to_jsonable_python(asdict(settings))
