"""Gymnasium: worlds of a few discrete actions, played as text with one tool.

    user        P F F F          assistant   act(action="down")
                F H F H
                F F F H          tool        S F F F
                H F F G                      P H F H
                                             F F F H
                                             H F F G

`id` is what gymnasium.make() takes, `kwargs` the rest of it. FrozenLake, Taxi, CliffWalking and
Blackjack are put into words; any other world with discrete actions and small observations is
played too, where `returns` says what its return is worth.

The reward is the return, scaled so that being idle is worth 0 and the best that can be had 1, and
cut at both ends. An episode that is not played to its end is worth 0, whatever it had.
"""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import islice
from typing import Annotated, Any

from pydantic import Field

from art_cli import Done, Env, Message, Scenario, Split, Tool, ToolError, Trajectory, play, seed_of
from art_envs.adapters.gymnasium_worlds import WORLDS, Plan, World, is_readable, of_any
from art_envs.adapters.library import FIRST_SEED, library

EXTRA = "gymnasium"
MOST_ACTIONS = 64
MOST_INVALID = 3  # an episode ends after this number of turns without a valid action
UNKNOWN = World(about="", actions=(), show=of_any, best=1.0, goal=0.0)


class Gymnasium(Env):
    """Worlds of a few discrete actions, from Gymnasium: FrozenLake, Taxi, Blackjack and others."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of `env.args`."""

        id: str  # `art envs tasks gymnasium` lists them
        kwargs: dict[str, Any] = field(default_factory=dict)  # arguments for gymnasium.make
        max_steps: Annotated[int, Field(ge=1, le=1000)] = 50  # limit of actions in an episode
        # The returns that are worth reward 0 and 1; null: derived from what is known of the world.
        returns: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None
        # Share of random actions in the demonstrations. All are random if no perfect player is
        # known.
        demo_noise: Annotated[float, Field(ge=0, le=1)] = 0.5

        def __post_init__(self) -> None:
            """Raise ValueError if the world does not exist or cannot be played as text."""
            _check(self.id, json.dumps(self.kwargs))
            if self.returns is None and _name(self.id) not in WORLDS:
                raise ValueError(
                    f"say what a return in {self.id} is worth: returns: [LOW, HIGH], of which LOW "
                    "becomes the reward 0 and HIGH the reward 1"
                )
            if self.returns and self.returns[0] >= self.returns[1]:
                raise ValueError("returns: the first must be less than the second")

    def __init__(self, scenario: Scenario, cfg: Config) -> None:
        super().__init__(scenario, cfg)
        self.max_turns = cfg.max_steps + MOST_INVALID
        self.world = WORLDS.get(_name(cfg.id), UNKNOWN)
        self.num_steps = self.num_invalid = 0
        self.total = self.last = 0.0
        self.has_ended = self.is_over = self.has_been_made = False

    @classmethod
    def task_list(cls) -> dict[str, str]:
        """Return the worlds that can be played here."""
        found = {}
        for id in sorted(library("gymnasium", EXTRA).registry):
            try:
                _check(id, "{}")
            except ValueError:  # continuous actions, or a package that is not installed
                continue
            world = WORLDS.get(_name(id))
            found[f"id={id}"] = world.about if world else "needs returns=[LOW,HIGH]"
        return found

    @classmethod
    def scenarios(cls, cfg: Config, split: Split) -> Iterable[Scenario]:
        """Return the seeds of a split. Several seeds may lead to the same start of a world."""
        for i in range(cls.num_scenarios[split]):
            yield Scenario(id=f"{split}-{i}", split=split, seed=FIRST_SEED[split] + i)

    @cached_property
    def env(self) -> Any:
        """The library's env, after a reset."""
        kwargs = dict(self.cfg.kwargs)
        if _name(self.cfg.id) == "FrozenLake" and not {"desc", "map_name"} & set(kwargs):
            # Its default is one fixed map, so all splits would be the same task.
            draw = library("gymnasium.envs.toy_text.frozen_lake", EXTRA).generate_random_map
            size = 8 if "8x8" in self.cfg.id else 4
            kwargs["desc"] = draw(size=size, seed=self.scenario.seed)
        env = _make(self.cfg.id, kwargs)
        self.has_been_made = True
        self.observation, _ = env.reset(seed=self.scenario.seed)
        self.first = self.observation
        return env

    @cached_property
    def plan(self) -> Plan | None:
        """The plan of the perfect player, or None if chance affects the world."""
        try:
            return Plan(self.env, self.world.idle)
        except ValueError:
            return None

    @cached_property
    def actions(self) -> tuple[str, ...]:
        """The names of the actions, ordered by their numbers."""
        return self.world.actions or tuple(map(str, range(int(self.env.action_space.n))))

    def start(self) -> list[Message]:
        """Return the rules and the first view."""
        about = self.world.about or f"You play {self.cfg.id}."
        by_default = _name(self.cfg.id) == "FrozenLake" or "Slippery" in self.cfg.id
        if self.cfg.kwargs.get("is_slippery", by_default):
            about += " It is slippery: you often slide to a side of where you want to go."
        system = f"{about} Call act once in each turn."
        return [{"role": "system", "content": system}, {"role": "user", "content": self._view()}]

    def _view(self) -> str:
        return self.world.show(self.env, self.observation)

    def tools(self) -> list[Tool]:
        """Return the one tool, with the actions of this world."""
        action = {"type": "string", "enum": list(self.actions)}
        parameters = {"type": "object", "properties": {"action": action}, "required": ["action"]}
        return [Tool(name="act", description="Act.", parameters=parameters, writes=True)]

    def call_tool(self, name: str, arguments: dict[str, Any]) -> str | Done:
        """Take one step and return the new view."""
        action = arguments.get("action")
        if set(arguments) != {"action"} or action not in self.actions:
            if self._is_out():
                return Done()
            raise ToolError(f"action must be one of {', '.join(self.actions)}, and nothing else")
        number = int(self.env.action_space.start) + self.actions.index(action)
        self.observation, reward, ended, cut, _ = self.env.step(number)
        self.num_steps += 1
        self.last = float(reward)
        self.total += self.last
        self.has_ended = bool(ended)
        self.is_over = bool(ended or cut or self.num_steps >= self.cfg.max_steps)
        return Done() if self.is_over else self._view()

    def reply(self, text: str) -> str | Done:
        """Ask for an action. Plain text is not an action."""
        return Done() if self._is_out() else "That was no action. Call act."

    def _is_out(self) -> bool:
        self.num_invalid += 1
        return self.num_invalid >= MOST_INVALID

    def score(self, trajectory: Trajectory) -> float:
        """Return the episode's return, scaled to 0 to 1 as the module's docstring describes."""
        invalid = sum(step.is_error or step.tool is None for step in trajectory.steps)
        worst, best = self.cfg.returns or self._bounds()
        total = self.total + self.world.idle * invalid
        has_won = total >= best if self.world is UNKNOWN else self.last >= self.world.goal
        self.metrics = {
            "success": float(has_won and (self.has_ended or self.world is UNKNOWN)),
            "return": self.total,
            "steps": float(self.num_steps),
            "invalid_actions": float(invalid),
        }
        return min(max((total - worst) / (best - worst), 0.0), 1.0) if self.is_over else 0.0

    def _bounds(self) -> tuple[float, float]:
        worst = self.world.worst
        worst = self.world.idle * self.cfg.max_steps if worst is None else worst
        planned = self.plan and self.plan.worth(self.first)
        best = self.world.best if planned is None else planned
        return worst, max(best, worst + 1.0)

    def gold(self) -> Iterator[str] | None:
        """Return the turns of the perfect player, or None if no plan reaches the goal."""
        if self.plan is None or self.plan.worth(self.first) is None:
            return None
        return self._player(0.0, random.Random())

    def _player(self, noise: float, rng: random.Random) -> Iterator[str]:
        while True:
            best = self.plan and self.plan.best(self.observation)
            if best is None or rng.random() < noise:
                yield _call(rng.choice(self.actions))
            else:
                yield _call(self.actions[best])

    @classmethod
    def demonstrations(cls, cfg: Config, num: int) -> Iterable[list[Message]]:
        """Return episodes of a player that acts at random often, or always if no plan is known."""
        for scenario in islice(cls.scenarios(cfg, "train"), num):
            env = cls(scenario, cfg)
            rng = random.Random(seed_of("demonstration", scenario.seed))
            yield play(env, env._player(cfg.demo_noise, rng).__next__)

    def close(self) -> None:
        """Close the library's env."""
        if self.has_been_made:
            self.env.close()


def _call(action: str) -> str:
    call = json.dumps({"name": "act", "arguments": {"action": action}})
    return f"<tool_call>{call}</tool_call>"


def _name(id: str) -> str:
    """Return the name of the world of an id, such as FrozenLake for FrozenLake8x8-v1."""
    return next((name for name in WORLDS if id.startswith(name)), id)


def _make(id: str, kwargs: dict[str, Any]) -> Any:
    gym = library("gymnasium", EXTRA)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of old versions: the id is what was asked for
        mode = {"render_mode": "ansi"} if _shows_text(gym.spec(id)) else {}
        return gym.make(id, disable_env_checker=True, **(mode | kwargs))


def _shows_text(spec: Any) -> bool:
    """Return whether a world can render itself as text."""
    entry = spec.entry_point
    if isinstance(entry, str):
        module, _, name = entry.partition(":")
        entry = getattr(library(module, EXTRA), name)
    return "ansi" in getattr(entry, "metadata", {}).get("render_modes", ())


@lru_cache(maxsize=256)
def _check(id: str, kwargs: str) -> None:
    """Raise ValueError if the world does not exist or cannot be played as text."""
    gym = library("gymnasium", EXTRA)
    try:
        env = _make(id, json.loads(kwargs))
    except ValueError:
        raise
    except Exception as e:  # unknown id, missing package or unexpected argument
        why = f"gymnasium.make({id!r}) failed: {e}".partition("\n")[0]
        raise ValueError(f"{why}; `art envs tasks gymnasium` lists what there is") from e
    actions = env.action_space
    try:
        if not isinstance(actions, gym.spaces.Discrete) or actions.n > MOST_ACTIONS:
            raise ValueError(f"{id} cannot be played as text: its actions are {actions}")
        is_text = env.unwrapped.render_mode == "ansi"
        if not (is_text or is_readable(env.observation_space)):
            what = env.observation_space
            raise ValueError(f"{id} cannot be played as text: its observations are {what}")
    finally:
        env.close()
