"""Titles and explanations of the page's curves, in display order."""

from __future__ import annotations

# name -> (title, explanation for readers who are new to RL)
CURVES: dict[str, tuple[str, str]] = {
    "val/reward": (
        "Held-out reward",
        "Mean reward on scenarios that are never trained on, with its 95% interval. This is what "
        "the run is for. A change that is smaller than the intervals may be chance.",
    ),
    "train/reward": (
        "Training reward",
        "Mean reward of the episodes that a step has learned from. Each step plays other "
        "scenarios, so it jumps; what counts is its trend.",
    ),
    "signal": (
        "Groups with signal",
        "Share of the groups whose siblings got different rewards. A group whose rewards are all "
        "equal teaches nothing: near 0 the task is too hard, too easy, or the judge sees no "
        "difference.",
    ),
    "data/curriculum_differed": (
        "Chosen groups with signal",
        "Share of the groups that differed, of those that train.curriculum: signal chose. It helps "
        "while this is above data/curriculum_differed_explored, of those that it did not choose; "
        "it foresaw data/curriculum_expected. Both are among all metrics below.",
    ),
    "train/tokens": (
        "Tokens an episode",
        "Tokens that the policy wrote in an episode, on average. A reward that rises along with "
        "it may be a reward for length.",
    ),
    "loss/entropy": (
        "Entropy",
        "How undecided the policy is about a token, in nats. Towards 0 it always says the same "
        "and explores nothing; if it rises without end the policy falls apart.",
    ),
    "loss/ratio_max": (
        "Largest ratio",
        "The largest ratio of a token's probability in the update to that when it was sampled. "
        "1 on fresh episodes; far from 1 the update no longer fits what was sampled.",
    ),
    "loss/kl": (
        "KL to the reference",
        "How far the policy is from the model that it began as, in nats a token.",
    ),
    "loss/grad_norm": (
        "Gradient norm",
        "Size of the gradient before it is clipped. 0: nothing is learned; jumps: unstable.",
    ),
    "loss/update_kl": (
        "Longest update",
        "How far the longest update of the step would have moved the policy, in nats a token. What "
        "goes further than train.max_kl is shortened.",
    ),
    "loss/shortened": (
        "Shortened updates",
        "Share of the step's updates that train.max_kl shortened. Most of them: lower "
        "train.learning_rate.",
    ),
    "loss/clip_fraction": (
        "Clipped tokens",
        "Share of the tokens whose ratio was outside the clip range and which taught nothing more.",
    ),
    "data/truncated": (
        "Truncated episodes",
        "Episodes in which a turn hit sampling.max_tokens, in this step.",
    ),
    "data/trajectories_failed": (
        "Failed episodes",
        "Episodes without a reward, since env, engine or network failed. They teach nothing.",
    ),
    "train/tool_errors": (
        "Tool errors an episode",
        "Calls that the env refused or that could not be read.",
    ),
    "train/invalid_actions": (
        "Invalid actions an episode",
        "Calls of no tool, with arguments that do not fit, cut off or unreadable, which cost "
        "reward.invalid_action_cost each.",
    ),
    "judge/tie_rate": ("Ties of the judge", "Share of pairs that the judge gave the same score."),
    "time/step_s": (
        "Seconds a step",
        "Time of a step: rollout, score, train, sync. The parts are among all metrics below.",
    ),
    "dollars": ("Dollars so far", "Spent on judges and other models that were asked, in total."),
}

FACTS: dict[str, str] = {
    "reward": "What is learned from: the env's score, the judge's, or both, as the config says.",
    "advantage": "How much better than its siblings, as train.advantage computed it. Tokens of an "
    "episode with a positive one become more likely.",
    "log-probability": "Of the token when it was sampled; 0 means that it was certain.",
    "masked": "Read but not trained on: the prompt, results of tools, and tokens without an "
    "alternative.",
}
