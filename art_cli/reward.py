"""The reward of a trajectory. Its parts are set where they come from, and combined here.

    part    what it is                               set in
    env     what the env's score() returns           rollout/episode.py
    agent   what the user's own agent ends with      rollout/gateway/end.py
    judge   RULER's score                            llms/judges/scorer.py
    win     a comparison with the untrained policy   evaluation/held_out.py
    cost    of calls that could not be made          here

From the env's score to the update: `Episode.finish` -> `set_reward` -> `set_advantages`.
"""

from __future__ import annotations

from art_cli.config.sections.reward import RewardConfig
from art_cli.errors import AgentError, EnvError
from art_cli.types import RewardParts, Trajectory

INVALID = "invalid_actions"  # the metric that counts them


def set_reward(t: Trajectory, weights: RewardConfig | None) -> None:
    """Combine the parts that a trajectory has by now: as it ends, and again once it is judged.

    Invalid actions cost min(invalid_action_cost * number, max_invalid_cost). Where the env counts
    them itself, as its metric `invalid_actions`, its number is charged.

    Raises EnvError and AgentError where a part is missing that counts.
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
    """Return the reward, or None where nobody has scored the trajectory yet.

        weights.env * env + weights.agent * agent + weights.judge * judge - cost

    Before the judge has scored it, and where none does, the env's score counts once: by it a
    policy is validated, and with `judge.on_failure: env` it stands in for the judge. Without
    weights the judge's score replaces the env's.
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
    """Raise where a part is missing that counts."""
    if weights.agent and parts.agent is None:
        raise AgentError("the agent ended without a reward, and reward.agent counts it")
    key = "reward.gate" if weights.gate else "reward.env"
    if parts.env is None and (weights.gate or (weights.env and (weights.judge or weights.agent))):
        raise EnvError(f"{key} needs the env's own score, but score() gave None")
