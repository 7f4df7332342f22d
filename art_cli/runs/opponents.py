"""Checkpoints of other runs as opponents in a game: found, checked and recorded.

A run records the step that `best` or `last` meant at its start, and a digest of the weights. So it
resumes against the same opponent or fails.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from art_cli.config.load import load_experiment
from art_cli.config.sections.env import OpponentsConfig, SavedPolicyConfig, opponents_saved
from art_cli.config.sections.model import ModelConfig
from art_cli.errors import ArtError, CheckpointError, UsageError
from art_cli.runs.checkpoint import MAKE_AGAIN, TO_TRAIN_ON, check_weights, find_checkpoint
from art_cli.runs.directory import RunDir
from art_cli.system.checksums import SUMS
from art_cli.system.files import atomic_write, json_line, read_object, read_small
from art_cli.system.untrusted import wrong_field


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPolicy:
    """An intact checkpoint, and the model section that its run loaded it with."""

    key: str  # the setting that names it
    run: RunDir
    step: int
    model: ModelConfig  # `base` is its base model, or the checkpoint if that has all weights
    weights: str  # a digest of the weights' checksums and of `model`

    @classmethod
    def open(cls, key: str, who: SavedPolicyConfig, step: int | None = None) -> SavedPolicy:
        """Find the checkpoint that `who` names, or that of `step` in its run.

        Raises UsageError if the run or step does not exist, or `best` and `last` may still change,
        CheckpointError if files are damaged. Each error begins with the key.
        """
        try:
            run = RunDir.open(Path(who.checkpoint).absolute())
            model = load_experiment([run.config]).experiment.model
            step = _step(run, who) if step is None else step
            folder = run.checkpoint(step)
            if not folder.is_dir():
                raise UsageError(f"{run.root} has no checkpoint {step} any more")
            check_weights(folder, f"Name another one: {key}.step=N")
            base = str(run.base) if run.base.is_dir() else model.base
            sums = [read_small(folder / SUMS)]
            if model.adapter and (Path(base) / SUMS).is_file():
                check_weights(Path(base), MAKE_AGAIN)
                sums.append(read_small(Path(base) / SUMS))
        except ArtError as e:
            kind = CheckpointError if isinstance(e, CheckpointError) else UsageError
            raise kind(f"{key}: {e}") from None
        lines = [line for text in sums for line in text.split("\n") if _is_of_weights(line)]
        made = json.dumps([asdict(model), lines], sort_keys=True)
        return cls(
            key=key,
            run=run,
            step=step,
            model=replace(model, base=base if model.adapter else str(folder)),
            weights=hashlib.sha256(made.encode()).hexdigest()[:16],
        )

    @property
    def folder(self) -> Path:
        """The checkpoint's folder."""
        return self.run.checkpoint(self.step)


SavedPolicies = dict[SavedPolicyConfig, SavedPolicy]


def saved_opponents(cfg: OpponentsConfig | None, run: RunDir | None) -> SavedPolicies:
    """Return the opponents' checkpoints, as in `saved_opponent`."""
    return {who: saved_opponent(key, who, run) for key, who in opponents_saved(cfg).items()}


def saved_opponent(key: str, who: SavedPolicyConfig, run: RunDir | None) -> SavedPolicy:
    """Return the checkpoint of an opponent, at the step that the run has recorded, if any.

    Raises like `SavedPolicy.open`, and UsageError if its weights have changed since.
    """
    before = _noted(run).get(_words(who)) if run else None
    saved = SavedPolicy.open(key, who, before and before["step"])
    if before and saved.weights != before["weights"]:
        raise UsageError(
            f"{key}: {saved.folder} is not what the run was started against: its weights "
            "have changed. Put them back, or start the run over: --overwrite"
        )
    return saved


def note_opponents(run: RunDir, saved: SavedPolicies) -> None:
    """Record the opponents' checkpoints and their weights in the run."""
    if saved:
        rows = {_words(w): {"step": s.step, "weights": s.weights} for w, s in saved.items()}
        atomic_write(_file(run), json_line(rows))


def _step(run: RunDir, who: SavedPolicyConfig) -> int:
    if isinstance(who.step, str) and (state := run.state()) != "done":
        steps = ", ".join(map(str, run.checkpoint_steps())) or "none yet"
        raise UsageError(
            f"{run.root} has not ended ({state}), so its {who.step} checkpoint may change; finish "
            f"it, or name a step (there are: {steps})"
        )
    return find_checkpoint(run, str(who.step))


def _noted(run: RunDir) -> dict[str, Any]:
    try:
        noted = read_object(_file(run), {})
        for who in noted:
            if wrong := wrong_field(noted[who], {int: ("step",), str: ("weights",)}):
                raise ValueError(f"the {wrong} of {who!r:.200}")
        return noted
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as e:
        raise CheckpointError(
            f"{_file(run)} is damaged ({e}), which says whom the run plays against; begin it "
            "anew: --overwrite"
        ) from None


def _file(run: RunDir) -> Path:
    return run.root / "opponents.json"


def _words(who: SavedPolicyConfig) -> str:
    return f"{who.checkpoint} {who.step}"


def _is_of_weights(line: str) -> bool:
    return not line.endswith(tuple(f"  {name}" for name in TO_TRAIN_ON))
