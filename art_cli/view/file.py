"""Runs as one file: all numbers, and as many conversations as its size allows."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

from art_cli.runs.directory import RunDir
from art_cli.system.files import atomic_write
from art_cli.view.collection import Collection, ShownRun
from art_cli.view.episodes import StepFile, step_files
from art_cli.view.frame import as_json, has_charts, whole_page

MOST_BYTES = 8 << 20  # of conversations, compressed, over all runs of a file
LARGEST_REPORT = 8 << 20  # bytes of trajectories, compressed: above, a run does not wait for it


def page_of(collection: Collection, most_bytes: int = MOST_BYTES) -> str:
    """Return the whole file. Raises PreflightError without the extra `view`."""
    runs = collection.runs()
    shares = [most_bytes // len(runs)] * len(runs)
    kept = [_kept(shown, share) for shown, share in zip(runs, shares, strict=True)]
    title = ", ".join(shown.key for shown in runs[:3]) + (" ..." if len(runs) > 3 else "")
    data = {
        "runs": [shown.overview() for shown in runs],
        "index": {shown.key: _packed(shown.index()) for shown in runs},
        "details": {shown.key: steps for shown, (steps, _) in zip(runs, kept, strict=True)},
        "left_out": {shown.key: words for shown, (_, words) in zip(runs, kept, strict=True)},
    }
    return whole_page(title, data)


def write_report(run: RunDir) -> Path | None:
    """Write report.html of a run that has ended, and return it.

    Return None where nothing was written: without the extra `view`, and for a run so large that
    reading it again would take minutes.
    """
    size = sum(file.stamp[1] for file in step_files(run))
    if not has_charts() or size > LARGEST_REPORT:
        return None
    atomic_write(run.report, page_of(Collection([run.root])))
    return run.report


def _kept(shown: ShownRun, most_bytes: int) -> tuple[dict[str, str], str]:
    """Return the steps whose conversations fit, and a sentence on the others."""
    files = step_files(shown.run)
    kept: dict[str, str] = {}
    size = 0
    for file in by_weight(files):
        if size + file.stamp[1] > most_bytes:  # the file's own size is a good guess, and free
            continue
        packed = _packed(shown.groups(file))
        if size + len(packed) <= most_bytes:
            kept[f"{file.split}-{file.step}"] = packed
            size += len(packed)
    if len(kept) == len(files):
        return kept, ""
    return kept, (
        f"This file holds the conversations of {len(kept)} of {len(files)} steps and evaluations "
        f"({most_bytes >> 20} MiB at the most); all numbers are complete. All conversations: "
        f"art view {shown.run.root}"
    )


def by_weight(files: list[StepFile]) -> list[StepFile]:
    """Return files in the order in which they are kept: the ends first, then what halves the gaps.

    Evaluations come before training, since what is held out is what the run is judged by.
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


def _packed(value: Any, dump: Callable[[Any], str] = as_json) -> str:
    return base64.b64encode(gzip.compress(dump(value).encode(), 6, mtime=0)).decode()
