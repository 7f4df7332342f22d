"""Who says given words, and calls of tools as such words."""

from __future__ import annotations

import json
from typing import Any

from art_cli.rollout.agent import TurnAgent
from art_cli.types import Message, Trajectory


class Says(TurnAgent):
    """Some turns, then the answer 2."""

    def __init__(self, *turns: str) -> None:
        self._turns = list(turns)

    async def act(self, messages: list[Message]) -> str:
        return self._turns.pop(0) if self._turns else "2"

    def record(self, trajectory: Trajectory) -> None:
        trajectory.policy_versions = [0]


def call(name: str, **arguments: Any) -> str:
    """A turn that calls a tool."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"
