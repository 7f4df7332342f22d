"""Export of a run's trajectories with OpenTelemetry's own exporter (extra `otlp`)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import requests
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from art_cli.keys import mask_keys
from art_cli.runs.directory import RunDir
from art_cli.runs.trackers.otlp.spans import Origin, spans_of
from art_cli.runs.trackers.sink import split_of
from art_cli.runs.trajectories import grouped, reward_width

REQUEST_SECONDS = 10  # for a request, including the exporter's retries
BATCH_CHARACTERS = 2**20  # attributes per request; collectors accept at least 4 MiB
STANDARD = {"user-agent", "content-type", "content-encoding", "content-length"}


class OtlpSink:
    """Sends groups of each step and evaluation: all, or those with the widest reward range."""

    def __init__(
        self,
        run: RunDir,
        origin: Origin,
        *,
        endpoint: str | None,
        headers: Mapping[str, str],
        groups: int | None,
        own_headers_only: bool = False,
    ) -> None:
        """Without an endpoint, OpenTelemetry's environment variables decide.

        `own_headers_only` omits headers from these variables, which belong to another collector.
        """
        # The exporter logs each failed request. Our own message has the reason.
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
        self._run, self._origin, self._groups = run, origin, groups
        own = STANDARD | {*map(str.lower, headers)}
        self._session = _Session(own if own_headers_only else None)
        self._exporter = OTLPSpanExporter(
            endpoint=endpoint,
            headers=headers,
            timeout=REQUEST_SECONDS,
            compression=Compression.Gzip,
            session=self._session,
        )

    def take(self, row: Mapping[str, Any]) -> None:
        """See Sink."""
        cfg, step = self._origin.experiment, row["training_step"]
        split: Any = split_of(row, cfg.eval.split if cfg.eval else "val")
        file = self._run.trajectory_file(step, split)
        if not file.exists():  # the user removed it to free space
            return
        groups = grouped(self._run.read_trajectories(step, split))
        if self._groups is not None:
            groups = sorted(groups, key=reward_width, reverse=True)[: self._groups]
        began = file.stat().st_mtime_ns
        for batch in _batches(spans_of(step, split, groups, self._origin, began)):
            if self._exporter.export(batch) is not SpanExportResult.SUCCESS:
                raise ConnectionError(self._session.problem or "the spans cannot be sent")

    def close(self, state: str) -> None:
        """See Sink."""
        self._exporter.shutdown()


class _Session(requests.Session):
    """Remembers why the last request failed, which the exporter only logs."""

    def __init__(self, only: set[str] | None) -> None:
        super().__init__()
        self._only = only
        self.problem = ""

    def request(self, method: str, url: str, *args: Any, **more: Any) -> Any:
        if self._only is not None:
            given = more.get("headers") or {}
            more["headers"] = {k: v for k, v in given.items() if k.lower() in self._only}
        try:
            answer = super().request(method, url, *args, **more)
        except requests.RequestException as error:
            where = urlsplit(url)
            port = f":{where.port}" if where.port else ""
            self.problem = f"{where.hostname}{port} does not answer ({type(error).__name__})"
            raise
        said = mask_keys(answer.text)[:160]
        self.problem = "" if answer.ok else f"HTTP {answer.status_code} {said}".strip()
        return answer


def _batches(spans: Iterable[ReadableSpan]) -> Iterator[list[ReadableSpan]]:
    """Split spans into batches that fit into a request."""
    batch: list[ReadableSpan] = []
    size = 0
    for span in spans:
        length = sum(len(str(value)) for value in (span.attributes or {}).values())
        if batch and size + length > BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
        batch.append(span)
        size += length
    if batch:
        yield batch
