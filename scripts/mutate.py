"""Plant faults in the program, one at a time, and count how many the fast tests catch.

    python scripts/mutate.py --random 100 --seed 0   # at random places (random_faults.py)
    python scripts/mutate.py                         # at chosen places (chosen_faults.py)
    python scripts/mutate.py --only packing          # those in files that are called so

Each fault is planted in a copy of the project. A first run of all fast tests notes which test files
run which functions. A fault is then tried with the test files that run its function, those beside
it first. A test that catches a fault must pass without it. A fault that only a test's time limit
ends is counted apart. Exit code 1 where fewer than `WANTED` are caught.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

import pytest
from chosen_faults import CHOSEN
from random_faults import EQUIVALENT, Fault, drawn
from touched import ROOT, tests_of
from which_tests import Runs, functions, known

WANTED = 0.92
FIRST = 6  # test files that a fault is tried with before all others are
PRELOADED = ("torch", "transformers", "peft", "aiohttp", "httpx", "pydantic", "hypothesis")
MISSED, LIMIT, EQUAL = "missed", "time limit", "equivalent"
KNOWN = ROOT / ".mutate" / "runs.json"  # which test files run a function; their seconds


def main() -> int:
    """Plant them, and print what became of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--random", type=int, default=0, help="this many at random places")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a part of the file's name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes of a test run")
    parser.add_argument("--out", type=Path, help="a JSON file for the result")
    args = parser.parse_args()
    faults = drawn(ROOT, args.random, args.seed) if args.random else chosen()
    faults = [f for f in faults if args.only in f.file]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder) / "art", args.jobs)
        runs, seconds = known_runs(copy)
        for fault in faults:
            began = time.monotonic()
            by = judge(fault, copy, runs, seconds)
            rows.append({"by": by, **asdict(fault)})
            change = f"{fault.before!r:.80} -> {fault.after!r:.80}"
            where = f"{fault.file}:{fault.line}"
            print(f"{by:60} {time.monotonic() - began:4.0f} s  {where}: {change}", flush=True)
            if args.out:
                args.out.write_text(json.dumps(rows, indent=1) + "\n")
    num = {kind: sum(row["by"] == kind for row in rows) for kind in (MISSED, LIMIT, EQUAL)}
    real = len(rows) - num[EQUAL]
    caught = real - num[MISSED] - num[LIMIT]
    print(f"{caught} of {real} faults are caught by a failing test ({caught / real:.0%}); {num}")
    return 0 if caught >= WANTED * real else 1


def chosen() -> list[Fault]:
    """Return the faults chosen by hand. Raise ValueError where a place is not there once."""
    found = []
    for file, before, after in CHOSEN:
        text = (ROOT / file).read_text(encoding="utf-8")
        if text.count(before) != 1:
            raise ValueError(f"{file}: {before!r} stands there {text.count(before)} times")
        head = text.partition(before)[0]
        line = head.count("\n") + 1
        around = [name for name, lines in functions(text) if line in lines]
        function = (around or [""])[-1]
        found.append(Fault(file, "chosen", line, function, len(head.encode()), before, after))
    return found


def known_runs(copy: Copy) -> tuple[Runs, dict[str, float]]:
    """Return which test files run a function, and their seconds; from the last time, if kept."""
    if not KNOWN.exists():
        print("Noting which tests run what, once: as long as scripts/test, twice over ...")
        with tempfile.TemporaryDirectory() as folder:
            kept = known(copy.folder, Path(folder), copy.jobs)
        KNOWN.parent.mkdir(exist_ok=True)
        KNOWN.write_text(json.dumps(kept))
    return tuple(json.loads(KNOWN.read_text()))


def judge(fault: Fault, copy: Copy, runs: Runs, seconds: dict[str, float]) -> str:
    """Return the test that fails with a fault, or what else became of it."""
    if (fault.file, fault.before, fault.after) in EQUIVALENT:
        return EQUAL
    found = files_for(fault, runs, seconds)
    with copy.planted(fault):
        by = copy.failing(found[:FIRST]) or copy.failing(found[FIRST:])
    if by and by != LIMIT and copy.failing([by]):
        raise RuntimeError(f"{by} fails without any fault")
    return by or MISSED


def files_for(fault: Fault, runs: Runs, seconds: dict[str, float]) -> list[str]:
    """Return the test files to try: those beside the fault's file, then quick ones first."""
    here = {key: files for key, files in runs.items() if key.startswith(f"{fault.file}:")}
    own = here.get(f"{fault.file}:{fault.function}")
    files = {f for each in here.values() for f in each} if own is None else set(own)
    beside = [str(p.relative_to(ROOT)) for p in tests_of(ROOT / fault.file)]
    first = [f for f in beside if f in files or not files]
    rest = files or set(seconds)  # what nothing runs may be run by a process that was killed
    return first + sorted(rest - set(first), key=lambda f: seconds.get(f, 0.0))


class Copy:
    """A copy of what git knows of the project, and what it would add."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self.folder, self.jobs = folder, jobs
        self._changes = self._num = 0
        os.environ["OMP_NUM_THREADS"] = "1"
        for name in PRELOADED:
            import_module(name)
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        for name in filter(lambda name: (ROOT / name).is_file(), done.stdout.splitlines()):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)

    @contextmanager
    def planted(self, fault: Fault) -> Iterator[None]:
        """Plant a fault for a while."""
        file = self.folder / fault.file
        text = file.read_text(encoding="utf-8")
        self._write(file, fault.planted(text))
        try:
            yield
        finally:
            self._write(file, text)

    def _write(self, file: Path, text: str) -> None:
        file.write_text(text, encoding="utf-8")
        self._changes += 1  # Python compiles a file again where its time differs, in whole seconds
        os.utime(file, (time.time(), time.time() - 10 * self._changes))

    def failing(self, tests: list[str]) -> str:
        """Run test files up to the first that fails, and return its name; LIMIT where it hangs."""
        runs = [self._start(part) for n in range(self.jobs) if (part := tests[n :: self.jobs])]
        found = ""
        while runs and not found:
            pid, status = os.waitpid(-1, 0)
            if pid in (pids := [run[0] for run in runs]):
                _, printed = runs.pop(pids.index(pid))
                found = failure(os.waitstatus_to_exitcode(status), printed.read_text())
        for pid, _ in runs:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        return found

    def _start(self, tests: list[str]) -> tuple[int, Path]:
        """Fork a process that runs tests: what is imported here already costs it nothing."""
        self._num += 1
        printed = self.folder.parent / f"printed-{self._num}"
        if pid := os.fork():
            return pid, printed
        code = 3
        try:
            os.setsid()
            os.chdir(self.folder)
            os.dup2(os.open(printed, os.O_CREAT | os.O_WRONLY), 1)
            os.dup2(1, 2)
            sys.path[:0] = path = [str(self.folder), str(self.folder / "envs")]
            os.environ["PYTHONPATH"] = os.pathsep.join(path)
            own = ["-p", "no:cacheprovider", f"--basetemp={printed}-files"]
            own += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what is preloaded
            code = int(pytest.main(["-x", "--tb=short", *own, *tests]))
        finally:
            os._exit(code)


def failure(code: int, printed: str) -> str:
    """Return the test that failed in a run of pytest, or what else became of it; "" for none."""
    if code in (0, 5):  # 5: all tests of these files are slow ones
        return ""
    lines = [li for li in printed.splitlines() if li.startswith(("FAILED ", "ERROR "))]
    if not lines:
        return f"pytest ends with {code}"
    if "from pytest-timeout" in printed:
        return LIMIT
    return lines[0].split(" - ")[0].partition(" ")[2]


if __name__ == "__main__":
    sys.exit(main())
