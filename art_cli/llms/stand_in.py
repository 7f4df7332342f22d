"""`model: stand-in`: a stub that answers at once, for free and always the same.

With it, everything around a judge or a simulated user can be tested (`art run --smoke`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from art_cli.llms.base import ChatMessage, Reply, Schema, Tools, Usage

STAND_IN = "stand-in"
ANSWERS = ("Yes, please.", "I do not know that.", "That is all, thank you.")


class StandInLLM:
    """A stub of a model; implements `LLM`."""

    def __init__(self) -> None:
        self.name = STAND_IN
        self.usage = Usage()
        self.spent = 0.0
        self.takes_bounds = False
        self.max_input_tokens = 10_000_000  # unlimited: it does not read the messages

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
        """See `LLM`. For a judge's request, scores follow from hashes of the trajectories."""
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
        """See `LLM`."""


def _digest(value: Any) -> bytes:
    return hashlib.sha256(json.dumps(value).encode()).digest()
