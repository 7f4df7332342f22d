"""The files that wandb takes from a run directory, and those it leaves there: wandb/, with a folder
for each session.
"""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

from art_cli.config.schema import Experiment
from art_cli.runs.checkpoint import best_checkpoint
from art_cli.runs.directory import RunDir

NOTE = "mirrored-to.txt"  # in such a folder: the last step that is in it


def checkpoints_to_upload(experiment: Experiment, run: RunDir) -> dict[int, list[str]]:
    """Return the steps with their names: the best, then the last; often they are one."""
    cfg, is_adapter = experiment.track.wandb, experiment.model.adapter is not None
    steps = [step for step in run.checkpoint_steps() if step > 0]
    if not (steps and cfg and (cfg.upload == "on" or (cfg.upload == "auto" and is_adapter))):
        return {}
    best = best_checkpoint(run)
    named = {best: ["best"]} if best else {}
    return named | {steps[-1]: [*named.get(steps[-1], []), "last"]}


def sync_line(session: Path) -> str:
    """Return the command that uploads a session whose data is on this disk."""
    online = "" if _is_offline(session) else "--include-online "
    return f"wandb sync {online}{shlex.quote(os.path.relpath(session))}"


def note_step(session: Path, step: int) -> None:
    """Note that a session has ended well, with this step the last."""
    (session / NOTE).write_text(f"{step}\n")


def last_uploaded(session: Path) -> int:
    """Return the last step that the sessions before have uploaded, by their notes; -1 without any.

    A session that was killed has no note: who knows what of it was written.
    """
    notes = [s / NOTE for s in _others(session) if not _waits(s)]
    return max((int(note.read_text()) for note in notes if note.exists()), default=-1)


def replace_waiting(session: Path) -> None:
    """Put aside what the sessions before wrote offline and nobody has uploaded."""
    for other in _others(session):
        shutil.rmtree(other / "checkpoints", ignore_errors=True)  # uploaded, or replaced
        if _waits(other):
            other.rename(other.with_name(f"replaced-{other.name}"))


def keep_file(session: Path, file: Path) -> Path:
    """Return a copy of a checkpoint's file that stays when the checkpoint goes.

    A link, which takes no room, or a copy on a file system that has none.
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
    """Return whether a session waits for `wandb sync`, which leaves a mark."""
    return _is_offline(session) and not any(session.glob("*.synced"))


def _is_offline(session: Path) -> bool:
    return session.name.startswith("offline-")
