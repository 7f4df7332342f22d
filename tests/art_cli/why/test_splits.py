"""Rules of `art why` that compare the two splits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from learned_run import EXPERIMENT, call, centre, each, healthy

from art_cli.config.sections.sft import SFTConfig
from art_cli.why.diagnose import diagnose
from art_cli.why.evidence import Evidence


def weights(run: Evidence) -> dict[str, str]:
    return {finding.name: finding.weight for finding in diagnose(run)}


def desk(pays: Callable[[Any], bool], status: Callable[[Any], str]) -> Callable[[Evidence], None]:
    """Let every episode look a record up and save it or not, and pay what `pays` says."""

    def change(one: Any) -> None:
        saves = one["index"] % 2 == 0
        one["scenario"] = {"status": status(one), "item": one["seed"]}
        one["steps"] = [call("look", f"record {one['seed']}")] + [call("save", "ok")] * saves
        one["messages"][1]["content"] = f"it is {one['seed']}: " + ("done" if saves else "sorry")
        one["reward"] = float(pays(one))
        one["reward_parts"] = {"env": one["reward"]}

    def plant(run: Evidence) -> None:
        each(run, change)
        centre(run)

    return plant


def status(one: Any) -> str:
    return ("new", "sent")[one["seed"] % 2]


def is_right(one: Any) -> bool:
    return (status(one) == "new") == (len(one["steps"]) == 2)


def turned_round(one: Any) -> bool:
    return is_right(one) == (one["split"] == "train")


def test_a_play_that_is_paid_otherwise_on_held_out_scenarios_is_found() -> None:
    run = healthy()
    desk(turned_round, status)(run)
    [finding] = [f for f in diagnose(run) if f.weight == "serious"]
    assert finding.name == "held_out_paid_otherwise"
    assert 'status "new"' in finding.evidence or 'status "sent"' in finding.evidence
    assert 'look, then save, then "done"' in finding.evidence


def now_and_then(one: Any) -> bool:
    return is_right(one) and (one["split"] == "train" or one["seed"] % 3 > 0)


def judged(run: Evidence) -> None:
    """Let a judge pay train episodes the other way round; held-out ones have no judge."""
    desk(is_right, status)(run)
    for one in run.rows:
        one["reward"] = 1.0 - one["reward"]
    centre(run)


def harder(one: Any) -> str:
    return "new" if one["split"] == "train" else ("gone", "sent")[one["seed"] % 8 == 0]


@pytest.mark.parametrize(
    "plant",
    [
        desk(is_right, status),
        desk(now_and_then, status),
        desk(turned_round, harder),
        judged,
    ],
)
def test_splits_that_are_paid_alike_or_hold_other_kinds_are_let_be(
    plant: Callable[[Evidence], None],
) -> None:
    run = healthy()
    plant(run)
    assert "held_out_paid_otherwise" not in weights(run)


TEAMS = ("billing", "returns", "account", "shipping")
OPTIONS = "One of: " + ", ".join(TEAMS) + "."


def asks(text: Callable[[Any, str], str], system: str = OPTIONS) -> Callable[[Evidence], None]:
    """Ask for a team, with the options in the system message and `text(row, target)` behind it."""

    def change(one: Any) -> None:
        target = TEAMS[one["seed"] % 4]
        one["scenario"] = {"targets": [target]}
        question = {"role": "user", "content": text(one, target)}
        one["messages"][:1] = [{"role": "system", "content": system}, question]

    return lambda run: each(run, change)


def tag(one: Any, target: str, split: str | None) -> str:
    return f"question {one['seed']}" + f" [{target}]" * (split in (None, one["split"]))


@pytest.mark.parametrize(
    ("plant", "weight"),
    [
        (asks(lambda one, target: tag(one, target, "train")), "serious"),
        (asks(lambda one, target: tag(one, target, "val")), "serious"),
        (asks(lambda one, target: tag(one, target, None)), "notable"),
        (asks(lambda one, target: tag(one, target.upper(), "train")), "serious"),
        (asks(lambda one, target: tag(one, target, "none")), None),
        (asks(lambda one, target: tag(one, OPTIONS, None)), None),
        (asks(lambda one, target: tag(one, OPTIONS, "train"), system=""), None),
    ],
)
def test_an_answer_in_the_prompt_is_told_from_a_list_of_options(
    plant: Callable[[Evidence], None], weight: str | None
) -> None:
    run = healthy()
    plant(run)
    assert weights(run).get("leaked_answer") == weight


def first_steps(reward: Callable[[Any], float]) -> Callable[[Evidence], None]:
    """Set the rewards of the first three steps, which are compared with the first evaluation."""

    def plant(run: Evidence) -> None:
        for one in run.rows:
            if one["step"] <= 3:
                one["reward"] = reward(one)
        for one in run.held_out[0]:
            one["reward"] = 0.0
        centre(run)

    return plant


@pytest.mark.parametrize(
    ("reward", "weight"), [(lambda r: 1.0, "serious"), (lambda r: r["index"] % 2, "notable")]
)
def test_a_gap_from_the_start_is_serious_where_little_is_left_to_learn(
    reward: Callable[[Any], float], weight: str
) -> None:
    run = healthy()
    first_steps(reward)(run)
    assert weights(run)["gap_from_start"] == weight


@pytest.mark.parametrize("sft", [None, SFTConfig()])
def test_a_gap_from_the_start_is_blamed_on_sft_where_there_was_one(sft: SFTConfig | None) -> None:
    run = healthy()
    first_steps(lambda r: 1.0)(run)
    run.experiment = replace(EXPERIMENT, sft=sft)
    [finding] = [f for f in diagnose(run) if f.name == "gap_from_start"]
    words = finding.reason + finding.change
    assert ("SFT" in words) == ("demonstrations" in words) == (sft is not None)
