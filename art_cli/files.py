"""Files that are there whole or not at all, and lines of JSON that every reader takes."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from art_cli.errors import ArtError, PreflightError


def atomic_write(path: Path, content: bytes | str) -> None:
    """Replace `path` whole or not at all.

    Raises ArtError when it cannot be written (full disk, no permission); the old file is then as
    it was and nothing else is left behind.
    """
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise ArtError(
            f"cannot write {path}: {error.strerror}. The old file is untouched."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def json_line(value: dict[str, Any]) -> str:
    """One line of strict JSON, which every reader takes: NaN and infinity become null."""
    try:
        return json.dumps(value, allow_nan=False, default=str) + "\n"
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, default=str) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def make_folder(path: Path) -> None:
    """Make a folder and those above it. Raises PreflightError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PreflightError(f"cannot make the folder {path}: {error.strerror}.") from error
