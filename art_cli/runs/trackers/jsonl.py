"""metrics.jsonl: the source of truth. Other trackers only mirror it."""

from __future__ import annotations

from pathlib import Path

from art_cli.errors import ArtError
from art_cli.system.files import json_line, to_append


class JsonlTracker:
    """Appends one object a line. A kill loses nothing that was logged: each line is flushed."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = open(  # noqa: SIM115 (open for the whole run)
                path, "ab", buffering=0, opener=to_append
            )
        except OSError as e:
            raise ArtError(f"cannot write {path}: {e.strerror}.") from e

    def log(self, metrics: dict[str, float]) -> None:
        """Append a line, in one write; NaN and infinity become null and keep their key."""
        line = json_line(metrics).encode()
        written = self._file.write(line)
        if written != len(line):  # a disk that fills up within the line does not raise
            raise OSError(f"only {written} of {len(line)} bytes fit")

    def finish(self, state: str) -> None:
        """Close the file."""
        self._file.close()
