"""Ways in which frameworks let an agent end, or share its work: perfect play earns exactly 1."""

from __future__ import annotations

import re

import pytest
from integration.clients.conftest import Command
from integration.clients.stage import Task, assert_perfect, play_perfectly

from art_cli.models.policy import Policy

PROGRAMS = [
    "pydantic_ai_output.py",
    "agents_sdk_output.py",
    "agents_sdk_subagent.py",
    "ai_sdk_answer.mjs",
    "ai_sdk_output.mjs",
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_perfect_play_earns_one(
    program: str, desk: list[Task], command: Command, policy: Policy
) -> None:
    for task in desk:
        assert_perfect(play_perfectly(task, policy, command(program)))


def test_a_customer_is_spoken_to(talk: Task, command: Command, policy: Policy) -> None:
    played = play_perfectly(talk, policy, command("talk.py"))
    assert_perfect(played)
    assert played.trajectory.steps[-1].said and played.trajectory.stop_reason == "env"


def test_official_types_parse_every_answer_and_every_event(
    desk: list[Task], command: Command, policy: Policy
) -> None:
    """Strictly: a field that is missing, or of another type, is an error."""
    played = play_perfectly(desk[0], policy, command("strict.py"))
    assert not played.trajectory.metrics.get("crashed"), played.printed
    counted = dict(re.findall(r"^(\w+) (\d+)$", played.printed, re.M))
    assert counted.keys() == {"chunks", "events", "parts", "names", "count"}
    assert all(int(num) > 0 for num in counted.values())
