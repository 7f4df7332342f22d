"""The known and the missing episodes of one candidate, and playing the missing ones."""

from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from art_cli.config.sections.reward import RewardConfig
from art_cli.envs.base import Env, Services
from art_cli.evaluation.attempts import Attempt, AttemptStore, digest_of
from art_cli.evaluation.candidates import Candidate
from art_cli.rollout.agent import AgentFactory
from art_cli.rollout.groups import eval_seed, play_groups
from art_cli.system.progress import Report
from art_cli.types import Scenario, Split


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalTask:
    """The task that all candidates play."""

    env_class: type[Env]
    settings: Any
    split: Split
    scenarios: list[Scenario]
    trials: int
    seed: int
    concurrency: int | None = None  # maximum number of open episodes
    weights: RewardConfig | None = None  # weights of the parts of a reward


@dataclass(slots=True, kw_only=True)
class Record:
    """All known results of one candidate."""

    candidate: Candidate
    store: AttemptStore
    identity: Any
    attempts: list[Attempt] = field(default_factory=list)  # finished ones
    failed: list[Attempt] = field(default_factory=list)  # not the candidate's fault; not stored
    num_known: int = 0  # number of attempts from earlier evaluations

    @classmethod
    def open(
        cls, who: Candidate, task: EvalTask, store: AttemptStore, identity: Any, *, fresh: bool
    ) -> Record:
        """Return the attempts of earlier evaluations, or forget them if `fresh`."""
        if fresh:
            store.forget()
        found = store.read()
        places = [(digest_of(s), trial) for s in task.scenarios for trial in range(task.trials)]
        known = [found[place] for place in places if place in found]
        return cls(
            candidate=who, store=store, identity=identity, attempts=known, num_known=len(known)
        )

    def in_order(self, task: EvalTask) -> list[Attempt]:
        """Return the attempts in the order of scenarios and trials, not as they ended."""
        order = {digest_of(s): n for n, s in enumerate(task.scenarios)}
        return sorted(self.attempts, key=lambda a: (order[a.digest], a.trial))

    def missing(self, task: EvalTask) -> list[tuple[Scenario, int]]:
        """Return the episodes to play, trial by trial, so partial results cover all scenarios."""
        done = {a.place for a in self.attempts}
        return [
            (s, trial)
            for trial in range(task.trials)
            for s in task.scenarios
            if (digest_of(s), trial) not in done
        ]


async def play_missing(
    task: EvalTask,
    record: Record,
    agents: AgentFactory,
    services: Services | None,
    *,
    at_once: int | None = None,
    in_waves: int | None = None,
    report: Report,
) -> None:
    """Play the missing episodes, and store each as it finishes.

    At most `at_once` episodes run at the same time. With `in_waves`, waves of that many episodes
    run one after another. Raises EngineError, BudgetError, ArtError (full disk).
    """
    missing = record.missing(task)
    began, done = time.monotonic(), 0
    size = in_waves or max(1, len(missing))
    at_once = min(filter(None, (at_once, task.concurrency)), default=None)
    for begin in range(0, len(missing), size):
        wave = missing[begin : begin + size]
        jobs = [(s, [agents.open(eval_seed(task.seed, s, trial))]) for s, trial in wave]
        failed: dict[int, Attempt] = {}
        playing = play_groups(
            task.env_class, task.settings, services, jobs, at_once=at_once, weights=task.weights
        )
        async with aclosing(playing):
            async for n, group in playing:
                [trajectory] = group.trajectories
                attempt = Attempt.of(trajectory, wave[n][1])
                if trajectory.failed:
                    failed[n] = attempt
                else:
                    record.store.add(attempt, record.identity)
                    record.attempts.append(attempt)
                done += 1
                left = _duration((time.monotonic() - began) / done * (len(missing) - done))
                report(f"{record.candidate.name}, about {left} left:", done, len(missing))
        record.failed += [failed[n] for n in sorted(failed)]


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds > 90 else f"{seconds:.0f} s"
