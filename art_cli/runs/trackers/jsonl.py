"""metrics.jsonl, the authoritative record of metrics. Other trackers mirror it."""

from __future__ import annotations

from pathlib import Path

from art_cli.errors import ArtError
from art_cli.system.files import json_line, to_append


class JsonlTracker:
    """Appends one object per line and flushes it, so that a kill loses nothing logged before."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = open(  # noqa: SIM115 (open for the whole run)
                path, "ab", buffering=0, opener=to_append
            )
        except OSError as e:
            raise ArtError(f"cannot write {path}: {e.strerror}.") from e

    def log(self, metrics: dict[str, float]) -> None:
        """Append a line in a single write. NaN and infinity become null."""
        line = json_line(metrics).encode()
        written = self._file.write(line)
        if written != len(line):  # no exception is raised if the disk fills up within a line
            raise OSError(f"only {written} of {len(line)} bytes fit")

    def finish(self, state: str) -> None:
        """Close the file."""
        self._file.close()
