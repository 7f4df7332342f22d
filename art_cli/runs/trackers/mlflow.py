"""MLflow: a run of an experiment, on a server or in a local store (extra `mlflow`)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from art_cli.config.schema import Experiment
from art_cli.runs.directory import RunDir
from art_cli.runs.trackers.sink import finite

TAG = "art.run_id"  # identifies the run for a resume
STATES = {"done": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}
BATCH = 100  # maximum params per request


class MlflowSink:
    """Logs to the run with the tag TAG. Creates it if necessary."""

    def __init__(self, cfg: Experiment, run: RunDir, config: dict[str, Any]) -> None:
        # MLflow's output would go to stdout, which belongs to --json, and its telemetry is sent at
        # the exit. Both settings are read at import.
        os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient  # type: ignore[import-not-found]
        from mlflow.entities import Metric, Param  # type: ignore[import-not-found]

        assert cfg.track.mlflow
        self._metric = Metric
        self._client = client = MlflowClient(cfg.track.mlflow.uri)
        experiment = client.get_experiment_by_name(cfg.project)
        number = experiment.experiment_id if experiment else client.create_experiment(cfg.project)
        found = client.search_runs([number], f"tags.`{TAG}` = '{run.id()}'")
        if found:
            self._id = found[0].info.run_id
            client.update_run(self._id, status="RUNNING")
        else:
            made = client.create_run(number, run_name=cfg.name, tags={TAG: run.id()})
            self._id = made.info.run_id
            params = [Param(key, text) for key, text in _flat(config)]
            for begin in range(0, len(params), BATCH):
                client.log_batch(self._id, params=params[begin : begin + BATCH])

    def take(self, row: Mapping[str, Any]) -> None:
        """See Sink."""
        now, step = int(time.time() * 1000), row["training_step"]
        metrics = [self._metric(key, value, now, step) for key, value in finite(row).items()]
        self._client.log_batch(self._id, metrics=metrics)

    def close(self, state: str) -> None:
        """See Sink."""
        self._client.set_terminated(self._id, STATES.get(state, "FAILED"))


def _flat(config: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield dotted keys and texts, such as ("train.steps", "100")."""
    for key, value in config.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value)
