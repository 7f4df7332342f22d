"""The policy of step 0: what it is warmed up on is what its episodes will show it."""

from __future__ import annotations

import json
from datetime import UTC
from pathlib import Path
from typing import Any

import late_tools
import pytest
from short_run import CONFIG
from transformers import AutoTokenizer
from typer.testing import CliRunner

from art_cli.cli.main import app
from art_cli.runs.beginning import began
from art_cli.runs.directory import RunDir
from art_cli.training.trainers import sft


def test_its_prompts_show_the_tools_that_an_episode_offers_token_by_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    late_tools.write(tmp_path)
    shown: list[Any] = []
    read = sft.demonstration

    def reading(*args: Any) -> Any:
        shown.extend(read(*args))
        return shown[-1:]

    monkeypatch.setattr(sft, "demonstration", reading)
    result = CliRunner().invoke(app, ["run", "config.yaml"])
    assert result.exit_code == 0, result.output
    [row, *_] = RunDir(tmp_path / "runs" / "test" / "late").read_trajectories(1, "train")
    played = row["sequences"][0]
    prompt = played["ids"][: played["mask"].index(1)]
    assert shown[0].ids[: shown[0].mask.index(1)] == prompt


def test_a_template_is_told_the_time_that_the_run_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(CONFIG)
    few = ["c.yaml", "eval=null"]
    assert CliRunner().invoke(app, ["run", *few, "train.steps=0"]).exit_code == 0
    base = RunDir(tmp_path / "runs" / "test" / "short").base
    template = base / "chat_template.jinja"
    template.write_text("{{ strftime_now('%H:%M %d.%m.%Y') }}" + template.read_text())
    (base / "checksums.sha256").unlink()  # it is the user's own from here on
    lines = CONFIG.replace("base: tiny", f"base: {base}").splitlines(True)
    (tmp_path / "c.yaml").write_text(
        "".join(line for line in lines if "tiny:" not in line and "sft:" not in line)
    )
    few.append("name=dated")
    assert CliRunner().invoke(app, ["run", *few, "train.steps=1"]).exit_code == 0
    dated = RunDir(tmp_path / "runs" / "test" / "dated")
    first, *rest = dated.made_with.read_text().splitlines()
    noted = {**json.loads(first), "at": "2024-02-29T12:34:56+00:00"}
    dated.made_with.write_text("\n".join([json.dumps(noted), *rest, ""]))
    result = CliRunner().invoke(app, ["run", *few, "train.steps=2", "--resume"])
    assert result.exit_code == 0, result.output
    then = began(dated)
    assert then and then.astimezone(UTC).strftime("%H:%M %d") == "12:34 29"
    [row, *_] = dated.read_trajectories(2, "train")
    read = AutoTokenizer.from_pretrained(base).decode(row["sequences"][0]["ids"])
    assert then.strftime("%H:%M %d.%m.%Y") in str(read)
