"""A check that a deployment answers like its checkpoint.

The checkpoint plays held-out scenarios on this machine, always sampling its likeliest token. Then
the served model is asked for each of those turns, given all messages before it. Rounding changes a
few turns of a long game. A wrong adapter, base, template or tool format changes most of them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from art_cli.chat.turns import TOOL_CALL, parse_tool_calls, spoken
from art_cli.config.load import LoadedExperiment
from art_cli.config.sections.llm import LLMConfig, PricesConfig
from art_cli.deploy.base import Deployment, Source
from art_cli.evaluation.candidates import Candidate
from art_cli.evaluation.policies import RunPolicies
from art_cli.llms.base import LLM, Budget
from art_cli.llms.services import open_remote
from art_cli.rollout.agents.prompted import PromptedAgent
from art_cli.rollout.env_class import env_of
from art_cli.rollout.groups import eval_seed, play_groups, scenarios_in, slots_of
from art_cli.system.progress import Report
from art_cli.types import Message, Trajectory

SCENARIOS = 16
FREE = PricesConfig(input=0.0, output=0.0)  # the price is per hour or zero, never per token


class AskedTurn(NamedTuple):
    """The messages before a turn, and the JSON schemas of the tools it could call."""

    before: list[Message]
    tools: list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The number of the checkpoint's turns that the served model reproduces."""

    turns: int
    agreed: int
    example: tuple[str, str] | None = None  # of a turn that differs: the checkpoint's, the served

    @property
    def share(self) -> float:
        """The share of turns that agree, from 0 to 1."""
        return self.agreed / self.turns


async def verify(
    loaded: LoadedExperiment, source: Source, deployment: Deployment, report: Report
) -> Agreement:
    """Compare a deployment with its checkpoint. Raise LLMError if the deployment fails."""
    played = await _play(loaded, source, report)
    turns = [
        (AskedTurn(t.messages[:n], t.tools), message["content"])
        for t in played
        for n, message in enumerate(t.messages)
        if message["role"] == "assistant" and n
    ]
    cfg = LLMConfig(
        model=f"openai/{deployment.model}",
        api_base=deployment.url,
        api_key_env=deployment.key_env,
        prices=FREE,
        params={"temperature": 0, "max_tokens": loaded.experiment.sampling.max_tokens},
    )
    llm = await open_remote(cfg, Budget(None), played[0].tools if played else None)
    try:
        answers = await _ask(llm, [turn for turn, _ in turns], cfg.concurrency, report)
    finally:
        await llm.close()
    pairs = [(mine, theirs) for (_, mine), theirs in zip(turns, answers, strict=True)]
    differing = [pair for pair in pairs if _meaning(pair[0]) != _meaning(pair[1])]
    return Agreement(
        turns=len(turns),
        agreed=len(turns) - len(differing),
        example=differing[0] if differing else None,
    )


async def _play(loaded: LoadedExperiment, source: Source, report: Report) -> list[Trajectory]:
    cfg = loaded.experiment
    env, settings = env_of(cfg.env), loaded.env_settings
    split = cfg.eval.split if cfg.eval else "val"
    greedy = dataclasses.replace(cfg.sampling, temperature=1.0, top_p=1.0, top_k=1)
    own = dataclasses.replace(cfg.engine, use="transformers", url=None)
    loaded = dataclasses.replace(
        loaded, experiment=dataclasses.replace(cfg, sampling=greedy, engine=own)
    )
    policies = RunPolicies(loaded, source.run, None, report)
    try:
        name = str(source.step)
        who = Candidate(name=name, source="checkpoint", step=source.step)
        agents, services = await policies.at(who)
        scenarios = scenarios_in(env, settings, split)[:SCENARIOS]
        jobs = [(s, [agents.open(eval_seed(cfg.seed, s, 0))]) for s in scenarios]
        slots = slots_of(cfg.env)
        playing = play_groups(env, settings, services, jobs, slots=slots, report=report)
        groups = dict([played async for played in playing])
    finally:
        await policies.close()
    played = [groups[n].trajectories[0] for n in sorted(groups)]
    return [t for t in played if not t.failed]


async def _ask(llm: LLM, asked: list[AskedTurn], at_once: int, report: Report) -> list[str]:
    turns, done = asyncio.Semaphore(at_once), 0

    async def ask(turn: AskedTurn) -> str:
        nonlocal done
        async with turns:
            text = await PromptedAgent(llm, turn.tools).act(turn.before)
        done += 1
        report("asking the served model", done, len(asked))
        return text

    return await asyncio.gather(*(ask(turn) for turn in asked))


def _meaning(turn: str) -> tuple[str, list[str]]:
    """Return a turn's text and its calls in canonical JSON."""
    said = spoken(turn)
    calls = [json.dumps(call, sort_keys=True) for call in parse_tool_calls(said)]
    return TOOL_CALL.sub("", said).strip(), calls
