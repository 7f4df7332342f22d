"""The runs of a page, and their parsed files. Each file is read once, until it changes."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from art_cli.errors import PreflightError, UsageError
from art_cli.runs.directory import RunDir
from art_cli.view.episodes import (
    StepEpisodes,
    StepFile,
    group_detail,
    group_of,
    index_part,
    read_step,
    step_files,
    texts_of,
)
from art_cli.view.overview import Mark, RunCurves, stamp, state_words
from art_cli.view.pieces import Pieces
from art_cli.why.diagnose import diagnose, verdict
from art_cli.why.evidence import read_evidence

MARKS = ("config.yaml", "metrics.jsonl", "status.json")  # a folder with any of these is a run
# After a read, wait this multiple of its duration before reading more of an active run: for its
# episodes and for `art why`. Each takes at most 1/300 of the time.
PATIENCE = 300
AT_ONCE = 0.4  # seconds of reading after which the page gets the part read so far
MOST_TOLD = 64  # answers whose content is remembered
MOST_HITS = 2000  # of a search, per run


class ShownRun:
    """One run of the page. Its methods are thread-safe."""

    def __init__(self, run: RunDir, key: str) -> None:
        self.run, self.key = run, key
        self.pieces = Pieces(run)
        self._parts: dict[tuple[str, int], tuple[Any, int, dict[str, Any]]] = {}
        self._revision = 0
        self._curves = RunCurves(run)
        self._judgement: dict[str, Any] = {}  # its verdict and findings
        self._judged: tuple[Any, ...] | None = None  # the stamp of the files that were judged
        self._judge_again = 0.0  # earliest time, on the monotonic clock
        self._read_again = 0.0  # earliest time, on the monotonic clock
        self._was_filled = False  # whether all files present at the beginning have been read
        self._lock = threading.Lock()  # one thread reads changed files while the others wait
        self._curves_lock = threading.Lock()  # numbers do not wait for episodes

    def stamp(self) -> tuple[Any, ...]:
        """Return a value that changes whenever the page has something new to show."""
        return *stamp(self.run), self._judged, len(self._judgement)

    def overview(self, since: Mark = (0, 0)) -> tuple[Mark, dict[str, Any]]:
        """Return the new mark, and the run's numbers with the curves after the mark `since`."""
        with self._curves_lock:
            mark, found = self._curves.read(since)
        judgement = {"verdict": "", **self._judgement}
        so_far = f"{state_words(found['state'], found['step'])}. {judgement['verdict']}"
        return mark, found | judgement | {"key": self.key, "verdict": so_far}

    def is_to_be_judged(self) -> bool:
        """Return whether files have changed and the last judgement is long enough ago."""
        return stamp(self.run) != self._judged and time.monotonic() >= self._judge_again

    def judge(self) -> None:
        """Compute the findings of `art why`, in the background because it reads whole files."""
        now, began = stamp(self.run), time.monotonic()
        try:
            evidence = read_evidence(self.run)
            findings = [asdict(finding) for finding in diagnose(evidence)]
            self._judgement = {"verdict": verdict(evidence), "findings": findings}
        finally:
            ended = time.monotonic()
            self._judged, self._judge_again = now, ended + PATIENCE * (ended - began)

    def judge_soon(self) -> None:
        """Compute only the verdict, if there is none yet, because the page waits for it."""
        if self._judgement:
            return self.judge()
        self._judgement = {"verdict": verdict(read_evidence(self.run, 0))}
        return None

    def index(self, since: int = 0) -> dict[str, Any]:
        """Return the index rows of the files that were read after revision `since`.

        The newest files are read first. After the first pass, files of an active run are read one
        at a time. `more` says that further files can be requested, `later` how many are waiting.
        """
        with self._lock:
            files, began, read = step_files(self.run), time.monotonic(), 0
            there = {(f.split, f.step): f.stamp for f in files}
            self._parts = {k: v for k, v in self._parts.items() if v[0] == there.get(k)}
            unread = [f for f in reversed(files) if (f.split, f.step) not in self._parts]
            slowly = self._was_filled and self.run.state() == "running"
            for file in unread[: int(began >= self._read_again)] if slowly else unread:
                part = index_part(file, read_step(file, tokens=False))
                self._revision += 1
                self._parts[file.split, file.step] = file.stamp, self._revision, part
                read, took = read + 1, time.monotonic() - began
                if slowly:
                    self._read_again = began + PATIENCE * took
                if took > AT_ONCE:
                    break
            left = len(unread) - read
            self._was_filled |= not left
            return {
                "revision": self._revision,
                "parts": [part for _, n, part in self._parts.values() if n > since],
                "files": sorted(f"{split}-{step}" for split, step in there),
                "more": left > 0 and not slowly,
                "later": left if slowly else 0,
            }

    def group(self, split: str, step: int, group: int) -> dict[str, Any]:
        """Return a group with its conversations. Raise UsageError if the step has no file."""
        for file in step_files(self.run):
            if (file.split, file.step) == (split, step):
                found = read_step(file)
                return group_detail(self.run, file, found, group, self.pieces)
        raise UsageError(f"no {split} trajectories of step {step} in {self.run.root}")

    def groups(self, file: StepFile, found: StepEpisodes) -> list[dict[str, Any]]:
        """Return all groups of a file with their conversations."""
        numbers = sorted({group_of(row) for row in found.rows})
        return [group_detail(self.run, file, found, n, self.pieces) for n in numbers]

    def search(self, text: str) -> dict[str, Any]:
        """Return [split, step, group, index] of trajectories with a text, ignoring case."""
        wanted, hits = text.lower(), []
        for file in step_files(self.run):
            for row in read_step(file, tokens=False).rows:
                if wanted in texts_of(row):
                    hits.append([file.split, file.step, group_of(row), row.get("index", 0)])
                if len(hits) >= MOST_HITS:
                    return {"hits": hits, "note": f"Only the first {MOST_HITS} are shown."}
        return {"hits": hits, "note": ""}


class Collection:
    """All runs of a page, including runs that appear later in a given folder."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Raise UsageError if there is no run, PreflightError if a path cannot be read."""
        self._paths = list(paths)
        self._runs: dict[Path, ShownRun] = {}
        self._told: dict[str, dict[str, tuple[Any, Mark]]] = {}  # the content of each answer
        self._judging = threading.Thread()
        for path in self._paths:
            _check(path)
        if not self.runs():
            raise UsageError(
                f"{', '.join(map(str, paths))}: there is no run yet; `art runs` lists runs"
            )

    def runs(self) -> list[ShownRun]:
        """Return the runs that exist now."""
        keys = {shown.key for shown in self._runs.values()}
        for root in (root for path in self._paths for root in _runs_in(path)):
            if root not in self._runs:
                key, n = f"{root.parent.name}/{root.name}", 2
                while key in keys:
                    key, n = f"{root.parent.name}/{root.name} ({n})", n + 1
                keys.add(key)
                self._runs[root] = ShownRun(RunDir(root), key)
        return [shown for root, shown in self._runs.items() if root.is_dir()]

    def run(self, key: str) -> ShownRun:
        """Return a run by its key. Raise UsageError if there is none."""
        for shown in self._runs.values():
            if shown.key == key:
                return shown
        raise UsageError(f"no run {key} on this page")

    def news(self, seen: str = "") -> dict[str, Any] | None:
        """Return the changes since the answer with the stamp `seen`, or None if nothing changed.

        For a run whose key is unchanged it contains only the new points of its curves.
        """
        runs = self.runs()
        self._judge_behind(runs)
        had, now = self._told.get(seen, {}), {shown.key: shown.stamp() for shown in runs}
        if seen in self._told and {key: stamp for key, (stamp, _) in had.items()} == now:
            return None
        told, overviews = {}, []
        for shown in runs:
            stamp, mark = had.get(shown.key, (None, (0, 0)))
            overview: dict[str, Any] = {"key": shown.key}
            if stamp != now[shown.key]:
                mark, overview = shown.overview(mark)
            told[shown.key] = now[shown.key], mark
            overviews.append(overview)
        stamp = secrets.token_hex(8)
        self._told[stamp] = told
        for old in [*self._told][:-MOST_TOLD]:
            self._told.pop(old, None)
        return {"stamp": stamp, "runs": overviews}

    def _judge_behind(self, runs: list[ShownRun]) -> None:
        if not self._judging.is_alive() and any(shown.is_to_be_judged() for shown in runs):
            self._judging = threading.Thread(target=_judge, args=(runs,), daemon=True)
            self._judging.start()


def _judge(runs: list[ShownRun]) -> None:
    for shown in runs:
        if shown.is_to_be_judged():
            shown.judge_soon()


def _check(path: Path) -> None:
    """Raise a specific error for a path without runs."""
    if not os.path.lexists(path):
        raise UsageError(f"{path}: there is no such run or folder; `art runs` lists the runs")
    if not path.is_dir():
        raise UsageError(
            f"{path} is a file, not the directory of a run: name the folder that it is in"
        )
    if not os.access(path, os.R_OK | os.X_OK):
        raise PreflightError(f"{path} may not be read by this user; see `ls -ld {path}`")
    if next(_runs_in(path), None) is None:
        raise UsageError(
            f"{path} holds no run (no config.yaml, metrics.jsonl or status.json in it)"
        )


def _runs_in(path: Path) -> Iterator[Path]:
    """Yield the path if it is a run, otherwise the runs one or two folders below it."""
    path = path.absolute()
    if _is_run(path):
        yield path
        return
    for folder in sorted((*path.glob("*"), *path.glob("*/*"))):
        if not folder.name.startswith(".") and _is_run(folder):
            yield folder


def _is_run(folder: Path) -> bool:
    try:
        return any((folder / mark).is_file() for mark in MARKS)
    except OSError:  # no permission
        return False
