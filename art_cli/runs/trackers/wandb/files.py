"""The files of a run directory for wandb, and wandb's own files: wandb/, with one folder per
session.
"""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

from art_cli.config.schema import Experiment
from art_cli.runs.checkpoint import best_checkpoint
from art_cli.runs.directory import RunDir

NOTE = "mirrored-to.txt"  # in a session's folder: the last step that it contains


def checkpoints_to_upload(experiment: Experiment, run: RunDir) -> dict[int, list[str]]:
    """Map the steps to upload to their names: the best and the last, often the same step."""
    cfg, is_adapter = experiment.track.wandb, experiment.model.adapter is not None
    steps = [step for step in run.checkpoint_steps() if step > 0]
    if not (steps and cfg and (cfg.upload == "on" or (cfg.upload == "auto" and is_adapter))):
        return {}
    best = best_checkpoint(run)
    named = {best: ["best"]} if best else {}
    return named | {steps[-1]: [*named.get(steps[-1], []), "last"]}


def sync_line(session: Path) -> str:
    """Return the command that uploads a session from this disk."""
    online = "" if _is_offline(session) else "--include-online "
    return f"wandb sync {online}{shlex.quote(os.path.relpath(session))}"


def note_step(session: Path, step: int) -> None:
    """Record that a session has ended properly, and its last step."""
    (session / NOTE).write_text(f"{step}\n")


def last_uploaded(session: Path) -> int:
    """Return the last step that earlier sessions have uploaded, by their notes; -1 without any.

    A killed session has no note: it is unknown how much of it was written.
    """
    notes = [s / NOTE for s in _others(session) if not _waits(s)]
    return max((int(note.read_text()) for note in notes if note.exists()), default=-1)


def replace_waiting(session: Path) -> None:
    """Move offline sessions of earlier runs aside if they were never uploaded."""
    for other in _others(session):
        shutil.rmtree(other / "checkpoints", ignore_errors=True)  # uploaded, or replaced
        if _waits(other):
            other.rename(other.with_name(f"replaced-{other.name}"))


def keep_file(session: Path, file: Path) -> Path:
    """Return a copy of a checkpoint's file that survives the removal of the checkpoint.

    It is a hard link, which needs no space, or a copy if the file system has no links.
    """
    kept = session / "checkpoints" / file.parent.name / file.name
    kept.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, kept)
    except OSError:
        shutil.copyfile(file, kept)
    return kept.absolute()


def _others(session: Path) -> list[Path]:
    found = [p for name in ("run-*", "offline-run-*") for p in session.parent.glob(name)]
    return [p for p in found if p.name != session.name]


def _waits(session: Path) -> bool:
    """Return whether a session still needs `wandb sync`, which leaves a mark."""
    return _is_offline(session) and not any(session.glob("*.synced"))


def _is_offline(session: Path) -> bool:
    return session.name.startswith("offline-")
