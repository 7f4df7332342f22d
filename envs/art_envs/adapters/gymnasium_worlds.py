"""Four worlds of Gymnasium in words, and the scale of their returns.

World.show(env, observation)     what the model reads
Plan(env).best(state)            the action of a perfect player, where nothing is left to chance
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

COLOURS = re.compile("\x1b\\[[0-9;]*m")
PLACES = "RGYB"  # names of Taxi's four places
MOST_NUMBERS = 64  # limit of numbers in an observation


@dataclass(frozen=True, kw_only=True)
class World:
    """One of Gymnasium's worlds, in words."""

    about: str  # the rules, for the system prompt
    actions: tuple[str, ...]  # the names of the actions 0, 1, 2 ...
    show: Callable[[Any, Any], str]  # (env, observation) -> text
    best: float  # the return that is worth 1, unless a plan gives the best possible one
    goal: float  # the last reward of a successful episode
    idle: float = 0.0  # the reward of a step that changes nothing
    worst: float | None = None  # the return that is worth 0; None: the return of an idle player


def of_lake(env: Any, observation: Any) -> str:
    """Return the map of FrozenLake, with P for the player."""
    rows = [[cell.decode() for cell in row] for row in env.unwrapped.desc]
    row, column = divmod(int(observation), len(rows[0]))
    rows[row][column] = "P"
    return "\n".join(" ".join(row) for row in rows)


def of_cliff(env: Any, observation: Any) -> str:
    """Return the map of CliffWalking."""
    return "\n".join(line.replace("  ", " ") for line in env.render().splitlines() if line)


def of_taxi(env: Any, observation: Any) -> str:
    """Return the map of Taxi with T for the taxi, and the passenger and destination in words."""
    row, column, passenger, destination = env.unwrapped.decode(int(observation))
    lines = [[cell.decode() for cell in line] for line in env.unwrapped.desc]
    lines[1 + row][1 + 2 * column] = "T"
    where = "in the taxi" if passenger == 4 else f"at {PLACES[passenger]}"
    here = [p for p, at in zip(PLACES, env.unwrapped.locs, strict=True) if at == (row, column)]
    text = "\n".join("".join(line) for line in lines)
    at = f"taxi: at {here[0]}" if here else f"taxi: row {row}, column {column}"
    return f"{text}\n{at}\npassenger: {where}\ndestination: {PLACES[destination]}"


def of_blackjack(env: Any, observation: Any) -> str:
    """Return the player's view in Blackjack: the sum, the dealer's card and the usable ace."""
    total, dealer, ace = map(int, observation)
    return f"sum {total}, dealer {dealer}, usable ace: {'yes' if ace else 'no'}"


def of_any(env: Any, observation: Any) -> str:
    """Return the text that a world renders, or else its observation."""
    if env.unwrapped.render_mode == "ansi":
        return COLOURS.sub("", env.render()).strip("\n")
    return _told(observation)


def _told(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "\n".join(f"{name}: {_told(each)}" for name, each in value.items())
    if isinstance(value, tuple):
        return ", ".join(map(_told, value))
    if getattr(value, "shape", ()):
        return " ".join(map(_told, value.ravel()))
    return f"{float(value):.3g}"


WORLDS = {
    "FrozenLake": World(
        about="You walk over a frozen lake from S to G. F is ice. H is a hole: who falls in has "
        "lost. P is where you are.",
        actions=("left", "down", "right", "up"),
        show=of_lake,
        best=1.0,
        goal=1.0,
    ),
    "CliffWalking": World(
        about="You walk from the lower left corner to T. C is a cliff: who falls is back at the "
        "start, and it costs 100. Each step costs 1. x is where you are.",
        actions=("up", "right", "down", "left"),
        show=of_cliff,
        best=-13.0,
        goal=-1.0,
        idle=-1.0,
    ),
    "Taxi": World(
        about="You drive a taxi, T on the map. Pick the passenger up where they are, drive them to "
        "their destination and drop them off. The places are R, G, Y and B. You cannot drive "
        "through |; you can through :. Each step costs 1, a pickup or dropoff at a wrong place 10.",
        actions=("south", "north", "east", "west", "pickup", "dropoff"),
        show=of_taxi,
        best=8.0,
        goal=20.0,
        idle=-1.0,
    ),
    "Blackjack": World(
        about="You play blackjack. hit takes a card: over 21 you have lost. stick ends your turn: "
        "the dealer draws up to 17 or more, and the higher sum wins. An ace counts 11 while it can "
        "(it is usable), else 1; the dealer's 1 is an ace.",
        actions=("stick", "hit"),
        show=of_blackjack,
        best=1.0,
        goal=1.0,
        worst=-1.0,
    ),
}


def is_readable(space: Any) -> bool:
    """Return whether an observation of a space fits into a line or two."""
    kind = type(space).__name__
    if kind in ("Tuple", "Dict"):
        parts = space.spaces.values() if kind == "Dict" else space.spaces
        return all(map(is_readable, parts))
    if kind in ("Box", "MultiDiscrete", "MultiBinary"):
        return math.prod(space.shape) <= MOST_NUMBERS
    return kind in ("Discrete", "Text")


class Plan:
    """The shortest way to the goal from every state of a world with a transition table."""

    def __init__(self, env: Any, idle: float) -> None:
        """Raise ValueError if chance affects the world or it has no transition table."""
        leads = getattr(env.unwrapped, "P", None)
        if not leads or any(len(found) > 1 for acts in leads.values() for found in acts.values()):
            raise ValueError("there is no plan where chance decides")
        edges = [(s, a, *found[0][1:]) for s, acts in leads.items() for a, found in acts.items()]
        top = max(reward for *_, reward, ends in edges if ends)
        into: dict[int, list[tuple[int, int, float]]] = {}
        self._best: dict[int, int] = {}
        self._worth: dict[int, float] = {}  # by state: the best return from there on
        frontier: list[int] = []
        for state, action, after, reward, ends in edges:
            if ends and reward == top and state not in self._best:
                self._best[state], self._worth[state] = int(action), float(reward)
                frontier.append(state)
            elif not ends and reward >= idle:  # neither a fall nor a forbidden act
                into.setdefault(after, []).append((state, int(action), float(reward)))
        for after in frontier:  # the list grows while it is read, nearest states first
            for state, action, reward in into.get(after, ()):
                if state not in self._best:
                    self._best[state] = action
                    self._worth[state] = reward + self._worth[after]
                    frontier.append(state)

    def best(self, state: Any) -> int | None:
        """Return the action to take in a state, or None if the goal cannot be reached."""
        return self._best.get(int(state))

    def worth(self, state: Any) -> float | None:
        """Return the best return from a state on, or None if the goal cannot be reached."""
        return self._worth.get(int(state))
