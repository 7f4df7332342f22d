"""Trajectories in Weave, W&B's viewer of what agents did: the OTLP exporter, pointed at it.

Where to, and with which headers, is what Weave's own client does (a test compares them). The client
itself patches every library of models that it finds in the process, and is not needed.
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
    """Return a tracker of trajectories in `project`, which is ENTITY/PROJECT, and exists."""

    def open_sink() -> Sink:
        from art_cli.runs.trackers.otlp.exporter import OtlpSink
        from art_cli.runs.trackers.otlp.spans import Origin

        if (key := find_key()) is None:
            raise PreflightError("there is no API key")
        login = base64.b64encode(f"api:{key}".encode()).decode()
        shown_at = {"wandb.wb_run_id": run.id()}  # from a trace to the run
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
    """Return where traces go, as weave's own client finds it."""
    own = base_url()
    default = DEFAULT_TRACE_URL if own == DEFAULT_URL else f"{own}/traces"
    return os.environ.get("WF_TRACE_SERVER_URL", default).rstrip("/")
