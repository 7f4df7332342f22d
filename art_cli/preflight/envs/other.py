"""Replay episodes in another process, with different hashes and set orders.

python -m art_cli.preflight.envs.other QUESTION ANSWER      two files, JSON
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from art_cli.preflight.envs.instances import content
from art_cli.preflight.envs.play import Played, play_one
from art_cli.preflight.envs.players import Repeater
from art_cli.preflight.envs.subject import MAX_SCENARIOS, SPLITS, Options
from art_cli.rollout.env_class import env_in
from art_cli.types import Scenario, Split


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """The results of the other process."""

    scenarios: dict[Split, list[str]]  # as by `content`
    outcomes: list[dict[str, Any]]


def play_elsewhere(
    use: str, settings: Any, plays: Sequence[Played], options: Options
) -> Elsewhere | str:
    """Return the scenarios and the replayed plays, or an error message.

    Each play may take `options.timeout` seconds.
    """
    python, timeout = options.python, options.timeout * (len(plays) + len(SPLITS))
    asked = [{"scenario": _fields(p.trajectory.scenario), "turns": p.turns} for p in plays]
    args = TypeAdapter(type(settings)).dump_python(settings, mode="json")
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    with tempfile.TemporaryDirectory() as folder:
        question, answer = Path(folder, "question"), Path(folder, "answer")
        path = os.environ.get("PYTHONPATH", "")  # for the env's own interpreter
        told = {"use": use, "python": python, "path": path, "args": args, "plays": asked}
        told |= {"allow_writes": options.allow_writes}
        question.write_text(json.dumps(told))
        command = [sys.executable, "-m", __name__, str(question), str(answer)]
        try:
            ended = subprocess.run(
                command, env=env, capture_output=True, text=True, errors="replace", timeout=timeout
            )
        except subprocess.TimeoutExpired:
            return f"not done within {timeout:g} s"
        if ended.returncode:
            return (ended.stderr.strip().splitlines() or ["it ended"])[-1]
        return Elsewhere(**json.loads(answer.read_text()))


def _fields(s: Scenario) -> dict[str, Any]:
    return {"id": s.id, "split": s.split, "seed": s.seed, "data": s.data}


def main(question: str, answer: str) -> None:
    """Read the request file, play it, and write the results."""
    asked = json.loads(Path(question).read_text())
    os.environ["PYTHONPATH"] = asked["path"]
    env = env_in(asked["use"], asked["python"])
    settings = TypeAdapter(env.Config).validate_json(json.dumps(asked["args"]))

    async def played(each: dict[str, Any]) -> dict[str, Any]:
        scenario, turns, allowed = (
            Scenario(**each["scenario"]),
            each["turns"],
            asked["allow_writes"],
        )
        player = Repeater(turns)
        return (await play_one(env, settings, scenario, lambda _: player, allowed)).outcome()

    def listed(split: Split) -> list[str]:
        return [content(x) for x in islice(env.scenarios(settings, split), MAX_SCENARIOS)]

    with asyncio.Runner() as loop:
        outcomes = [loop.run(played(each)) for each in asked["plays"]]
    out = {"scenarios": {split: listed(split) for split in SPLITS}, "outcomes": outcomes}
    Path(answer).write_text(json.dumps(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
