"""Ollama's Modelfile. Ollama itself is asked in tests/integration."""

from __future__ import annotations

from pathlib import Path

import late_tools
import pytest
from chat_models import CHATML, ChatModel
from typer.testing import CliRunner

from art_cli.cli.main import app
from art_cli.deploy.targets.ollama.target import prompt_of


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


def test_a_bos_token_that_only_the_template_writes_stays_in_the_prompt() -> None:
    """As SmolLM2's: its tokenizer has a `bos_token` and does not add it."""
    model = ChatModel(name="smol", special=CHATML, eos="<|im_end|>", bos="<|im_start|>")
    said = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    )
    generation = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    prompt = prompt_of(model.tokenizer(said + generation), None, [], stop="<|im_end|>")
    assert prompt.adds_bos is False and "<|im_start|>user" in prompt.template
