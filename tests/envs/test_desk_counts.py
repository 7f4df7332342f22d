"""What is counted of the desks' scenarios, and of a clone of tau2-bench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from art_envs.airline.desk import AirlineDesk
from scripts.bench import desk_counts
from scripts.bench.desk_counts import of_desk, of_tau2, table


def task(said: str, *actions: dict[str, Any], told: list[str] | None = None) -> dict[str, Any]:
    rules = {"actions": list(actions), "communicate_info": told or []}
    instructions = {"task_instructions": said, "unknown_info": None}
    return {"user_scenario": {"instructions": instructions}, "evaluation_criteria": rules}


def test_a_clone_is_counted(tmp_path: Path) -> None:
    tools, data = tmp_path / "src/tau2/domains/retail", tmp_path / "data/tau2/domains/retail"
    tools.mkdir(parents=True)
    data.mkdir(parents=True)
    (tools / "tools.py").write_text("    @is_tool(X)\n    # @is_tool(Y)\n")
    (data / "policy.md").write_text("Be kind.")
    swap = {"name": "exchange_items", "arguments": {"order_id": "1", "item_ids": ["a", "b"]}}
    look = {"name": "get_order", "arguments": {"order_id": "1"}}
    tasks = [
        task("When asked for confirmation, you change your mind.", look, swap, swap, told=["7"]),
        task("Be polite.", look),
    ]
    (data / "tasks.json").write_text(json.dumps(tasks))
    counts = of_tau2(tmp_path, "retail")
    assert counts == {
        "tools": "1",
        "characters (words) of the policy": "8 (2)",
        "wants that change when asked to confirm": "1 of 2, 1 of 1 with a write",
        "doing nothing earns": "1 of 2",
        "0, 1, 2, 3 or more writes": "1, 0, 1, 0 of 2",
        "several items in one change": "2 of 2",
        "several writes on one order or reservation": "1 of 2",
        "a question and a write": "1 of 2",
        "words of the user's instruction": "5",
    }


def test_a_desk_is_counted(monkeypatch: Any) -> None:
    monkeypatch.setattr(desk_counts, "LEVEL", 3)  # which other tests generate, too
    counts = of_desk(AirlineDesk)
    assert counts["tools"] == "14 and confirm, refuse, tell"
    assert counts["something must be refused"] == "640 of 1,000"
    assert table({"airline": counts}).count("\n") == len(counts) + 1
