"""What a judge is shown of trajectories that were stored."""

from __future__ import annotations

import asyncio
from pathlib import Path

import late_tools
import pytest
from typer.testing import CliRunner

from art_cli.cli.inputs import open_run
from art_cli.cli.main import app
from art_cli.evaluation.rejudge import stored_groups


def test_it_is_shown_the_tools_that_an_episode_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    late_tools.write(tmp_path)
    assert CliRunner().invoke(app, ["run", "config.yaml"]).exit_code == 0
    loaded, run = open_run(Path("runs/test/late"), [])
    groups = asyncio.run(stored_groups(run, loaded, [1]))
    shown = [t.tools for group in groups for t in group.transcripts]
    assert len(shown) == 4
    assert {tool["function"]["name"] for tools in shown for tool in tools} == {"look"}
