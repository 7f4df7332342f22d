"""The types of a deployment: the checkpoint, its target, and the recorded state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from art_cli.config.schema import Experiment
from art_cli.config.values import FORBID_UNKNOWN
from art_cli.runs.checkpoint import MAKE_AGAIN, check_weights, find_checkpoint, read_progress
from art_cli.runs.directory import RunDir
from art_cli.system.progress import Report

State = Literal["deploying", "ready", "failed", "stopped"]
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A checkpoint of a run, to be deployed."""

    run: RunDir
    experiment: Experiment
    env_settings: Any  # an instance of the env's own Config
    step: int
    val_reward: float | None

    @classmethod
    def open(cls, run: RunDir, experiment: Experiment, env_settings: Any, which: str) -> Source:
        """Open a checkpoint; `which` is best, last or a step.

        Raise UsageError if it does not exist, and CheckpointError if it or the run's base is
        damaged.
        """
        step = find_checkpoint(run, which)
        folder = run.checkpoint(step)
        check_weights(folder, "Deploy another checkpoint: --checkpoint STEP")
        if run.base.exists():
            check_weights(run.base, MAKE_AGAIN)
        return cls(
            run=run,
            experiment=experiment,
            env_settings=env_settings,
            step=step,
            val_reward=read_progress(folder).val_reward,
        )

    @property
    def folder(self) -> Path:
        """The folder of the checkpoint."""
        return self.run.checkpoint(self.step)

    @property
    def has_adapter(self) -> bool:
        """Whether the checkpoint is an adapter rather than full weights."""
        return self.experiment.model.adapter is not None

    @property
    def base(self) -> str:
        """The folder or hub id of the weights that the adapter belongs to."""
        return str(self.run.base) if self.run.base.exists() else self.experiment.model.base

    @property
    def default_name(self) -> str:
        """The name of a deployment unless the user gives one."""
        cfg = self.experiment
        return f"{cfg.project}-{cfg.name}-{self.step}".replace("_", "-").replace(".", "-").lower()

    @property
    def title(self) -> str:
        """A title that is shown to the user."""
        reward = "" if self.val_reward is None else f", validation reward {self.val_reward:.3f}"
        return f"{self.experiment.project}/{self.experiment.name}, step {self.step}{reward}"


@dataclass(slots=True, kw_only=True)
class Deployment:
    """A checkpoint at a target, as recorded in the run's directory."""

    __pydantic_config__ = FORBID_UNKNOWN
    target: str
    name: str
    step: int
    home: str = ""  # its folder in the run, as recorded when it was written
    state: State = "deploying"
    asked: list[str] = field(default_factory=list)  # made or not: the answer may have been lost
    made: dict[str, Any] = field(default_factory=dict)  # what is there now, by the target's own ids
    url: str | None = None  # of its OpenAI-compatible API, or of its page
    model: str | None = None  # its name in that API
    key_env: str | None = None  # the variable that holds the key to it
    key: str | None = field(default=None, repr=False)  # one that was made now; it is never kept
    usd_per_hour: float | None = None  # price while `billed_since` is set; None: unknown
    billed_since: str | None = None  # ISO 8601, UTC
    usd: float = 0.0  # cost of earlier periods
    updated: str = ""
    message: str = ""  # the reason for a failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A deployment in progress, or its removal, with a callback for progress."""

    deployment: Deployment
    keep: Callable[[], None]  # writes the current state of the deployment to its record
    report: Report
    wait: bool = True  # True: wait until the deployment answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A planned deployment; planning creates nothing at the target."""

    source: Source
    name: str
    lines: list[tuple[str, str]]  # (label, text) lines shown to the user
    bills: bool = False  # whether it costs money per hour until it is stopped
    usd_per_hour: float | None = None  # None while `bills`: the price is unknown
    serves: bool = False  # whether it has an API
    local: bool = False  # a server on this machine, which ends with the command that waits for it
    url: str | None = None  # of the API, if known in advance
    key_env: str | None = None  # the variable that holds the key to `url`
    lacks: str = ""  # why it cannot be deployed yet, and what to do; empty: it can
    details: Any = None  # data of the target itself


class Target(Protocol):
    """A target of deployments, built from the settings of `config/sections/deploy.py`."""

    def plan(self, source: Source, name: str) -> Plan:
        """Look everything up, without creating anything. Raise UsageError or PreflightError."""
        ...

    def deploy(self, plan: Plan, job: Job) -> None:
        """Create the missing resources. Record the deployment after each one, so that a call after
        a kill continues from there.

        Raise ArtError.
        """
        ...

    def state(self, deployment: Deployment) -> str:
        """Return the current state according to the target. Raise ArtError."""
        ...

    def undeploy(self, job: Job) -> str:
        """End the deployment and its costs. Resources that no longer exist are not an error.

        Return a message for the user about anything left. Raise ArtError.
        """
        ...
