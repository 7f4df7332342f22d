"""`art envs check`: what it prints, and how it ends."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from art_cli.cli.main import app

ENV = '''
from art_cli import Done, Env

print("loading")


class Echo(Env):
    """Say the number before the one that was said."""

    num_scenarios = {"train": 20, "val": 10, "test": 10}

    async def start(self):
        print("starting")
        self.number = self.rng.randint(0, 9)
        return f"Say {self.number + 1} less one."

    async def reply(self, text):
        self.right = text == str(self.number)
        return Done()

    async def score(self, trajectory):
        return float(self.right)

    def gold(self):
        yield str(self.number)
'''
CONFIG = "env: {use: order_desk}\nmodel: {base: tiny, adapter: null}\ntrain: {steps: 1}\n"


@pytest.fixture
def art(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs `art envs check` in a folder with env.py and config.yaml."""
    monkeypatch.chdir(tmp_path)
    Path("env.py").write_text(ENV)
    Path("config.yaml").write_text(CONFIG)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["envs", "check", *arguments, "--episodes", "4"])

    return run


def test_a_good_env_passes(art) -> None:
    result = art("env.py:Echo")
    lines = result.stdout.splitlines()
    assert result.exit_code == 0 and lines[-1] == "env.py:Echo: passed"
    assert all(line.startswith("ok ") for line in lines[:-1])


def test_a_mistake_is_printed_with_its_place_and_ends_with_1(art) -> None:
    Path("env.py").write_text(ENV.replace("return float(self.right)", "return 1 / 0"))
    result = art("env.py:Echo")
    assert result.exit_code == 1 and result.stdout.splitlines()[-1] == "env.py:Echo: 1 failed"
    assert "failed   episodes         ZeroDivisionError: division by zero" in result.stdout
    assert " env.py:22\n" in result.stdout


def test_json_is_all_that_is_on_stdout(art) -> None:
    answer = json.loads(art("env.py:Echo", "--json").stdout)
    assert answer["passed"] is True and answer["env"] == "env.py:Echo"
    assert answer["findings"][0] == {
        **{"check": "settings", "status": "ok", "what": "NoSettings is valid"},
        **{"where": "", "todo": ""},
    }


@pytest.mark.slow
def test_settings_are_checked_as_in_a_config(art) -> None:
    assert art("order_desk", "demo_noise=0").exit_code == 0
    assert art("config.yaml", "demo_noise=0").exit_code == 0
    assert art("order_desk", "env.args.demo_noise=0").exit_code == 0
    assert art("config.yaml", "env.args.demo_noise=0", "env.concurrency=3").exit_code == 0
    for use in ("order_desk", "config.yaml"):
        error = art(use, "demo_nois=0").exception
        assert error and "env.args.demo_nois: unknown key. Did you mean 'demo_noise'?" in str(error)
    for use in ("order_dsk", "no_such.yaml", "env.py:No"):
        error = art(use).exception
        assert error and getattr(error, "exit_code", None) == 2


TASKS = """
    @classmethod
    def task_list(cls):
        return {"level=1": "easy", "level=10": "hard"}
"""


def test_the_tasks_of_an_env_are_listed(art) -> None:
    def tasks(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["envs", "tasks", "env.py:Echo", *arguments])

    assert (tasks().stdout, tasks("--json").stdout) == ("", "[]\n")
    Path("env.py").write_text(ENV + TASKS)
    assert tasks().stdout == "level=1   easy\nlevel=10  hard\n"
    assert json.loads(tasks("--json").stdout)[0] == {"task": "level=1", "description": "easy"}
    Path("env.py").write_text(ENV + TASKS.replace("return", "raise ValueError('no library')  #"))
    assert str(tasks().exception) == "env.py:Echo: no library"
