"""Rules of `art why` on games, temperatures, outliers, ties, refusals and success that falls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from learned_run import EXPERIMENT, STEPS, call, calls, centre, each, healthy, scored

from art_cli.config.sections.env import EnvConfig, OpponentsConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.why.diagnose import diagnose
from art_cli.why.evidence import Evidence

Plant = Callable[[Evidence], None]


def weights(run: Evidence) -> dict[str, str]:
    return {finding.name: finding.weight for finding in diagnose(run)}


def configured(run: Evidence, **sections: Any) -> None:
    run.experiment = replace(EXPERIMENT, **sections)


def game(is_illegal: Callable[[Any], bool], moves: int = 4, data: Any = None) -> Plant:
    """Let 12 openings repeat, each with one of `moves` moves behind it."""

    def change(one: Any) -> None:
        one["scenario"] = dict(data or {})
        one["messages"][0]["content"] = f"board {one['seed'] % 12}"
        move = one["index"] % moves
        one["messages"][1]["content"] = f"<move>{move}</move>"
        one["metrics"] = {"illegal": float(is_illegal(one))}

    return lambda run: each(run, change)


def hidden(one: Any) -> bool:
    """Decide by the scenario, which the board does not show."""
    return one["seed"] // 12 % 2 == 0


def shown(one: Any) -> bool:
    return one["seed"] % 12 % 4 == one["index"]


@pytest.mark.parametrize(
    ("plant", "weight"),
    [
        (game(hidden), "serious"),
        (game(lambda r: hidden(r) and r["index"] == 0 and r["seed"] % 12 < 11), "notable"),
        (game(shown), None),
        (game(lambda r: hidden(r) and r["seed"] % 12 == 0 and r["index"] == 0), None),
    ],
)
def test_one_conversation_that_is_legal_here_and_illegal_there_is_found(
    plant: Plant, weight: str | None
) -> None:
    run = healthy()
    plant(run)
    assert weights(run).get("legality_not_shown") == weight


def test_the_arguments_of_calls_are_part_of_a_conversation() -> None:
    run = healthy()
    game(hidden)(run)
    each(run, lambda r: r["messages"][1].update(tool_calls=[{"arguments": {"at": hidden(r)}}]))
    assert "legality_not_shown" not in weights(run)


def test_other_players_may_decide_what_is_legal() -> None:
    run = healthy()
    game(hidden)(run)
    configured(run, env=EnvConfig(use="g.py:Game", opponents=OpponentsConfig()))
    assert "legality_not_shown" not in weights(run)


def slips(share: float) -> Plant:
    def change(one: Any) -> None:
        one["metrics"] = {"illegal": float(one["seed"] % 100 < 100 * share)}

    return lambda run: each(run, change)


@pytest.mark.parametrize(
    ("temperature", "share", "weight"),
    [(2.0, 0.5, "serious"), (1.5, 0.2, "notable"), (2.0, 0.0, None), (1.0, 0.5, None)],
)
def test_a_temperature_that_spoils_turns_is_named(
    temperature: float, share: float, weight: str | None
) -> None:
    run = healthy()
    slips(share)(run)
    configured(run, sampling=SamplingConfig(temperature=temperature))
    assert weights(run).get("hot_sampling") == weight


@pytest.mark.parametrize("spoil", [{"truncated": True}, {"steps": [call("", "no JSON", True)]}])
def test_a_temperature_is_named_before_what_follows_from_it(spoil: dict[str, Any]) -> None:
    run = healthy()
    each(run, lambda r: r.update(spoil if r["index"] < 2 else {}))
    configured(run, sampling=SamplingConfig(temperature=2.0))
    [finding] = diagnose(run)
    assert finding.name == "hot_sampling" and finding.change.startswith("sampling.temperature: 1.0")


def classified(later: Callable[[Any], str], target: Callable[[int], str]) -> Plant:
    """Answer by the question in the first 6 steps, and as `later` says from then on."""

    def change(one: Any) -> None:
        asked = team(one["seed"] + one["index"] // 3)
        said = asked if one["step"] <= 6 else later(one)
        one["scenario"] = {"targets": [target(one["seed"])]}
        one["messages"][1]["content"] = said
        one["reward"] = float(said == target(one["seed"]))

    def plant(run: Evidence) -> None:
        each(run, change)
        centre(run)

    return plant


def team(number: int) -> str:
    return ("billing", "returns", "account", "shipping")[number % 4]


def shifted(number: int) -> str:
    return team(number * 7919 // 16)


@pytest.mark.parametrize(
    ("plant", "is_found"),
    [
        (classified(lambda r: "returns", shifted), True),
        (classified(lambda r: shifted(r["seed"]), shifted), False),  # it was learned
        (classified(lambda r: "returns", team), False),
    ],
)
def test_answers_by_chance_are_seen_before_the_policy_gives_one_answer_to_all(
    plant: Plant, is_found: bool
) -> None:
    run = healthy()
    plant(run)
    assert ("answers_by_chance" in weights(run)) == is_found


def paid_beside(success: Callable[[Any], bool], reward: Callable[[Any], float]) -> Plant:
    def change(one: Any) -> None:
        one["metrics"] = {"success": float(success(one))}
        one["reward"] = reward(one)

    def plant(run: Evidence) -> None:
        each(run, change)
        centre(run)

    return plant


def rare(one: Any) -> bool:
    """Succeed in half of the first steps, and in a quarter of the last."""
    return one["index"] < (2 if one["step"] <= 9 else 1)


# Success earns a little more, and a bonus rises.
bonus = paid_beside(rare, lambda r: 7 + 0.02 * r["step"] + 0.2 * rare(r) + 0.1 * r["index"])


@pytest.mark.parametrize(
    ("plant", "train", "weight"),
    [
        (bonus, {}, "serious"),
        (bonus, {"dynamic_sampling": True}, None),
        (bonus, {"curriculum": "learnable"}, None),
        (paid_beside(rare, lambda r: float(rare(r))), {}, None),  # the reward falls, too
        (paid_beside(lambda r: r["reward"] > 0, lambda r: r["reward"]), {}, None),
    ],
)
def test_success_that_falls_while_the_reward_does_not_is_found(
    plant: Plant, train: dict[str, Any], weight: str | None
) -> None:
    run = healthy()
    plant(run)
    configured(run, train=TrainConfig(steps=STEPS, **train))
    assert weights(run).get("success_falls") == weight


def narrow(far: float, when: Callable[[Any], bool]) -> Plant:
    """Pay 8 to 9, and `far` at times."""
    return scored(lambda r: far if when(r) else 8 + r["index"] / 3)


@pytest.mark.parametrize(
    ("plant", "weight"),
    [
        (narrow(50.0, lambda r: r["seed"] % 20 == 0 and r["index"] == 0), "serious"),
        (narrow(0.0, lambda r: r["seed"] == 40 and r["index"] == 0), "notable"),
        (narrow(8.0, lambda r: False), None),
    ],
)
def test_outliers_are_serious_where_the_update_follows_them(
    plant: Plant, weight: str | None
) -> None:
    run = healthy()
    plant(run)
    assert weights(run).get("outlier_rewards") == weight


def open_alike(run: Evidence, data: dict[str, Any], replies: int) -> None:
    """Open alike in all scenarios. The seed draws one of so many replies to each move."""

    def change(one: Any) -> None:
        one["scenario"] = dict(data)
        one["messages"][0]["content"] = "an empty board"
        one["messages"][1]["content"] = "<move>1</move>"
        one["messages"].append({"role": "user", "content": f"o at {one['seed'] % replies}"})
        one["messages"].append({"role": "assistant", "content": f"<move>{one['index']}</move>"})

    each(run, change)


@pytest.mark.parametrize(
    ("data", "replies", "weight"),
    [
        ({}, 8, None),
        ({"seat": "first"}, 8, None),
        ({"order": "W1"}, 8, "notable"),
        ({}, 1, "serious"),  # the seed decides nothing
    ],
)
def test_games_that_open_alike_by_design_do_not_repeat(
    data: dict[str, Any], replies: int, weight: str | None
) -> None:
    run = healthy()
    open_alike(run, data, replies)
    assert weights(run).get("scenarios_repeat") == weight


def test_a_tool_is_quoted_with_its_most_frequent_refusal() -> None:
    run = healthy()
    said = ("it was changed", "it was changed", "no such size", "no such size")
    calls(lambda r: [call("save", said[r["index"]], True)] * (2 - r["index"] // 2))(run)
    [finding] = [f for f in diagnose(run) if f.name == "dead_tool"]
    assert "; most often: it was changed" in finding.evidence


def credited(advantage: Callable[[Any, list[Any]], float]) -> Plant:
    """Pay siblings 0, 1, 2 and 3, and give them these advantages."""

    def plant(run: Evidence) -> None:
        each(run, lambda r: r.update(reward=float((r["index"] + r["seed"]) % 4)))
        for group in run.groups:
            for one in group:
                one["advantage"] = advantage(one, group)

    return plant


def best_only(one: Any, group: list[Any]) -> float:
    return 1.5 if one["reward"] == 3 else 0.0


@pytest.mark.parametrize(
    ("kind", "advantage", "weight"),
    [
        ("best.py:best_only", best_only, None),
        ("best.py:nothing", lambda one, group: 0.0, "notable"),
        ("best.py:wrong", lambda one, group: -one["reward"], "serious"),
        ("mean", lambda one, group: 0.0, "serious"),
        ("mean", lambda one, group: one["reward"] - 1.5, None),
    ],
)
def test_ties_may_be_meant_by_an_advantage_of_one_s_own(
    kind: str, advantage: Callable[[Any, list[Any]], float], weight: str | None
) -> None:
    run = healthy()
    credited(advantage)(run)
    configured(run, train=TrainConfig(steps=STEPS, advantage=kind))
    assert weights(run).get("wrong_advantages") == weight
