"""The experiment as frozen dataclasses: every key of the YAML, its type, range and default.

Every key has an effect: `rules.py` refuses one that another setting makes ineffective.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from art_cli.config.sections.agent import AgentConfig
from art_cli.config.sections.backend import BackendConfig
from art_cli.config.sections.checkpoint import CheckpointConfig
from art_cli.config.sections.deploy import DeployConfig
from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.env import EnvConfig
from art_cli.config.sections.eval import EvalConfig
from art_cli.config.sections.judge import JudgeConfig
from art_cli.config.sections.model import ModelConfig
from art_cli.config.sections.reward import RewardConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.config.sections.sft import SFTConfig
from art_cli.config.sections.track import TrackConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.config.values import FORBID_UNKNOWN, Name


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One YAML file. Sections inherit its refusal of unknown keys."""

    __pydantic_config__ = FORBID_UNKNOWN

    project: Name = "default"
    """The folder that groups runs, and their project at W&B."""
    name: Name
    """The run's name in its project. Without one, the name of the config file."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """The seed of every random draw. The same seed gives the same run."""
    env: EnvConfig
    """The task environment."""
    agent: AgentConfig = field(default_factory=AgentConfig)
    """The agent that plays: the policy in the built-in loop, or an agent of yours."""
    model: ModelConfig
    """The model that is trained."""
    sft: SFTConfig | None = None
    """Supervised fine-tuning before the first step. null: none."""
    engine: EngineConfig = field(default_factory=EngineConfig)
    """The engine that generates tokens."""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    """The sampling of the policy's turns."""
    judge: JudgeConfig | None = None
    """The LLM that scores trajectories. null: only the env's own score."""
    reward: RewardConfig | None = None
    """The weights of the parts of a reward. null: the judge's score if there is a judge, else
    the env's."""
    train: TrainConfig
    """The GRPO update."""
    eval: EvalConfig | None = field(default_factory=EvalConfig)
    """When to evaluate the policy on held-out scenarios. null: never."""
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    """When to save the policy."""
    track: TrackConfig = field(default_factory=TrackConfig)
    """Where to send metrics and trajectories in addition to the run's directory."""
    backend: BackendConfig = field(default_factory=BackendConfig)
    """The machine on which the run happens."""
    deploy: DeployConfig | None = None
    """Where `art deploy RUN` puts a checkpoint. null: `--to` decides."""
