"""Scenarios of a domain, built from its random goals: shares of kinds, splits, gates."""

from __future__ import annotations

import json
import random
from typing import Any

from art_cli import Scenario, Split, seed_of, tell
from art_envs.service.domain import Domain
from art_envs.service.gates import check
from art_envs.service.goal import MIX, Goal, Kind

ATTEMPTS = 1000  # tries to find a user who fits a kind and has no goal that another user has


def build_goals(desk: type[Domain], cfg: Any) -> dict[Split, list[Goal]]:
    """Return the goals of all splits. A tenth of the users is reserved for each of val and test.

    Raise GateError if a goal fails a gate, which means that `desk.draw_goal` is wrong.
    """
    users, num = list(desk.database(cfg)["users"]), desk.num_goals[cfg.size]
    order = random.Random(seed_of(desk.__name__, "users")).sample(users, len(users))
    tenth = len(order) // 10
    parts: dict[Split, list[str]] = {
        "val": order[:tenth],
        "test": order[tenth : 2 * tenth],
        "train": order[2 * tenth :],
    }
    seen: set[str] = set()
    out: dict[Split, list[Goal]] = {"train": [], "val": [], "test": []}
    made, total = 0, sum(num.values())
    for split, goals in out.items():
        kinds = _kinds(desk, cfg, num[split], random.Random(seed_of(desk.__name__, split)))
        for i, kind in enumerate(kinds):
            rng = random.Random(seed_of(desk.__name__, cfg.size, cfg.level, split, i))
            goals.append(_new(desk, cfg, rng, parts[split], kind, seen))
            data = {"goal": goals[-1]}
            check(desk, cfg, Scenario(id=f"{split}-{i}", split=split, seed=i, data=data))
            made += 1
            tell(f"making the scenarios of {desk.__name__}, once for all runs", made, total)
    return out


def _kinds(desk: type[Domain], cfg: Any, num: int, rng: random.Random) -> list[Kind]:
    """Return the kinds in random order, each as often as its share says."""
    kinds = desk.kinds(cfg)
    total = sum(MIX[kind] for kind in kinds)
    out: list[Kind] = []
    reached = 0
    for kind in kinds:
        reached += MIX[kind]
        out.extend(kind for _ in range(round(num * reached / total) - len(out)))
    rng.shuffle(out)
    return out


def _new(
    desk: type[Domain],
    cfg: Any,
    rng: random.Random,
    users: list[str],
    kind: Kind,
    seen: set[str],
) -> Goal:
    for _ in range(ATTEMPTS):
        goal = desk.draw_goal(cfg, rng, rng.choice(users), kind)
        key = json.dumps([goal["user_id"], goal["opening"], goal["script"]]) if goal else ""
        if goal and key not in seen:
            seen.add(key)
            return goal
    raise ValueError(f"found no new goal of kind {kind!r} in {ATTEMPTS} attempts")
