"""Groups as a step has them, made up: what an advantage of the user's own is tried on."""

from __future__ import annotations

from art_cli.types import Scenario, Sequence, Step, Trajectory, TrajectoryGroup

# The rewards of each group; of None, infrastructure failed.
REWARDS = ((1.0, 0.0, 1.0, 0.0), (0.0, 0.0, 0.0), (0.25, None, 1.0), (1.0,), (None, None))
TURNS = (1, 3, 2, 1)  # of the siblings, in turn
PROMPT, WRITTEN = 3, 2  # tokens before each turn, and in it


def sample_groups() -> list[TrajectoryGroup]:
    """Return mixed and equal rewards, one turn and three, one valid sibling and none."""
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
