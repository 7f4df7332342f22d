"""Construction of trackers from the section `track` of a config."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

from art_cli.config.load import LoadedExperiment
from art_cli.config.schema import Experiment
from art_cli.config.sections.track import TrackConfig
from art_cli.errors import ConfigError
from art_cli.runs.directory import RunDir
from art_cli.runs.trackers.base import Tracker
from art_cli.runs.trackers.sink import Sink, SinkTracker, SinkTrackers
from art_cli.runs.trackers.user_sink import UserSink
from art_cli.runs.trackers.wandb.server import choose_mode

OTLP = "opentelemetry.exporter.otlp.proto.http"


def extras_of(track: TrackConfig) -> Iterator[tuple[str, str, str]]:
    """Yield for each tracker that needs an extra: its config key, its module, and the extra."""
    if track.wandb and track.wandb.weave:
        yield "track.wandb.weave", OTLP, "otlp"
    if track.otlp:
        yield "track.otlp", OTLP, "otlp"
    if track.mlflow:
        yield "track.mlflow", "mlflow", "mlflow"
    if track.tensorboard:
        yield "track.tensorboard", "tensorboard", "tensorboard"
    if track.trackio:
        yield "track.trackio", "trackio", "trackio"


def keys_of(track: TrackConfig) -> Iterator[str]:
    """Yield the environment variables in which trackers look for servers and keys."""
    if track.wandb:
        yield "WANDB_API_KEY"
    if track.otlp:
        yield from ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS")
    if track.mlflow:
        yield from (f"MLFLOW_TRACKING_{w}" for w in ("URI", "USERNAME", "PASSWORD", "TOKEN"))


def check_trackers(loaded: LoadedExperiment) -> None:
    """Raise ConfigError for missing packages, PreflightError if W&B is required but unusable.

    Does not import the packages. Call it before anything costly starts.
    """
    track = loaded.experiment.track
    problems = [
        loaded.problem(key, f"needs a package: pip install 'art-cli[{extra}]'")
        for key, module, extra in extras_of(track)
        if not _is_installed(module)
    ]
    if problems:
        raise ConfigError([str(p) for p in problems], "\n".join(p.pointed() for p in problems))
    if track.wandb:
        choose_mode(track.wandb)


def make_trackers(
    cfg: Experiment, run: RunDir, config: dict[str, Any], say: Callable[[str], None]
) -> list[Tracker]:
    """Return the trackers other than metrics.jsonl and the console, with all rows so far queued.

    `config` is shown as the run's config: it must not contain resolved secrets.
    """
    track = cfg.track
    mirrors = SinkTrackers(
        [SinkTracker(name, run, to, say) for name, to in _sinks(cfg, run, config)]
    )
    for row in run.read_metrics():
        mirrors.log(row)
    if not track.wandb:
        return [mirrors]
    from art_cli.runs.trackers.wandb.tracker import WandbTracker

    return [mirrors, WandbTracker(cfg, run, config, say)]


def _sinks(
    cfg: Experiment, run: RunDir, config: dict[str, Any]
) -> Iterator[tuple[str, Callable[[], Sink]]]:
    def otlp() -> Sink:
        from art_cli.runs.trackers.otlp.exporter import OtlpSink
        from art_cli.runs.trackers.otlp.spans import Origin

        origin, to = Origin(experiment=cfg, run_id=run.id()), cfg.track.otlp
        assert to
        return OtlpSink(run, origin, endpoint=to.endpoint, headers=to.headers, groups=to.groups)

    def mlflow() -> Sink:
        from art_cli.runs.trackers.mlflow import MlflowSink

        return MlflowSink(cfg, run, config)

    def tensorboard() -> Sink:
        from art_cli.runs.trackers.tensorboard import TensorboardSink

        return TensorboardSink(run)

    def trackio() -> Sink:
        from art_cli.runs.trackers.trackio import TrackioSink

        return TrackioSink(cfg, run, config)

    track = cfg.track
    wanted = {
        "OTLP": (track.otlp, otlp),
        "MLflow": (track.mlflow, mlflow),
        "TensorBoard": (track.tensorboard, tensorboard),
        "Trackio": (track.trackio, trackio),
    }
    for name, (is_wanted, open_sink) in wanted.items():
        if is_wanted:
            yield name, open_sink
    for name, custom in track.custom.items():
        yield f"custom.{name}", partial(UserSink, name, custom, run)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False
