"""2048: slide all tiles; equal ones that meet merge; reach the goal tile before the board is stuck.

    user        _|2|_|_          assistant   <move>left</move>        user   2|_|_|_
                _|_|_|_                                                      _|_|_|2
                _|_|2|_                                                      2|_|_|_
                _|_|_|_                                                      _|_|_|_

Prompt, board, answer and reward are those of OpenPipe ART's example, so that results compare;
`rules: reference` restores its rules too.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Literal

from pydantic import Field

from art_cli import Done, Env, Message, Scenario, Trajectory, play, seed_of

Board = list[list[int]]  # rows of tiles; 0 is an empty cell
MOVES = ("left", "right", "up", "down")

# Any element will do, as in the reference: its text counts. Prose around it makes it invalid.
ANSWER = re.compile(r"\s*<(\w+)>\s*(left|right|up|down)\s*</\1>\s*")


def slide(board: Board, move: str) -> Board:
    """Return the board after a move, without the tile that then appears."""
    if move == "left":
        return [_slide_row(row) for row in board]
    if move == "right":
        return _mirrored(slide(_mirrored(board), "left"))
    return _transposed(slide(_transposed(board), "left" if move == "up" else "right"))


def _slide_row(row: list[int]) -> list[int]:
    slid: list[int] = []
    can_merge = False  # a tile merges at most once a move
    for tile in filter(None, row):
        if can_merge and slid[-1] == tile:
            slid[-1] = 2 * tile
            can_merge = False
        else:
            slid.append(tile)
            can_merge = True
    return slid + [0] * (len(row) - len(slid))


def _mirrored(board: Board) -> Board:
    return [row[::-1] for row in board]


def _transposed(board: Board) -> Board:
    return [list(column) for column in zip(*board, strict=True)]


def legal_moves(board: Board) -> list[str]:
    """Return the moves that change the board."""
    return [move for move in MOVES if slide(board, move) != board]


def render(board: Board) -> str:
    """Return rows of cells joined by `|`, all equally wide, with `_` for an empty cell."""
    rows = [[str(tile) if tile else "_" for tile in row] for row in board]
    width = max(len(cell) for row in rows for cell in row)
    return "".join("|".join(cell.rjust(width) for cell in row) + "\n" for row in rows)


class Game2048(Env):
    """The game 2048 on a board of any size, up to a goal tile."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of `env.args`."""

        size: Annotated[int, Field(ge=3, le=8)] = 4  # cells of a side
        goal: Literal[8, 16, 32, 64, 128, 256, 512, 1024, 2048] = 128  # the tile that wins
        # What a move that changes nothing does. standard: it is invalid and loses. lenient: it
        # costs a turn. reference: a tile appears all the same (and a full board ends the game,
        # even one with a merge left: two slips of the reference that its results depend on).
        rules: Literal["standard", "lenient", "reference"] = "standard"
        max_moves: Annotated[int, Field(ge=1)] = 200  # turns; 4x4 to tile 128 takes about 85
        demo_noise: Annotated[float, Field(ge=0, le=1)] = 0.8  # share of random demonstrated moves

    system = (
        "You are an excellent 2048 player. Always choose the move most likely to combine cells "
        "and eventually reach the number 2048. The moves are left, right, up and down. Answer "
        "with your move as XML with the single property move, like this: <move>left</move>"
    )

    def __init__(self, scenario: Scenario, cfg: Config) -> None:
        super().__init__(scenario, cfg)
        self.max_turns = cfg.max_moves
        self.board: Board = [[0] * cfg.size for _ in range(cfg.size)]
        self.num_moves = 0
        self.num_noops = 0
        self.invalid = False
        self._spawn()
        self._spawn()

    def _spawn(self) -> None:
        # All randomness is here, and a refused move draws none: siblings that play the same moves
        # see the same boards. Held-out scenarios are other streams of tiles.
        side = range(self.cfg.size)
        empty = [(row, column) for row in side for column in side if not self.board[row][column]]
        row, column = self.rng.choice(empty)
        self.board[row][column] = 4 if self.rng.random() < 0.1 else 2

    @property
    def max_value(self) -> int:
        """The largest tile."""
        return max(map(max, self.board))

    @property
    def won(self) -> bool:
        """Whether the goal is on the board."""
        return self.max_value >= self.cfg.goal

    async def start(self) -> str:
        """Return the first board, with two tiles."""
        return render(self.board)

    async def reply(self, text: str) -> str | Done:
        """Return the board after the move, or the end."""
        answer = ANSWER.fullmatch(text)
        if answer is None:
            self.invalid = True
            return Done()
        moved = slide(self.board, answer.group(2))
        if moved == self.board:
            self.num_noops += 1
            if self.cfg.rules == "standard":
                self.invalid = True
                return Done()
            if self.cfg.rules == "lenient":
                return render(self.board)
        self.board = moved
        self.num_moves += 1
        self._spawn()
        return Done() if self.won or self._stuck() else render(self.board)

    def _stuck(self) -> bool:
        if self.cfg.rules == "reference":
            return all(map(all, self.board))
        return not legal_moves(self.board)

    async def score(self, trajectory: Trajectory) -> float:
        """Return -1 for an invalid answer, 2 for the goal, otherwise the progress.

        Progress is the largest tile plus a fifth of the board's sum, both on a logarithmic scale
        from 0 (a single 2) to 1 (the goal; a board full of goals).
        """
        cfg, board_value = self.cfg, sum(map(sum, self.board))
        self.metrics = {
            "success": float(self.won),
            "win": float(self.won),  # the reference's name for it
            "max_value": float(self.max_value),
            "board_value": float(board_value),
            "num_moves": float(self.num_moves),
            "num_noops": float(self.num_noops),
            "invalid": float(self.invalid),
        }
        if self.invalid:
            return -1.0
        if self.won:
            return 2.0
        best = (math.log2(self.max_value) - 1) / (math.log2(cfg.goal) - 1)
        total = (math.log2(board_value) - 1) / (math.log2(cfg.goal * cfg.size**2) - 1)
        return best + 0.2 * total

    @classmethod
    def demonstrations(cls, cfg: Config, num: int) -> Iterable[list[Message]]:
        """Legal play, partly random, else greedy: empty cells, and the best in a corner."""
        for scenario in islice(cls.scenarios(cfg, "train"), num):
            env = cls(scenario, cfg)
            rng = random.Random(seed_of("demonstration", scenario.seed))
            yield play(env, env._noisy_player(rng).__next__)

    def _noisy_player(self, rng: random.Random) -> Iterator[str]:
        while True:
            moves = legal_moves(self.board)
            if rng.random() < self.cfg.demo_noise:
                move = rng.choice(moves)
            else:
                move = max(moves, key=self._promise)
            yield f"<move>{move}</move>"

    def _promise(self, move: str) -> float:
        board = slide(self.board, move)
        num_empty = sum(row.count(0) for row in board)
        cornered = board[-1][0] == max(map(max, board))
        return num_empty + 1.5 * cornered + 0.1 * (move in ("left", "down"))
