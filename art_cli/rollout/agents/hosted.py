"""Users' programs and functions as agents. They call the policy through the gateway."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Protocol

from art_cli.errors import AgentError
from art_cli.llms.base import AskedLLM
from art_cli.rollout.episode import Episode
from art_cli.rollout.gateway.apis.fields import unknown_text
from art_cli.rollout.gateway.hosted_episode import Hosted
from art_cli.rollout.gateway.served import Served
from art_cli.rollout.gateway.server import Gateway
from art_cli.types import StopReason, Trajectory

GRACE = 5.0  # seconds for an agent to exit once its episode is over


class CrashError(Exception):
    """The agent failed. The text gives the reason and shows what it printed."""


class Runner(Protocol):
    """Runs the user's own agent for one episode."""

    async def open(self) -> None:
        """Prepare for episodes. Raises PreflightError."""
        ...

    async def close(self) -> None:
        """End what outlives an episode, such as processes."""
        ...

    async def run(self, hosted: Hosted, url: str, trajectory: Trajectory) -> str | None:
        """Run the agent. Return its final text, or None if that is the policy's last turn.

        Adds its output to the trajectory's `logs`. Cancelling stops the agent. Raises CrashError.
        """
        ...


class HostedAgent:
    """Implements Agent: one run of the user's own agent."""

    def __init__(self, agents: HostedAgents, seed: int) -> None:
        self._agents = agents
        self._seed = seed
        self._hosted: Hosted | None = None

    async def play(self, episode: Episode) -> StopReason:
        """See Agent. Raises AgentError if the agent's failure must not be trained on.

        That is the case if `on_crash` is `drop`, or if the policy was never called: nothing was
        sampled, and a reward of 0 would be compared with siblings that played.
        """
        async with nullcontext() if episode.shares_slot else self._agents.turns:
            opening = await episode.start()
            hosted = self._agents.gateway.open(episode, opening, self._seed, self._agents.served)
            self._hosted = hosted
            episode.trajectory.metrics["crashed"] = 0.0
            try:
                last = await self._watch(hosted, episode.trajectory)
                if not (hosted.num_answers or hosted.failure.done() or hosted.is_out_of_context):
                    raise CrashError(_never_asked(hosted, episode.trajectory))
                return await hosted.finish(last)
            except CrashError as e:
                if hosted.given is not None and hosted.num_answers:  # it had finished its task
                    episode.trajectory.logs.append(f"the agent failed after its answer: {e}")
                    return await hosted.finish(None)
                if hosted.is_out_of_context and not hosted.ended.done():
                    episode.trajectory.logs.append(f"the agent ended on a full context: {e}")
                    return "context"
                return self._crashed(hosted, episode.trajectory, str(e))
            finally:
                if hosted.unknown_fields:
                    episode.trajectory.logs.append(unknown_text(hosted.unknown_fields))
                self._agents.gateway.leave(hosted)

    def record(self, trajectory: Trajectory) -> None:
        if self._hosted:
            self._hosted.record(trajectory)

    def close(self) -> None:
        """See Agent."""

    async def _watch(self, hosted: Hosted, trajectory: Trajectory) -> str | None:
        """Wait for the agent to exit. Stop it at its deadline, or once the episode is over."""
        url = self._agents.gateway.url + hosted.path
        run = asyncio.ensure_future(self._agents.runner.run(hosted, url, trajectory))
        try:
            await asyncio.wait(
                {run, hosted.failure, hosted.ended},
                timeout=self._agents.timeout,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if hosted.ended.done() and not run.done():
                await asyncio.wait({run}, timeout=self._agents.grace)
            if not run.done() and not hosted.ended.done() and not hosted.failure.done():
                waits_for = hosted.waits_for and f": {hosted.waits_for}"
                raise CrashError(f"did not end within {self._agents.timeout:g} s{waits_for}")
        finally:
            run.cancel()
            await asyncio.wait({run}, timeout=GRACE)
        over = hosted.ended.done() or hosted.failure.done()  # then the agent's exit means nothing
        if not run.done() or run.cancelled() or (run.exception() and over):
            return None
        return run.result()

    def _crashed(self, hosted: Hosted, trajectory: Trajectory, why: str) -> StopReason:
        trajectory.metrics["crashed"] = 1.0
        trajectory.crash = f"the agent failed: {why}"
        if hosted.failure.done():
            hosted.failure.result()
        if self._agents.on_crash == "drop" or not hosted.num_answers:
            raise AgentError(trajectory.crash)
        trajectory.reward_parts.agent = 0.0
        return "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedAgents:
    """Implement AgentFactory for every `agent.use` except builtin."""

    gateway: Gateway
    runner: Runner
    timeout: float  # seconds, of one episode
    on_crash: str  # score | drop
    turns: asyncio.Semaphore  # limits the number of concurrent episodes
    gives_reward: bool = False  # whether the agent's own reward counts
    served: Served | None = None  # replaces what the gateway serves

    @property
    def grace(self) -> float:
        """Seconds for an agent to exit, longer if its own reward counts."""
        return self.timeout if self.gives_reward else GRACE

    def open(self, seed: int) -> HostedAgent:
        return HostedAgent(self, seed)

    def answered_by(self, llm: AskedLLM) -> HostedAgents:
        """Return the same agents, with another model in the policy's place."""
        return replace(self, served=self.gateway.served.with_in_its_place(llm))


def _never_asked(hosted: Hosted, trajectory: Trajectory) -> str:
    """Return the error of an agent that ended without an answer of the policy."""
    printed = "\n".join(trajectory.logs) or "it printed nothing"
    why = "it never asked the policy, whose address is in OPENAI_BASE_URL (`client`, of a function)"
    if hosted.refusal:
        why = f"the policy answered none of its calls; to the last it said: {hosted.refusal}"
    return f"{why}\n{printed}"
