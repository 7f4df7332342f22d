"""The reward of a trajectory. Its parts are set in several places and combined here.

    part    meaning                                  set in
    env     the result of the env's score()          rollout/episode.py
    agent   the reward that the user's agent reports rollout/gateway/end.py
    judge   RULER's score                            llms/judges/scorer.py
    win     a comparison with the untrained policy   evaluation/held_out.py
    cost    the cost of invalid actions              here

From the env's score to the update: `Episode.finish` -> `set_reward` -> `set_advantages`.
"""

from __future__ import annotations

from art_cli.config.sections.reward import RewardConfig
from art_cli.errors import AgentError, EnvError
from art_cli.types import RewardParts, Trajectory

INVALID = "invalid_actions"  # the metric with their number


def set_reward(t: Trajectory, weights: RewardConfig | None) -> None:
    """Combine the parts that a trajectory has so far: at its end, and again after judging.

    Invalid actions cost min(invalid_action_cost * number, max_invalid_cost). If the env counts
    them itself, in its metric `invalid_actions`, that number is used.

    Raises EnvError and AgentError if a part with a weight is missing.
    """
    parts = t.reward_parts
    if weights and weights.invalid_action_cost:
        number = t.metrics.setdefault(INVALID, float(t.num_invalid))
        parts.cost = min(weights.invalid_action_cost * number, weights.max_invalid_cost)
    if weights:
        _check(parts, weights)
        parts.is_gated = bool(weights.gate) and (parts.env or 0.0) <= 0
    t.reward = combined(parts, weights)


def combined(parts: RewardParts, weights: RewardConfig | None) -> float | None:
    """Return the reward, or None if the trajectory has no score yet.

        weights.env * env + weights.agent * agent + weights.judge * judge - cost

    Before judging, and without a judge, the reward is the env's score minus the cost. Evaluations
    use that reward, and with `judge.on_failure: env` it replaces the judge's. Without weights, the
    judge's score replaces the env's.
    """
    if parts.win is not None:
        return parts.win
    env, cost = parts.env, parts.cost or 0.0
    is_complete = parts.judge is not None or (weights and weights.agent and not weights.judge)
    if not is_complete:
        return None if env is None else env - cost
    weights = weights or RewardConfig(judge=1.0)
    agent = weights.agent * (parts.agent or 0.0)
    judge = 0.0 if parts.is_gated else weights.judge * (parts.judge or 0.0)
    return weights.env * (env or 0.0) + agent + judge - cost


def _check(parts: RewardParts, weights: RewardConfig) -> None:
    """Raise if a part with a weight is missing."""
    if weights.agent and parts.agent is None:
        raise AgentError("the agent ended without a reward, and reward.agent counts it")
    key = "reward.gate" if weights.gate else "reward.env"
    if parts.env is None and (weights.gate or (weights.env and (weights.judge or weights.agent))):
        raise EnvError(f"{key} needs the env's own score, but score() gave None")
