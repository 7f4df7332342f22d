"""Plays tau2's tasks well and badly, and prints what art's adapter and tau2's own evaluator give.

Run by an interpreter that has tau2, with art on its path.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from tau2.agent.llm_agent import AGENT_INSTRUCTION
from tau2.data_model.simulation import SimulationRun, TerminationReason
from tau2.evaluator.evaluator import EvaluationType, evaluate_simulation

from art_cli import LLMConfig, Trajectory, play_episode
from art_envs.adapters.tau2_customer import Tau2ToldCustomer
from art_envs.adapters.tau2_env import Tau2
from art_envs.adapters.tau2_world import tools_of_customer

EVERY = 8  # of the test tasks
NOBODY = LLMConfig(model="openai/nobody")  # is not asked


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


def theirs(env: Tau2, *, solo: bool = False) -> float:
    """Return what tau2 itself gives for an episode that has ended."""
    run = SimulationRun(
        id="",
        task_id=env.task.id,
        start_time="",
        end_time="",
        duration=0.0,
        termination_reason=TerminationReason.AGENT_STOP,
        messages=env.world.said,
    )
    return evaluate_simulation(run, env.task, EvaluationType.ALL, solo, env.cfg.domain).reward


def tell(env: Tau2, player: str, played: Trajectory, reward: float) -> None:
    """Print a row: domain, task, player, art's reward, tau2's."""
    print(json.dumps([env.cfg.domain, env.task.id, player, played.reward, reward]))


def played_by(env: Tau2, turns: Iterator[str]) -> Trajectory:
    """Play an episode whose customer, if there is one, does as they are told."""
    if env.cfg.user:
        tools: Any = tools_of_customer(env.cfg.domain)
        env.customer = Tau2ToldCustomer(env.task.ticket, tools, env._call_as_customer)
    return play_episode(env, turns.__next__)


for domain in ("retail", "airline"):
    cfg = Tau2.Config(domain=domain)
    for scenario in islice(Tau2.scenarios(cfg, "test"), 0, None, EVERY):
        turns = list(Tau2(scenario, cfg).gold() or ())
        for name, player in PLAYERS.items():
            env = Tau2(scenario, cfg)
            played = played_by(env, player(turns))
            assert AGENT_INSTRUCTION in played.messages[0]["content"]
            tell(env, name, played, theirs(env))

for user, name in ((None, "both"), (NOBODY, "each")):
    cfg = Tau2.Config(domain="telecom", user=user)
    for split in ("train", "val", "test"):
        for n, scenario in enumerate(Tau2.scenarios(cfg, split)):
            env = Tau2(scenario, cfg)
            turns = list(env._words() if user else env._calls())
            played = played_by(env, iter(turns))
            tell(env, f"gold, {name}", played, theirs(env, solo=not user))
            for left, kept in (("the last", turns[:-2]), ("any", [])) if n % EVERY == 0 else ():
                env = Tau2(scenario, cfg)
                played = played_by(env, iter([*kept, turns[-1]]))
                tell(env, f"without {left} call, {name}", played, theirs(env, solo=not user))
