"""A checkpoint, a place where it is to be served, and what has been made there so far."""

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
    """A checkpoint of a run: what is deployed."""

    run: RunDir
    experiment: Experiment
    env_settings: Any  # an instance of the env's own Config
    step: int
    val_reward: float | None

    @classmethod
    def open(cls, run: RunDir, experiment: Experiment, env_settings: Any, which: str) -> Source:
        """`which` is best, last or a step. Raise UsageError where it is not there, and
        CheckpointError where it or the base that the run made is damaged."""
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
        """The checkpoint's."""
        return self.run.checkpoint(self.step)

    @property
    def has_adapter(self) -> bool:
        """Or else it is all weights."""
        return self.experiment.model.adapter is not None

    @property
    def base(self) -> str:
        """The folder or hub id of the weights that the adapter belongs to."""
        return str(self.run.base) if self.run.base.exists() else self.experiment.model.base

    @property
    def default_name(self) -> str:
        """The default name."""
        cfg = self.experiment
        return f"{cfg.project}-{cfg.name}-{self.step}".replace("_", "-").replace(".", "-").lower()

    @property
    def title(self) -> str:
        """For the user's eyes."""
        reward = "" if self.val_reward is None else f", validation reward {self.val_reward:.3f}"
        return f"{self.experiment.project}/{self.experiment.name}, step {self.step}{reward}"


@dataclass(slots=True, kw_only=True)
class Deployment:
    """One checkpoint at one target, as far as the run's directory knows."""

    __pydantic_config__ = FORBID_UNKNOWN
    target: str
    name: str
    step: int
    home: str = ""  # its folder in the run; in the record, where that was when it was written
    state: State = "deploying"
    asked: list[str] = field(default_factory=list)  # made or not: the answer may have been lost
    made: dict[str, Any] = field(default_factory=dict)  # what is there now, by the target's own ids
    url: str | None = None  # of its OpenAI-compatible API, or where it is to be found
    model: str | None = None  # its name in that API
    key_env: str | None = None  # the variable that holds the key to it
    key: str | None = field(default=None, repr=False)  # one that was made now; it is never kept
    usd_per_hour: float | None = None  # that it costs while `billed_since` is set; None: unknown
    billed_since: str | None = None  # ISO 8601, UTC
    usd: float = 0.0  # of the times before
    updated: str = ""
    message: str = ""  # why it failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A deployment that is being made or ended, and whom to tell about it."""

    deployment: Deployment
    keep: Callable[[], None]  # writes down what the deployment has become
    report: Report
    wait: bool = True  # until it answers; or else until it goes on by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan of a deployment, made without making anything else."""

    source: Source
    name: str
    lines: list[tuple[str, str]]  # what, and how: for the user's eyes
    bills: bool = False  # by the hour, until it is stopped
    usd_per_hour: float | None = None  # None, where it bills: nobody says
    serves: bool = False  # an API that can be asked
    local: bool = False  # a server of this machine: it ends with the command that waits for it
    url: str | None = None  # of the API, where that is known now
    key_env: str | None = None  # the variable that holds the key to `url`
    lacks: str = ""  # why it can only be shown: what could not be looked up, and what to do
    details: Any = None  # the target's own


class Target(Protocol):
    """A target of deployments. Made with the settings of `config/sections/deploy.py`."""

    def plan(self, source: Source, name: str) -> Plan:
        """Look everything up. Raises UsageError, PreflightError; nothing is made."""
        ...

    def deploy(self, plan: Plan, job: Job) -> None:
        """Make what is missing, and keep the deployment after each thing that was made, so that a
        call after a kill goes on there.

        Raises ArtError.
        """
        ...

    def state(self, deployment: Deployment) -> str:
        """Return what it is now, by the target's word. Raises ArtError."""
        ...

    def undeploy(self, job: Job) -> str:
        """End what was made, and all that it costs. What is gone already is fine.

        Return what is left, for the user's eyes. Raises ArtError.
        """
        ...
