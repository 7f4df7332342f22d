"""Trackio: this machine's database that `trackio show` reads (extra `trackio`).

Rows are written directly to Trackio's storage. `trackio.init` prints to stdout, which belongs to
`art run --json`, and `trackio.log` writes half a second later, so a kill would lose rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from art_cli.config.schema import Experiment
from art_cli.runs.directory import RunDir
from art_cli.runs.trackers.sink import finite, row_name


class TrackioSink:
    """Appends to the run with this id. A row that is sent again replaces itself."""

    def __init__(self, cfg: Experiment, run: RunDir, config: dict[str, Any]) -> None:
        from trackio.sqlite_storage import SQLiteStorage  # type: ignore[import-not-found]

        self._bulk_log = SQLiteStorage.bulk_log
        self._project, self._name, self._id = cfg.project, cfg.name, run.id()
        self._config = config

    def take(self, row: Mapping[str, Any]) -> None:
        """See Sink."""
        self._bulk_log(
            project=self._project,
            run=self._name,
            run_id=self._id,
            metrics_list=[finite(row)],
            steps=[row["training_step"]],
            config=self._config,
            log_ids=[f"{self._id}-{row_name(row)}"],
        )

    def close(self, state: str) -> None:
        """Do nothing: Trackio does not record the end of a run."""
