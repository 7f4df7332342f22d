"""The env under check, and the plays and facts that several checks share."""

from __future__ import annotations

import asyncio
import copy
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import islice, repeat
from typing import Any, get_args, get_type_hints

from art_cli.config.sections.llm import LLMConfig
from art_cli.envs.base import Env
from art_cli.envs.tools import tools_of
from art_cli.preflight.check_result import own_files
from art_cli.preflight.envs.play import MakePlayer, Played, play_one
from art_cli.preflight.envs.players import (
    IDLE,
    Gold,
    RandomCalls,
    RandomWords,
    Repeater,
)
from art_cli.preflight.envs.state import UNUSUAL, drawn_from, generators, seeded_generators
from art_cli.preflight.envs.watch import Stuck, Watch
from art_cli.rollout.agents.scripted import RandomTurns
from art_cli.types import Message, Scenario, Split

SPLITS: tuple[Split, ...] = ("train", "val", "test")
MAX_SCENARIOS = 20_000  # examined per split
NUM_DEMONSTRATIONS = 32
GENERATING = 10.0  # timeout of scenarios(), in multiples of an episode's
AT_ONCE = 3.0  # allowed slowdown of concurrent episodes, compared with one after another
NUM_REPLAYED = 4  # scenarios per player whose plays are repeated

DEMONSTRATED, AT_RANDOM = "demonstrations", "demonstrated turns at random"
IDLE_NAMES = tuple(f"saying {text!r}" if text else "saying nothing" for text in IDLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The user's settings for the checks."""

    episodes: int = 16  # of each player
    low: float = 0.5  # maximum share of gold's reward for idle and random players
    timeout: float = 60.0  # seconds that an episode may take; scenarios may take longer
    concurrency: int | None = None  # episodes that may be open at once
    python: str | None = None  # env.python
    allow_writes: bool = False  # call tools that may change the user's data


class Subject:
    """One env with its settings. Methods that run its code raise Stuck, or the env's errors."""

    def __init__(self, use: str, env_class: type[Env], settings: Any, options: Options) -> None:
        self.use, self.env_class, self.options = use, env_class, options
        self.settings, self.models_off = without_models(settings)
        self.watch = Watch(own_files(env_class), options.timeout)
        self.stalled: list[Played] = []  # single plays that first showed a blocking function
        self.late: list[Played] = []  # single plays that missed a deadline
        self._longest = 0.0  # seconds of the longest single play

    @cached_property
    def scenarios(self) -> dict[Split, list[Scenario]]:
        """The first MAX_SCENARIOS of each split."""
        return {split: self.list_scenarios(split) for split in SPLITS}

    def list_scenarios(self, split: Split) -> list[Scenario]:
        """Call the env's scenarios() now."""
        return self.watch.run(
            lambda: list(islice(self.env_class.scenarios(self.settings, split), MAX_SCENARIOS)),
            GENERATING * self.options.timeout,
            f"scenarios({split!r})",
        )

    @cached_property
    def demonstrations(self) -> list[list[Message]]:
        """A few demonstrations, or [] if the env has none."""
        return self.list_demonstrations()

    def list_demonstrations(self) -> list[list[Message]]:
        """Call the env's demonstrations() now. It may return more than requested."""
        num = NUM_DEMONSTRATIONS
        return self.watch.run(
            lambda: list(islice(self.env_class.demonstrations(self.settings, num), 2 * num)),
            GENERATING * self.options.timeout,
            "demonstrations()",
        )

    @cached_property
    def chosen(self) -> list[Scenario]:
        """Scenarios to play: half of them held out."""
        rng, num = random.Random(0), self.options.episodes
        held_out = self.scenarios["val"] or self.scenarios["test"]
        out = rng.sample(held_out, min(num // 2, len(held_out)))
        train = self.scenarios["train"]
        return rng.sample(train, min(num - len(out), len(train))) + out

    @cached_property
    def demonstrated_turns(self) -> list[list[str]]:
        """The assistant turns of each demonstration, or [] if none can be read."""
        try:
            found = self.demonstrations
            return [[m["content"] for m in d if m["role"] == "assistant"] for d in found]
        except Stuck:
            raise
        except Exception:
            return []  # the demonstrations check reports it

    @cached_property
    def golden(self) -> list[Scenario]:
        """The chosen scenarios for which the env has a gold()."""
        if self.env_class.gold is Env.gold:
            return []
        return [s for s in self.chosen if self._has_gold(s)]

    def _has_gold(self, scenario: Scenario) -> bool:
        def ask() -> bool:
            return self.env_class(copy.deepcopy(scenario), self.settings).gold() is not None

        return self.watch.run(ask, self.options.timeout, "gold()")

    @cached_property
    def plays(self) -> dict[str, list[Played]]:
        """Each player's episodes of the chosen scenarios, and replays of the demonstrations.

        Demonstrated turns are replayed in the first train scenarios, because most envs demonstrate
        those in order.
        """
        out = {
            name: [self.play(s, player) for s in (self.golden if player is Gold else self.chosen)]
            for name, player in self._players().items()
        }
        if told := self.demonstrated_turns:
            pairs = zip(self.scenarios["train"][: self.options.episodes], told, strict=False)
            out[DEMONSTRATED] = [self.play(s, lambda _, t=t: Repeater(t)) for s, t in pairs]
        return out

    def _players(self) -> dict[str, MakePlayer]:
        env_class = self.env_class
        players: dict[str, MakePlayer] = {
            name: lambda _, text=text: Repeater(repeat(text))
            for name, text in zip(IDLE_NAMES, IDLE, strict=True)
        }
        players["random words"] = lambda env: RandomWords(env.scenario.seed)
        if tools_of(env_class) or env_class.tools is not Env.tools:
            players["random tool calls"] = lambda env: RandomCalls(env.scenario.seed)
        if turns := [turn for told in self.demonstrated_turns for turn in told]:
            players[AT_RANDOM] = lambda env: RandomTurns(env.scenario.seed, turns)
        return players | ({"gold": Gold} if self.golden else {})

    @cached_property
    def alone(self) -> list[Played]:
        """Single plays to compare with: the turns of some finished plays, said again."""
        names = [n for n in self.plays if n not in IDLE_NAMES[1:]]
        plays = [p for n in names for p in self.plays[n][:NUM_REPLAYED] if p.error is None]
        again = [self.play(p.trajectory.scenario, p.repeater) for p in plays]
        return [p for p in again if not p.is_late]

    @cached_property
    def again(self) -> tuple[list[Played], list[str]]:
        """Play `alone` once more. Return the plays, and the global generators that were used.

        Random draws of a library during its import are excluded. The generators start from an
        unusual seed: otherwise an env that seeds them would leave their state unchanged.
        """
        plays = self.alone
        with seeded_generators(UNUSUAL):
            before = generators()
            again = [self.play(p.trajectory.scenario, p.repeater) for p in plays]
            return again, drawn_from(before)

    def play(self, scenario: Scenario, player: MakePlayer) -> Played:
        """Play one episode alone, on a copy of the scenario."""
        self.watch.stalls, began = {}, time.monotonic()
        played = self.play_together([copy.deepcopy(scenario)], [player])[0]
        self._longest = max(self._longest, time.monotonic() - began)
        played.trajectory.scenario, played.stalls = scenario, self.watch.stalls
        self.late += [played] if played.is_late else []
        if played.stalls.keys() - {name for p in self.stalled for name in p.stalls}:
            self.stalled.append(played)
        return played

    def play_together(
        self, scenarios: Sequence[Scenario], players: Sequence[MakePlayer]
    ) -> list[Played]:
        """Play episodes concurrently, on one event loop."""

        async def all_of_them() -> list[Played]:
            slots = asyncio.Semaphore(self.options.concurrency or len(scenarios))

            async def played(scenario: Scenario, player: MakePlayer) -> Played:
                async with slots:
                    allowed = self.options.allow_writes
                    return await play_one(self.env_class, self.settings, scenario, player, allowed)

            return await asyncio.gather(*map(played, scenarios, players))

        num, limit = len(scenarios), self.options.timeout
        if num == 1:
            return self.watch.run_async(all_of_them, limit, "the episode")
        limit += AT_ONCE * num * self._longest  # in the worst case they run one after another
        what = f"{num} episodes at once, of which each ended alone,"
        return self.watch.run_async(all_of_them, limit, what)


def without_models(settings: Any) -> tuple[Any, list[str]]:
    """Return the settings with null for each optional model, and the names of these settings."""
    hints = get_type_hints(type(settings))
    off = [
        f.name
        for f in fields(settings)
        if isinstance(getattr(settings, f.name), LLMConfig)
        and type(None) in get_args(hints[f.name])
    ]
    return replace(settings, **dict.fromkeys(off)), off
