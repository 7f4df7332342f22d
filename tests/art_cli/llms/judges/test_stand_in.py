"""The rule-based judge of configs/quickstart-ruler.yaml: it reads, and ranks by the rules."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from art_cli.config.load import load_experiment
from art_cli.llms.judges.base import Transcript
from art_cli.llms.judges.build import ask_once, make_judge

ROOT = Path(__file__).parents[4]
ASKED = {"role": "user", "content": "Please cancel my order W12"}


@pytest.fixture(autouse=True)
def _at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(ROOT)


def told(status: str, *does: str, says: str) -> Transcript:
    """Someone looks the order up, does these things, and says this."""
    order = json.dumps({"status": status, "in_stock": []})
    messages: list[dict[str, Any]] = [
        ASKED,
        {"role": "tool", "name": "get_order", "content": order},
        *({"role": "tool", "name": name, "content": "ok"} for name in does),
        {"role": "assistant", "content": says},
    ]
    return Transcript(messages=messages)


def test_the_quickstart_starts_it_and_it_tells_good_from_bad() -> None:
    cfg = load_experiment([Path("configs/quickstart-ruler.yaml")]).experiment.judge
    assert cfg

    async def go() -> list[float]:
        judge = await make_judge(cfg, 0)
        try:
            await ask_once(judge, [ASKED], [])
            verdict = await judge.judge(
                [
                    told("pending", "cancel_order", says="done"),
                    told("pending", "cancel_order", says="sorry"),
                    told("pending", says="done"),
                    Transcript(messages=[ASKED, {"role": "assistant", "content": "done"}]),
                ]
            )
        finally:
            await judge.close()
        return [s.score for s in verdict.scores]

    assert asyncio.run(go()) == [1.0, 0.7, 0.1, 0.0]
