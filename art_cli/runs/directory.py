"""All paths in a run directory, which only this module knows. A kill at any time loses nothing.

    runs/<project>/<name>/
      config.yaml  made-with.jsonl  metrics.jsonl  status.json  costs*.jsonl  run.lock
      trajectories/<split>-<step>.jsonl.gz   checkpoints/<step>/   base/
      deployments/<target>-<name>/   report.html   trackers/   wandb/   tensorboard/
      evaluations/  judgements/  logs/  smoke.json  stand-in/  cloud.json  shipped/  exit.json

Whole files appear by one atomic rename. metrics.jsonl grows line by line. All readers ignore an
incomplete last line, and `truncate_metrics` removes it.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from art_cli.errors import PreflightError, UsageError, did_you_mean
from art_cli.keys import mask_keys
from art_cli.runs.status import Status, WrittenState, damaged_status, parse_status
from art_cli.runs.stored_fields import check_metrics
from art_cli.runs.trajectories import read_rows, write_rows
from art_cli.system import files
from art_cli.system.lock import hold, is_held
from art_cli.types import Split, TrajectoryGroup

State = Literal["new", "running", "done", "failed", "interrupted", "killed"]

RUNS = "*/*/metrics.jsonl"
MOST_CALLS = 2_000_000  # calls of models, whose costs have one line each
LOCK_PATIENCE = 0.5  # seconds; `art runs` takes a lock briefly to test it


class RunDir:
    """The directory of one run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "config.yaml"
        self.metrics, self.status = root / "metrics.jsonl", root / "status.json"
        self.made_with = root / "made-with.jsonl"  # versions, code, files: one line per start
        self.lock_file = root / "run.lock"
        self.trajectories, self.checkpoints = root / "trajectories", root / "checkpoints"
        self.logs = root / "logs"  # output of the run, vLLM and further training processes
        self.base = root / "base"  # a model that the run created itself
        self.smoke = root / "smoke.json"  # marks a smoke run; has its results
        self.stand_in = root / "stand-in"  # the small model that replaces the base in a smoke run
        self.costs = root / "costs.jsonl"  # cost of the judge; never truncated by a resume
        self.llm_costs, self.agent_costs = (root / f"costs-{w}.jsonl" for w in ("llm", "agent"))
        self.growing = (self.metrics, self.costs, self.llm_costs, self.agent_costs)  # by lines
        self.cloud = root / "cloud.json"  # where the run continues on a cluster
        self.shipped = root / "shipped"  # files sent to the cluster besides the user's code
        self.report = root / "report.html"  # the page of the finished run
        self.exit = root / "exit.json"  # how a run on a cluster ended

    @classmethod
    def create(cls, root: Path) -> RunDir:
        """Create the directory of a new run. Raises UsageError if it has a run already."""
        run = cls(root)
        run.check_new()
        for folder in (run.trajectories, run.checkpoints):
            files.make_folder(folder)
        return run

    @classmethod
    def replace_smoke(cls, root: Path) -> RunDir:
        """Return an empty directory for a smoke run, replacing an earlier smoke run.

        Raises UsageError if another kind of run is there, PreflightError if a smoke run is active.
        """
        run = cls(root)
        if run.smoke.exists():
            with run.lock():
                shutil.rmtree(root)
        elif run.is_begun():
            raise UsageError(
                f"{root} holds a run that is not a smoke run, so it is not replaced; give this one "
                "another name: name=NEW_NAME"
            )
        files.make_folder(root)
        files.atomic_write(run.smoke, "{}")
        return run

    def check_new(self) -> None:
        """Raise UsageError if the directory has a run, PreflightError if that run is active."""
        if not self.is_begun():
            return
        self.check_free()
        status = self.read_status()
        go_on = "Go on with it: --resume."
        if status and status.state == "done":
            more = f"train it further: train.steps={2 * max(status.step, 1)} --resume."
            go_on = f"Show what it came to: --resume; {more}"
        raise UsageError(
            f"{self.root} already holds a run ({self.told()}). {go_on} "
            "Start another: name=NEW_NAME. Begin it anew: --overwrite."
        )

    def check_free(self) -> None:
        """Raise PreflightError if a live process holds the run."""
        if self.is_locked():
            raise self._in_use()

    def told(self) -> str:
        """Return the progress of the run as text: `done, step 150 of 150`."""
        status = self.read_status()
        how_far = f", step {status.step} of {status.steps}" if status else ""
        return f"{self.state()}{how_far}"

    def remove(self) -> None:
        """Remove the run atomically. Raises PreflightError if it is active."""
        with self.lock():
            doomed = self.root.parent / ".removed" / f"{self.root.name}-{secrets.token_hex(4)}"
            files.make_folder(doomed.parent)
            self.root.rename(doomed)  # a kill during the removal leaves no partial run
        shutil.rmtree(doomed.parent, ignore_errors=True)

    def is_begun(self) -> bool:
        """Return whether there is anything to lose. A start that failed early leaves a config."""
        has_metrics = self.metrics.exists() and self.metrics.stat().st_size > 0
        return has_metrics or self.base.exists() or bool(self.checkpoint_steps())

    @classmethod
    def open(cls, root: Path) -> RunDir:
        """Return the directory of an existing run. Raises UsageError if it has no run."""
        run = cls(root)
        if os.path.exists(run.config):  # False if the path is too long
            return run
        within = root.glob("**/metrics.jsonl") if os.path.isdir(root) else ()
        others = sorted({str(p.parent) for p in (*within, *root.parent.glob("*/metrics.jsonl"))})
        near = did_you_mean(str(root), [str(p.parent) for p in root.parent.parent.glob(RUNS)])
        near += f" There is: {', '.join(others)}." if others else " `art runs` lists all."
        raise UsageError(f"{root} holds no run (it has no config.yaml).{near}")

    def checkpoint(self, step: int) -> Path:
        """Return the folder of the checkpoint after `step` steps."""
        return self.checkpoints / str(step)

    def evaluation(self, split: Split) -> Path:
        """Return the file of the last result of `art eval`."""
        return self.root / "evaluations" / f"{split}.json"

    def attempts(self, key: str) -> Path:
        """Return the file in which `art eval` stores the episodes of a candidate, one per line."""
        return self.root / "evaluations" / "attempts" / f"{key}.jsonl"

    def judgements(self, judge: str) -> Path:
        """Return the file in which `art judge rescore` stores a judge's answers."""
        return self.root / "judgements" / (re.sub(r"[^A-Za-z0-9._-]+", "-", judge) + ".jsonl")

    def deployments(self) -> list[Path]:
        """Return the folders of all deployments, including ended ones."""
        return sorted((self.root / "deployments").glob("*"))

    def deployment(self, target: str, name: str) -> Path:
        """The folder of a deployment: what is known of it, and files that were made for it."""
        file, colon, last = target.rpartition(":")
        if colon:  # a class of the user's own: two files may have the same name
            digest = hashlib.sha256(target.encode()).hexdigest()[:8]
            target = f"{Path(file).stem}.{last}.{digest}"
        return self.root / "deployments" / f"{target}-{name.replace('/', '--')}"

    def id(self) -> str:
        """Return the run's id for trackers. It is created once and survives a resume."""
        file = self.root / "run.id"
        if not file.exists():
            files.atomic_write(file, f"{self.root.name}-{secrets.token_hex(4)}")
        return files.read_small(file).strip()

    def checkpoint_steps(self) -> list[int]:
        """Return the steps that have a complete checkpoint, ascending."""
        return sorted(int(p.name) for p in self.checkpoints.glob("*") if p.name.isdecimal())

    def trajectory_file(self, step: int, split: Split) -> Path:
        """Return the file of the trajectories of a step and split."""
        return self.trajectories / f"{split}-{step:06d}.jsonl.gz"

    # -- one process at a time -------------------------------------------------------------

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run's lock. Raises PreflightError if another live process holds it."""
        with hold(self.lock_file, LOCK_PATIENCE, self._in_use) as fd:
            holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": _now()}
            try:
                os.ftruncate(fd, 0)
                os.pwrite(fd, files.json_line(holder).encode(), 0)
            except OSError as e:
                raise PreflightError(f"cannot write {self.lock_file}: {e.strerror}.") from e
            yield

    def _in_use(self) -> PreflightError:
        holder: dict[str, Any] = {}
        with suppress(OSError, ValueError):  # another process is writing it
            holder = files.read_object(self.lock_file, {int: ("pid",), str: ("host", "since")})
        pid, host = holder.get("pid", "?"), holder.get("host", "?")
        return PreflightError(
            f"{self.root} is in use by process {pid} on {host} since {holder.get('since', '?')}. "
            f"Wait for it, stop it with `kill -INT {pid}`, or start another run: name=NEW_NAME."
        )

    def is_locked(self) -> bool:
        """Return whether a live process holds the run."""
        return is_held(self.lock_file)

    # -- status ----------------------------------------------------------------------------

    def write_status(self, state: WrittenState, step: int, steps: int, message: str = "") -> None:
        """Write the progress of the run. `step` is the last finished one."""
        told = mask_keys(message)
        status = Status(
            state=state, step=step, steps=steps, pid=os.getpid(), updated=_now(), message=told
        )
        files.atomic_write(self.status, files.json_line(asdict(status)))

    def read_status(self) -> Status | None:
        """Return the last status of the run; None if there is none that can be read."""
        try:
            return parse_status(self.status)
        except (OSError, ValueError):
            return None

    def state(self) -> State:
        """Return the state of the run: `killed` if it says `running` but holds no lock."""
        status = self.read_status()
        if self.is_locked():
            return "running"
        if status is None:
            return "new"
        if status.state == "running" and self.cloud.exists() and not self.exit.exists():
            return "running"  # on a cluster, as far as this machine knows
        return "killed" if status.state == "running" else status.state

    # -- on a cluster ----------------------------------------------------------------------

    def write_exit(self, code: int) -> None:
        """Write the exit code of a run on a cluster."""
        files.atomic_write(self.exit, files.json_line({"code": code, "at": _now()}))

    def read_exit(self) -> int | None:
        """Return the exit code of a run on a cluster; None if it has not ended or is unknown."""
        try:
            return files.read_object(self.exit, {int: ("code",)})["code"]
        except (OSError, ValueError):
            return None

    # -- trajectories ----------------------------------------------------------------------

    def write_trajectories(self, step: int, split: Split, groups: list[TrajectoryGroup]) -> Path:
        """Write the trajectories of a step. Return the file."""
        path = self.trajectory_file(step, split)
        write_rows(path, step, split, groups)
        return path

    def read_trajectories(self, step: int, split: Split) -> list[dict[str, Any]]:
        """Return the rows of `write_trajectories`. Raises UsageError if the step has none."""
        path = self.trajectory_file(step, split)
        if not path.exists():
            steps = self.trajectory_steps(split)
            there = f"there are steps {steps[0]} to {steps[-1]}" if steps else "there are none"
            raise UsageError(f"no {split} trajectories of step {step} in {self.root}: {there}")
        return read_rows(path)

    def trajectory_steps(self, split: Split) -> list[int]:
        """Return the steps that have trajectories, ascending."""
        found = (_step_of(p, split) for p in self.trajectories.glob(f"{split}-*.jsonl.gz"))
        return sorted(step for step in found if step is not None)

    # -- metrics ---------------------------------------------------------------------------

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return all readable lines of metrics.jsonl; `damaged` lists the others."""
        return files.read_lines(self.metrics, check_metrics)[0]

    def damaged(self) -> list[str]:
        """The damage to the files that grow by lines, and to status.json, each with its place."""
        return files.read_lines(self.metrics, check_metrics)[1] + self.damaged_beside()

    def damaged_beside(self) -> list[str]:
        costs = (
            line for file in self.growing[1:] for line in files.read_lines(file, most=MOST_CALLS)[1]
        )
        return [*costs, *damaged_status(self.status)]

    def truncate_metrics(self, step: int) -> None:
        """Remove the metrics and trajectories after `step`, which a resumed run writes again.

        Also removes leftovers of a killed process: an incomplete line, temporary files.
        """
        if self.metrics.exists():
            rows, _ = files.read_lines(self.metrics, check_metrics, sys.maxsize)
            kept = [row for row in rows if step_of(row) <= step]
            files.atomic_write(self.metrics, "".join(map(files.json_line, kept)))
        for path in self.trajectories.glob("*.jsonl.gz"):
            if (found := _step_of(path)) is not None and found > step:
                path.unlink()
        for path in (*self.root.glob(".*.tmp"), *self.trajectories.glob(".*.tmp")):
            path.unlink()


def step_of(row: dict[str, Any]) -> int:
    """Return the step of a row of metrics.jsonl."""
    return row.get("training_step", 0)


def _step_of(path: Path, split: str = r"\w+") -> int | None:
    """Return the step in a file's name; None for a file that no run has written."""
    found = re.fullmatch(rf"{split}-(\d+)\.jsonl\.gz", path.name)
    return int(found[1]) if found else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
