"""Plays stored answers through art's adapter and through verifiers, and prints what both give.

Run by an interpreter that has verifiers, with art and this folder on its path.
"""

from __future__ import annotations

import asyncio
import json
from itertools import count
from typing import Any

from verifiers.clients.client import Client
from verifiers.types import Response, ResponseMessage, ToolCall

from art_cli import play_episode
from art_envs.adapters.verifiers_env import Verifiers

Turn = str | list[dict[str, Any]]  # words, or calls


class Stored(Client):
    """A model that says what is stored, then `end`."""

    def __init__(self, turns: list[Turn]) -> None:
        super().__init__(None)
        self._turns = iter(turns)
        self._ids = count()

    async def get_response(self, *given: Any, **more: Any) -> Response:
        """Return the next turn."""
        turn = next(self._turns, "end")
        calls = None
        if not isinstance(turn, str):
            calls = [
                ToolCall(id=str(next(self._ids)), name="add", arguments=json.dumps(each))
                for each in turn
            ]
        message = ResponseMessage(
            content=turn if isinstance(turn, str) else "",
            tool_calls=calls,
            finish_reason="stop",
            is_truncated=False,
        )
        return Response(id="", created=0, model="m", message=message)


Stored.__abstractmethods__ = frozenset()


def text_of(turn: Turn) -> str:
    """Return a turn as a policy writes it."""
    if isinstance(turn, str):
        return turn
    calls = [json.dumps({"name": "add", "arguments": each}) for each in turn]
    return "".join(f"<tool_call>{call}</tool_call>" for call in calls)


def stored(kind: str, answer: str) -> list[list[Turn]]:
    """Return the turns of several episodes, good and bad."""
    if kind == "tools":
        two: list[dict[str, Any]] = [{"a": 1, "b": 7}, {"a": 2, "b": 2}]
        return [[f"it is {answer}"], [two, f"so {answer}"], [two, two, two, two], [[{"a": "x"}]]]
    if kind == "talk":
        return [["a", "b", f"it is {answer}"], ["a", answer, "no"]]
    return [[f"<answer>{answer}</answer>"], ["<answer>0</answer>"], [answer], [""]]


async def native(
    env: Any, row: dict[str, Any], turns: list[Turn]
) -> tuple[float, dict[str, float]]:
    """Return the reward and the metrics that verifiers gives."""
    state = await env.rollout(row, Stored(turns), "m", {})
    await env.rubric.score_rollout(state)
    return state["reward"], state["metrics"]


for kind, data_set in (
    ("puzzles", "leg_counting"),
    ("puzzles", "spell_backward"),
    ("puzzles", "letter_counting"),
    ("tools", ""),
    ("talk", ""),
):
    cfg = Verifiers.Config(id="vf_tasks", args={"kind": kind, "data_set": data_set})
    for scenario in list(Verifiers.scenarios(cfg, "train"))[:4]:
        one = Verifiers(scenario, cfg)
        theirs = one.played.theirs
        row = theirs.get_dataset()[scenario.data["row"]]
        answer = row["answer"]
        if kind == "puzzles":
            answer = theirs.rg_dataset[int(answer)]["answer"]
        for turns in stored(kind, answer):
            said = [text_of(turn) for turn in turns]
            played = play_episode(Verifiers(scenario, cfg), iter([*said, *["end"] * 9]).__next__)
            reward, metrics = asyncio.run(native(theirs, row, turns))
            print(json.dumps([kind, said, played.reward, reward, played.metrics, metrics]))
