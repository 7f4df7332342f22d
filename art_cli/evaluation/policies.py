"""Candidates with weights: a run's policies, and the base that it started with."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from typing import Any

from art_cli.backends.local import LocalBackend
from art_cli.config.load import LoadedExperiment
from art_cli.engines.vllm.machines import on_one_machine
from art_cli.envs.base import Services
from art_cli.evaluation.candidates import Candidate
from art_cli.llms.services import RunServices
from art_cli.rollout.agent import AgentFactory
from art_cli.runs.directory import RunDir
from art_cli.system.progress import Report
from art_cli.training.model import TrainableModel


class RunPolicies:
    """Policies with one loaded model at a time, reused for candidates; implements `Policies`."""

    def __init__(
        self,
        loaded: LoadedExperiment,
        run: RunDir | None,
        services: RunServices | None,
        report: Report,
    ) -> None:
        """Without `services`, the model's own are opened with it."""
        self._loaded = loaded
        self._run = run
        self._services = services
        self._report = report
        self._open = contextlib.AsyncExitStack()
        self._model: TrainableModel | None = None
        self._holds = ""

    async def at(self, candidate: Candidate) -> tuple[AgentFactory, Services]:
        """Return the agents with a candidate's weights, and the models that envs call.

        The previous candidate's agents become invalid. Raises UsageError, PreflightError,
        EngineError.
        """
        is_base = candidate.source == "base"
        is_other = is_base != (self._holds == "base")
        is_behind = candidate.source == "start" and self._holds == "checkpoint"
        if self._model is None or is_other or is_behind:
            self._model = await self._load(is_base)
        if candidate.source == "checkpoint":
            assert candidate.step is not None
            await self._model.go_to(candidate.step)
        self._holds = candidate.source
        return self._model.parts.eval_agents, self._model.parts.services

    async def close(self) -> None:
        """Release the model."""
        self._model = None
        await self._open.aclose()

    async def _load(self, is_base: bool) -> TrainableModel:
        await self.close()
        model = player(self._loaded)
        if opponents := model.experiment.env.opponents:  # no training here
            opponents = dataclasses.replace(opponents, train=opponents.eval)
            env = dataclasses.replace(model.experiment.env, opponents=opponents)
            model.experiment = dataclasses.replace(model.experiment, env=env)
        if is_base:
            model.experiment = dataclasses.replace(model.experiment, sft=None)
        with_these: dict[str, Any] = {"report": self._report, "services": self._services}
        if self._run and not is_base:
            local = LocalBackend.of_run(self._run, **with_these)
            await model.open(await self._open.enter_async_context(local))
        else:  # created, SFT included, in a temporary folder
            folder = self._open.enter_context(tempfile.TemporaryDirectory())
            local = LocalBackend(folder, **with_these)
            await model.register(await self._open.enter_async_context(local))
        return model


def player(loaded: LoadedExperiment) -> TrainableModel:
    """Return the model of a config without its judge, on this machine, to play only."""
    engine = on_one_machine(loaded.experiment.engine)
    reward = loaded.experiment.reward
    if reward:  # remove the judge's part
        reward = dataclasses.replace(reward, judge=0.0, gate=None)
    experiment = dataclasses.replace(loaded.experiment, judge=None, reward=reward, engine=engine)
    return TrainableModel.of(experiment, loaded.env_settings, loaded.to_yaml())
