"""Backend that runs a model in this process, on this machine's device."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from art_cli.backends.frozen import FrozenPlayers
from art_cli.backends.warm_start import WarmStart
from art_cli.chat.render import Renderer
from art_cli.config.resume import check_same
from art_cli.config.schema import Experiment
from art_cli.config.sections.agent import AgentConfig, asks_base, models_of
from art_cli.config.sections.env import OpponentsConfig
from art_cli.config.sections.llm import REFERENCE
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.engines.base import Engine
from art_cli.engines.build import check_engine, make_engine
from art_cli.engines.embedded.engine import TransformersEngine
from art_cli.engines.vllm.machines import on_one_machine
from art_cli.keys import register_environment
from art_cli.llms.base import Budget
from art_cli.llms.judges.base import Judge
from art_cli.llms.judges.build import ask_once, make_judge
from art_cli.llms.judges.scorer import Scorer
from art_cli.llms.reference import ReferenceLLM
from art_cli.llms.services import RunServices, needs_reference
from art_cli.models.policy import Policy, Reference
from art_cli.rollout.agent import AgentFactory
from art_cli.rollout.agents.build import make_runner, open_agents, routes_of
from art_cli.rollout.agents.hosted import Runner
from art_cli.rollout.env_worker.remote import log_env
from art_cli.rollout.first_episode import check_env
from art_cli.rollout.gateway.served import Served
from art_cli.rollout.groups import slots_of
from art_cli.rollout.opponents import check_opponents, seated
from art_cli.rollout.policy_agent import PolicyAgents
from art_cli.runs.checkpoint import (
    Progress,
    forget_after,
    prune,
    read_progress,
    resume_step,
)
from art_cli.runs.directory import RunDir
from art_cli.runs.maker import write_config
from art_cli.runs.opponents import SavedPolicies, note_opponents, saved_opponents
from art_cli.system.progress import Report, silent
from art_cli.training.canary import Canary
from art_cli.training.model import Parts, Stop, TrainableModel
from art_cli.training.trainers.build import make_trainer, prepare_training
from art_cli.training.trainers.distributed.launch import Crew

REFERENCE_TEMPERATURE = 0.3  # a judge should be nearly deterministic


class LocalBackend:
    """Owns the run directories under `root` and everything started for its models."""

    def __init__(
        self,
        root: Path | str = "runs",
        *,
        resume: bool = False,
        from_step: int | None = None,
        report: Report = silent,
        say: Callable[[str], None] = silent,
        stop: Stop | None = None,
        services: RunServices | None = None,
        claimed: Callable[[RunDir], None] | None = None,
    ) -> None:
        """With `resume`, an existing run continues from its newest checkpoint, or from step
        `from_step`. Later results are then removed and computed again.

        `report` receives progress, `say` messages that stay relevant for the user. `services` are
        closed by the caller; without them, a model's services are opened with the model. `claimed`
        is called with a run directory once this process has locked it.
        """
        self._root = Path(root)
        self._resume = resume
        self._from_step = from_step
        self._report = report
        self._say = say
        self._stop = stop or Stop()
        self._services = services
        self._claimed = claimed
        self._crew: Crew | None = None  # ranks that a launcher started
        self._open = contextlib.AsyncExitStack()

    @classmethod
    def of_run(
        cls, run: RunDir, *, report: Report = silent, services: RunServices | None = None
    ) -> LocalBackend:
        """Return the backend to open an existing run for evaluation."""
        return cls(run.root.parent.parent, report=report, services=services)

    async def __aenter__(self) -> LocalBackend:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop the engines and release the run directories."""
        await self._open.aclose()

    async def prepare(self, model: TrainableModel) -> Parts:
        """Create everything that the model needs to run.

        Raises UsageError (the run exists, the config has changed, the model cannot be used),
        PreflightError (another process has locked the run, no such device), CheckpointError.
        """
        check_opponents(model.experiment.env.opponents, model.env_class, model.settings)
        self._crew = prepare_training(model.experiment)
        run = self._claim(model.experiment, model.config_yaml)
        if self._claimed:
            self._claimed(run)
        saved = saved_opponents(model.experiment.env.opponents, run if run.is_begun() else None)
        note_opponents(run, saved)
        step = resume_step(run, self._from_step)
        for line in run.damaged():
            self._say(f"warning: {line}")
        judge = await self._judge(model, run)
        parts = await self._parts(model, run, saved, trains=True)
        if cfg := model.experiment.judge:
            judge = judge or await self.reference_judge(model, parts)
            parts.scorer = Scorer(judge, model.experiment.reward, cfg.on_failure)
        forget_after(run, step)
        if step:
            folder = run.checkpoint(step)
            parts.policy.load(folder)
            parts.trainer.load(folder / "optimizer.pt")
            parts.progress = read_progress(folder)
            if fitting := parts.progress.microbatch_tokens:
                parts.trainer.budget.tokens = min(fitting, parts.trainer.budget.tokens)
            self._report(f"resuming after step {parts.progress.step}")
            prune(run, model.experiment.checkpoint.keep)  # a kill may have prevented it
        run.truncate_metrics(step or -1)
        return parts

    async def _judge(self, model: TrainableModel, run: RunDir) -> Judge | None:
        """Start and test the judge before a model is loaded. Raises PreflightError."""
        cfg = model.experiment.judge
        if cfg is None or cfg.model == REFERENCE:
            return None
        self._report("asking the judge")
        judge = await make_judge(cfg, model.experiment.seed, costs=run.costs, say=self._say)
        self._open.push_async_callback(judge.close)
        first = await check_env(model.env_class, model.settings)
        await ask_once(judge, first.opening, first.tools)
        judge.usage.take()  # the test call must not count in the first step
        return judge

    async def reference_judge(self, model: TrainableModel, parts: Parts) -> Judge:
        """Return the judge of `model: reference`: the base without adapter, on its own engine."""
        cfg = model.experiment
        assert cfg.judge
        judge = await make_judge(
            cfg.judge,
            cfg.seed,
            reference=self._reference_llm(model, parts.policy, parts.renderer.template.now),
        )
        first = await check_env(model.env_class, model.settings, parts.services)
        judge.check_room(first.opening, first.tools)
        return judge

    def _reference_llm(self, model: TrainableModel, policy: Policy, now: datetime) -> ReferenceLLM:
        cfg, reference = model.experiment, Reference(policy)
        max_len = cfg.engine.max_model_len
        renderer = Renderer(
            policy.tokenizer,
            None,
            policy.eos_token_ids,
            cfg.model.tool_format,
            cfg.model.template_args,
            now,
        )
        sampling = SamplingConfig(temperature=REFERENCE_TEMPERATURE, max_tokens=max_len // 4)
        engine = TransformersEngine(reference, cfg.engine, sampling, renderer.stop_ids)
        self._open.push_async_callback(engine.close)
        return ReferenceLLM(
            engine,
            renderer,
            max_len=max_len,
            max_answer=max_len // 4,
            identity=reference.fingerprint(),
        )

    async def open_run(self, model: TrainableModel) -> Parts:
        """Open the run of a model as of step 0, for evaluation. Nothing is written or locked.

        Raises UsageError if there is no such run.
        """
        cfg = model.experiment
        check_opponents(cfg.env.opponents, model.env_class, model.settings)
        run = RunDir.open(self._root / cfg.project / cfg.name)
        saved = saved_opponents(cfg.env.opponents, run)
        return await self._parts(model, run, saved, trains=False)

    async def _parts(
        self, model: TrainableModel, run: RunDir, saved: SavedPolicies, *, trains: bool
    ) -> Parts:
        cfg, settings = model.experiment, model.settings
        opponents = cfg.env.opponents or OpponentsConfig(train="script")
        if not trains:
            alone = replace(cfg.train, num_processes=1)
            cfg = replace(cfg, train=alone, engine=on_one_machine(cfg.engine))
        register_environment()
        log_env(model.env_class, run.logs / "env.log")
        if runner := make_runner(cfg.agent):
            self._open.push_async_callback(runner.close)
            await runner.open()  # before a model is loaded
        models = await self._agent_models(cfg.agent, run.agent_costs if trains else None)
        if cfg.engine.nodes:
            self._report("waiting for the engine's nodes")
        check_engine(cfg)
        services, budget = self._services, Budget(None, run.llm_costs, say=self._say)
        if services is None and (cfg.model.adapter is None or not needs_reference(settings)):
            services = await RunServices.open(cfg.env, settings, None, budget)  # before SFT
        warm_start = WarmStart(model, run, self._report, self._say, self._stop)
        policy, renderer = await warm_start.make()
        if services is None:
            reference = self._reference_llm(model, policy, renderer.template.now)
            services = await RunServices.open(cfg.env, settings, reference, budget)
        if services is not self._services:
            self._open.push_async_callback(services.close)
        self._report(f"starting the engine ({cfg.engine.use})")
        engine = await make_engine(
            policy,
            cfg.engine,
            cfg.sampling,
            renderer.stop_ids,
            logs=run.logs,
            apart=cfg.train.max_staleness > 0,
            say=self._say,
        )
        self._open.push_async_callback(engine.close)
        agents = await self._agents(cfg, runner, models, policy, engine, renderer)
        frozen = FrozenPlayers(cfg, policy, renderer, saved, self._open)
        of_game = (agents, model.env_class, settings, services, frozen.player)
        trainer = make_trainer(cfg, policy, self._crew, run.logs, self._say)
        self._open.callback(trainer.close)
        return Parts(
            run=run,
            policy=policy,
            renderer=renderer,
            engine=engine,
            canary=Canary(policy, trainer, cfg.sampling, cfg.engine.max_model_len),
            agents=seated(opponents.train, *of_game),
            eval_agents=seated(opponents.eval, *of_game),
            services=services,
            models=models,
            trainer=trainer,
            progress=Progress(),
            slots=slots_of(cfg.env),
        )

    async def _agent_models(self, cfg: AgentConfig, costs: Path | None) -> RunServices:
        """Open the models besides the policy that the user's agent calls. Raises PreflightError."""
        if self._services:  # they share the budget
            budget = self._services.budget
        else:
            budget = Budget(cfg.max_usd, costs, "agent.max_usd", self._say)
        models = await RunServices.open_named(models_of(cfg), budget)
        self._open.push_async_callback(models.close)
        return models

    async def _agents(
        self,
        cfg: Experiment,
        runner: Runner | None,
        models: RunServices,
        policy: Policy,
        engine: Engine,
        renderer: Renderer,
    ) -> AgentFactory:
        max_len = cfg.engine.max_model_len
        if runner is None:
            return PolicyAgents(engine, renderer, max_len)
        base = None
        if asks_base(cfg.agent):
            base = TransformersEngine(
                Reference(policy), cfg.engine, cfg.sampling, renderer.stop_ids
            )
            self._open.push_async_callback(base.close)
        served = Served(
            engine,
            renderer.offering,
            max_len,
            max_tokens=cfg.sampling.max_tokens,
            answer_tool=cfg.agent.answer_tool,
            max_calls=cfg.agent.max_calls,
            routes=routes_of(cfg.agent, models, base),
        )
        return await open_agents(self._open, cfg.agent, runner, served, cfg.reward, self._say)

    def _claim(self, cfg: Experiment, config_yaml: str) -> RunDir:
        """Create or re-open the run directory, and lock it until `close`."""
        root = self._root / cfg.project / cfg.name
        run = RunDir(root)
        begun = run.is_begun()
        if not (begun and self._resume):
            run = RunDir.create(root)
        self._open.enter_context(run.lock())
        if begun:
            check_same(root, run.config, config_yaml)
        write_config(run, config_yaml)
        return run
