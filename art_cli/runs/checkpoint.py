"""Checkpoints: a folder that appears by one atomic rename, or not at all, with checksums in it."""

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

if TYPE_CHECKING:  # both need torch; to find a checkpoint does not
    from art_cli.models.policy import Policy
    from art_cli.training.trainers.base import Trainer


MAKE_AGAIN = "Remove the folder: `art run` with --resume makes it again, the same"
PROGRESS = {
    int: ("step", "cursor"),
    int | float | None: ("val_reward",),
    int | None: ("microbatch_tokens",),
}
TO_TRAIN_ON = ("optimizer.pt", "progress.json")  # of no use to who only loads the weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The state of a run at a checkpoint, beside weights and optimizer."""

    step: int = 0  # finished steps
    cursor: int = 0  # scenarios taken from the stream
    val_reward: float | None = None  # of the evaluation at this step, where there was one
    microbatch_tokens: int | None = None  # where memory ran out with the config's
    # What the sampler of scenarios has learned, and what of it was taken ahead. None: nothing.
    curriculum: dict[str, Any] | None = None


def save_checkpoint(
    run: RunDir, policy: Policy, trainer: Trainer | None, progress: Progress
) -> Path:
    """Write `checkpoints/<step>/`. Raises TrainerError where the disk refuses; nothing is lost."""
    target = run.checkpoint(progress.step)

    def write(folder: Path) -> None:
        policy.save(folder)
        if trainer is not None:
            trainer.save(folder / "optimizer.pt")
        noted = asdict(progress)
        if progress.curriculum is None:  # the bytes are then those of a run without
            del noted["curriculum"]
        (folder / "progress.json").write_text(json.dumps(noted) + "\n")

    write_folder(target, write)
    return target


def read_progress(folder: Path) -> Progress:
    """Return what `save_checkpoint` noted. Raise CheckpointError where the file is damaged."""
    if wrong := damage(folder, lambda name: name == "progress.json"):
        raise CheckpointError(
            f"{folder} is damaged: {wrong}. Put the file back, or move the folder out of "
            f"{folder.parent}"
        )
    try:
        row = read_object(folder / "progress.json", {})
        noted = Progress(**row)  # TypeError: a field too many
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
    """Return the step with the highest validation reward; the earliest of equals."""
    rewards = {s: read_progress(run.checkpoint(s)).val_reward for s in run.checkpoint_steps()}
    known = {s: r for s, r in rewards.items() if r is not None}
    return max(known, key=lambda s: (known[s], -s)) if known else None


def weight_files(folder: Path) -> list[Path]:
    """Return the files of a checkpoint that others load: weights, their config, the tokenizer.

    A hidden file has no checksum, and may be a link to a file of the user's own.
    """
    names = (p.name for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    return [folder / name for name in sorted(names) if name not in (*TO_TRAIN_ON, SUMS)]


def check_weights(folder: Path, remedy: str) -> None:
    """Raise CheckpointError, which ends with `remedy`, where the weights are damaged."""
    if wrong := damage(folder, lambda name: name not in TO_TRAIN_ON):
        raise CheckpointError(f"{folder} is damaged: {wrong}. {remedy}")


def resume_step(run: RunDir, from_step: int | None) -> int:
    """Return the step to go on after: `from_step`, or that of the newest checkpoint, or 0.

    Raise UsageError where that step has no checkpoint, and CheckpointError, which names the newest
    whole one before it, where its checkpoint is damaged.
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
    """Remove the checkpoints after `step`, the newest first: a kill must not leave a gap."""
    for later in reversed(run.checkpoint_steps()):
        if later > step:
            remove_folder(run.checkpoint(later))


def find_checkpoint(run: RunDir, which: str) -> int:
    """Return the step that `best`, `last` or a number names.

    Raises UsageError with what there is.
    """
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
            remove_folder(run.checkpoint(step))
    _remove_leftovers(run.checkpoints)


def write_folder(
    target: Path,
    write: Callable[[Path], None],
    written: Callable[[Path], None] = lambda _: None,
    remedy: str = "make room and go on with --resume",
) -> None:
    """Let `write` fill a folder and put it in place whole.

    `written` is called with the folder, complete and with its checksums, before it is in its place.

    Raises TrainerError, which ends with `remedy`, where that fails; what was at `target` before is
    then untouched.
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
    except (OSError, RuntimeError, SafetensorError) as e:  # torch: a full disk is the second
        raise TrainerError(
            f"could not write {target}: {e}. What was saved before is untouched; {remedy}"
        ) from e


def remove_folder(folder: Path) -> None:
    """Remove a folder, renamed first: a kill in the middle must not leave half of one.

    Of a link only the link is removed.
    """
    if folder.is_symlink():
        return folder.unlink()
    doomed = folder.with_name(f".removed-{folder.name}")
    shutil.rmtree(doomed, ignore_errors=True)
    folder.rename(doomed)
    return shutil.rmtree(doomed)


def remove_leftovers(target: Path) -> None:
    """Remove what a process that was killed was writing or removing in place of `target`."""
    for kind in ("writing", "removed"):
        leftover = target.with_name(f".{kind}-{target.name}")
        if leftover.is_dir():
            shutil.rmtree(leftover)


def _remove_leftovers(folder: Path) -> None:
    """Remove what a process that was killed was writing or removing."""
    for leftover in (*folder.glob(".writing-*"), *folder.glob(".removed-*")):
        shutil.rmtree(leftover)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
