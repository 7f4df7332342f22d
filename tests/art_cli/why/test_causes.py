"""Rules of `art why` that name a cause, each on a run with the fault and on its like without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from learned_run import (
    EXPERIMENT,
    STEPS,
    call,
    calls,
    centre,
    each,
    healthy,
    metric,
    of_success,
    over_steps,
    scored,
)

from art_cli.config.sections.agent import AgentConfig
from art_cli.config.sections.judge import JudgeConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.why.diagnose import diagnose, verdict
from art_cli.why.evidence import Evidence
from art_cli.why.success import _what_else

Plant = Callable[[Evidence], None]


def train(**settings: Any) -> Plant:
    """Return a change of settings of the section train."""
    return lambda run: setattr(
        run, "experiment", replace(EXPERIMENT, train=TrainConfig(steps=STEPS, **settings))
    )


def both(*plants: Plant) -> Plant:
    def plant(run: Evidence) -> None:
        for change in plants:
            change(run)

    return plant


def baseline_of_batch(run: Evidence) -> None:
    for one in run.rows:
        one["advantage"] = one["reward"] - 0.5


def two_turns(mask: list[int]) -> Plant:
    """Return a change to two sampled turns, with this mask over six tokens."""
    sequence = {"ids": [1, 2, 3, 4, 5, 6], "mask": mask, "engine_logprobs": [-0.1] * 6}
    return lambda run: each(
        run, lambda r: r.update(sequences=[dict(sequence)], policy_versions=[r["step"]] * 2)
    )


lone_turn = two_turns([0, 0, 0, 0, 1, 1])  # the second alone is trained


def few_groups(num: float, flat: float) -> Plant:
    """Let each step play `num` groups, `flat` of them without a gradient on average."""
    return both(
        train(scenarios_per_step=int(num)),
        lambda run: metric(run, data__groups=num, data__groups_zero_variance=flat),
    )


def orders(of: Callable[[Any], int]) -> Plant:
    """Give each scenario an order; its first call shows the order of the scenario `of(row)`."""

    def order(number: int) -> dict[str, Any]:
        return {"id": f"W{number % 20}", "item": f"item {number}", "status": "sent"}

    def change(one: Any) -> None:
        one["scenario"]["order"] = order(one["seed"])
        shown = json.dumps(order(of(one)))
        one["steps"] = [call("get", shown, id=f"W{one['seed'] % 20}")]

    return lambda run: each(run, change)


def moves(after: Callable[[int, str], int]) -> Plant:
    """Play a game of a number: `after(number, move)` is the number after a move."""

    def change(one: Any) -> None:
        number, steps = one["seed"], []
        one["messages"][0]["content"] = f"It is {number}."
        for n in range(6):
            move = ("up", "down", "twice")[(one["index"] + n) % 3]
            number = after(number, move)
            said = f"I think.\n<move>{move}</move>"
            steps.append({**call("", f"It is {number}."), "tool": None, "said": said})
        one["steps"] = steps

    return lambda run: each(run, change)


def look_up(found: Callable[[Any], bool], pays: Callable[[Any], bool]) -> Plant:
    def change(one: Any) -> None:
        mail = f"u{one['seed']}@x.com"
        one["messages"][0]["content"] = f"From {mail}: help me."
        is_found = found(one)
        one["steps"] = [
            call("find", "user" if is_found else "no such user", not is_found, mail=mail)
        ]
        one["reward"] *= pays(one)

    return both(lambda run: each(run, change), centre)


def kinds(of: Callable[[Any], dict[str, Any]], pays: Callable[[dict[str, Any]], bool]) -> Plant:
    def change(one: Any) -> None:
        one["scenario"] = of(one["seed"])
        one["reward"] *= pays(one["scenario"])

    return both(lambda run: each(run, change), centre)


def asked(seed: int) -> dict[str, Any]:
    return {"action": ("cancel", "return")[seed % 2], "status": ("new", "sent")[seed // 2 % 2]}


def teams(target: Callable[[int], str], answer: Callable[[int], str]) -> Plant:
    """Let three of four siblings give the answer of the question, the last another one."""
    names = ("billing", "returns", "account", "shipping")

    def change(one: Any) -> None:
        seed = one["seed"] + one["index"] // 3
        said, meant = answer(seed), target(one["seed"])
        one["scenario"] = {"targets": [meant]}
        one["messages"][1]["content"] = said
        one["reward"] = float(said == meant)
        assert said in names

    return both(lambda run: each(run, change), centre)


def team(number: int) -> str:
    return ("billing", "returns", "account", "shipping")[number % 4]


def by_seat(pays: Callable[[Any], bool]) -> Plant:
    def change(one: Any) -> None:
        one["scenario"] = {"seat": ("first", "second")[one["seed"] % 2]}
        one["metrics"] = {"success": one["reward"]}
        one["reward"] = float(pays(one))

    return both(lambda run: each(run, change), centre)


def illegal(until: int) -> Plant:
    return lambda run: each(run, lambda r: r.update(metrics={"illegal": r["step"] <= until}))


def made_up(run: Evidence) -> None:
    calls(lambda r: [call("get_", "error: unknown", True) | {"is_unknown": True}])(run)


FAULTS: list[tuple[str, Plant]] = [
    ("other_baseline", baseline_of_batch),
    ("untrained_turns", lone_turn),
    ("held_by_penalty", train(kl_coef=3.0)),
    ("stale_rollouts", lambda run: metric(run, data__staleness=11.0)),
    ("small_batches", few_groups(1.0, flat=0.3)),
    ("foreign_results", orders(lambda r: r["seed"] + 20 if r["seed"] % 3 else r["seed"])),
    ("act_without_effect", moves(lambda n, move: {"up": n + 1, "down": n, "twice": 2 * n}[move])),
    ("refused_by_scenario", look_up(lambda r: r["seed"] % 2, lambda r: r["seed"] % 2)),
    ("kind_never_succeeds", kinds(asked, lambda s: s != asked(3))),
    ("kind_never_succeeds", kinds(asked, lambda s: s["action"] != "return")),
    ("one_answer", teams(lambda n: team(n if n % 10 == 0 else 0), team)),
    ("answers_by_chance", teams(lambda n: team(n * 7919 // 16), team)),
    ("against_success", by_seat(lambda r: r["reward"] == (r["seed"] % 2 == 0))),
    ("against_success", both(of_success(lambda r: 1.0 - r["reward"]), centre)),
    ("refused_actions", illegal(until=99)),
    ("unknown_tool", made_up),
]
SOUND: list[Plant] = [
    train(advantage="group_std"),
    train(advantage="mine.py:centred"),
    two_turns([0, 1, 1, 0, 1, 1]),
    both(lone_turn, lambda run: each(run, lambda r: r.update(metrics={"answers_unheard": 1}))),
    both(lone_turn, lambda run: each(run, lambda r: r["sequences"][0].update(constrained=[{}]))),
    both(
        lone_turn,
        lambda run: setattr(
            run,
            "experiment",
            replace(EXPERIMENT, agent=AgentConfig(use="service", url="http://h/", train="main")),
        ),
    ),
    train(kl_coef=0.05),
    lambda run: metric(run, data__staleness=1.0),
    few_groups(2.0, flat=0.0),
    orders(lambda r: r["seed"]),
    moves(lambda n, move: {"up": n + 1, "down": n - 1, "twice": 2 * n}[move]),
    look_up(lambda r: r["seed"] % 2, lambda r: True),
    kinds(asked, lambda s: True),
    teams(team, team),
    by_seat(lambda r: r["reward"]),
    illegal(until=9),
]
OWN = {name for name, _ in FAULTS}


@pytest.mark.parametrize(("name", "plant"), FAULTS, ids=[name for name, _ in FAULTS])
def test_a_cause_is_found(name: str, plant: Plant) -> None:
    run = healthy()
    plant(run)
    assert name in [finding.name for finding in diagnose(run)]


@pytest.mark.parametrize("plant", SOUND, ids=range(len(SOUND)))
def test_what_is_sound_is_let_be(plant: Plant) -> None:
    run = healthy()
    plant(run)
    assert not OWN & {finding.name for finding in diagnose(run)}


def test_a_made_up_tool_is_not_blamed_on_the_env() -> None:
    run = healthy()
    made_up(run)
    assert [f.name for f in diagnose(run)] == ["unknown_tool"]


def test_calls_that_become_unreadable_follow_from_training() -> None:
    run = healthy()
    calls(lambda r: [call("" if r["step"] > 9 else "look", "no JSON", r["step"] > 9)])(run)
    [finding] = [f for f in diagnose(run) if f.name == "broken_calls"]
    assert finding.weight == "notable"
    assert "0% at first" in finding.evidence


def test_unreadable_calls_are_no_results_that_vary() -> None:
    run = healthy()
    calls(lambda r: [call("", f"no JSON at {r['index']}", True)])(run)
    assert "results_vary" not in [f.name for f in diagnose(run)]


def test_a_cause_hides_what_follows_from_it() -> None:
    run = healthy()
    each(run, lambda r: r["messages"][0].update(content=f"question {r['index']}"))
    calls(lambda r: [call("", "no JSON", True)])(run)
    assert [f.name for f in diagnose(run) if f.name != "scenarios_repeat"] == [
        "siblings_differ_at_start"
    ]


def test_a_judge_that_fails_is_not_the_env_s_failure() -> None:
    run = healthy()
    metric(run, data__trajectories_failed=30, judge__failures=4)
    run.experiment = replace(EXPERIMENT, judge=JudgeConfig(model="some"))
    for one in run.rows[::2]:
        one.update(reward=None, error="the judge failed: the answer is not JSON: it was cut off")
    found = {f.name: f for f in diagnose(run)}
    assert "env_fails" not in found and "judge.params" in found["judge_fails"].change


def test_a_judge_s_reward_is_not_compared_with_the_env_s() -> None:
    run = healthy()
    run.held_out[STEPS] = run.held_out[0]
    run.experiment = replace(EXPERIMENT, judge=JudgeConfig(model="some"))
    assert "memorised" not in [f.name for f in diagnose(run)]


def test_few_scenarios_do_not_show_a_gap_between_splits() -> None:
    run = healthy()
    for step in (1, 2, 3):
        for n, group in enumerate(run.train[step]):
            for one in group:
                one["reward"] = float(n % 2)
    centre(run)
    assert "gap_from_start" not in [f.name for f in diagnose(run)]


def test_failures_that_earn_the_most_are_told_by_what_they_have() -> None:
    run = healthy()
    of_success(lambda r: 1.0)(run)
    scored(lambda r: float(bool(r["metrics"]["success"]) or r["index"] == 0))(run)
    each(run, lambda r: r["metrics"].update(illegal=r["reward"] - r["metrics"]["success"]))
    [finding] = [f for f in diagnose(run) if f.name == "capped_reward"]
    assert "100% of them have illegal above 0 (successes: 0%)" in finding.evidence


def test_what_half_of_the_failures_have_is_told_and_what_fewer_have_is_not() -> None:
    def rows(num_slow: int) -> list[Any]:
        return [{"metrics": {"slow": float(n < num_slow), "success": 0.0}} for n in range(8)]

    assert "50% of them have slow above 0 (successes: 0%)" in _what_else(rows(4), rows(0))
    assert _what_else(rows(3), rows(0)) == _what_else(rows(8), rows(5)) == ""


def test_the_verdict_says_where_success_went_another_way() -> None:
    run = healthy()
    run.metrics[STEPS - 1]["val/success"], run.metrics[STEPS]["val/success"] = 0.2, 0.6
    assert ", but success fell from 0.60 to 0.20." in verdict(run)
    over_steps(run, "val/success", lambda x: 0.7)
    assert "but success" not in verdict(run)
