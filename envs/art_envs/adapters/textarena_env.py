"""TextArena: games in words, of one player or of two: self-play, or against random moves.

    user        You are Player 0 in Tic Tac Toe. ... Available Moves: '[0]', '[1]', ...
    assistant   I take the middle: [4]
    user        [Player 1] [0]
                Current Board: ...

`id` is what textarena.make() takes, without its endings: each observation is what the game has to
say since the last one, as in its "-raw" variants, and an answer goes to the game as it is. The
reward is the game's own: 1 for a win; against another player -1 for a loss, be it by two invalid
moves on end; alone from 0 to 1 for how far it came. A game that is not played to its end is worth
-1 to each. What is legal in a game of two, its script has to know (MOVES); against other opponents,
`env.opponents`, all of them can be played.
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

from art_cli import Game, Message, Scenario, Split, UsageError, play, seed_of
from art_envs.adapters.library import FIRST_SEED, IsolatedRandomness, library

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
NO_SCRIPT = (
    "nobody here knows what is legal in {}: name its opponents, env.opponents (docs/games.md)"
)
# What one player may say, for demonstrations.
ALONE = {
    "2048": ["[up]", "[down]", "[left]", "[right]"],
    "FrozenLake": ["[up]", "[down]", "[left]", "[right]"],
    "GuessTheNumber": NUMBERS[1:51],
    "Secretary": ["[accept]", "[continue]"],
}


class TextArena(Game):
    """Games in words, from TextArena: of one player, or of two, each of them a seat."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of `env.args`."""

        id: str  # `art envs tasks textarena` lists them
        kwargs: dict[str, Any] = field(default_factory=dict)  # for textarena.make
        max_turns: Annotated[int, Field(ge=1, le=1000)] = 100  # answers, invalid ones too

        def __post_init__(self) -> None:
            """Raise ValueError where there is no such game, or it cannot be played."""
            _num_players(self.id, json.dumps(self.kwargs))

    system = "You play a game. Answer with your move, in square brackets as the game wants it."

    def __init__(self, scenario: Scenario, cfg: Config) -> None:
        super().__init__(scenario, cfg)
        self.max_turns = cfg.max_turns
        self.numbers = IsolatedRandomness(scenario.seed)
        self.num_invalid = dict.fromkeys(self.seats_of(cfg), 0)

    @classmethod
    def seats_of(cls, cfg: Config) -> tuple[str, ...]:
        """Return the players, as the games number them."""
        return tuple(f"player{i}" for i in range(_num_players(cfg.id, json.dumps(cfg.kwargs))))

    @classmethod
    def has_script(cls, cfg: Config) -> bool:
        """Return whether it is known here what may be said in a game of two."""
        return _name(cfg.id) in MOVES or len(cls.seats_of(cfg)) == 1

    @classmethod
    def task_list(cls) -> dict[str, str]:
        """Return the games that can be played here."""
        found = {}
        for id in sorted(_ids()):
            try:
                num = _players_of(id)
            except ValueError:
                continue
            against = "two players" if _name(id) in MOVES else "two players, opponents named"
            found[f"id={id}"] = "one player" if num == 1 else against
        return found

    @classmethod
    def games(cls, cfg: Config, split: Split) -> Iterable[Scenario]:
        """Return the seeds of a split. A game may turn several seeds into the same start."""
        for i in range(cls.num_scenarios[split]):
            yield Scenario(id=f"{split}-{i}", split=split, seed=FIRST_SEED[split] + i)

    def set_up(self) -> None:  # type: ignore[override] (in a thread: the library may take long)
        """Create the game with its own random state."""
        with self.numbers.lent():
            self.game = _make(self.cfg.id, self.cfg.kwargs)
            num = len(self.seats_of(self.cfg))
            self.game.reset(num_players=num, seed=self.scenario.seed % 2**32)
        self.is_over = False
        self.turn = self._mover()

    def observe(self, seat: str) -> str:  # type: ignore[override]
        """Return the rules at first, and later the messages since then, without the seat's own."""
        state, player = self.game.state, self._number(seat)
        with self.numbers.lent():
            if state.current_player_id == player:
                _, found = self.game.get_observation()
            else:  # the seat reads how the game ended
                found, state.observations[player] = state.observations[player], []
        names = state.role_mapping
        return "\n".join(
            text if sender < 0 else f"[{names.get(sender, sender)}] {text}"
            for sender, text, _ in found
            if sender != player
        )

    def move(self, seat: str, text: str) -> None:  # type: ignore[override]
        """Send a move to the game. The game warns about one invalid move and ends at the next."""
        with self.numbers.lent():
            self.is_over = bool(self.game.step(action=text)[0])
        self.num_invalid[seat] += _was_invalid(self.game.state, self._number(seat))
        self.turn = None if self.is_over else self._mover()

    def script(self, seat: str) -> str:  # type: ignore[override]
        """Return a legal move, at random."""
        if not self.has_script(self.cfg):
            raise UsageError(NO_SCRIPT.format(self.cfg.id))
        with self.numbers.lent():
            self.game.get_observation()
            return self._random_move(self._number(seat))

    def _mover(self) -> str:
        return self.seats_of(self.cfg)[self.game.state.current_player_id]

    def _number(self, seat: str) -> int:
        return self.seats_of(self.cfg).index(seat)

    def _random_move(self, player: int, rng: random.Random | None = None) -> str:
        """Return a legal move: the first, in random order, that a copy of the game accepts."""
        moves = (MOVES | ALONE)[_name(self.cfg.id)]
        for move in (rng or self.rng).sample(moves, len(moves)):
            trial, before = copy.deepcopy(self.game), random.getstate()
            trial.step(action=move)
            random.setstate(before)
            if not _was_invalid(trial.state, player):
                return move
        raise RuntimeError(f"no move of {self.cfg.id} is legal: {moves}")

    async def reward(self, seat: str) -> float:
        """Return the game's reward, or -1 if the game did not end."""
        rewards = self.game.state.rewards if self.is_over else None
        return -1.0 if rewards is None else float(rewards[self._number(seat)])

    async def metrics_of(self, seat: str) -> dict[str, float]:
        """Return metrics of the game's end for a seat."""
        reward, info = await self.reward(seat), self.game.state.game_info[self._number(seat)]
        return {
            "success": float(reward >= 1),
            "draw": float(self.is_over and reward == 0),
            "finished": float(self.is_over),
            "invalid_moves": float(self.num_invalid[seat]),
            "lost_by_invalid_move": float(bool(info.get("invalid_move"))),
        }

    async def judge_context(self) -> str:
        """Return how the game ended."""
        return str(self.game.state.game_info[self._number(self.seat)].get("reason", ""))

    @classmethod
    def demonstrations(cls, cfg: Config, num: int) -> Iterable[list[Message]]:
        """Return games of random legal moves, if the game's moves are known here."""
        if _name(cfg.id) not in MOVES | ALONE:
            return
        for scenario in islice(cls.scenarios(cfg, "train"), num):
            env = cls(scenario, cfg)
            rng = random.Random(seed_of("demonstration", scenario.seed))
            yield play(env, env._random_player(rng).__next__)

    def _random_player(self, rng: random.Random) -> Iterator[str]:
        while True:
            with self.numbers.lent():
                move = self._random_move(self._number(self.seat), rng)
            yield move


def _was_invalid(state: Any, player: int) -> bool:
    """Return whether the last step was an invalid move, including one with only a warning."""
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
    """Return 1 or 2. Raise ValueError if the game cannot be played here."""
    num = _players_of(id)
    try:
        with IsolatedRandomness(0).lent():
            _make(id, json.loads(kwargs))
    except Exception as e:
        lines = [line.strip() for line in str(e).splitlines() if line.strip(" *")]
        why = f"{type(e).__name__}: {(lines or [''])[0]}"
        raise ValueError(f"TextArena cannot make {id} here: {why}") from e
    return num


def _players_of(id: str) -> int:
    """Return 1 or 2 without importing the game: some games download data when imported."""
    if id not in _ids():
        raise ValueError(f"TextArena has no game {id!r}; `art envs tasks textarena` lists them")
    if _name(id) in MOVES:
        return 2
    entry = library("textarena.envs.registration", EXTRA).ENV_REGISTRY[f"{id}-raw"].entry_point
    home = Path(library("textarena", EXTRA).__file__ or "").parents[1]
    file = home.joinpath(*entry.partition(":")[0].split(".")).with_suffix(".py")
    code = file.read_text("utf-8") if file.is_file() else ""
    for state, num in (("SinglePlayerState(", 1), ("TwoPlayerState(", 2)):
        if state in code:
            return num
    raise ValueError(
        f"{id} is a game of more than two: `art envs tasks textarena` lists what can be played"
    )
