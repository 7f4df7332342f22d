"""An episode of a program behind a real gateway, and what must be true of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from integration.clients.oracle import Asked, Oracle, Script

from art_cli.chat.grammar.grammars import Grammars
from art_cli.chat.render import Renderer
from art_cli.engines.base import Engine, Session
from art_cli.envs.base import Env
from art_cli.envs.registry import env_class
from art_cli.envs.tools import schemas_of
from art_cli.models.policy import Policy
from art_cli.rollout.agents.hosted import HostedAgent, HostedAgents
from art_cli.rollout.agents.program import ProgramRunner
from art_cli.rollout.episode import Episode
from art_cli.rollout.gateway.routes import Routes
from art_cli.rollout.gateway.served import Served
from art_cli.rollout.gateway.server import Gateway
from art_cli.rollout.rollout import play, rollout
from art_cli.types import Completion, Scenario, StopReason, Trajectory

DEADLINE = 900.0  # seconds of one episode; a framework takes seconds to be imported
ROOM = 16384  # tokens


@dataclass(frozen=True)
class Task:
    """A scenario of an env."""

    env: type[Env]
    settings: Any
    scenario: Scenario

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The env's tools, in OpenAI's form."""
        return schemas_of(self.env)

    def gold(self) -> list[str]:
        """Return the turns of the one who plays it perfectly."""
        env = self.env(self.scenario, self.settings)
        turns = env.gold()
        assert turns is not None
        return [m["content"] for m in play(env, turns.__next__) if m["role"] == "assistant"]


def tasks(name: str, num: int, **args: Any) -> list[Task]:
    """Return the first scenarios of an env."""
    env = env_class(name)
    settings = env.Config(**args)
    return [Task(env, settings, s) for s in islice(env.scenarios(settings, "train"), num)]


@dataclass
class Played:
    """An episode, and what the engine was asked in it."""

    trajectory: Trajectory
    asked: list[Asked]

    @property
    def printed(self) -> str:
        """What was said, for whom a test fails."""
        said = [f"{m['role']}: {m['content'][-300:]}" for m in self.trajectory.messages]
        logs = [text[-3000:] for text in self.trajectory.logs]
        return "\n".join(
            [
                *said,
                *logs,
                str(self.trajectory.crash),
                str(self.trajectory.error),
                str(self.trajectory.metrics),
            ]
        )


@dataclass
class Recorded:
    """Implements Engine: another, of which is kept what it was asked."""

    engine: Engine
    asked: list[Asked] = field(default_factory=list)

    @property
    def policy_version(self) -> int:
        return self.engine.policy_version

    @property
    def grammars(self) -> Grammars:
        return self.engine.grammars

    def open(self, seed: int, *, awaited: bool = True) -> _RecordedSession:
        return _RecordedSession(self.engine.open(seed, awaited=awaited), self.asked)


@dataclass
class _RecordedSession:
    session: Session
    asked: list[Asked]

    async def generate(self, ids: list[int], **settings: Any) -> Completion:
        completion = await self.session.generate(ids, **settings)
        self.asked.append(Asked(list(ids), completion))
        return completion

    def close(self) -> None:
        self.session.close()


class Watched(HostedAgent):
    """An agent whose trajectory the oracle sees."""

    def __init__(self, agents: HostedAgents, seed: int, engine: Any) -> None:
        super().__init__(agents, seed)
        self._engine = engine

    async def play(self, episode: Episode) -> StopReason:
        if isinstance(self._engine, Oracle):
            self._engine.trajectory = episode.trajectory
        return await super().play(episode)


async def perform(
    task: Task,
    policy: Policy,
    engine: Engine | Any,
    command: list[str],
    room: int,
    seed: int,
    routes: Routes | None = None,
    *,
    drops_hosted: bool = False,
) -> Trajectory:
    served = Served(engine, partial(Renderer, policy.tokenizer), room, routes=routes)
    gateway = Gateway(served, drops_hosted=drops_hosted)
    await gateway.start()
    agents = HostedAgents(
        gateway=gateway,
        runner=ProgramRunner(command, []),
        timeout=DEADLINE,
        on_crash="score",
        turns=asyncio.Semaphore(4),
    )
    agent = Watched(agents, seed, engine)
    try:
        return await rollout(task.env, task.settings, task.scenario, agent)
    finally:
        await gateway.close()


def play_perfectly(
    task: Task,
    policy: Policy,
    command: list[str],
    *,
    room: int = ROOM,
    parallel: bool = False,
    drops_hosted: bool = False,
) -> Played:
    """Return an episode in which the policy says what is right."""
    oracle = Oracle(Renderer(policy.tokenizer), policy.grammars, task.gold(), parallel=parallel)
    playing = perform(task, policy, oracle, command, room, 0, drops_hosted=drops_hosted)
    return Played(asyncio.run(playing), oracle.asked)


def play_turns(
    task: Task, policy: Policy, command: list[str], turns: list[str], *, room: int = ROOM
) -> Played:
    """Return an episode in which the policy says these turns, one after the other."""
    oracle = Script(Renderer(policy.tokenizer), policy.grammars, turns)
    trajectory = asyncio.run(perform(task, policy, oracle, command, room, 0))
    return Played(trajectory, oracle.asked)


def assert_perfect(played: Played) -> None:
    """The reward is exactly 1, and all that was sampled is trained as it was sampled."""
    trajectory = played.trajectory
    assert not trajectory.metrics.get("crashed"), played.printed
    assert trajectory.reward == 1.0, played.printed
    assert_recorded(played)


def assert_recorded(played: Played) -> None:
    """Each answer stands once, behind what was read, with its own log-probabilities."""
    sequences = played.trajectory.sequences
    for asked in played.asked:
        begin, said = len(asked.ids), asked.completion
        end = begin + len(said.token_ids)
        holders = [s for s in sequences if s.ids[:end] == asked.ids + said.token_ids]
        assert len(holders) >= 1, (asked, played.printed)
        assert any(
            all(s.mask[begin:end]) and s.engine_logprobs[begin:end] == said.logprobs
            for s in holders
        ), (asked, played.printed)
    assert sum(sum(s.mask) for s in sequences) == sum(
        len(a.completion.token_ids) for a in played.asked
    ), played.printed
    for s in sequences:
        assert all(p == 0.0 for p, m in zip(s.engine_logprobs, s.mask, strict=True) if not m)
