"""A run that is there when `art run` is called: shown, gone on with, replaced, or left alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from art_cli.cli.inputs import confirm
from art_cli.config.resume import check_same
from art_cli.config.sections.track import TrackConfig
from art_cli.deploy.store import Store
from art_cli.deploy.targets.serve.process import is_alive
from art_cli.errors import Interrupted, UsageError
from art_cli.inspection.provenance import changed_since
from art_cli.runs.checkpoint import best_checkpoint
from art_cli.runs.directory import RunDir
from art_cli.system.checksums import damage

if TYPE_CHECKING:
    from art_cli.config.load import LoadedExperiment


@dataclass(frozen=True, slots=True)
class GoingOn:
    """Options of `art run` about a run that is there already."""

    resume: bool
    overwrite: bool = False
    from_step: int | None = None
    accept_changes: bool = False

    def __post_init__(self) -> None:
        if (self.from_step is not None or self.accept_changes) and not self.resume:
            flag = "--accept-changes" if self.from_step is None else "--from-step"
            raise UsageError(f"{flag} goes on with a run that exists; add --resume")
        if self.overwrite and self.resume:
            raise UsageError(
                "--overwrite removes the run that is there, --resume goes on with it; leave one of "
                "them out"
            )

    @property
    def options(self) -> list[str]:
        """Return the same as options of `art run`, for another machine."""
        return ["--resume"] * self.resume + ["--accept-changes"] * self.accept_changes

    def is_settled(self, run: RunDir, loaded: LoadedExperiment, yes: bool) -> bool:
        """Look at what is there before torch is loaded: whether it is all that was asked for.

        Raises UsageError, PreflightError, Interrupted.
        """
        if self.resume:
            return is_complete(run, loaded)
        if self.overwrite:
            check_replaceable(run, yes)
        else:
            run.check_new()
        return False

    def check_unchanged(self, run: RunDir, loaded: LoadedExperiment) -> None:
        """Raise UsageError where the code or the data is not what the run was made with."""
        if not self.resume or self.accept_changes or not run.checkpoint_steps():
            return
        if changed := changed_since(run, loaded):
            raise UsageError(
                f"{run.root} was made with other code or data, so what it has learned and measured "
                "may not hold for these:\n"
                + "\n".join(f"  {line}" for line in changed)
                + "\nUndo the change, go on all the same: --accept-changes, start another run: "
                "name=NEW_NAME, or begin it anew: --overwrite"
            )


def is_complete(run: RunDir, loaded: LoadedExperiment) -> bool:
    """Return whether a resumed run has no step left, nothing to send and nothing half written.

    Needs no torch to say.

    Raises UsageError where it cannot go on with this config, PreflightError where it goes on.
    """
    if not run.is_begun():
        return False
    run.check_free()
    check_same(run.root, run.config, loaded.to_yaml())
    status, cfg = run.read_status(), loaded.experiment
    if status is None or status.state != "done" or status.step < cfg.train.steps:
        return False
    if any(run.root.glob(".*.tmp")):  # it was killed as it wrote its page
        return False
    lacks_nothing = cfg.track == TrackConfig()  # a tracker may, by a dead network
    read = [run.checkpoint(step) for step in run.checkpoint_steps()[-1:]]
    read += [run.base] if run.base.exists() or cfg.model.base == "tiny" else []
    return lacks_nothing and all(damage(folder) is None for folder in read)  # else it is told


def check_replaceable(run: RunDir, yes: bool) -> None:
    """Ask whether the run may be removed. Nothing is removed here: its successor may be refused.

    Raises UsageError where something of it still costs money or nobody can be asked, PreflightError
    where it goes on, Interrupted where the user says no.
    """
    if not run.is_begun():
        return
    run.check_free()
    deployed = Store(run).all()
    if billed := [f"{d.target}/{d.name}" for d in deployed if d.billed_since]:
        raise UsageError(
            f"{run.root} has deployments that cost money ({', '.join(billed)}), and nobody would "
            f"know of them without it. End them first: art undeploy {run.root}"
        )
    if served := [f"{d.name} by process {d.made.get('pid')}" for d in deployed if is_alive(d)]:
        raise UsageError(
            f"{run.root} is served ({', '.join(served)}), and nobody would know of that without "
            f"it. End it first: art undeploy {run.root}"
        )
    if not yes and not confirm(f"Remove {run.root} ({run.told()}) and begin anew?"):
        raise Interrupted("nothing was done")


def results(run: RunDir, split: str | None) -> dict[str, Any]:
    """Return what a run came to, by its own files: of this process and of those before it.

    `baseline` is the evaluation of the untrained policy, `final` the last one.
    """
    rows = [row for row in run.read_metrics() if row.get("val/reward") is not None]
    found = [_evaluation(run, row, split or "val") for row in (*rows[:1], *rows[-1:])]
    baseline = next((e for e in found if e["step"] == 0), None)
    final = found[-1] if found else None
    return {"best_step": best_checkpoint(run), "baseline": baseline, "final": final}


def _evaluation(run: RunDir, row: dict[str, Any], split: str) -> dict[str, Any]:
    step = row["training_step"]
    metrics = {k.removeprefix("val/"): v for k, v in row.items() if k.startswith("val/")}
    return {
        "split": split,
        "step": step,
        **_counts(run, step, split),
        "reward": metrics.pop("reward"),
        "reward_ci95": metrics.pop("reward_ci", None),
        "metrics": metrics,
    }


def _counts(run: RunDir, step: int, split: Any) -> dict[str, int | None]:
    """Number of episodes played; None where someone has removed them, for they take space."""
    if not run.trajectory_file(step, split).exists():
        return {"episodes": None, "failed": None}
    played = run.read_trajectories(step, split)
    return {"episodes": len(played), "failed": sum(t["reward"] is None for t in played)}
