"""Made-up trajectory groups, on which a custom advantage function is tried."""

from __future__ import annotations

from art_cli.types import Scenario, Sequence, Step, Trajectory, TrajectoryGroup

# Rewards by group. None stands for an infrastructure failure.
REWARDS = ((1.0, 0.0, 1.0, 0.0), (0.0, 0.0, 0.0), (0.25, None, 1.0), (1.0,), (None, None))
TURNS = (1, 3, 2, 1)  # of each sibling, in order
PROMPT, WRITTEN = 3, 2  # tokens before each turn, and within it


def sample_groups() -> list[TrajectoryGroup]:
    """Return groups with mixed, equal and missing rewards, and with one to three turns."""
    return [
        TrajectoryGroup([_trajectory(i, r, t) for r, t in zip(rewards, TURNS, strict=False)])
        for i, rewards in enumerate(REWARDS)
    ]


def _trajectory(scenario: int, reward: float | None, turns: int) -> Trajectory:
    words = [f"what was said in turn {turn}" for turn in range(turns)]
    sampled = range(PROMPT, turns * (PROMPT + WRITTEN), PROMPT + WRITTEN)
    mask = ([0] * PROMPT + [1] * WRITTEN) * turns
    return Trajectory(
        scenario=Scenario(id=f"train-{scenario}", split="train", seed=scenario),
        steps=[Step(turn=turn, said=said, result="go on") for turn, said in enumerate(words)],
        messages=[
            {"role": role, "content": said} for said in words for role in ("user", "assistant")
        ],
        sequences=[
            Sequence(
                ids=[*range(len(mask))],
                mask=mask,
                engine_logprobs=[-0.5 * m for m in mask],
                begins=[*sampled],
            )
        ],
        reward=reward,
        error="the env failed" if reward is None else None,
        policy_versions=[0] * turns,
    )
