"""The section `track`: trackers in addition to the run's directory and the console."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from art_cli.config.marks import OnlyWith
from art_cli.config.plugins import Plugin
from art_cli.config.values import FORBID_UNKNOWN, Count, Url

WANDB = OnlyWith("track.wandb.mode", ("auto", "online", "offline"))


@dataclass(frozen=True, slots=True, kw_only=True)
class WandbConfig:
    """Weights & Biases."""

    mode: Literal["auto", "online", "offline", "disabled"] = "auto"
    """W&B's own key, with W&B's values. auto: online with a key and a server that answers, else
    offline."""
    entity: Annotated[str | None, WANDB] = None
    """The user or team that owns the run. null: the default of the key."""
    upload: Annotated[Literal["auto", "on", "off"], WANDB] = "auto"
    """Whether to upload the best and the last checkpoint when a run ends. auto: adapters only, not
    whole models."""
    weave: Annotated[bool, OnlyWith("track.wandb.mode", ("auto", "online"))] = False
    """Send every trajectory to Weave, with its turns and calls (extra `otlp`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpConfig:
    """Trajectories as OpenTelemetry spans over OTLP/HTTP (extra `otlp`).

    Langfuse, MLflow, Phoenix, Jaeger and other collectors accept them.
    """

    endpoint: Url | None = None
    """The collector's address, for example http://localhost:4318/v1/traces. null:
    OTEL_EXPORTER_OTLP_ENDPOINT."""
    headers: dict[str, str] = field(default_factory=dict)
    """HTTP headers of each request. Write a key as ${oc.env:NAME}."""
    groups: Count | None = 8
    """The number of groups to send per step: those with the widest reward range. null: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MlflowConfig:
    """Metrics in MLflow (extra `mlflow`), in an experiment with the name of `project`."""

    uri: str | None = None
    """The address of the tracking server or store. null: MLFLOW_TRACKING_URI."""


TrackerName = Annotated[str, Field(pattern=r"^[a-z0-9_-]+$", max_length=50)]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserTrackerConfig:
    """A tracker of your own. Under `track.custom`, each has a name of small letters and digits."""

    __pydantic_config__ = FORBID_UNKNOWN

    use: Annotated[str, Plugin("trackers")]
    """The class, which implements Sink."""
    args: dict[str, Any] = field(default_factory=dict)
    """The settings that its `Config` declares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackConfig:
    """Trackers in addition to the run's directory and the console. By default there are none."""

    wandb: WandbConfig | None = None
    """Metrics, samples and checkpoints at Weights & Biases. null: nothing is sent."""
    otlp: OtlpConfig | None = None
    """Trajectories as OpenTelemetry spans. null: nothing is sent."""
    mlflow: MlflowConfig | None = None
    """Metrics in MLflow. null: nothing is sent."""
    tensorboard: bool = False
    """Write TensorBoard's event files into the run's directory (extra `tensorboard`)."""
    trackio: bool = False
    """Write to Trackio's database on this machine (extra `trackio`)."""
    custom: dict[TrackerName, UserTrackerConfig] = field(default_factory=dict)
    """Trackers of your own, by name, for example {csv: {use: csv_tracker.py:CsvTracker}}."""
