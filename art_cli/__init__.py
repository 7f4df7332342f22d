"""Train multi-turn, tool-using LLM agents with GRPO: `import art_cli as art`.

Names are imported on first use, so that `art --help` and an env's own file import neither torch nor
transformers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from art_cli.backends.local import LocalBackend
    from art_cli.config.sections.engine import EngineConfig
    from art_cli.config.sections.env import OpponentsConfig, SavedPolicyConfig
    from art_cli.config.sections.judge import JudgeConfig
    from art_cli.config.sections.llm import LLMConfig
    from art_cli.config.sections.model import AdapterConfig, ModelConfig
    from art_cli.config.sections.reward import RewardConfig
    from art_cli.config.sections.sampling import SamplingConfig
    from art_cli.config.sections.sft import SFTConfig
    from art_cli.config.sections.train import TrainConfig
    from art_cli.config.yaml_values import read_yaml
    from art_cli.deploy.lifecycle import deploy_model
    from art_cli.envs.base import Done, Env, InvalidCallError, Tool, ToolError, seed_of, tool
    from art_cli.envs.game import Game
    from art_cli.envs.tools import tools_of
    from art_cli.errors import UsageError
    from art_cli.evaluation.held_out import Evaluation, evaluate
    from art_cli.llms.base import LLM, ChatMessage
    from art_cli.llms.judges.api import TrajectoryScore, ruler, ruler_score_group
    from art_cli.rollout.rollout import play, play_episode
    from art_cli.system.aliases import aliases
    from art_cli.system.guard import guarded
    from art_cli.system.progress import tell
    from art_cli.training.algorithm.loss import LOSSES, Loss, trajectory_ratio
    from art_cli.training.curriculum.base import Sampler
    from art_cli.training.gather import gather_trajectory_groups, scenarios_of
    from art_cli.training.model import TrainableModel
    from art_cli.types import Message, Scenario, Split, Step, Trajectory, TrajectoryGroup

_HOME = {
    "art_cli.backends.local": ("LocalBackend",),
    "art_cli.config.sections.env": ("OpponentsConfig", "SavedPolicyConfig"),
    "art_cli.config.sections.model": ("AdapterConfig", "ModelConfig"),
    "art_cli.config.sections.engine": ("EngineConfig",),
    "art_cli.config.sections.judge": ("JudgeConfig",),
    "art_cli.config.sections.llm": ("LLMConfig",),
    "art_cli.config.sections.reward": ("RewardConfig",),
    "art_cli.config.sections.sampling": ("SamplingConfig",),
    "art_cli.config.sections.train": ("TrainConfig",),
    "art_cli.config.sections.sft": ("SFTConfig",),
    "art_cli.config.yaml_values": ("read_yaml",),
    "art_cli.deploy.lifecycle": ("deploy_model",),
    "art_cli.envs.base": (
        "Done",
        "Env",
        "InvalidCallError",
        "Tool",
        "ToolError",
        "seed_of",
        "tool",
    ),
    "art_cli.envs.game": ("Game",),
    "art_cli.envs.tools": ("tools_of",),
    "art_cli.errors": ("UsageError",),
    "art_cli.evaluation.held_out": ("Evaluation", "evaluate"),
    "art_cli.training.algorithm.loss": ("LOSSES", "Loss", "trajectory_ratio"),
    "art_cli.training.curriculum.base": ("Sampler",),
    "art_cli.training.gather": ("gather_trajectory_groups", "scenarios_of"),
    "art_cli.training.model": ("TrainableModel",),
    "art_cli.rollout.rollout": ("play", "play_episode"),
    "art_cli.llms.base": ("LLM", "ChatMessage"),
    "art_cli.llms.judges.api": ("TrajectoryScore", "ruler", "ruler_score_group"),
    "art_cli.system.aliases": ("aliases",),
    "art_cli.system.guard": ("guarded",),
    "art_cli.system.progress": ("tell",),
    "art_cli.types": ("Message", "Scenario", "Split", "Step", "Trajectory", "TrajectoryGroup"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [  # noqa: RUF022 (grouped in the order in which a newcomer needs them)
    "Env",
    "Game",
    "tool",
    "Tool",
    "Done",
    "ToolError",
    "InvalidCallError",
    "Message",
    "Scenario",
    "Split",
    "Step",
    "Trajectory",
    "TrajectoryGroup",
    "play",
    "play_episode",
    "seed_of",
    "tools_of",
    "tell",
    "read_yaml",
    "UsageError",
    "guarded",
    "aliases",
    "LLM",
    "LLMConfig",
    "ChatMessage",
    "TrainableModel",
    "LocalBackend",
    "gather_trajectory_groups",
    "scenarios_of",
    "ruler",
    "ruler_score_group",
    "TrajectoryScore",
    "evaluate",
    "Evaluation",
    "deploy_model",
    "Loss",
    "LOSSES",
    "trajectory_ratio",
    "Sampler",
    "ModelConfig",
    "AdapterConfig",
    "SFTConfig",
    "EngineConfig",
    "SamplingConfig",
    "JudgeConfig",
    "RewardConfig",
    "TrainConfig",
    "OpponentsConfig",
    "SavedPolicyConfig",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'art_cli' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)
