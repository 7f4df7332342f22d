"""`track.otlp` in a real run: all of it arrives, and a collector that fails costs it little."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from loopback_otlp import LoopbackOtlp
from short_run import CONFIG, Art, held_after, until, with_pauses

from art_cli.runs.trackers.sink import PATIENCE_SECONDS

pytest.importorskip("opentelemetry.exporter.otlp", reason="pip install 'art-cli[otlp]'")
pytestmark = pytest.mark.slow
SECRET = "nobody-may-see-this"


def start(folder: Path, url: str, *arguments: str, config: str = CONFIG) -> Art:
    headers = "{authorization: 'Bearer ${oc.env:COLLECTOR_KEY}'}"
    track = f'track: {{otlp: {{endpoint: "{url}/v1/traces", headers: {headers}, groups: null}}}}\n'
    (folder / "config.yaml").write_text(config + track)
    return Art(folder, "config.yaml", *arguments, env={"COLLECTOR_KEY": SECRET})


def ended(art: Art) -> Art:
    assert art.wait() == 0, art.output
    return art


def episodes(collector: LoopbackOtlp) -> list[dict[str, Any]]:
    return [s for s in collector.spans if s.get("gen_ai.operation.name") == "invoke_agent"]


def test_what_a_dead_collector_lacks_is_sent_by_resume(tmp_path: Path) -> None:
    with LoopbackOtlp() as collector:
        url = collector.url
        collector.says = 503
        art = ended(start(tmp_path, url, "train.steps=2"))
        assert "OTLP lacks 4 rows of the run" in art.output and collector.spans == []
        assert len(art.run.read_metrics()) == 4
        collector.says = 200
        art = ended(start(tmp_path, url, "train.steps=3", "--resume"))
        assert collector.headers[-1]["authorization"] == f"Bearer {SECRET}"
        assert len(episodes(collector)) == 3 * 16 + 3 * 8
        names = [s["name"] for s in collector.inside(None)]
        steps = ["train step 1", "train step 2", "train step 3"]
        assert sorted(names) == [*steps, "val step 0", "val step 2", "val step 3"]
        num = len(collector.spans)
        ended(start(tmp_path, url, "train.steps=3", "--resume"))
        assert len(collector.spans) == num, "it has ended: nothing new"
    kept = [p for p in art.run.root.rglob("*") if p.is_file()]
    assert not [p for p in kept if SECRET.encode() in p.read_bytes()]


def test_a_collector_that_falls_silent_costs_less_than_five_seconds(tmp_path: Path) -> None:
    config = with_pauses(tmp_path, CONFIG)
    with LoopbackOtlp() as collector:
        art = start(tmp_path, collector.url, config=config)
        held_after(7, art)
        collector.fall_silent()
        (tmp_path / "hold").unlink()
        status = art.run.status
        until(lambda: status.exists() and '"done"' in status.read_text(), art)
        began = time.monotonic()
        until(lambda: "OTLP lacks " in art.output, art)
        assert time.monotonic() - began < PATIENCE_SECONDS + 5 < 10
        ended(art)
    assert len(art.run.read_metrics()) == 8 + 4
