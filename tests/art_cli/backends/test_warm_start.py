"""The policy of step 0: what it is warmed up on is what its episodes will show it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from art_cli.cli.main import app
from art_cli.runs.directory import RunDir
from art_cli.training.trainers import warmup

ENV = '''
from art_cli import Done, Env, Scenario, Tool

class Late(Env):
    """Which tool there is, an episode knows once it has begun."""

    max_turns = 3

    @classmethod
    def scenarios(cls, cfg, split):
        return [Scenario(id=f"{split}-{n}", split=split, seed=n) for n in range(8)]

    async def start(self):
        self.found = "look"
        return "look it up"

    def tools(self):
        of = {"type": "object", "properties": {"key": {"type": "string"}}}
        return [Tool(name=self.found, description="Look a key up.", parameters=of, writes=False)]

    async def call_tool(self, name, arguments):
        return "seven"

    async def reply(self, text):
        return Done()

    async def score(self, trajectory):
        return 1.0

    @classmethod
    def demonstrations(cls, cfg, num):
        call = '<tool_call>{"name": "look", "arguments": {"key": "a"}}</tool_call>'
        return [
            [
                {"role": "user", "content": "look it up"},
                {"role": "assistant", "content": call},
                {"role": "tool", "name": "look", "content": "seven"},
                {"role": "assistant", "content": "seven"},
            ]
        ] * num
'''
CONFIG = """
project: test
name: late
env: {use: "env.py:Late"}
model: {base: tiny, adapter: null, tiny: {hidden_size: 32, num_layers: 1, vocab_size: 300}}
warmup: {num_demonstrations: 4, batch_size: 2, learning_rate: 5.0e-3}
sampling: {max_tokens: 6}
train: {steps: 1, scenarios_per_step: 2, group_size: 2}
eval: null
"""


def test_its_prompts_show_the_tools_that_an_episode_offers_token_by_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Path("env.py").write_text(ENV)
    Path("config.yaml").write_text(CONFIG)
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
