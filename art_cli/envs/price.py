"""What calls that cannot be made cost: `reward.invalid_action_cost`."""

from __future__ import annotations

from art_cli.config.schema import RewardConfig
from art_cli.types import Trajectory

INVALID, COST = "invalid_actions", "invalid_action_cost"  # metrics of a trajectory


def charge(t: Trajectory, reward: RewardConfig | None) -> None:
    """Take the price of its invalid actions off a trajectory's reward, once it has been played.

    reward = own - min(cost * num_invalid, max_invalid_cost)

    Where the env counts such actions itself, as its metric `invalid_actions`, these are charged.
    The score before stays as the metric `env_reward`. One that only a judge can score pays when it
    is judged.
    """
    if reward is None or not reward.invalid_action_cost or t.failed:
        return
    num = t.metrics.get(INVALID, float(t.num_invalid))
    cost = min(reward.invalid_action_cost * num, reward.max_invalid_cost)
    t.metrics |= {INVALID: num, COST: cost}
    if t.reward is not None:
        t.metrics.setdefault("env_reward", t.reward)
        t.reward -= cost
