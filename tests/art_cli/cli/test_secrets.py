"""What a config takes from the environment is neither printed nor written, whatever goes wrong."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from short_run import CONFIG

from art_cli.cli.main import main

SECRET = "s3cr3t-Value"
ENV = """
from dataclasses import dataclass
import art_cli as art

@dataclass
class Settings:
    password: str = ""

class Mine(art.Env):
    Config = Settings

    async def start(self):
        return "hello"

    async def reply(self, text):
        if self.scenario.seed % 2:
            raise ConnectionError(f"403 for https://me:{self.cfg.password}@host/v1")
        return art.Done()

    async def score(self, trajectory):
        return self.rng.random()

    @classmethod
    def scenarios(cls, cfg, split):
        return [art.Scenario(id=f"{split}-{n}", split=split, seed=n) for n in range(4)]

    @classmethod
    def demonstrations(cls, cfg, num):
        return [[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]]

class Closed(Mine):
    async def start(self):
        raise ConnectionError(f"no login with {self.cfg.password!r}")
"""
TAKEN = "${oc.env:ART_X}"
NOT_TINY = [f"model.tiny.{size}" for size in ("hidden_size=64", "num_layers=2", "vocab_size=640")]
Art = Callable[..., tuple[int, str]]


@pytest.fixture
def art(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Art:
    """Run `art` in this process, in a folder with config.yaml -> its exit code and all it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    Path("config.yaml").write_text(CONFIG)
    Path("env.py").write_text(ENV)

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["art", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
            sys.exit(0)
        code = ended.value.code or 0
        assert isinstance(code, int)
        return code, "".join(capsys.readouterr())

    return run


@pytest.mark.parametrize("command", [("validate",), ("validate", "--json"), ("run",)])
@pytest.mark.parametrize(
    ("value", "overrides"),
    [
        (SECRET, ["env.use=${oc.env:ART_X}"]),
        ("pw", ["env.use=${oc.env:ART_X}"]),
        (f"./{SECRET}.py:Mine", ["env.use=${oc.env:ART_X}"]),
        (f"{SECRET}.module:Mine", ["env.use=${oc.env:ART_X}"]),
        (SECRET, ["env.use=env.py:${oc.env:ART_X}"]),
        (f"./{SECRET}.py:play", ["agent={use: function, function: '${oc.env:ART_X}'}"]),
        ("pw", ["agent={use: function, function: '${oc.env:ART_X}'}"]),
        (SECRET, ["agent={use: program, command: ['${oc.env:ART_X}']}"]),
        ("pw", ["agent={use: program, command: ['${oc.env:ART_X}']}"]),
        (f"./{SECRET}", ["judge={model: openai/x, rubric_file: '${oc.env:ART_X}'}"]),
        ("pw", ["judge={model: openai/x, rubric_file: '${oc.env:ART_X}'}"]),
        (SECRET, ["judge={model: '${oc.env:ART_X}', api_key_env: ART_NONE}"]),
        (SECRET, ["env={use: 'env.py:Closed', args: {password: '${oc.env:ART_X}'}}"]),
        ("pw", ["env={use: 'env.py:Closed', args: {password: '${oc.env:ART_X}'}}"]),
        (SECRET, ["env={use: 'env.py:Mine', args: {passwort: '${oc.env:ART_X}'}}"]),
        (SECRET, ["train.loss=${oc.env:ART_X}"]),
        ("pw", ["train.loss=${oc.env:ART_X}"]),
    ],
)
def test_an_error_shows_the_variable_and_not_its_value(
    art: Art,
    monkeypatch: pytest.MonkeyPatch,
    value: str,
    overrides: list[str],
    command: tuple[str, ...],
) -> None:
    monkeypatch.setenv("ART_X", value)
    code, said = art(*command, "config.yaml", *overrides)
    assert code in (2, 3) and SECRET not in said and "pw" not in said
    if "passwort" not in overrides[0] and "api_key_env" not in overrides[0]:
        assert TAKEN in said


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["sft.demonstrations=./${oc.env:ART_X}"], "there is no file"),
        (["model.base=${oc.env:ART_X}/m", *NOT_TINY], "cannot load"),
        (["judge={model: openai/x, command: ['${oc.env:ART_X}', serve]}"], "there is no program"),
        (["judge={model: openai/x, command: [ls, '${oc.env:ART_X}']}"], "ended with exit code"),
        (["judge={model: '${oc.env:ART_X}/x', params: {a: 1}}"], "is not a model"),
    ],
)
def test_what_is_found_out_later_shows_it_neither(
    art: Art, monkeypatch: pytest.MonkeyPatch, overrides: list[str], words: str
) -> None:
    monkeypatch.setenv("ART_X", SECRET)
    code, said = art("run", "config.yaml", *overrides)
    assert code in (2, 3) and words in said and TAKEN in said and SECRET not in said


@pytest.mark.slow
def test_an_env_that_tells_its_password_does_not_bring_it_into_the_run_directory(
    art: Art, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ART_X", SECRET)
    env = "env={use: 'env.py:Mine', args: {password: '${oc.env:ART_X}'}}"
    small = ("eval={every: 1, episodes: 2}", "train.steps=1", "sft.epochs=1")
    code, said = art("run", "config.yaml", env, *small, "train.scenarios_per_step=4")
    assert code == 0 and SECRET not in said
    command = ("eval", "runs/test/short", "--checkpoint", "last", "--episodes", "4")
    code, said = art(*command, "--html", "page.html")
    assert code == 0 and "403 for https://***@host/v1" in said and SECRET not in said
    for file in (p for p in Path().rglob("*") if p.is_file() and p.name != "env.py"):
        raw = file.read_bytes()
        content = gzip.decompress(raw) if file.suffix == ".gz" else raw
        assert SECRET.encode() not in content, file
    code, said = art("show", "runs/test/short", "1", "0", "--full")
    assert code == 0 and SECRET not in said


@pytest.mark.parametrize(
    ("value", "overrides"),
    [
        ("my-project", ["project=${oc.env:ART_X}", "env.args.label=${oc.env:ART_X}"]),
        ("short-run", ["name=short-run", "model.base=${oc.env:ART_X}", *NOT_TINY]),
    ],
)
def test_a_name_of_a_run_is_told_wherever_it_comes_from(
    art: Art, monkeypatch: pytest.MonkeyPatch, value: str, overrides: list[str]
) -> None:
    monkeypatch.setenv("ART_X", value)
    Path("env.py").write_text(ENV.replace("password: str", 'label: str = ""\n    password: str'))
    code, said = art("validate", "config.yaml", "env.use=env.py:Mine", *overrides)
    assert code == 0 and value in said.rpartition("ok: ")[2]
