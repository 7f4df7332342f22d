"""Each rule of `art why`, on a run whose numbers are made by hand: with its fault, and without."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from learned_run import (
    EXPERIMENT,
    SIZE,
    STEPS,
    call,
    calls,
    centre,
    each,
    healthy,
    metric,
    of_success,
    over_steps,
    row,
    scored,
)
from shown_runs import make_run, trajectory, write_step
from typer.testing import CliRunner

from art_cli.cli.main import app
from art_cli.config.sections.reward import RewardConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.runs.directory import RunDir
from art_cli.why.diagnose import diagnose, verdict
from art_cli.why.evidence import Evidence, read_evidence


def flat(run: Evidence) -> None:
    metric(run, data__groups_zero_variance=8, train__reward=0.0)
    each(run, lambda r: r.update(reward=0.0))


def solved(run: Evidence) -> None:
    metric(run, data__groups_zero_variance=8)
    each(run, lambda r: r.update(reward=1.0))


def chosen(run: Evidence, differed: float) -> None:
    metric(
        run,
        data__groups=32,
        data__curriculum_explored=0.25,
        data__curriculum_differed=differed,
        data__curriculum_differed_explored=0.3,
    )


def acts_for_nothing(run: Evidence) -> None:
    each(run, lambda r: r.update(reward=float(r["group"] % 2)))


def chance(run: Evidence) -> None:
    def change(one: Any) -> None:
        one["messages"][1]["content"] = "the same"

    each(run, change)


def luck(run: Evidence) -> None:
    each(run, lambda r: r["messages"][0].update(content=f"question {r['index']}"))


def repeats(run: Evidence) -> None:
    def change(one: Any) -> None:
        one["messages"][0]["content"] = "the question"
        one["steps"] = [{"tool": "look", "result": "the record", "is_error": False}]

    each(run, change)


def leaks(run: Evidence) -> None:
    each(run, lambda r: r["messages"][0].update(content=f"say {r['scenario']['answer']}"))


def outage(run: Evidence) -> None:
    def change(one: Any) -> None:
        if one["index"] == 0:
            one["steps"] = [{"tool": "look", "result": "Connection refused", "is_error": True}]

    each(run, change)


def dead(run: Evidence) -> None:
    step = {"tool": "look", "result": "no such thing", "is_error": True}
    each(run, lambda r: r.update(steps=[step]))


def unread(run: Evidence) -> None:
    each(run, lambda r: r.update(steps=[{"tool": "", "result": "no JSON", "is_error": True}]))


def still(run: Evidence) -> None:
    run.held_out[STEPS] = run.held_out[0]


def hardly(run: Evidence) -> None:
    other = [{**one, "sequences": [{"ids": [3]}]} for one in run.held_out[0][60:]]
    run.held_out[STEPS] = run.held_out[0][:60] + other


def shifted(run: Evidence) -> None:
    each(run, lambda r: r["sequences"][0].update(mask=[0, 1, 1, 0]))


def negated(run: Evidence) -> None:
    for one in run.rows:
        one["advantage"] *= -1


def seen(run: Evidence) -> None:
    run.held_out = {s: rows[:40] for s, rows in run.held_out.items()}
    for rows in run.held_out.values():
        for one, other in zip(rows, run.rows[::4], strict=False):
            one.update(scenario=other["scenario"], messages=other["messages"])


def long(run: Evidence) -> None:
    over_steps(run, "train/tokens", lambda x: 20 + 40 * x)
    each(run, lambda r: r.update(num_sampled=20 + 10 * r["index"], reward=r["index"] / 4))


def gamed(run: Evidence) -> None:
    each(run, lambda r: r.update(reward_parts={"judge": 1 - r["reward"], "env": r["reward"]}))


def wordy(run: Evidence, *, with_env: bool) -> None:
    def change(one: Any) -> None:
        one["messages"][-1]["content"] += " indeed" * one["index"]
        one["reward_parts"] = {"judge": one["index"] / SIZE}
        if with_env:
            one["reward_parts"]["env"] = one["reward"]
        else:
            one["reward"] = one["index"] / SIZE

    each(run, change)


def rightly_wordy(run: Evidence) -> None:
    """What is longer is better, by the env's own score too."""

    def change(one: Any) -> None:
        one["messages"][-1]["content"] += " indeed" * (one["index"] if one["reward"] else 0)
        one["reward_parts"] = {"judge": one["reward"], "env": one["reward"]}

    each(run, change)


def noisy_place(run: Evidence, gain: float) -> None:
    rng = random.Random(0)
    over_steps(run, "judge/first_gain", lambda x: gain + rng.gauss(0, 0.1))


def clock(run: Evidence) -> None:
    """The time of the step, and a hundredth of it between siblings."""
    scored(lambda r: r["step"] * 7 % 10 / 10 + r["index"] / 100)(run)


def capped(run: Evidence) -> None:
    of_success(lambda r: 0.5 * bool(r["index"]))(run)
    centre(run)


def half_unsolvable(run: Evidence) -> None:
    for group in run.groups:
        for one in group:
            one["reward"] *= group[0]["seed"] % 2


def copied(run: Evidence) -> None:
    for group in run.groups:
        for one in group:
            one["messages"] = group[0]["messages"]
            one["reward"] = group[0]["seed"] % 3 / 3


def saves_in_vain(run: Evidence) -> None:
    scored(lambda r: float(r["index"] < 2))(run)
    calls(lambda r: [call("save", "ok")] * (r["index"] % 2))(run)


def in_pairs(run: Evidence) -> None:
    run.experiment = replace(EXPERIMENT, train=TrainConfig(steps=STEPS, group_size=2))


def gap(run: Evidence) -> None:
    for step in range(1, 4):
        for group in run.train[step]:
            for one in group:
                one["reward"] = 1.0


def other_kinds(run: Evidence) -> None:
    each(run, lambda r: r["scenario"].update(kind="exchange" if r["split"] == "val" else "cancel"))


def breaks(run: Evidence) -> None:
    calls(lambda r: [call("look", "gone" if r["step"] > 9 else "here", r["step"] > 9)])(run)


def some_held_out(run: Evidence) -> None:
    """Two in a hundred train scenarios are held out, which is a few of the held-out ones."""
    for group, held in zip(run.groups[::20], run.held_out[0], strict=False):
        for one in group:
            for key in ("seed", "scenario", "messages"):
                one[key] = held[key]


def client_raises(run: Evidence) -> None:
    metric(run, data__truncated=20)
    each(
        run,
        lambda r: r.update(truncated=r["index"] == 0, crash="it fell" if r["index"] == 0 else None),
    )


FAULTS: list[tuple[str, Callable[[Evidence], None]]] = [
    ("acts_for_nothing", clock),
    ("never_succeeds", of_success(lambda r: r["reward"] / 2, ever=0.0)),
    ("capped_reward", capped),
    ("unsolvable_scenarios", half_unsolvable),
    ("siblings_are_copies", copied),
    ("small_groups", in_pairs),
    ("outlier_rewards", scored(lambda r: 50.0 if r["seed"] % 40 == 0 else r["reward"])),
    ("gap_from_start", gap),
    ("other_kind", other_kinds),
    ("train_is_held_out", some_held_out),
    ("truncated", client_raises),
    ("turn_limit", lambda run: each(run, lambda r: r.update(stop_reason="max_turns", reward=0.0))),
    ("tool_breaks", breaks),
    ("results_cut", calls(lambda r: [call("look", f'{{"a": {r["seed"]}, "b": "Osl')])),
    ("results_cut", calls(lambda r: [call("look", f"It is {r['seed']} and [truncated]")])),
    ("results_vary", calls(lambda r: [call("look", f"at {r['index']}")])),
    ("constant_tool", calls(lambda r: [call("look", "<html>" * 9, id=r["seed"])])),
    ("tool_without_effect", saves_in_vain),
    ("tool_never_pays", calls(lambda r: [call("save", "ok")] * (r["reward"] == 0))),
    ("tool_abandoned", calls(lambda r: [call("save", "ok")] * (r["step"] < 8))),
    ("too_hard", flat),
    ("solved", solved),
    ("acts_for_nothing", acts_for_nothing),
    ("same_play_other_reward", chance),
    ("siblings_differ_at_start", luck),
    ("scenarios_repeat", repeats),
    ("leaked_answer", leaks),
    ("truncated", lambda run: metric(run, data__truncated=20)),
    ("context_full", lambda run: metric(run, data__context_full=20)),
    ("chooses_in_vain", lambda run: chosen(run, differed=0.3)),
    ("env_fails", lambda run: metric(run, data__trajectories_failed=9)),
    ("outages_scored", outage),
    ("forks", lambda run: metric(run, data__forks=64)),
    ("dead_tool", dead),
    ("broken_calls", unread),
    ("not_on_policy", lambda run: metric(run, loss__logprob_gap=0.2)),
    (
        "cut_distribution",
        lambda run: setattr(
            run, "experiment", replace(EXPERIMENT, sampling=SamplingConfig(top_p=0.9))
        ),
    ),
    ("stale_weights", still),
    ("rate_too_low", hardly),
    ("no_exploration", lambda run: metric(run, loss__entropy=0.001)),
    ("entropy_collapse", lambda run: over_steps(run, "loss/entropy", lambda x: 0.5 * (x < 0.5))),
    ("not_finite", lambda run: metric(run, loss__policy=float("nan"))),
    ("no_gradient", lambda run: metric(run, loss__grad_norm=0.0)),
    ("updates_too_long", lambda run: metric(run, loss__shortened=0.9, loss__update_kl=0.2)),
    ("mask_shifted", shifted),
    ("rate_too_high", lambda run: over_steps(run, "train/reward", lambda x: 0.9 - abs(x - 0.5))),
    ("moves_away", lambda run: over_steps(run, "train/reward", lambda x: 0.6 - 0.5 * x)),
    ("wrong_advantages", negated),
    ("no_rise", lambda run: (metric(run, train__reward=0.5), still(run))[0]),
    ("memorised", still),
    ("train_is_held_out", seen),
    ("length_is_paid", long),
    ("judge_ties", lambda run: metric(run, judge__tie_rate=0.9)),
    ("judge_against_env", gamed),
    ("judge_favours_place", lambda run: noisy_place(run, 0.3)),
    ("judge_favours_place", lambda run: noisy_place(run, -0.2)),
    ("judge_favours_length", lambda run: wordy(run, with_env=True)),
    ("judge_favours_length", lambda run: wordy(run, with_env=False)),
    ("judge_fails", lambda run: metric(run, judge__failures=4)),
    ("slow_judge", lambda run: metric(run, time__score_s=6.0)),
]


def test_nothing_is_said_of_a_run_that_learns() -> None:
    assert diagnose(healthy()) == []
    assert verdict(healthy()).startswith(
        "Held-out reward rose from 0.20 (step 0) to 0.80 (step 18): +0."
    )


@pytest.mark.parametrize(("name", "plant"), FAULTS, ids=[name for name, _ in FAULTS])
def test_a_fault_is_found(name: str, plant: Callable[[Evidence], None]) -> None:
    run = healthy()
    plant(run)
    assert name in [finding.name for finding in diagnose(run)]


def refused_and_right(one: Any) -> list[dict[str, Any]]:
    return [call("save", "error: it is shipped already", True, id=one["seed"])]


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (of_success(lambda r: r["reward"]), []),
        (of_success(lambda r: 0.4 + 0.6 * r["reward"]), []),
        (calls(lambda r: [call("look", json.dumps({"a": r["seed"]}))]), []),
        (calls(lambda r: [call("look", repr({"a": r["seed"]}))]), []),  # JSON is not meant
        (calls(lambda r: [call("look", "[see page 2] ...", id=r["seed"])]), []),
        (calls(lambda r: [call("save", '{"ok": true}', id=r["seed"])]), []),
        (calls(lambda r: [call("look", f"seen {r['index']}", id=r["index"])]), []),
        (calls(refused_and_right), [("notable", "dead_tool")]),
        (lambda run: metric(run, loss__shortened=0.9, loss__update_kl=0.2), "updates_too_long"),
        (lambda run: each(run, lambda r: r["scenario"].update(kind=r["seed"] % 3)), []),
        (lambda run: each(run, lambda r: r.update(stop_reason="max_turns", reward=1.0)), []),
    ],
)
def test_what_looks_like_a_fault_and_is_none(plant: Callable[[Evidence], None], said: Any) -> None:
    run = healthy()
    plant(run)
    expected = [("notable", said)] if isinstance(said, str) else said
    assert [(f.weight, f.name) for f in diagnose(run)] == expected


def test_what_follows_from_a_fault_is_not_said_beside_it() -> None:
    run = healthy()
    clock(run)
    over_steps(run, "train/reward", lambda x: 0.9 - abs(x - 0.5))
    assert [f.name for f in diagnose(run)] == ["acts_for_nothing"]


def test_numbers_are_of_what_was_played() -> None:
    """Fewer episodes than were asked for, and the agent's own client."""
    run = healthy()
    for step, rows in run.held_out.items():
        run.held_out[step] = rows[:12]
        for n, one in enumerate(rows):
            one["reward"] = float((n + bool(step)) % 2)
    (noisy,) = [f for f in diagnose(run) if f.name == "noisy_evaluation"]
    assert "over 12 episodes (eval.episodes is 64)" in noisy.evidence
    run = healthy()
    client_raises(run)
    (cut,) = [f for f in diagnose(run) if f.name == "truncated"]
    assert "ended in a crash of the agent" in cut.evidence and "incomplete" in cut.reason
    assert cut.change.startswith("sampling.max_tokens: 1024; in the agent, catch")


def opens_alike(run: Evidence, hidden: int) -> None:
    """One opening for all; a tool then tells which of so many cases it is, or that it is not."""

    def change(one: Any) -> None:
        case = one["seed"] % hidden
        for guess in (one["index"] % hidden, case):
            call = [{"name": "guess", "arguments": {"case": guess}}]
            one["messages"] += [
                {"role": "assistant", "content": "", "tool_calls": call},
                {"role": "tool", "content": "yes" if guess == case else f"go to {case}"},
            ]
        one["messages"][0]["content"] = "find the case"
        one["messages"][1]["content"] = "I shall"

    each(run, change)


@pytest.mark.parametrize(
    ("hidden", "found"),
    [
        (10**6, []),
        (16, [("notable", "72 scenarios are 16 different ones")]),
        (3, [("notable", "72 scenarios are 3 different ones")]),
        (1, [("serious", "72 scenarios are 1 different ones")]),
    ],
)
def test_scenarios_that_open_alike_are_told_apart_by_what_they_answer(
    hidden: int, found: list[tuple[str, str]]
) -> None:
    run = healthy()
    opens_alike(run, hidden)
    repeat = [f for f in diagnose(run) if f.name == "scenarios_repeat"]
    assert [(f.weight, f.evidence.partition(":")[0]) for f in repeat] == found


@pytest.mark.parametrize(("env_tells_apart", "found"), [(False, []), (True, ["judge_ties"])])
def test_ties_of_the_judge_count_where_the_env_tells_siblings_apart(
    env_tells_apart: bool, found: list[str]
) -> None:
    run = healthy()
    metric(run, judge__tie_rate=0.9)
    same = {"judge": 0.9}
    each(run, lambda r: r.update(reward_parts=same | {"env": r["index"] * env_tells_apart}))
    assert [f.name for f in diagnose(run) if f.name == "judge_ties"] == found


@pytest.mark.parametrize(
    ("longest", "name"),
    [(1e-3, "stale_weights"), (3e-8, "rate_too_low"), (0.0, "stale_weights")],
)
def test_updates_that_are_lost_are_told_from_those_that_are_too_small(
    longest: float, name: str
) -> None:
    run = healthy()
    still(run)
    metric(run, loss__update_kl=longest)
    found = {f.name: f.evidence for f in diagnose(run)}
    assert {"stale_weights", "rate_too_low"} & set(found) == {name}
    assert f"moved the policy by {longest:.1g} nats" in found[name]


def test_a_policy_that_its_bound_holds_still_is_not_told_to_move_further() -> None:
    run = healthy()
    still(run)
    assert "stale_weights" in [finding.name for finding in diagnose(run)]
    metric(run, loss__shortened=1.0, loss__update_kl=1.0)
    found = {finding.name: finding.change for finding in diagnose(run)}
    assert "stale_weights" not in found
    rate = run.experiment.train.learning_rate
    assert found["updates_too_long"] == f"train.learning_rate: {rate / 10:.2g} (it is {rate:g})"


def test_calls_that_cannot_be_read_may_cost_something_unless_they_do() -> None:
    def change(reward: RewardConfig | None) -> str:
        run = healthy()
        unread(run)
        run.experiment = replace(run.experiment, reward=reward)
        [found] = [one for one in diagnose(run) if one.name == "broken_calls"]
        return found.change

    assert "reward.invalid_action_cost" in change(None)
    assert "reward.invalid_action_cost" in change(RewardConfig(env=1.0))
    assert "invalid_action_cost" not in change(RewardConfig(env=1.0, invalid_action_cost=0.02))


def test_a_curriculum_that_chooses_well_is_let_be() -> None:
    run = healthy()
    chosen(run, differed=0.6)
    assert diagnose(run) == []


def test_a_judge_is_not_blamed_for_chance_or_for_what_the_env_pays_too() -> None:
    run = healthy()
    noisy_place(run, 0.0)
    rightly_wordy(run)
    assert diagnose(run) == []


@pytest.mark.parametrize(
    ("ends", "same", "words"),
    [
        ((0.2, 0.8), 0, "rose from 0.20 (step 0) to 0.80 (step 18)"),
        ((0.8, 0.2), 0, "fell from 0.80 (step 0) to 0.20 (step 18)"),
        ((0.5, 0.5), 64, "went from 0.50 (step 0) to 0.50 (step 18): +0.00 [+0.00, +0.00]"),
        ((0.5, 0.5), 64, "it may be chance"),
    ],
)
def test_the_verdict_weighs_a_change_against_its_noise(
    ends: tuple[float, float], same: int, words: str
) -> None:
    run = healthy()
    run.metrics[STEPS]["val/reward"], run.metrics[STEPS - 1]["val/reward"] = ends
    first, last = (
        [row(s, g, 0, "val", c) for g in range(64)] for s, c in zip((0, 18), ends, strict=True)
    )
    run.held_out = {0: first, STEPS: last[: 64 - same] + first[64 - same :]}
    assert words in verdict(run)


def test_the_verdict_says_what_it_cannot_know() -> None:
    run = healthy()
    run.held_out.clear()
    assert "how sure that is cannot be said" in verdict(run)
    del run.metrics[STEPS - 1]["val/reward"]
    assert "nothing to compare it with yet" in verdict(run)
    del run.metrics[STEPS]["val/reward"]
    assert "Nothing was evaluated" in verdict(run)
    run.metrics.clear()
    assert verdict(run) == "No step is finished yet."


def test_of_a_long_run_some_steps_are_read_its_ends_among_them(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "p" / "r")
    config = "name: r\nenv: {use: order_desk}\nmodel: {base: tiny}\n"
    run.config.write_text(config + "train: {steps: 100, learning_rate: 0.5}\n")
    for step in range(1, 101):
        run.trajectory_file(step, "train").write_bytes(
            gzip.compress(json.dumps(row(step, 0, 0)).encode())
        )
        run.trajectory_file(step, "val").write_bytes(
            gzip.compress(json.dumps(row(step, 0, 0, "val")).encode())
        )
    found = read_evidence(run)
    assert len(found.train) == 24 and {1, 97, 98, 99, 100} <= found.train.keys()
    assert sorted(found.held_out) == [1, 100] and found.unread == []
    assert found.experiment.train.learning_rate == 0.5


def test_a_config_may_need_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDir.create(tmp_path / "p" / "r")
    config = "project: '${oc.env:TEAM}'\nname: r\nenv: {use: order_desk}\nmodel: {base: tiny}\n"
    run.config.write_text(config + "train: {steps: 9, learning_rate: 0.25}\n")
    monkeypatch.setenv("TEAM", "us")
    assert read_evidence(run).experiment.train.learning_rate == 0.25
    monkeypatch.delenv("TEAM")
    found = read_evidence(run)
    assert found.experiment.train.learning_rate == 1e-5 and "TEAM" in found.unread[0]
    assert "the defaults are taken" in found.unread[0]


def test_a_damaged_run_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "p" / "r")
    run.config.write_text("train: [")
    run.metrics.write_text('{"training_step": 1, "train/reward": 0.5}\n{"torn')
    run.trajectory_file(1, "train").write_bytes(b"no gzip")
    said = CliRunner().invoke(app, ["why", str(run.root), "--json"])
    row = json.loads(said.stdout)
    assert said.exit_code == 0 and row["findings"] == []
    assert [part for part in ("config.yaml", "000001") if part in " ".join(row["unread"])] == [
        "config.yaml",
        "000001",
    ]


def test_what_is_no_run_is_said(tmp_path: Path) -> None:
    said = CliRunner().invoke(app, ["why", str(tmp_path)])
    assert "holds no run" in str(said.exception)


def test_a_finding_names_the_command_that_shows_its_trajectory(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / "test" / "made", steps=6, groups=4, size=4)
    for step in range(1, 7):
        rows = [
            trajectory(step, "train", g, i, reward=0.0, advantage=0.0, truncated=True, steps=[])
            for g in range(4)
            for i in range(4)
        ]
        write_step(run, step, "train", rows)
    flat = {"data/groups": 4, "data/groups_zero_variance": 4, "data/trajectories": 16}
    lines = [
        {"training_step": s, "train/reward": 0.0, "data/truncated": 16, **flat} for s in range(1, 7)
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    said = CliRunner().invoke(app, ["why", str(run)]).stdout
    [command] = {line.partition("art show ")[2] for line in said.splitlines() if "look at" in line}
    shown = CliRunner().invoke(app, ["show", *command.split()])
    assert shown.exit_code == 0 and "cut off" in shown.stdout
    assert all(line == line.rstrip() for line in said.splitlines())
