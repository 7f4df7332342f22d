"""Measure what players that follow a rule earn at the desks, by level: the table of docs/desks.md.

    python -m scripts.bench.desks                    # all desks and levels, 100 scenarios each
    python -m scripts.bench.desks retail --levels 2 3
    python -m scripts.bench.desks --counts --tau2 ~/tau2-bench   # what the scenarios hold

Every honest wording must earn 1.00, a player that does no work at most 0.10, and one that works
without the policy at most 0.40, also where it is told what training scenarios mostly ask for. One
that goes on with what was wanted first earns at most the share of customers who keep their mind.
Exits with 1 where one does not.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

from art_envs.airline.desk import AirlineDesk
from art_envs.retail.desk import RetailDesk
from art_envs.retail.dual import DualDesk
from art_envs.service.desk import ServiceDesk
from art_envs.service.goal import MINDS_FROM, minds
from scripts.bench.desk_counts import of_desk, of_tau2, table
from scripts.bench.desk_guesses import BLIND, PRIOR
from scripts.bench.desk_players import DEAF, HONEST, IDLE, WORDY, Player, episodes, reward

DESKS: dict[str, tuple[type[ServiceDesk], tuple[int, ...]]] = {
    "retail": (RetailDesk, (0, 1, 2, 3, 4)),
    "airline": (AirlineDesk, (0, 1, 2, 3, 4)),
    "retail_dual": (DualDesk, (1, 2, 3, 4)),
}
GROUPS: list[tuple[str, dict[str, Player], float, float]] = [  # the least and most that is right
    ("honest wordings", HONEST, 1.0, 1.0),
    ("no work", IDLE, 0.0, 0.1),
    ("work without the policy", BLIND, 0.0, 0.4),
    ("a guess from the tool's name", PRIOR, 0.0, 0.4),
    ("the policy, and deaf to a change of mind", DEAF, 0.0, 1.0),
]


def main() -> None:
    """Play all levels and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("desks", nargs="*", metavar="DESK", help=", ".join(DESKS))
    parser.add_argument("--levels", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--counts", action="store_true", help="count what the scenarios hold")
    parser.add_argument("--tau2", type=Path, help="with --counts: a clone of tau2-bench beside it")
    args = parser.parse_args()
    if unknown := set(args.desks) - set(DESKS):
        parser.error(f"no desk {unknown.pop()!r}; there are {', '.join(DESKS)}")
    if args.counts:
        counts = {name: of_desk(DESKS[name][0]) for name in args.desks or DESKS}
        theirs = ("retail", "airline", "telecom") if args.tau2 else ()
        print(table({f"tau2 {d}": of_tau2(args.tau2, d) for d in theirs} | counts))
        return
    columns = [
        (d, level) for d in args.desks or DESKS for level in DESKS[d][1] if level in args.levels
    ]
    print("| | " + " | ".join(f"{desk} {level}" for desk, level in columns) + " |")
    print("|---" * (1 + len(columns)) + "|")
    wrong: list[str] = []
    for group, players, least, most in GROUPS:
        print(f"| **{group}**" + " |" * (1 + len(columns)))
        for name, player in players.items():
            cells = []
            for desk, level in columns:
                env = DESKS[desk][0]
                if level < (MINDS_FROM if players is DEAF else player in WORDY):
                    cells.append("-")
                    continue
                earned = mean_reward(env, level, player, args.episodes)
                cells.append(f"{earned:.2f}")
                at_most = steadfast(env, level, args.episodes) if players is DEAF else most
                if not least <= earned <= at_most:
                    wrong.append(f"{name}, {desk} {level}: {earned:.2f}")
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    if wrong:
        sys.exit("not within their bounds:\n" + "\n".join(wrong))


def mean_reward(env: type[ServiceDesk], level: int, player: Player, num: int) -> float:
    """Return the mean reward of a player over held-out scenarios."""
    cfg = env.Config(level=level)  # type: ignore[arg-type]
    return statistics.fmean(reward(desk, player(desk)) for desk in episodes(env, cfg, num))


def steadfast(env: type[ServiceDesk], level: int, num: int) -> float:
    """Return the share of held-out customers who do not change their mind."""
    cfg = env.Config(level=level)  # type: ignore[arg-type]
    return statistics.fmean(float(not minds(desk.goal)) for desk in episodes(env, cfg, num))


if __name__ == "__main__":
    main()
