"""The section `reward`: the weights of the parts of a reward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from art_cli.config.plugins import is_plugin
from art_cli.config.rule import Rule, clash, is_positive, is_set
from art_cli.config.values import NonNegative, Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardConfig:
    """The reward: a weighted sum of the scores of env, judge and agent.

    Invalid actions are calls of an unknown tool, calls with invalid arguments, and malformed calls.
    """

    env: NonNegative = 0.0
    """The weight of the env's own score."""
    judge: NonNegative = 0.0
    """The weight of the judge's score."""
    agent: NonNegative = 0.0
    """The weight of the reward that an agent of yours ends its episode with (a service, a program
    with `keep`, a function with `python`, a class of yours)."""
    gate: Literal["env"] | None = None
    """With `env`, the judge's score counts only if the env's score is positive."""
    invalid_action_cost: NonNegative = 0.0
    """The amount that each invalid action subtracts from the reward. Set it if they are
    frequent."""
    max_invalid_cost: Positive = 0.5
    """The most that the invalid actions of one episode subtract."""


REWARD_RULES = (
    clash(
        {"reward.judge": is_positive, "judge": None},
        "needs a judge; add for example: judge: {{model: openai/o3}}",
    ),
    clash(
        {"reward.judge": 0, "judge": is_set},
        "is 0, so the judge has no effect; remove the section judge, or give it a weight",
    ),
    clash(
        {"reward.env": 0, "reward.judge": 0, "reward.agent": 0},
        "is 0, as reward.judge and reward.agent are: there is nothing to learn from; for the env's "
        "own score write reward.env: 1.0",
    ),
    clash(
        {"reward.gate": is_set, "reward.judge": 0},
        "has no effect with reward.judge=0; remove it",
    ),
    Rule(
        "reward.agent",
        ("agent.use", "agent.keep", "agent.python"),
        lambda weight, kind, keep, python: (
            weight > 0 and kind != "service" and not (keep or python or is_plugin(kind))
        ),
        "is {0}, but an agent of agent.use={1} gives no reward; remove it, or add agent.keep or "
        "agent.python",
    ),
    Rule(
        "reward.max_invalid_cost",
        ("reward.invalid_action_cost",),
        lambda most, cost: most != 0.5 and cost == 0,
        "has no effect with reward.invalid_action_cost=0; remove it",
    ),
    Rule(
        "reward.env",
        ("reward.invalid_action_cost", "reward.judge", "reward.agent"),
        lambda env, cost, judge, agent: cost > 0 and env not in (0, 1) and judge == agent == 0,
        "is {0}, but the env's score counts once where there is no judge and no agent's reward; "
        "write 1",
    ),
)
