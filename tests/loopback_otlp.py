"""A collector for tests: a real HTTP server that keeps the spans that are sent to it.

with LoopbackOtlp() as collector:
    run(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
collector.spans
"""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler
from typing import Any

from loopback import Loopback


def spans_in(body: bytes) -> list[dict[str, Any]]:
    """The spans of a request, read with OpenTelemetry's own protobuf types."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    return [
        {
            "name": span.name,
            "trace": span.trace_id.hex(),
            "id": span.span_id.hex(),
            "parent": span.parent_span_id.hex() or None,
            "begin": span.start_time_unix_nano,
            "end": span.end_time_unix_nano,
            "kind": span.kind,
            "error": span.status.message if span.status.code == 2 else None,
            "events": [(event.name, _values(event.attributes)) for event in span.events],
            "resource": _values(batch.resource.attributes),
            **_values(span.attributes),
        }
        for batch in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in batch.scope_spans
        for span in scope.spans
    ]


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None


class LoopbackOtlp(Loopback):
    """See the head of this file."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []  # in the order in which they came
        self.headers: list[dict[str, str]] = []  # of each request
        self.says = 200  # an HTTP status
        self._silent = threading.Event()
        super().__init__(self._handler())

    def fall_silent(self) -> None:
        """From now on connections are taken, and nothing is answered."""
        self._silent.set()

    def inside(self, parent: dict[str, Any] | None) -> list[dict[str, Any]]:
        """The spans right below another one, or without one, in the order of their times."""
        id = parent and parent["id"]
        found = [span for span in self.spans if span["parent"] == id]
        return sorted(found, key=lambda span: span["begin"])

    def _handler(collector) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if collector._silent.is_set():
                    collector.closing.wait(3600)
                    return
                collector.headers.append({k.lower(): v for k, v in self.headers.items()})
                if collector.says == 200 and self.path == "/v1/traces":
                    collector.spans += spans_in(gzip.decompress(body))
                self.send_response(collector.says if self.path == "/v1/traces" else 404)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        return Handler
