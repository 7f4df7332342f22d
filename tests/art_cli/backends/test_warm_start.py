"""The policy of step 0: what it is warmed up on is what its episodes will show it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import late_tools
import pytest
from typer.testing import CliRunner

from art_cli.cli.main import app
from art_cli.runs.directory import RunDir
from art_cli.training.trainers import warmup


def test_its_prompts_show_the_tools_that_an_episode_offers_token_by_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    late_tools.write(tmp_path)
    shown: list[Any] = []
    read = warmup.demonstration

    def reading(*args: Any) -> Any:
        shown.extend(read(*args))
        return shown[-1:]

    monkeypatch.setattr(warmup, "demonstration", reading)
    result = CliRunner().invoke(app, ["run", "config.yaml"])
    assert result.exit_code == 0, result.output
    [row, *_] = RunDir(tmp_path / "runs" / "test" / "late").read_trajectories(1, "train")
    played = row["sequences"][0]
    prompt = played["ids"][: played["mask"].index(1)]
    assert shown[0].ids[: shown[0].mask.index(1)] == prompt
