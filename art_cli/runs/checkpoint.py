"""Checkpoints: folders that appear complete by one atomic rename, with checksums of their files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from art_cli.errors import CheckpointError, TrainerError, UsageError
from art_cli.runs.directory import RunDir
from art_cli.runs.stored_fields import is_count
from art_cli.system.checksums import SUMS, damage, write_sums
from art_cli.system.files import read_object
from art_cli.system.untrusted import wrong_field

if TYPE_CHECKING:  # both import torch, which is not needed to find a checkpoint
    from art_cli.models.policy import Policy
    from art_cli.training.trainers.base import Trainer


MAKE_AGAIN = "Remove the folder: `art run` with --resume makes it again, the same"
PROGRESS = {
    int: ("step", "cursor"),
    int | float | None: ("val_reward",),
    int | None: ("microbatch_tokens",),
}
TO_TRAIN_ON = ("optimizer.pt", "progress.json")  # needed for training, not to load the weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The state of a run at a checkpoint, apart from weights and optimizer."""

    step: int = 0  # finished steps
    cursor: int = 0  # number of scenarios taken from the stream
    val_reward: float | None = None  # of the evaluation at this step, if there was one
    microbatch_tokens: int | None = None  # the reduced value, if memory ran out with the config's
    # State of the scenario sampler, including scenarios drawn ahead. None: nothing to store.
    curriculum: dict[str, Any] | None = None


def save_checkpoint(
    run: RunDir, policy: Policy, trainer: Trainer | None, progress: Progress
) -> Path:
    """Write `checkpoints/<step>/`. Raises TrainerError on failure; older ones are untouched."""
    target = run.checkpoint(progress.step)

    def write(folder: Path) -> None:
        policy.save(folder)
        if trainer is not None:
            trainer.save(folder / "optimizer.pt")
        noted = asdict(progress)
        if progress.curriculum is None:  # keeps the file as without a curriculum
            del noted["curriculum"]
        (folder / "progress.json").write_text(json.dumps(noted) + "\n")

    write_folder(target, write)
    return target


def read_progress(folder: Path) -> Progress:
    """Return the Progress in a checkpoint. Raises CheckpointError if the file is damaged."""
    if wrong := damage(folder, lambda name: name == "progress.json"):
        raise CheckpointError(
            f"{folder} is damaged: {wrong}. Put the file back, or move the folder out of "
            f"{folder.parent}"
        )
    try:
        row = read_object(folder / "progress.json", {})
        noted = Progress(**row)  # TypeError: unknown field
        if wrong := wrong_field(asdict(noted), PROGRESS):
            raise ValueError(f"its {wrong} is of another type")
    except (OSError, ValueError, TypeError) as e:
        raise CheckpointError(
            f"{folder / 'progress.json'} is not what a run writes: {e}. {MAKE_AGAIN}"
        ) from None
    if not is_count(noted.step) or not is_count(noted.cursor):
        raise CheckpointError(f"{folder / 'progress.json'} is not what a run writes: its step")
    return noted


def best_checkpoint(run: RunDir) -> int | None:
    """Return the step with the highest validation reward, the earliest if several are equal."""
    rewards = {s: read_progress(run.checkpoint(s)).val_reward for s in run.checkpoint_steps()}
    known = {s: r for s, r in rewards.items() if r is not None}
    return max(known, key=lambda s: (known[s], -s)) if known else None


def weight_files(folder: Path) -> list[Path]:
    """Return the files of a checkpoint for other programs: weights, their config, the tokenizer.

    Hidden files are excluded: they have no checksum, and may be links to a user's files.
    """
    names = (p.name for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    return [folder / name for name in sorted(names) if name not in (*TO_TRAIN_ON, SUMS)]


def check_weights(folder: Path, remedy: str) -> None:
    """Raise CheckpointError, whose text ends with `remedy`, if the weights are damaged."""
    if wrong := damage(folder, lambda name: name not in TO_TRAIN_ON):
        raise CheckpointError(f"{folder} is damaged: {wrong}. {remedy}")


def resume_step(run: RunDir, from_step: int | None) -> int:
    """Return the step to resume from: `from_step`, else that of the newest checkpoint, else 0.

    Raises UsageError if that step has no checkpoint. Raises CheckpointError if it is damaged; the
    text names the newest intact checkpoint before it.
    """
    steps = [0, *(s for s in run.checkpoint_steps() if s > 0)]
    step = steps[-1] if from_step is None else from_step
    if step not in steps:
        there = ", ".join(map(str, steps))
        raise UsageError(f"--from-step {step}: {run.root} can go on after one of: {there}")
    if step and (wrong := damage(run.checkpoint(step))):
        whole = (s for s in reversed(steps) if 0 < s < step and not damage(run.checkpoint(s)))
        good = next(whole, 0)
        where = f"checkpoint {good}, which is whole" if good else "step 0, where the run began"
        raise CheckpointError(
            f"{run.checkpoint(step)} is damaged: {wrong}. Go on from {where}: "
            f"--resume --from-step {good}. What came after it is then removed and done again"
        )
    return step


def forget_after(run: RunDir, step: int) -> None:
    """Remove the checkpoints after `step`, newest first, so that a kill leaves no gap."""
    for later in reversed(run.checkpoint_steps()):
        if later > step:
            remove_folder(run.checkpoint(later))


def find_checkpoint(run: RunDir, which: str) -> int:
    """Return the step for `best`, `last` or a number.

    Raises UsageError that lists the checkpoints.
    """
    steps = run.checkpoint_steps()
    if which == "best" and (best := best_checkpoint(run)) is not None:
        return best
    if which in ("best", "last") and steps:
        return steps[-1]
    if which.isdecimal() and int(which) in steps:
        return int(which)
    if not steps:
        raise UsageError(f"{run.root} has no checkpoint yet; continue it with art run --resume")
    there = ", ".join(map(str, steps))
    raise UsageError(
        f"{run.root} has no checkpoint {which!r}; expected best, last or one of: {there}"
    )


def prune(run: RunDir, keep: int) -> None:
    """Remove all checkpoints but the newest `keep`, the best, and step 0, which is the baseline."""
    steps = run.checkpoint_steps()
    spared = {*steps[-keep:], best_checkpoint(run), 0}
    for step in steps:
        if step not in spared:
            remove_folder(run.checkpoint(step))
    _remove_leftovers(run.checkpoints)


def write_folder(
    target: Path,
    write: Callable[[Path], None],
    written: Callable[[Path], None] = lambda _: None,
    remedy: str = "make room and go on with --resume",
) -> None:
    """Let `write` fill a temporary folder, then rename it to `target`.

    `written` is called with the complete folder and its checksums before the rename.

    Raises TrainerError, whose text ends with `remedy`, on failure. An existing `target` is then
    unchanged.
    """
    folder = target.parent / f".writing-{target.name}"
    try:
        remove_leftovers(target)
        try:
            folder.mkdir(parents=True)
            write(folder)
            write_sums(folder)
            for path in folder.rglob("*"):
                _sync(path)
            _sync(folder)
            written(folder)
            if target.exists():
                remove_folder(target)
            folder.rename(target)
            _sync(target.parent)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except (OSError, RuntimeError, SafetensorError) as e:  # RuntimeError: torch on a full disk
        raise TrainerError(
            f"could not write {target}: {e}. What was saved before is untouched; {remedy}"
        ) from e


def remove_folder(folder: Path) -> None:
    """Remove a folder. It is renamed first, so that a kill cannot leave half of it in place.

    If it is a link, only the link is removed.
    """
    if folder.is_symlink():
        return folder.unlink()
    doomed = folder.with_name(f".removed-{folder.name}")
    shutil.rmtree(doomed, ignore_errors=True)
    folder.rename(doomed)
    return shutil.rmtree(doomed)


def remove_leftovers(target: Path) -> None:
    """Remove temporary folders that a killed process left for `target`."""
    for kind in ("writing", "removed"):
        leftover = target.with_name(f".{kind}-{target.name}")
        if leftover.is_dir():
            shutil.rmtree(leftover)


def _remove_leftovers(folder: Path) -> None:
    """Remove temporary folders that a killed process left."""
    for leftover in (*folder.glob(".writing-*"), *folder.glob(".removed-*")):
        shutil.rmtree(leftover)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
