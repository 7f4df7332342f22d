"""A class of the user's own, of whatever family, is checked before anything is loaded or paid."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from art_cli.cli import inputs
from art_cli.cli.main import app
from art_cli.config.load import load_experiment
from art_cli.config.plugins import registered
from art_cli.config.reference import json_schema
from art_cli.envs.user_code import make_plugin, settings_of
from art_cli.errors import ConfigError, UsageError
from art_cli.llms.judges.base import Judge

CONFIG = """
env: {use: tic_tac_toe}
model: {base: tiny, adapter: null}
sft: {}
train: {steps: 1}
"""
SINK = """
from dataclasses import dataclass

class Mine:
    @dataclass
    class Config:
        level: int = 1

    def __init__(self, settings, run): pass
    def take(self, row): pass
    def close(self, state): pass
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def told(code: str, lines: str) -> str:
    """Return what is said of a config, with these lines of it from line 6 on."""
    Path("mine.py").write_text(code)
    Path("config.yaml").write_text(CONFIG + lines)
    with pytest.raises(ConfigError) as raised:
        inputs.check_base(load_experiment([Path("config.yaml")]))
    [problem] = raised.value.problems
    return problem


@pytest.mark.parametrize(
    ("lines", "key", "made_of", "lacks"),
    [
        (
            "judge: {use: 'mine.py:Mine'}\n",
            "6:9: judge.use: ",
            "Mine(cfg)",
            "does not implement Judge: it is not made as Mine(cfg); it has no async judge(transc",
        ),
        (
            "agent: {use: 'mine.py:Mine'}\n",
            "6:9: agent.use: ",
            "Mine(cfg)",
            "does not implement Runner: it is not made as Mine(cfg); it has no async open(); it ha",
        ),
        (
            "engine: {use: 'mine.py:Mine'}\n",
            "6:10: engine.use: ",
            "Mine(policy, cfg, sampling, stop_ids)",
            "it has no open(seed, awaited=...); it has no async sync(version); it has no async re",
        ),
        (
            "track:\n  custom:\n    csv: {use: 'mine.py:Mine'}\n",
            "8:11: track.custom.csv.use: ",
            "Mine(settings, run)",
            "does not implement Sink: it is not made as Mine(settings, run); it has no take(row); ",
        ),
        (
            "deploy: {use: 'mine.py:Mine'}\n",
            "6:10: deploy.use: ",
            "Mine(settings)",
            "it has no plan(source, name); it has no deploy(plan, job); it has no state(deploymen",
        ),
    ],
)
def test_a_class_is_told_with_its_key_its_place_and_all_that_it_lacks(
    lines: str, key: str, made_of: str, lacks: str
) -> None:
    said = told("class Mine:\n    def __init__(self, far, too, many, words, here): pass", lines)
    assert f"config.yaml:{key}mine.py:Mine (" in said and "mine.py:1)" in said
    assert f"is not made as {made_of}" in said and lacks in said
    assert told("Mine = 1", lines).endswith(
        "mine.py:Mine is no class; name one that implements "
        + said.partition("does not implement ")[2].partition(":")[0]
    )
    assert "mine.py:1: ZeroDivisionError" in told("1 / 0", lines)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("row", "row, more", "it cannot be asked for take(row)"),
        ("def take", "async def take", "it has a take() that must not be `async def`"),
        ("level: int", "levels: int", "args.level: unknown key. Did you mean 'levels'?"),
        ("int = 1", "str = 'a'", "args.level: expected text, got 2; put it in quotes"),
        ("int = 1", "'None | what' = 1", "Config must be a dataclass of what YAML can say"),
        ("@dataclass", "", "Config must be a dataclass"),
    ],
)
def test_what_of_a_class_does_not_fit(before: str, after: str, says: str) -> None:
    track = "track: {custom: {csv: {use: 'mine.py:Mine', args: {level: 2}}}}\n"
    said = told(SINK.replace(before, after), track)
    assert said.startswith("config.yaml:6:") and "track.custom.csv" in said and says in said


@pytest.mark.parametrize(
    "lines", ["judge:\n  use: mine.py:Mine\nreward: {judge: 1}\n", "agent:\n  use: mine.py:Mine\n"]
)
def test_art_validate_shows_the_line_of_the_config(lines: str) -> None:
    Path("mine.py").write_text("class Mine:\n    def __init__(self, cfg): pass\n")
    Path("config.yaml").write_text(f"name: r\n{CONFIG}{lines}")
    result = CliRunner().invoke(app, ["validate", "config.yaml"])
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith("config.yaml:8:3: ")


def test_a_function_is_no_agent_type() -> None:
    said = told("async def Mine(client, task): ...", "agent: {use: 'mine.py:Mine'}\n")
    assert "write agent.use: function and agent.function: mine.py:Mine" in said


def test_a_class_that_fits_is_right_and_its_section_may_have_every_key(tmp_path: Path) -> None:
    Path("mine.py").write_text(SINK)
    Path("config.yaml").write_text(CONFIG + "track: {custom: {csv: {use: 'mine.py:Mine'}}}\n")
    found = CliRunner().invoke(app, ["validate", "config.yaml", "--json"])
    assert json.loads(found.stdout)["valid"], found.output
    load_experiment([Path("config.yaml")], ["engine.use=a.py:B", "engine.url=http://x"])
    load_experiment([Path("config.yaml")], ["agent.use=a.py:B", "reward={agent: 1}"])
    with pytest.raises(ConfigError, match=r"no effect with engine.use=transformers; remove it"):
        load_experiment([Path("config.yaml")], ["engine.url=http://x"])


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("def __init__(self, cfg): 1 / 0", "mine.py:3: ZeroDivisionError: division by zero"),
        ("def __init__(self, cfg):\n        1 + 'a'", "mine.py:4: TypeError: unsupported operand"),
        (
            "usage = spent = property(lambda self: 1 / 0)\n    def __init__(self, cfg): pass",
            "mine.py:3: ZeroDivisionError",
        ),
        ("pass", "it is not made as Mine(cfg)"),
        ("def __init__(self, cfg): pass", "its __init__ does not set spent, usage; see Judge"),
    ],
)
def test_one_that_cannot_be_made_is_told_with_its_place(code: str, says: str) -> None:
    Path("mine.py").write_text(
        f"from art_cli.llms.judges.base import Judge\nclass Mine(Judge):\n    {code}\n"
    )
    with pytest.raises(UsageError, match=r"^judge\.use: mine.py:Mine") as raised:
        make_plugin("judge.use", "mine.py:Mine", Judge, cfg=None)
    assert says in str(raised.value)


def test_a_class_without_a_config_takes_no_settings() -> None:
    assert settings_of("deploy", type("Mine", (), {}), {})
    with pytest.raises(UsageError, match=r"deploy: args.port: unknown key"):
        settings_of("deploy", type("Mine", (), {}), {"port": 1})


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that has a judge."""
    info = tmp_path / "site" / "acme-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[art.judges]\nacme = acme.judge:Acme\n")
    monkeypatch.syspath_prepend(info.parent)
    registered.cache_clear()
    yield
    monkeypatch.undo()
    registered.cache_clear()


@pytest.mark.usefixtures("acme")
def test_the_name_of_an_entry_point_stands_for_its_class() -> None:
    Path("config.yaml").write_text(CONFIG + "judge: {use: acme, votes: 2}\n")
    loaded = load_experiment([Path("config.yaml")])
    assert loaded.experiment.judge and loaded.experiment.judge.use == "acme.judge:Acme"
    assert loaded.document["judge"]["use"] == "acme"
    with pytest.raises(ConfigError, match=r"expected 'ruler' or FILE.py:NAME or one of acme, got"):
        load_experiment([Path("config.yaml")], ["judge.use=acne"])
    with pytest.raises(ConfigError, match=r"judge.model: missing. Add for example: model: openai"):
        load_experiment([Path("config.yaml")], ["judge.use=ruler"])
    with pytest.raises(ConfigError, match=r"engine.use: expected .* or FILE.py:NAME, got 'acme'"):
        load_experiment([Path("config.yaml")], ["engine.use=acme"])
    assert "acme" in json.dumps(json_schema(None, None)["$defs"]["JudgeConfig"])
