"""Rules of the section `env.opponents`."""

from __future__ import annotations

from typing import Any

from art_cli.config.rule import Rule, clash
from art_cli.config.schema import REFERENCE


def _holds_weights(opponents: Any) -> bool:
    players = opponents.values() if isinstance(opponents, dict) else ()
    return any(p == "start" or (isinstance(p, dict) and "checkpoint" in p) for p in players)


OPPONENT_RULES = (
    Rule(
        "env.opponents",
        ("train.num_processes",),
        lambda opponents, num: _holds_weights(opponents) and num > 1,
        "holds start or a checkpoint, which play in one process, but train.num_processes is {1}; "
        "write script, or a model that is asked",
    ),
    *(
        clash(
            {f"env.opponents.{key}.model": REFERENCE},
            f"is reference; write start, the policy as it was at step 0: env.opponents.{key}=start",
        )
        for key in ("train", "eval")
    ),
)
