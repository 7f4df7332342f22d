"""`TrainableModel`: a policy with the engine that samples from it and the trainer that updates it.

The loop of `art run` and your own scripts use the same class.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import yaml

from art_cli.chat.render import Renderer
from art_cli.config.load import read_settings
from art_cli.config.schema import Experiment
from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.env import EnvConfig, OpponentsConfig
from art_cli.config.sections.judge import JudgeConfig
from art_cli.config.sections.model import AdapterConfig, ModelConfig
from art_cli.config.sections.reward import RewardConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.config.sections.sft import SFTConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.engines.base import Engine
from art_cli.envs.base import Env
from art_cli.errors import UsageError
from art_cli.llms.judges.scorer import Scorer
from art_cli.llms.services import RunServices
from art_cli.models.policy import Policy
from art_cli.rollout.agent import AgentFactory
from art_cli.rollout.env_class import env_in, env_of
from art_cli.rollout.groups import Slots
from art_cli.runs.checkpoint import Progress, check_weights, read_progress, save_checkpoint
from art_cli.runs.directory import RunDir
from art_cli.training.algorithm.advantage import set_advantages
from art_cli.training.canary import Canary
from art_cli.training.trainers.base import Trainer
from art_cli.types import TrajectoryGroup


@dataclass(slots=True)
class Stop:
    """Set by Ctrl-C: the run finishes its current work, saves a checkpoint and ends."""

    requested: bool = False


@dataclass(slots=True, kw_only=True)
class Parts:
    """The objects that a backend creates for a model."""

    run: RunDir
    policy: Policy
    renderer: Renderer
    engine: Engine
    canary: Canary
    agents: AgentFactory  # play the episodes to train on
    eval_agents: AgentFactory  # play held-out scenarios; in a game, against other opponents
    services: RunServices
    models: RunServices  # models besides the policy that the user's agent may call
    trainer: Trainer
    progress: Progress
    slots: Slots | None = None  # for the open episodes of the env
    scorer: Scorer | None = None  # if a judge contributes to the rewards


class Backend(Protocol):
    """Interface of a backend, which decides where a model runs."""

    async def prepare(self, model: TrainableModel) -> Parts:
        """Create everything needed to train the model. It stays valid until the backend closes."""
        ...

    async def open_run(self, model: TrainableModel) -> Parts:
        """Open the existing run of a model as of step 0, for evaluation only."""
        ...


class TrainableModel:
    """A model to train, with its name, env and settings. `register` loads it.

    model = TrainableModel(name="demo", project="tutorial", base_model="tiny", env=OrderDesk)
    await model.register(backend)
    """

    def __init__(
        self,
        *,
        name: str,
        project: str,
        base_model: str | ModelConfig,
        env: type[Env] | str,
        settings: Any = None,
        python: str | None = None,
        opponents: OpponentsConfig | None = None,
        adapter: AdapterConfig | None = None,
        sft: SFTConfig | None = None,
        engine: EngineConfig | None = None,
        sampling: SamplingConfig | None = None,
        judge: JudgeConfig | None = None,
        reward: RewardConfig | None = None,
        train: TrainConfig | None = None,
        seed: int = 0,
    ) -> None:
        """`settings` are the env's, as an object or a mapping. Without `adapter` all weights are
        trained. `opponents` play the other seats of a game. `python` is the interpreter for an env
        that is named by a string.

        Raises UsageError if the env or its settings are invalid.
        """
        if isinstance(env, str):
            env, use = env_in(env, python), env
        elif python:
            raise UsageError(
                f"python={python!r}: {env.__name__} is a class of this interpreter; give the env "
                "by its name: env='package.module:Class' or 'FILE.py:Class'"
            )
        else:
            use = f"{env.__module__}:{env.__qualname__}"
        if isinstance(settings, Mapping):
            settings = read_settings(env.Config, settings)
        if isinstance(base_model, str):
            base_model = ModelConfig(base=base_model, adapter=adapter)
        settings = env.Config() if settings is None else settings
        experiment = Experiment(
            project=project,
            name=name,
            seed=seed,
            env=EnvConfig(use=use, python=python, args=asdict(settings), opponents=opponents),
            model=base_model,
            sft=sft,
            engine=engine or EngineConfig(),
            sampling=sampling or SamplingConfig(),
            judge=judge,
            reward=reward,
            train=train or TrainConfig(steps=0),
        )
        config_yaml = yaml.safe_dump(asdict(experiment), sort_keys=False)
        self._take(experiment, env, settings, config_yaml)

    @classmethod
    def of(cls, experiment: Experiment, settings: Any, config_yaml: str) -> TrainableModel:
        """Return the model that a config file describes."""
        model = cls.__new__(cls)
        model._take(experiment, env_of(experiment.env), settings, config_yaml)
        return model

    def _take(
        self, experiment: Experiment, env: type[Env], settings: Any, config_yaml: str
    ) -> None:
        self.experiment = experiment
        self.env_class = env
        self.settings = settings
        self.config_yaml = config_yaml
        self._parts: Parts | None = None

    @property
    def parts(self) -> Parts:
        """The objects that the backend created. Raises UsageError before `register`."""
        if self._parts is None:
            raise UsageError("the model is not registered; call `await model.register(backend)`")
        return self._parts

    @property
    def step(self) -> int:
        """The number of finished steps, each an update on one batch."""
        return self.parts.progress.step

    async def register(self, backend: Backend) -> None:
        """Load or create the weights, run SFT if configured, and start the engine."""
        self._parts = await backend.prepare(self)
        await self.sync()
        # The loaded objects stay for the whole run. Scanning them for garbage repeatedly would take
        # an eighth of a small model's rollout.
        gc.collect()
        gc.freeze()
        atexit.register(gc.unfreeze)  # else triton reports them all as leaked at exit

    async def open(self, backend: Backend) -> None:
        """Open an existing run as of step 0, to evaluate it. It cannot be trained further."""
        self._parts = await backend.open_run(self)
        await self.sync()

    async def go_to(self, step: int) -> None:
        """Load the weights of a checkpoint. Raises CheckpointError if it is damaged."""
        parts = self.parts
        folder = parts.run.checkpoint(step)
        check_weights(folder, "Take another checkpoint: --checkpoint STEP")
        parts.policy.load(folder)
        parts.progress = read_progress(folder)
        await self.sync()

    async def train(self, groups: list[TrajectoryGroup]) -> dict[str, float]:
        """Update the policy on scored groups, and hand the new weights to the engine.

        Returns the metrics of both. Raises EngineError, TrainerError.
        """
        set_advantages(groups, self.experiment.train.advantage)
        metrics = await self.update(groups)
        return metrics | await self.sync()

    async def update(self, groups: list[TrajectoryGroup]) -> dict[str, float]:
        """Update the policy on groups that have their advantages. Return the metrics.

        The engine serves the old weights until `sync`. Raises EngineError, TrainerError.
        """
        parts = self.parts
        began = time.monotonic()
        await parts.engine.rest()
        if self.experiment.train.max_staleness:  # rollouts continue during the update
            metrics = await asyncio.to_thread(parts.trainer.step, groups, parts.progress.step)
        else:
            metrics = parts.trainer.step(groups, parts.progress.step)
        seconds = time.monotonic() - began
        self.note(step=self.step + 1, val_reward=None)
        if parts.trainer.budget.tokens < self.experiment.train.microbatch_tokens:
            self.note(microbatch_tokens=parts.trainer.budget.tokens)
        metrics["time/train_s"] = seconds
        metrics["throughput/train_tok_s"] = metrics["data/tokens_trained"] / seconds
        return metrics

    async def sync(self) -> dict[str, float]:
        """Send the weights to the engine and check that it uses them. Return the seconds taken.

        Raises EngineError.
        """
        parts, began = self.parts, time.monotonic()
        await parts.engine.sync(self.step)
        await parts.canary.check(parts.engine, self.step)
        return {"time/sync_s": time.monotonic() - began}

    def save(self) -> None:
        """Write a checkpoint of the current state. Raises TrainerError."""
        parts = self.parts
        save_checkpoint(parts.run, parts.policy, parts.trainer, parts.progress)

    def note(self, **changes: Any) -> None:
        """Set fields of `Progress`, which the next checkpoint stores."""
        self.parts.progress = replace(self.parts.progress, **changes)
