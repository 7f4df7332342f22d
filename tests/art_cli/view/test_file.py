"""Runs as one file, and the page that a finished run writes."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from shown_runs import PAYLOAD, make_hostile, make_run
from typer.testing import CliRunner

from art_cli.cli.main import app
from art_cli.errors import ArtError
from art_cli.runs.directory import RunDir
from art_cli.view import frame
from art_cli.view.collection import Collection
from art_cli.view.file import page_of, write_report


@pytest.fixture(autouse=True)
def _small_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "plotly", lambda: "/* charts */")
    monkeypatch.setattr("art_cli.view.file.has_charts", lambda: True)


def data_of(page: str) -> dict[str, Any]:
    return json.loads(page.split('id="data">')[1].partition("</script>")[0])


def unpacked(text: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(text)))


def test_the_file_holds_numbers_and_conversations(tmp_path: Path) -> None:
    data = data_of(page_of(Collection([make_run(tmp_path / "p" / "r")])))
    assert data["runs"][0]["key"] == "p/r" and data["left_out"] == {"p/r": ""}
    assert len(unpacked(data["index"]["p/r"])["parts"]) == 6
    groups = unpacked(data["details"]["p/r"]["train-2"])
    assert len(groups) == 4 and groups[0]["episodes"][0]["messages"]


def test_a_file_that_is_too_large_says_what_it_lacks(tmp_path: Path) -> None:
    run = make_run(tmp_path / "p" / "r", steps=9)
    data = data_of(page_of(Collection([run]), most_bytes=6_000))
    kept = data["details"]["p/r"]
    assert 2 <= len(kept) < 11 and {"val-0", "val-9"} <= kept.keys()
    assert f"{len(kept)} of 11 steps" in data["left_out"]["p/r"]
    assert len(unpacked(data["index"]["p/r"])["parts"]) == 11


def test_nothing_that_was_said_becomes_markup_and_only_our_scripts_may_run(tmp_path: Path) -> None:
    page = page_of(Collection([make_hostile(tmp_path / "p" / PAYLOAD.replace("/", "_"))]))
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    policy = re.search(r'Policy" content="([^"]*)"', page)
    assert policy and "default-src 'none'" in policy[1] and "connect-src 'none'" in policy[1]
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert len(scripts) == 2 and all(f"'sha256-{h}'" in policy[1] for h in hashes)
    assert "<img" not in page.replace(scripts[0], "") and "<b>bold" not in page


def test_a_finished_run_writes_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDir(make_run(tmp_path / "p" / "r"))
    assert write_report(run) == run.report and "<main" in run.report.read_text()
    monkeypatch.setattr("art_cli.view.file.REPORT_BYTES", 4_000)
    write_report(run)
    data = data_of(run.report.read_text())
    assert len(unpacked(data["index"]["p/r"])["parts"]) == len(data["details"]["p/r"]) < 6
    assert "episodes of" in data["left_out"]["p/r"]
    monkeypatch.setattr("art_cli.view.file.has_charts", lambda: False)
    assert write_report(run) is None


def test_the_command_writes_a_file_and_says_mistakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, out = make_run(tmp_path / "p" / "r"), tmp_path / "page.html"
    result = CliRunner().invoke(app, ["view", str(run), "--html", str(out)])
    assert result.exit_code == 0 and f"wrote {out}" in result.output and out.exists()
    for args, code in (([str(run), "--html", str(tmp_path)], 2), ([str(tmp_path / "no")], 2)):
        result = CliRunner().invoke(app, ["view", *args])
        assert isinstance(result.exception, ArtError) and result.exception.exit_code == code


def test_without_the_extra_the_command_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(frame, "has_charts", lambda: False)
    frame.plotly.cache_clear()
    result = CliRunner().invoke(app, ["view", str(make_run(tmp_path / "p" / "r"))])
    assert isinstance(result.exception, ArtError) and result.exception.exit_code == 3
    assert "pip install 'art-cli[view]'" in str(result.exception)
