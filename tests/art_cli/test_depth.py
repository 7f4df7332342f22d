"""How far it is from the loop to an env's tool: few enough frames to be held in the head."""

from __future__ import annotations

import asyncio
import dataclasses
import traceback
from pathlib import Path
from typing import Any

import pytest
from colours import colours_model

import art_cli as art
from art_cli.errors import EngineError
from art_cli.loop import Stop, run_loop

MOST = 10
ROOT = Path(art.__file__).parent


class Digs(art.Env):
    """Its tools raise what nothing on the way up may take for a failure of the episode."""

    async def start(self) -> str:
        return "dig"

    @art.tool()
    async def waits(self) -> str:
        """Dig."""
        raise EngineError("reached").ending_run()

    @art.tool()
    def blocks(self) -> str:
        """Dig in a thread."""
        raise EngineError("reached").ending_run()

    async def score(self, trajectory: art.Trajectory) -> float:
        return 0.0


class Tracker:
    def log(self, metrics: dict[str, float]) -> None: ...

    def finish(self, state: str) -> None: ...


@pytest.mark.parametrize("tool", ["waits", "blocks"])
def test_few_frames_lie_between_a_step_and_a_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    model = colours_model(0, steps=1)
    model.experiment = dataclasses.replace(model.experiment, eval=None, sft=None)
    called = f'<tool_call>{{"name": "{tool}", "arguments": {{}}}}</tool_call>'

    async def act(self: Any, messages: list[art.Message]) -> str:
        return called

    monkeypatch.setattr("art_cli.rollout.policy_agent.PolicyAgent.act", act)

    async def go() -> None:
        async with art.LocalBackend(tmp_path) as backend:
            await model.register(backend)
            model.env_class = Digs
            await run_loop(model, Tracker(), Stop())

    with pytest.raises(EngineError, match="reached") as caught:
        asyncio.run(go())
    frames = traceback.extract_tb(caught.value.__traceback__)
    names = [f.name for f in frames if Path(f.filename).is_relative_to(ROOT)]
    below = names[names.index("_step") :]
    assert len(below) <= MOST, " > ".join(below)
