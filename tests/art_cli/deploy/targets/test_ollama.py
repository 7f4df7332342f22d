"""Ollama's Modelfile. Ollama itself is asked in tests/integration."""

from __future__ import annotations

from pathlib import Path

import late_tools
import pytest
from typer.testing import CliRunner

from art_cli.cli.main import app


def test_its_template_tells_the_tools_that_an_episode_offers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")  # without Ollama, whose part is left to the user
    late_tools.write(tmp_path)
    assert CliRunner().invoke(app, ["run", "config.yaml"]).exit_code == 0
    result = CliRunner().invoke(app, ["deploy", "runs/test/late", "--to", "ollama", "--yes"])
    assert result.exit_code == 0, result.output
    [file] = Path("runs").rglob("Modelfile")
    assert "{{- if .Tools }}" in file.read_text() and "look key: Look a key up." in file.read_text()
