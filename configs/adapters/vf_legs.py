"""An environment of verifiers: counting legs, a puzzle of Reasoning Gym, in one turn."""

import verifiers as vf


def load_environment(num_examples: int = 1000) -> vf.Environment:
    """Return the environment; what can be set here is set in env.args.args."""
    return vf.ReasoningGymEnv(
        gym=[
            {"name": "leg_counting", "weight": 1.0, "config": {"min_animals": 1, "max_animals": 2}}
        ],
        num_train_examples=num_examples,
        num_eval_examples=100,
        system_prompt="Answer as in <answer>12</answer>.",
    )
