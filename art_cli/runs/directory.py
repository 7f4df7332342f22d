"""Every path that a run writes, and nothing else knows them. A kill at any instant loses nothing.

    runs/<project>/<name>/
      config.yaml  made-with.jsonl  metrics.jsonl  status.json  costs*.jsonl  run.lock
      trajectories/<split>-<step>.jsonl.gz   checkpoints/<step>/   base/
      deployments/<target>-<name>/   report.html   trackers/   wandb/   tensorboard/
      evaluations/  judgements/  logs/  smoke.json  stand-in/  cloud.json  shipped/  exit.json

Whole files appear by one atomic rename; metrics.jsonl grows line by line, and a torn last line is
ignored by every reader and removed by `truncate_metrics`.
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
MOST_CALLS = 2_000_000  # of models, whose costs are noted a line each
LOCK_PATIENCE = 0.5  # seconds; `art runs` tests a lock by taking it for an instant


class RunDir:
    """The directory of one run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "config.yaml"
        self.metrics, self.status = root / "metrics.jsonl", root / "status.json"
        self.made_with = root / "made-with.jsonl"  # versions, code, files: a line a start
        self.lock_file = root / "run.lock"
        self.trajectories, self.checkpoints = root / "trajectories", root / "checkpoints"
        self.logs = root / "logs"  # what the run, vLLM and further training processes print
        self.base = root / "base"  # a model that the run made itself
        self.smoke = root / "smoke.json"  # it is a smoke run; what it showed
        self.stand_in = root / "stand-in"  # the small model that a smoke run has for its base
        self.costs = root / "costs.jsonl"  # spent on the judge; no resume takes a line of it back
        self.llm_costs, self.agent_costs = (root / f"costs-{w}.jsonl" for w in ("llm", "agent"))
        self.growing = (self.metrics, self.costs, self.llm_costs, self.agent_costs)  # by lines
        self.cloud = root / "cloud.json"  # it goes on elsewhere: where
        self.shipped = root / "shipped"  # what was sent there beside the user's code
        self.report = root / "report.html"  # the page of the run, once it is done
        self.exit = root / "exit.json"  # of a run on a cluster: how it ended

    @classmethod
    def create(cls, root: Path) -> RunDir:
        """Make the directory of a new run. Raises UsageError where there is a run already."""
        run = cls(root)
        run.check_new()
        for folder in (run.trajectories, run.checkpoints):
            files.make_folder(folder)
        return run

    @classmethod
    def replace_smoke(cls, root: Path) -> RunDir:
        """Return an empty directory for a smoke run, in place of the one before.

        Raises UsageError where a run of another kind is there, PreflightError where one goes on.
        """
        run = cls(root)
        if run.smoke.exists():
            with run.lock():
                shutil.rmtree(root)
        elif run.is_begun():
            raise UsageError(
                f"{root} holds a run that is no smoke run, so it is not replaced; give this one "
                "another name: name=NEW_NAME"
            )
        files.make_folder(root)
        files.atomic_write(run.smoke, "{}")
        return run

    def check_new(self) -> None:
        """Raise UsageError where there is a run already, PreflightError where it goes on."""
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
        """Raise PreflightError where a live process holds the run."""
        if self.is_locked():
            raise self._in_use()

    def told(self) -> str:
        """Return in words how far the run is: `done, step 150 of 150`."""
        status = self.read_status()
        how_far = f", step {status.step} of {status.steps}" if status else ""
        return f"{self.state()}{how_far}"

    def remove(self) -> None:
        """Remove the run, from one instant to the next. Raises PreflightError where it goes on."""
        with self.lock():
            doomed = self.root.parent / ".removed" / f"{self.root.name}-{secrets.token_hex(4)}"
            files.make_folder(doomed.parent)
            self.root.rename(doomed)  # a kill while files are removed leaves no half of a run
        shutil.rmtree(doomed.parent, ignore_errors=True)

    def is_begun(self) -> bool:
        """True if there is anything to lose: a start that failed at once leaves only a config."""
        has_metrics = self.metrics.exists() and self.metrics.stat().st_size > 0
        return has_metrics or self.base.exists() or bool(self.checkpoint_steps())

    @classmethod
    def open(cls, root: Path) -> RunDir:
        """Return the directory of a run that exists. Raises UsageError otherwise."""
        run = cls(root)
        if os.path.exists(run.config):  # also where the path is too long for one
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
        """Return where `art eval` keeps its last result."""
        return self.root / "evaluations" / f"{split}.json"

    def attempts(self, key: str) -> Path:
        """Return where `art eval` keeps the episodes of one candidate, line by line."""
        return self.root / "evaluations" / "attempts" / f"{key}.jsonl"

    def judgements(self, judge: str) -> Path:
        """Return where `art judge rescore` keeps what a judge said."""
        return self.root / "judgements" / (re.sub(r"[^A-Za-z0-9._-]+", "-", judge) + ".jsonl")

    def deployments(self) -> list[Path]:
        """Return the folders of all deployments, ended ones too."""
        return sorted((self.root / "deployments").glob("*"))

    def deployment(self, target: str, name: str) -> Path:
        """The folder of a deployment: what is known of it, and files that were made for it."""
        file, colon, last = target.rpartition(":")
        if colon:  # a class of the user's own: two files may have the same name
            digest = hashlib.sha256(target.encode()).hexdigest()[:8]
            target = f"{Path(file).stem}.{last}.{digest}"
        return self.root / "deployments" / f"{target}-{name.replace('/', '--')}"

    def id(self) -> str:
        """Return what trackers call the run: made once, and the same after a resume."""
        file = self.root / "run.id"
        if not file.exists():
            files.atomic_write(file, f"{self.root.name}-{secrets.token_hex(4)}")
        return files.read_small(file).strip()

    def checkpoint_steps(self) -> list[int]:
        """Return the steps that have a checkpoint, ascending. Half-made ones have other names."""
        return sorted(int(p.name) for p in self.checkpoints.glob("*") if p.name.isdecimal())

    def trajectory_file(self, step: int, split: Split) -> Path:
        """Return where the trajectories of a step and split are."""
        return self.trajectories / f"{split}-{step:06d}.jsonl.gz"

    # -- one process at a time -------------------------------------------------------------

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run. Raises PreflightError where another live process does."""
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
        with suppress(OSError, ValueError):  # it is being written at this instant
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
        """Say how far the run is. `step` is the last finished one."""
        told = mask_keys(message)
        status = Status(
            state=state, step=step, steps=steps, pid=os.getpid(), updated=_now(), message=told
        )
        files.atomic_write(self.status, files.json_line(asdict(status)))

    def read_status(self) -> Status | None:
        """The last status of the run; None before it wrote one that can be read."""
        try:
            return parse_status(self.status)
        except (OSError, ValueError):
            return None

    def state(self) -> State:
        """Return the state of the run; `killed` where it says `running` but no process holds it."""
        status = self.read_status()
        if self.is_locked():
            return "running"
        if status is None:
            return "new"
        if status.state == "running" and self.cloud.exists() and not self.exit.exists():
            return "running"  # on a cluster, as far as is known here
        return "killed" if status.state == "running" else status.state

    # -- on a cluster ----------------------------------------------------------------------

    def write_exit(self, code: int) -> None:
        """Say how a run on a cluster ended."""
        files.atomic_write(self.exit, files.json_line({"code": code, "at": _now()}))

    def read_exit(self) -> int | None:
        """The exit code of a run on a cluster; None where it has not ended, or nobody knows."""
        try:
            return files.read_object(self.exit, {int: ("code",)})["code"]
        except (OSError, ValueError):
            return None

    # -- trajectories ----------------------------------------------------------------------

    def write_trajectories(self, step: int, split: Split, groups: list[TrajectoryGroup]) -> Path:
        """Write all that was sampled in a step, and return the file."""
        path = self.trajectory_file(step, split)
        write_rows(path, step, split, groups)
        return path

    def read_trajectories(self, step: int, split: Split) -> list[dict[str, Any]]:
        """Return the rows of `write_trajectories`. Raises UsageError where that step has none."""
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
        """Return all lines of metrics.jsonl that can be read; `damaged` names the others."""
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
        """Forget all that came after `step`, so that a resumed run says everything once.

        Also removes what a killed process left: a torn line, temporary files.
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
    """Return the step that a row of metrics.jsonl is of."""
    return row.get("training_step", 0)


def _step_of(path: Path, split: str = r"\w+") -> int | None:
    """Return None for a file that no run has written: a copy of someone's."""
    found = re.fullmatch(rf"{split}-(\d+)\.jsonl\.gz", path.name)
    return int(found[1]) if found else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
