"""A task whose tools an episode knows once it has begun, and a config that trains on it."""

from __future__ import annotations

from pathlib import Path

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
sft: {num_demonstrations: 4, batch_size: 2, learning_rate: 5.0e-3}
sampling: {max_tokens: 6}
train: {steps: 1, scenarios_per_step: 2, group_size: 2}
eval: null
"""


def write(folder: Path) -> None:
    """Write env.py and config.yaml."""
    (folder / "env.py").write_text(ENV)
    (folder / "config.yaml").write_text(CONFIG)
