"""Plays tau2's tasks well and badly, and prints what art's adapter and tau2's own evaluator give.

Run by an interpreter that has tau2, with art on its path.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice

from tau2.agent.llm_agent import AGENT_INSTRUCTION
from tau2.data_model.simulation import SimulationRun, TerminationReason
from tau2.evaluator.evaluator import EvaluationType, evaluate_simulation

from art_cli import play_episode
from art_envs.adapters.tau2_env import Tau2

EVERY = 8  # of the test tasks
WRONG = '<tool_call>{"name": "get_user_details", "arguments": {"user_id": "x"}}</tool_call>'


def without_last(turns: list[str]) -> Iterator[str]:
    """Leave out the last call before the answer."""
    yield from (*turns[:-2], turns[-1])


def without_words(turns: list[str]) -> Iterator[str]:
    """Say nothing of what was found."""
    yield from (*turns[:-1], "ok")


PLAYERS: dict[str, Callable[[list[str]], Iterator[str]]] = {
    "gold": iter,
    "without the last call": without_last,
    "without words": without_words,
    "wrong call": lambda turns: iter(
        [
            '<tool_call>{"name": "get_user_details", "arguments": {"user_id": "x"}}</tool_call>',
            *turns,
        ]
    ),
}

for domain in ("retail", "airline"):
    cfg = Tau2.Config(domain=domain)
    for scenario in islice(Tau2.scenarios(cfg, "test"), 0, None, EVERY):
        turns = list(Tau2(scenario, cfg).gold() or ())
        for name, player in PLAYERS.items():
            env = Tau2(scenario, cfg)
            played = play_episode(env, player(turns).__next__)
            assert AGENT_INSTRUCTION in played.messages[0]["content"]
            run = SimulationRun(
                id="",
                task_id=env.task.id,
                start_time="",
                end_time="",
                duration=0.0,
                termination_reason=TerminationReason.AGENT_STOP,
                messages=env.said,
            )
            theirs = evaluate_simulation(run, env.task, EvaluationType.ALL, False, domain)
            print(json.dumps([domain, env.task.id, name, played.reward, theirs.reward]))
