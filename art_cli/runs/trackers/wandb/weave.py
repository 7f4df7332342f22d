"""Trajectories in Weave, W&B's viewer for agents, through the OTLP exporter.

Endpoint and headers are those of Weave's own client (a test compares them). It is not used itself:
it patches every model library that it finds in the process.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable

from art_cli.config.schema import Experiment
from art_cli.errors import PreflightError
from art_cli.runs.directory import RunDir
from art_cli.runs.trackers.sink import Sink, SinkTracker
from art_cli.runs.trackers.wandb.server import DEFAULT_URL, base_url, find_key

DEFAULT_TRACE_URL = "https://trace.wandb.ai"


def weave_mirror(
    cfg: Experiment, run: RunDir, project: str, say: Callable[[str], None]
) -> SinkTracker:
    """Return a tracker of trajectories in `project`, an existing ENTITY/PROJECT."""

    def open_sink() -> Sink:
        from art_cli.runs.trackers.otlp.exporter import OtlpSink
        from art_cli.runs.trackers.otlp.spans import Origin

        if (key := find_key()) is None:
            raise PreflightError("there is no API key")
        login = base64.b64encode(f"api:{key}".encode()).decode()
        shown_at = {"wandb.wb_run_id": run.id()}  # links a trace to the run
        return OtlpSink(
            run,
            Origin(experiment=cfg, run_id=run.id(), extra=shown_at),
            endpoint=f"{trace_url()}/agents/otel/v1/traces",
            headers={"project_id": project, "Authorization": f"Basic {login}"},
            groups=None,
            own_headers_only=True,
        )

    return SinkTracker("Weave", run, open_sink, say)


def trace_url() -> str:
    """Return the URL for traces, found as in weave's own client."""
    own = base_url()
    default = DEFAULT_TRACE_URL if own == DEFAULT_URL else f"{own}/traces"
    return os.environ.get("WF_TRACE_SERVER_URL", default).rstrip("/")
