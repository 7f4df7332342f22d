"""TextArena: games in words, of one player or against a script that moves at random.

    user        You are Player 0 in Tic Tac Toe. ... Available Moves: '[0]', '[1]', ...
    assistant   I take the middle: [4]
    user        [Player 1] [0]
                Current Board: ...

`id` is what textarena.make() takes, without its endings: each observation is what the game has to
say since the last one, as in its "-raw" variants, and an answer goes to the game as it is. The
reward is the game's own: 1 for a win; against another player -1 for a loss, be it by two invalid
moves on end; alone from 0 to 1 for how far it came. A game that is not played to its end is worth
-1.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice, product
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from art_cli import Done, Env, Message, Scenario, Split, Trajectory, play, seed_of
from art_envs.adapters.library import FIRST_SEED, OwnRandomness, library

EXTRA = "textarena"
# All that may be said in a game of two: which of it is legal, a copy of the game is asked.
NUMBERS = [f"[{i}]" for i in range(64)]
MOVES = {
    "Chopsticks": [
        f"[{what} {a} {b}]" for what in ("attack", "split") for a, b in product("01234", repeat=2)
    ],
    "ConnectFour": [f"[col {i}]" for i in range(12)],
    "KuhnPoker": ["[check]", "[bet]", "[call]", "[fold]"],
    "Nim": [f"[{pile} {number}]" for pile, number in product(range(7), range(1, 12))],
    "PigDice": ["[roll]", "[hold]"],
    "SimpleTak": NUMBERS,
    "TicTacToe": NUMBERS[:9],
    "WildTicTacToe": [f"[{mark} {i}]" for mark in "XO" for i in range(9)],
}
# What one player may say, for demonstrations.
ALONE = {
    "2048": ["[up]", "[down]", "[left]", "[right]"],
    "FrozenLake": ["[up]", "[down]", "[left]", "[right]"],
    "GuessTheNumber": NUMBERS[1:51],
    "Secretary": ["[accept]", "[continue]"],
}


class TextArena(Env):
    """Games in words, from TextArena: of one player, or against one who moves at random."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of `env.args`."""

        id: str  # `art envs tasks textarena` lists them
        kwargs: dict[str, Any] = field(default_factory=dict)  # for textarena.make
        max_turns: Annotated[int, Field(ge=1, le=1000)] = 100  # answers, invalid ones too

        def __post_init__(self) -> None:
            """Raise ValueError where there is no such game, or nobody to play it with."""
            _num_players(self.id, json.dumps(self.kwargs))

    system = "You play a game. Answer with your move, in square brackets as the game wants it."

    def __init__(self, scenario: Scenario, cfg: Config) -> None:
        super().__init__(scenario, cfg)
        self.max_turns = cfg.max_turns
        self.numbers = OwnRandomness(scenario.seed)
        self.num_invalid = 0
        num = _num_players(cfg.id, json.dumps(cfg.kwargs))
        self.seat = self.rng.randrange(num)  # the other one begins in about half of the games

    @classmethod
    def task_list(cls) -> dict[str, str]:
        """Return the games that can be played here."""
        found = {}
        for id in sorted(_ids()):
            try:
                num = _players_of(id)
            except ValueError:
                continue
            found[f"id={id}"] = "one player" if num == 1 else "against random moves"
        return found

    @classmethod
    def scenarios(cls, cfg: Config, split: Split) -> Iterable[Scenario]:
        """Return the seeds of a split. A game may make the same of many of them."""
        for i in range(cls.num_scenarios[split]):
            yield Scenario(id=f"{split}-{i}", split=split, seed=FIRST_SEED[split] + i)

    def start(self) -> str:
        """Return the rules, and what happened before the first move."""
        with self.numbers.lent():
            self.game = _make(self.cfg.id, self.cfg.kwargs)
            num = _num_players(self.cfg.id, json.dumps(self.cfg.kwargs))
            self.game.reset(num_players=num, seed=self.scenario.seed % 2**32)
            self.is_over = False
            self._opponent_moves()
            return self._news()

    def reply(self, text: str) -> str | Done:
        """Give the game an answer, and return what it says."""
        with self.numbers.lent():
            self.is_over = bool(self.game.step(action=text)[0])
            self.num_invalid += _was_invalid(self.game.state, self.seat)
            self._opponent_moves()
            return Done() if self.is_over else self._news()

    def _news(self) -> str:
        """Return what was said since the last turn, but for what the model said itself."""
        names = self.game.state.role_mapping
        _, found = self.game.get_observation()
        return "\n".join(
            text if sender < 0 else f"[{names.get(sender, sender)}] {text}"
            for sender, text, _ in found
            if sender != self.seat
        )

    def _opponent_moves(self) -> None:
        state = self.game.state
        while not self.is_over and state.current_player_id != self.seat:
            self.game.get_observation()
            move = self._random_move(state.current_player_id)
            self.is_over = bool(self.game.step(action=move)[0])

    def _random_move(self, player: int, rng: random.Random | None = None) -> str:
        """Return a legal move: in random order, the first that a copy of the game takes."""
        moves = (MOVES | ALONE)[_name(self.cfg.id)]
        for move in (rng or self.rng).sample(moves, len(moves)):
            trial, before = copy.deepcopy(self.game), random.getstate()
            trial.step(action=move)
            random.setstate(before)
            if not _was_invalid(trial.state, player):
                return move
        raise RuntimeError(f"no move of {self.cfg.id} is legal: {moves}")

    def score(self, trajectory: Trajectory) -> float:
        """Return the game's reward, or -1 where it was not played to its end."""
        rewards = self.game.state.rewards if self.is_over else None
        reward = -1.0 if rewards is None else float(rewards[self.seat])
        info = self.game.state.game_info[self.seat]
        self.metrics = {
            "success": float(reward >= 1),
            "draw": float(self.is_over and reward == 0),
            "finished": float(self.is_over),
            "invalid_moves": float(self.num_invalid),
            "lost_by_invalid_move": float(bool(info.get("invalid_move"))),
        }
        return reward

    def judge_context(self) -> str:
        """Return how the game ended."""
        return str(self.game.state.game_info[self.seat].get("reason", ""))

    @classmethod
    def demonstrations(cls, cfg: Config, num: int) -> Iterable[list[Message]]:
        """Return games of random legal moves, of those whose moves are known here."""
        if _name(cfg.id) not in MOVES | ALONE:
            return
        for scenario in islice(cls.scenarios(cfg, "train"), num):
            env = cls(scenario, cfg)
            rng = random.Random(seed_of("demonstration", scenario.seed))
            yield play(env, env._random_player(rng).__next__)

    def _random_player(self, rng: random.Random) -> Iterator[str]:
        while True:
            with self.numbers.lent():
                move = self._random_move(self.seat, rng)
            yield move


def _was_invalid(state: Any, player: int) -> bool:
    """Return whether the last step was an invalid move: the game lets one pass, with a warning."""
    return state.error_count > 0 or bool(state.game_info[player].get("invalid_move"))


def _name(id: str) -> str:
    return id.partition("-")[0]


def _ids() -> list[str]:
    registry = library("textarena.envs.registration", EXTRA).ENV_REGISTRY
    return [id.removesuffix("-raw") for id in registry if id.endswith("-raw")]


def _make(id: str, kwargs: dict[str, Any]) -> Any:
    return library("textarena", EXTRA).make(f"{id}-raw", **kwargs)


@lru_cache(maxsize=512)
def _num_players(id: str, kwargs: str) -> int:
    """Return 1 or 2. Raise ValueError where the game cannot be played here."""
    num = _players_of(id)
    try:
        with OwnRandomness(0).lent():
            _make(id, json.loads(kwargs))
    except Exception as e:
        lines = [line.strip() for line in str(e).splitlines() if line.strip(" *")]
        why = f"{type(e).__name__}: {(lines or [''])[0]}"
        raise ValueError(f"TextArena cannot make {id} here: {why}") from e
    return num


def _players_of(id: str) -> int:
    """Return 1 or 2, without the game's code: some of it fetches data as it is imported."""
    if id not in _ids():
        raise ValueError(f"TextArena has no game {id!r}; `art envs tasks textarena` lists them")
    if _name(id) in MOVES:
        return 2
    entry = library("textarena.envs.registration", EXTRA).ENV_REGISTRY[f"{id}-raw"].entry_point
    home = Path(library("textarena", EXTRA).__file__ or "").parents[1]
    code = home.joinpath(*entry.partition(":")[0].split(".")).with_suffix(".py")
    if code.is_file() and "SinglePlayerState(" in code.read_text("utf-8"):
        return 1
    raise ValueError(
        f"{id} is a game of several: what one player plays is listed by `art envs tasks textarena`,"
        f" and against random moves {', '.join(sorted(MOVES))}"
    )
