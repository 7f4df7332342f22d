"""Tic-tac-toe against an opponent.

    user        x 2 3       three rows         assistant   x - o - <move> 9</move>
                4 o 6
                7 8 9
                x 4 7       three columns
                2 o 8
                3 6 9
                x o 9       two diagonals
                3 o 7

The model plays x; a free cell shows its number. The opponent begins in about half of the episodes.
Before its move the model says which cell would complete a line of x, and which one of o. Saying so
earns nothing, but puts what decides where even a very small model sees it, as showing every line
does.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Annotated, Literal

from pydantic import Field

from art_cli import Done, Env, Message, Scenario, Trajectory, play, seed_of

Board = str  # nine characters, row by row: x, o, or _ for a free cell
Player = Literal["x", "o"]
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
ANSWER = re.compile(r"[^<>]*<move>\s*([1-9])\s*</move>\s*")
RANDOM_MOVES = {"random": 1.0, "mixed": 0.5, "perfect": 0.0}  # an opponent's share of random moves


def free_cells(board: Board) -> list[int]:
    """Return the free cells, counted from 0."""
    return [cell for cell in range(9) if board[cell] == "_"]


def mark(board: Board, cell: int, player: Player) -> Board:
    """Return the board after a move."""
    return board[:cell] + player + board[cell + 1 :]


def has_won(board: Board, player: Player) -> bool:
    """Return whether the player holds a line."""
    return any(board[a] == board[b] == board[c] == player for a, b, c in LINES)


def completing_cell(board: Board, player: Player) -> int | None:
    """Return the first cell that gives the player a line, if there is one."""
    cells = free_cells(board)
    return next((c for c in cells if has_won(mark(board, c, player), player)), None)


def other(player: Player) -> Player:
    """Return the other player."""
    return "o" if player == "x" else "x"


@cache
def value(board: Board, player: Player) -> int:
    """Return the value of a board for the player to move under perfect play: 1, 0 or -1."""
    if has_won(board, other(player)):
        return -1
    moves = (mark(board, cell, player) for cell in free_cells(board))
    return max((-value(after, other(player)) for after in moves), default=0)


def best_cells(board: Board, player: Player) -> list[int]:
    """Return all moves of perfect play."""
    values = {c: -value(mark(board, c, player), other(player)) for c in free_cells(board)}
    best = max(values.values())
    return [cell for cell, worth in values.items() if worth == best]


def render(board: Board) -> str:
    """Return the rows, the columns and the diagonals. Each cell is a token of its own."""
    cells = [str(i) if m == "_" else m for i, m in enumerate(board, start=1)]
    return "\n".join("".join(f" {cells[i]}" for i in line) for line in LINES)


class TicTacToe(Env):
    """Tic-tac-toe as x, against an opponent from random to perfect."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of `env.args`."""

        opponent: Literal["random", "mixed", "perfect"] = "random"  # mixed: half of its moves are
        # Share of demonstrated moves that are random: SFT teaches how to speak and a little
        # of how to play, and leaves the rest to be learned by reward.
        demo_noise: Annotated[float, Field(ge=0, le=1)] = 0.75

    system = (
        "You play tic-tac-toe as x. You see the rows, the columns and the diagonals. Say which "
        "cell would complete a line of x, and which one of o, then the number of a free cell, for "
        "example\nx - o 5 <move> 5</move>"
    )
    max_turns = 5

    def __init__(self, scenario: Scenario, cfg: Config) -> None:
        super().__init__(scenario, cfg)
        self.board: Board = "_" * 9
        self.result: Literal["win", "draw", "loss", "illegal"] | None = None
        # A scenario is only the first player and the opponent's random seed. Held-out scenarios
        # have unseen seeds, while most boards of so small a game also occur in training.
        if self.rng.random() < 0.5:
            self._opponent_moves()

    def _opponent_moves(self) -> None:
        at_random = self.rng.random() < RANDOM_MOVES[self.cfg.opponent]
        cells = free_cells(self.board) if at_random else best_cells(self.board, "o")
        self.board = mark(self.board, self.rng.choice(cells), "o")

    async def start(self) -> str:
        """Return the empty board, or the one after the opponent's first move."""
        return render(self.board)

    async def reply(self, text: str) -> str | Done:
        """Return the board after the opponent's answer, or the end."""
        answer = ANSWER.fullmatch(text)
        cell = int(answer.group(1)) - 1 if answer else None
        if cell is None or self.board[cell] != "_":
            self.result = "illegal"
            return Done()
        self.board = mark(self.board, cell, "x")
        if has_won(self.board, "x"):
            self.result = "win"
        elif free_cells(self.board):
            self._opponent_moves()
            if has_won(self.board, "o"):
                self.result = "loss"
        if self.result is None and not free_cells(self.board):
            self.result = "draw"
        return Done() if self.result else render(self.board)

    async def score(self, trajectory: Trajectory) -> float:
        """Return 1 for a win, 0.5 for a draw, 0 for a loss, -0.2 for an illegal move."""
        self.metrics = {
            "success": float(self.result == "win"),
            "win": float(self.result == "win"),
            "draw": float(self.result == "draw"),
            "illegal": float(self.result == "illegal"),
        }
        rewards = {"win": 1.0, "draw": 0.5, "loss": 0.0, "illegal": -0.2}
        return rewards[self.result] if self.result else 0.0  # None: the game was cut off

    @classmethod
    def demonstrations(cls, cfg: Config, num: int) -> Iterable[list[Message]]:
        """Legal play, mostly at random: how to answer, and little of how to win."""
        for scenario in islice(cls.scenarios(cfg, "train"), num):
            env = cls(scenario, cfg)
            rng = random.Random(seed_of("demonstration", scenario.seed))
            yield play(env, env._noisy_player(rng).__next__)

    def _noisy_player(self, rng: random.Random) -> Iterator[str]:
        while True:
            at_random = rng.random() < self.cfg.demo_noise
            cells = free_cells(self.board) if at_random else best_cells(self.board, "x")
            seen = [completing_cell(self.board, player) for player in ("x", "o")]
            x, o = ("-" if cell is None else cell + 1 for cell in seen)
            yield f"x {x} o {o} <move> {rng.choice(cells) + 1}</move>"
