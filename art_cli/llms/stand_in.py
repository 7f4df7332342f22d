"""`model: stand-in`: nobody. It answers at once, for nothing and always the same, so that all that
is around a judge or a simulated user can be tried without one (`art run --smoke`)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from art_cli.llms.base import ChatMessage, Reply, Schema, Tools, Usage

STAND_IN = "stand-in"
ANSWERS = ("Yes, please.", "I do not know that.", "That is all, thank you.")


class StandInLLM:
    """Implements LLM."""

    def __init__(self) -> None:
        self.name = STAND_IN
        self.usage = Usage()
        self.spent = 0.0
        self.takes_bounds = False
        self.max_input_tokens = 10_000_000  # whatever it is shown, it does not read it

    @property
    def identity(self) -> Any:
        return STAND_IN

    async def ask(
        self,
        messages: list[ChatMessage],
        schema: Schema | None = None,
        tools: Tools = None,
        more: Mapping[str, Any] | None = None,
    ) -> Reply:
        """See LLM. Asked for scores it gives each trajectory another one, by a hash of its text."""
        self.usage.calls += 1
        if schema is None:
            return Reply(text=ANSWERS[len(messages) % len(ANSWERS)])
        shown = json.loads(messages[1]["content"])["trajectories"]
        ranked = sorted(shown, key=lambda t: _digest([t["messages"], t.get("outcome")]))
        entries = [
            {
                "trajectory_id": t["id"],
                "explanation": "a stand-in does not judge",
                "score": place / max(1, len(ranked) - 1),
            }
            for place, t in enumerate(ranked)
        ]
        return Reply(text=json.dumps({"scores": entries}))

    async def close(self) -> None:
        """See LLM."""


def _digest(value: Any) -> bytes:
    return hashlib.sha256(json.dumps(value).encode()).digest()
