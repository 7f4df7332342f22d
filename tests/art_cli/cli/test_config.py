"""`art config`, and how a mistake in a config is shown."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from art_cli.cli.main import app
from art_cli.config.load import load_experiment
from art_cli.errors import ConfigError, UsageError

QUICKSTART = str(Path(__file__).parents[3] / "configs" / "quickstart.yaml")


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["config", *words], catch_exceptions=False)


def test_a_key_is_explained_with_its_value_and_where_that_comes_from() -> None:
    said = run("explain", "train.learning_rate", QUICKSTART, "train.learning_rate=0.5").output
    assert "takes     number above 0" in said and "default   1e-05" in said
    assert "here      0.5 (override)" in said
    found = json.loads(run("explain", "train.clip_low", "--json").output)
    assert found["key"] == "train.clip_low" and "null: the loss's default" in found["meaning"]


def test_a_section_is_explained_with_its_keys() -> None:
    said = run("explain", "sampling").output
    assert "The sampling of the policy's turns" in said and "max_tokens" in said
    assert max(map(len, said.splitlines())) <= 80
    assert "has no effect" in run("explain", "judge.votes", QUICKSTART).output


def test_the_schema_goes_to_a_file_that_an_editor_is_told_of(tmp_path: Path) -> None:
    path = tmp_path / "art.json"
    said = run("schema", "--env", "retail", "--out", str(path)).output
    assert f"yaml-language-server: $schema={path}" in said
    assert json.loads(path.read_text())["$defs"]["EnvConfig"]["properties"]["use"]["const"]
    assert json.loads(run("schema").output)["required"] == ["env", "model", "train"]


def test_the_schema_of_an_env_in_an_interpreter_of_its_own() -> None:
    def settings(*more: str) -> set[str]:
        found = json.loads(run("schema", "--env", "order_desk", *more).output)
        return set(found["$defs"]["env.args"]["properties"])

    assert settings("--python", sys.executable) == settings() != set()
    with pytest.raises(UsageError, match=r"--python is where an env runs; name it: --env"):
        run("schema", "--python", sys.executable)


def test_a_mistake_is_shown_with_its_line_and_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        f"env: {{use: x}}\nmodel: {{base: tiny}}\ntrain: {{lr: 1, steps: {'9' * 300}x}}\n"
    )
    with pytest.raises(ConfigError) as raised:
        load_experiment([path])
    first, line, mark, *_ = str(raised.value).splitlines()
    assert first.endswith("train.lr: unknown key. Did you mean 'learning_rate'?")
    assert line.startswith("  3 | train: {lr: 1, steps: 999") and mark == "    |         ^"
    assert max(map(len, str(raised.value).splitlines()[1:])) < 200
    assert all("\n" not in problem for problem in raised.value.problems)


def test_the_line_of_a_key_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "env: {use: x}\nmodel: {base: tiny}\ntrain: {steps: 1}\n"
        "judge: {model: openai/x, params: {api_key: sk-0123456789abcdef}}\n"
    )
    with pytest.raises(ConfigError) as raised:
        load_experiment([path])
    assert "0123456789abcdef" not in str(raised.value) and "holds a key" in str(raised.value)
