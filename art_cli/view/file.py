"""Runs as one HTML file: all numbers, and as many conversations as the size limit allows."""

from __future__ import annotations

import base64
import gzip
from pathlib import Path
from typing import Any

from art_cli.runs.directory import RunDir
from art_cli.system.files import atomic_write
from art_cli.view.collection import Collection, ShownRun
from art_cli.view.episodes import (
    StepFile,
    index_part,
    read_step,
    step_files,
)
from art_cli.view.frame import as_json, has_charts, whole_page

MOST_BYTES = 8 << 20  # limit of compressed conversations, over all runs of a file
REPORT_BYTES = 1 << 20  # limit for the page that a run writes at its end, which must not take long


def page_of(
    collection: Collection, most_bytes: int = MOST_BYTES, *, all_numbers: bool = True
) -> str:
    """Return the HTML file. Raise PreflightError without the extra `view`.

    Without `all_numbers`, only the trajectory files that fit are read.
    """
    runs = collection.runs()
    kept = [_Kept(shown, most_bytes // len(runs), all_numbers) for shown in runs]
    for shown in runs:
        shown.judge()
    title = ", ".join(shown.key for shown in runs[:3]) + (" ..." if len(runs) > 3 else "")
    data = {
        "runs": [shown.overview()[1] for shown in runs],
        "index": {k.shown.key: _packed(k.index()) for k in kept},
        "details": {k.shown.key: k.details for k in kept},
        "left_out": {k.shown.key: k.left_out() for k in kept},
    }
    return whole_page(title, data)


def write_report(run: RunDir) -> Path | None:
    """Write report.html of a run that has ended. Return None without the extra `view`."""
    if not has_charts():
        return None
    atomic_write(run.report, page_of(Collection([run.root]), REPORT_BYTES, all_numbers=False))
    return run.report


def lacks_report(run: RunDir) -> bool:
    """Return whether report.html is missing or outdated, because the run was killed before writing
    it.
    """
    try:
        return run.report.stat().st_mtime < run.metrics.stat().st_mtime
    except OSError:
        return True


class _Kept:
    """The trajectories of a run that fit into the file. Each trajectory file is read once."""

    def __init__(self, shown: ShownRun, most_bytes: int, all_numbers: bool) -> None:
        self.shown = shown
        self.files = by_weight(step_files(shown.run))
        self.details: dict[str, str] = {}
        self._parts: list[dict[str, Any]] = []
        self._most, self._all = most_bytes, all_numbers
        size = 0
        for file in self.files:
            fits = size + file.stamp[1] <= most_bytes  # the compressed file is about as large here
            if not fits and not all_numbers:
                continue
            found = read_step(file, tokens=fits)
            self._parts.append(index_part(file, found))
            packed = _packed(shown.groups(file, found)) if fits else ""
            if fits and size + len(packed) <= most_bytes:
                self.details[f"{file.split}-{file.step}"] = packed
                size += len(packed)

    def index(self) -> dict[str, Any]:
        files = [f"{part['split']}-{part['step']}" for part in self._parts]
        return {"revision": 1, "parts": self._parts, "files": files}

    def left_out(self) -> str:
        """Return a sentence about the trajectories that are left out."""
        if len(self.details) == len(self.files):
            return ""
        what = "conversations" if self._all else "episodes"
        return (
            f"This file holds the {what} of {len(self.details)} of {len(self.files)} steps and "
            f"evaluations ({self._most / 2**20:.3g} MiB at the most); the curves are complete. "
            f"All of it: art view {self.shown.run.root}"
        )


def by_weight(files: list[StepFile]) -> list[StepFile]:
    """Return files by priority: the first and the last, then those that halve the gaps.

    Evaluations come before training, because held-out results decide whether a run is good.
    """
    held_out = [f for f in files if f.split != "train"]
    return [*_halving(held_out), *_halving([f for f in files if f.split == "train"])]


def _halving(files: list[StepFile]) -> list[StepFile]:
    order: dict[int, None] = dict.fromkeys([len(files) - 1, 0] if files else [])
    gap = len(files)
    while gap > 1:
        gap = (gap + 1) // 2
        order |= dict.fromkeys(range(0, len(files), gap))
    return [files[n] for n in (*order, *(set(range(len(files))) - order.keys()))]


def _packed(value: Any) -> str:
    return base64.b64encode(gzip.compress(as_json(value).encode(), 6, mtime=0)).decode()
