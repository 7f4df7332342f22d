"""An evaluation session: candidates at one task, known results, and episodes still to play."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol

from art_cli.config.load import LoadedExperiment
from art_cli.config.schema import Experiment
from art_cli.config.sections.agent import asks_base, models_of
from art_cli.config.sections.env import Opponent, SavedPolicyConfig
from art_cli.envs.base import NoServices, Services
from art_cli.envs.tools import schemas_of
from art_cli.errors import EnvError, UsageError
from art_cli.evaluation.attempts import AttemptStore
from art_cli.evaluation.candidates import Candidate
from art_cli.evaluation.chance import RandomAgents, random_agents
from art_cli.evaluation.comparison import Comparison, compare
from art_cli.evaluation.identity import (
    key_of,
    llm_identity,
    opponent_identity,
    policy_identity,
    task_identity,
    weights_identity,
)
from art_cli.evaluation.play import EvalTask, Record, play_missing
from art_cli.llms.base import Budget
from art_cli.llms.remote import RemoteLLM
from art_cli.llms.services import RunServices, models_of_env, needs_reference, open_remote
from art_cli.rollout.agent import AgentFactory
from art_cli.rollout.agents.prompted import PromptedAgents
from art_cli.rollout.env_class import env_of
from art_cli.rollout.first_episode import check_env
from art_cli.rollout.groups import scenarios_in, why_none
from art_cli.rollout.match import SeatedAgents
from art_cli.rollout.opponents import check_opponents, seated
from art_cli.runs.directory import RunDir
from art_cli.system.progress import Report
from art_cli.terminal.text import say
from art_cli.types import Split

WAVE = 32  # episodes started at once if the budget may run out, since unfinished ones are lost
START = Candidate(name="untrained", source="start")
# One loaded model serves the first two in a row.
PLAYING_ORDER = ("start", "checkpoint", "base", "llm", "random")


class Policies(Protocol):
    """Policies of the candidates with weights, loaded only if one must play."""

    async def at(self, candidate: Candidate) -> tuple[AgentFactory, Services]:
        """Return the agents of a candidate, and the models that the env calls."""
        ...

    async def close(self) -> None:
        """Release the loaded models."""
        ...


OpenPolicies = Callable[[RunServices | None], Policies]


@dataclass(slots=True, kw_only=True)
class EvalSession:
    """Candidates at one task, with their known episodes."""

    task: EvalTask
    experiment: Experiment
    records: list[Record]  # one per candidate
    random: RandomAgents | None = None  # if it is a candidate

    @classmethod
    def open(
        cls,
        loaded: LoadedExperiment,
        folder: RunDir,
        candidates: list[Candidate],
        *,
        split: Split,
        episodes: int,
        trials: int,
        fresh: bool,
    ) -> EvalSession:
        """Start with the results of earlier evaluations in this folder, unless `fresh`.

        Raises UsageError if the env has no such scenarios.
        """
        cfg, settings = loaded.experiment, loaded.env_settings
        env = env_of(cfg.env)
        task = EvalTask(
            env_class=env,
            settings=settings,
            split=split,
            scenarios=scenarios_in(env, settings, split)[:episodes],
            trials=trials,
            seed=cfg.seed,
            concurrency=cfg.env.concurrency,
            weights=cfg.reward,
        )
        check_opponents(cfg.env.opponents, env, settings)
        if _opponent(cfg) == "start" and any(c.source == "base" for c in candidates):
            raise UsageError(
                "env.opponents.eval is start, the policy after its SFT, which `base` is made "
                "without; leave base out, or evaluate against the script: "
                "env.opponents.eval=script"
            )
        run = folder if folder.config.is_file() else None
        about = [
            *task_identity(env, settings),
            *opponent_identity(cfg, run),
            *weights_identity(cfg),
        ]
        records, at_random = [], None
        for c in candidates:
            if c.llm:
                who = llm_identity(c.llm, cfg.agent)
            elif c.source == "random":
                at_random = random_agents(cfg, env, settings)
                who = ["random", cfg.seed, key_of(at_random.turns)]
            else:
                who = policy_identity(cfg, run, c.source, c.step)
            store = AttemptStore(folder.attempts(key_of([about, who])))
            records.append(Record.open(c, task, store, [about, who], fresh=fresh))
        return cls(task=task, experiment=cfg, records=records, random=at_random)

    @property
    def num_finished(self) -> int:
        """The number of known episodes."""
        return sum(len(r.attempts) for r in self.records)

    @property
    def num_episodes(self) -> int:
        """The number of all episodes of the evaluation."""
        return len(self.records) * self.task.trials * len(self.task.scenarios)

    async def play(
        self, open_policies: OpenPolicies, max_usd: float | None, report: Report
    ) -> float | None:
        """Play the missing episodes, storing each as it finishes. Return the remaining budget.

        Raises PreflightError (no key, no answer, an unknown price), BudgetError, EngineError,
        UsageError (the env does not work).
        """
        todo = [r for r in self.records if r.missing(self.task)]
        if not todo:
            return max_usd
        settings, tools = self.task.settings, schemas_of(self.task.env_class)
        first = await check_env(self.task.env_class, settings)
        for line in first.warnings:
            say(f"warning: {line}", file=sys.stderr)
        budget = Budget(max_usd, name="--max-usd", say=report)
        async with contextlib.AsyncExitStack() as stack:
            shared = None
            if not needs_reference(settings):
                shared = await RunServices.open(self.experiment.env, settings, budget=budget)
                stack.push_async_callback(shared.close)
            llms: dict[str, RemoteLLM] = {}
            for c in [r.candidate for r in todo]:
                if c.llm:  # before any episode, to report a missing key at once
                    report(f"asking {c.name}")
                    llms[c.name] = await open_remote(c.llm, budget, tools)
                    stack.push_async_callback(llms[c.name].close)

            @cache
            def policies() -> Policies:  # opened on first use, because this loads a model
                opened = open_policies(shared)
                stack.push_async_callback(opened.close)
                return opened

            hosted = self.experiment.agent.use != "builtin"
            asked = [
                *models_of_env(self.experiment.env, settings),
                *models_of(self.experiment.agent),
            ]
            waves = {"in_waves": WAVE} if budget.is_limited and asked else {}
            for r in sorted(todo, key=lambda r: PLAYING_ORDER.index(r.candidate.source)):
                who, limits = r.candidate, waves
                if who.is_weights:
                    agents, services = await policies().at(who)
                else:
                    needs_policies = shared is None or _meets_weights(self.experiment)
                    needs_policies |= hosted and asks_base(self.experiment.agent)
                    given = await policies().at(START) if needs_policies else None
                    services = shared or (given[1] if given else NoServices())
                    if who.llm:
                        llm = llms[who.name]
                        agents, limits = await self._agents(stack, llm, given, services, budget)
                    else:
                        assert self.random
                        agents = self._seated(self.random, given, services)
                await play_missing(self.task, r, agents, services, report=report, **limits)
        return None if max_usd is None else max_usd - budget.spent

    async def _agents(
        self,
        stack: contextlib.AsyncExitStack,
        llm: RemoteLLM,
        given: tuple[AgentFactory, Services] | None,
        services: Services,
        budget: Budget,
    ) -> tuple[AgentFactory, dict[str, Any]]:
        """Return agents that play with a model, and keyword arguments that limit their concurrency.

        The config's own agent is used if there is one. `given` are the agents that play with the
        policy.
        """
        cfg, tools = self.experiment.agent, schemas_of(self.task.env_class)
        if cfg.use == "builtin":
            return self._seated(PromptedAgents(llm, tools), given, services), {
                "at_once": llm.concurrency
            }
        from art_cli.rollout.agents.build import make_runner, open_agents, routes_of
        from art_cli.rollout.agents.hosted import HostedAgents
        from art_cli.rollout.gateway.served import Served

        limits = {"at_once": cfg.concurrency}
        if given:
            policy = given[0].policy if isinstance(given[0], SeatedAgents) else given[0]
            assert isinstance(policy, HostedAgents)
            return self._seated(policy.answered_by(llm), given, services), limits
        runner = make_runner(cfg)
        assert runner
        stack.push_async_callback(runner.close)
        await runner.open()
        models = await RunServices.open_named(models_of(cfg), budget)
        stack.push_async_callback(models.close)
        served = Served(
            None,
            None,
            llm.max_input_tokens,
            answer_tool=cfg.answer_tool,
            max_calls=cfg.max_calls,
            routes=routes_of(cfg, models, None, llm),
        )
        agents = await open_agents(stack, cfg, runner, served, self.experiment.reward, _warn)
        return self._seated(agents, given, services), limits

    def _seated(
        self,
        agents: AgentFactory,
        given: tuple[AgentFactory, Services] | None,
        services: Services,
    ) -> AgentFactory:
        """Return agents joined with the players of a game's other seats, if any."""
        if given and isinstance(given[0], SeatedAgents):
            return replace(given[0], policy=agents)
        task = self.task
        return seated(_opponent(self.experiment), agents, task.env_class, task.settings, services)

    def result(self, baseline: str, threshold: float | None) -> Comparison:
        """Return the comparison of all candidates with known results.

        Raises EnvError if the baseline has none.
        """
        for r in self.records:
            if r.candidate.name == baseline and not r.attempts:
                raise EnvError(_why(r))
        known = [r for r in self.records if r.attempts]
        return compare(self.task, known, baseline=baseline, threshold=threshold)

    def check(self) -> None:
        """Raise EnvError for candidates whose episodes all failed."""
        lost = [_why(r) for r in self.records if not r.attempts]
        if lost:
            raise EnvError("\n".join(lost))


def _opponent(cfg: Experiment) -> Opponent:
    return cfg.env.opponents.eval if cfg.env.opponents else "script"


def _meets_weights(cfg: Experiment) -> bool:
    """Return whether candidates play against the policy of step 0, or against a checkpoint."""
    who = _opponent(cfg)
    return who == "start" or isinstance(who, SavedPolicyConfig)


def _why(r: Record) -> str:
    return f"{r.candidate.name}: {why_none([a.error for a in r.failed])}"


def _warn(text: str) -> None:
    say(text, file=sys.stderr)
