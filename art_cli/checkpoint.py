"""Checkpoints: a folder that appears by one atomic rename, or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from art_cli.errors import TrainerError, UsageError
from art_cli.rundir import RunDir

if TYPE_CHECKING:  # both need torch; to find a checkpoint does not
    from art_cli.policy import Policy
    from art_cli.trainers.base import Trainer


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a run stands at a checkpoint, beside weights and optimizer."""

    step: int = 0  # finished optimizer steps
    cursor: int = 0  # scenarios taken from the stream
    val_reward: float | None = None  # of the evaluation at this step, where there was one
    microbatch_tokens: int | None = None  # where memory ran out with the config's


def save_checkpoint(
    run: RunDir, policy: Policy, trainer: Trainer | None, progress: Progress
) -> Path:
    """Write `checkpoints/<step>/`. Raises TrainerError where the disk refuses; nothing is lost."""
    target = run.checkpoint(progress.step)

    def write(folder: Path) -> None:
        policy.save(folder)
        if trainer is not None:
            trainer.save(folder / "optimizer.pt")
        (folder / "progress.json").write_text(json.dumps(asdict(progress)) + "\n")

    write_folder(target, write)
    return target


def read_progress(folder: Path) -> Progress:
    """What `save_checkpoint` noted."""
    return Progress(**json.loads((folder / "progress.json").read_text()))


def best_checkpoint(run: RunDir) -> int | None:
    """The step with the highest validation reward; the earliest of equals."""
    rewards = {s: read_progress(run.checkpoint(s)).val_reward for s in run.checkpoint_steps()}
    known = {s: r for s, r in rewards.items() if r is not None}
    return max(known, key=lambda s: (known[s], -s)) if known else None


def weight_files(folder: Path) -> list[Path]:
    """What of a checkpoint others load: weights, their config, tokenizer; not how to train on."""
    return sorted(p for p in folder.iterdir() if p.name not in ("optimizer.pt", "progress.json"))


def find_checkpoint(run: RunDir, which: str) -> int:
    """The step that `best`, `last` or a number names. Raises UsageError with what there is."""
    steps = run.checkpoint_steps()
    if which == "best" and (best := best_checkpoint(run)) is not None:
        return best
    if which in ("best", "last") and steps:
        return steps[-1]
    if which.isdecimal() and int(which) in steps:
        return int(which)
    if not steps:
        raise UsageError(f"{run.root} has no checkpoint yet; art run goes on with it: --resume")
    there = ", ".join(map(str, steps))
    raise UsageError(
        f"{run.root} has no checkpoint {which!r}; expected best, last or one of: {there}"
    )


def prune(run: RunDir, keep: int) -> None:
    """Remove all but the newest `keep`, the best, and step 0, which all are compared with."""
    steps = run.checkpoint_steps()
    spared = {*steps[-keep:], best_checkpoint(run), 0}
    for step in steps:
        if step not in spared:
            _remove(run.checkpoint(step))
    for leftover in _leftovers(run.checkpoints):
        shutil.rmtree(leftover)


def write_folder(target: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a folder and put it in place whole.

    Raises TrainerError where that fails; what was at `target` before is then untouched.
    """
    try:
        with _beside(target) as folder:
            write(folder)
            for path in folder.iterdir():
                _sync(path)
            _sync(folder)
            if target.exists():
                _remove(target)
            folder.rename(target)
            _sync(target.parent)
    except (OSError, RuntimeError, SafetensorError) as e:  # torch: a full disk is the second
        raise TrainerError(
            f"could not write {target}: {e}. What was saved before is untouched; make room and "
            "go on with --resume"
        ) from e


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    for leftover in _leftovers(target.parent):
        shutil.rmtree(leftover)
    folder = target.parent / f".writing-{target.name}"
    try:
        folder.mkdir(parents=True)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove(folder: Path) -> None:
    """A rename first: a kill in the middle of the removal must not leave half a checkpoint."""
    doomed = folder.with_name(f".removed-{folder.name}")
    shutil.rmtree(doomed, ignore_errors=True)
    folder.rename(doomed)
    shutil.rmtree(doomed)


def _leftovers(folder: Path) -> list[Path]:
    """What a process that was killed was writing or removing."""
    return [*folder.glob(".writing-*"), *folder.glob(".removed-*")]


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
