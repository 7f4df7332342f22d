"""What a config leaves out means the same in each version: another default is a breaking change."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

import pytest

from art_cli.envs.registry import env_class, env_names

TASKS = {
    **{"target": None, "prompt": None, "system": "", "choices": None, "answer": None},
    **{"tolerance": 0.0, "solution": None, "split": None, "val_data": None, "test_data": None},
    **{"val_share": 0.1, "test_share": 0.1},
}
TOOLS = {"max_turns": 10, "max_result": 20_000, "start_timeout": 30.0, "call_timeout": 30.0}
DESK = {"level": 2, "size": "full", "kinds": (), "user": None, "demo_noise": 0.0}
DEFAULTS: dict[str, dict[str, Any]] = {
    "2048": {
        **{"size": 4, "goal": 128, "rules": "standard", "max_moves": 200, "demo_noise": 0.8},
    },
    "airline": DESK,
    "code_edit": {"level": 1, "languages": ("python", "javascript", "bash"), "demo_noise": 0.5},
    "dataset": TASKS,
    "gymnasium": {"kwargs": {}, "max_steps": 50, "returns": None, "demo_noise": 0.5},
    "inspect_ai": {"args": {}, "max_turns": 10},
    "mcp": {
        **(TASKS | TOOLS),
        **{"command": None, "url": None, "headers": {}, "pass_env": (), "shared": False},
        **{"tools": None, "resources": False},
    },
    "nim": {"smallest": 5, "largest": 12, "script": "random", "demo_noise": 0.75},
    "openapi": {**(TASKS | TOOLS), "base_url": None, "operations": None, "auth": {}},
    "openenv": {
        **{"url": None, "command": None, "reset": {}, "task": "", "invalid_price": 0.1},
        **{"max_turns": 30, "start_timeout": 60.0},
    },
    "order_desk": {"demo_noise": 0.6},
    "reasoning_gym": {"config": {}, "prompt": "default", "demo_noise": 0.5},
    "retail": DESK,
    "retail_dual": DESK,
    "tau2": {"tasks": "base", "user": None, "max_turns": 40},
    "textarena": {"kwargs": {}, "max_turns": 100},
    "tic_tac_toe": {"opponent": "random", "demo_noise": 0.75},
    "verifiers": {"args": {}, "tasks": None, "max_turns": 30},
}


@pytest.mark.parametrize("name", sorted(env_names()))
def test_the_defaults_of_an_env_are_what_they_were(name: str) -> None:
    found: dict[str, Any] = {}
    for field in fields(env_class(name).Config):
        if field.default is not MISSING:
            found[field.name] = field.default
        elif field.default_factory is not MISSING:
            found[field.name] = field.default_factory()
    assert found == DEFAULTS[name]
