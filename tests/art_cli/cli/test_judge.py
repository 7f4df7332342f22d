"""`art judge` on the stored trajectories of a run, with a judge on loopback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from loopback_judge import Ask, LoopbackJudge, refused, scored
from short_run import COLOURS, Art
from short_run import CONFIG as SHORT_RUN
from typer.testing import CliRunner

from art_cli.cli.judge import app
from art_cli.errors import ArtError, UsageError
from art_cli.runs.directory import RunDir
from art_cli.types import RewardParts, Scenario, Trajectory, TrajectoryGroup

CONFIG = f"""
project: test
name: judged
env: {{use: "{COLOURS}:Opposites"}}
model: {{base: tiny, adapter: null}}
train: {{steps: 1}}
"""
QUALITIES = (0.2, 0.4, 0.6, 0.8)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """Two steps of three groups; the env's reward is what the transcripts say of their quality."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = RunDir.create(tmp_path / "runs" / "test" / "judged")
    run.config.write_text(CONFIG)
    for step in (1, 2):
        run.write_trajectories(step, "train", [_group(f"train-{step}-{n}") for n in range(3)])
    return run


def _group(name: str) -> TrajectoryGroup:
    scenario = Scenario(id=name, split="train", seed=0)
    return TrajectoryGroup([_trajectory(scenario, q) for q in QUALITIES])


def _trajectory(scenario: Scenario, quality: float) -> Trajectory:
    return Trajectory(
        scenario=scenario,
        messages=[
            {"role": "user", "content": f"do {scenario.id}"},
            {"role": "assistant", "content": f"quality {quality}"},
        ],
        reward=quality,
        reward_parts=RewardParts(env=quality),
        policy_versions=[0],
    )


def art(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    if isinstance(result.exception, ArtError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def judge_file(folder: Path, judge: LoopbackJudge, name: str = "mine") -> str:
    file = folder / f"{name}.yaml"
    file.write_text(f"judge: {{model: {judge.model}, api_base: '{judge.api_base}', retries: 0}}\n")
    return str(file)


def first_gains(ask: Ask) -> Any:
    return scored(change=lambda found: [_plus(e, 0.1 * (n == 0)) for n, e in enumerate(found)])(ask)


def _plus(entry: dict[str, Any], more: float) -> dict[str, Any]:
    return entry | {"score": entry["score"] + more}


def test_an_audit_tells_a_good_judge_from_a_bad_one(run: RunDir, tmp_path: Path) -> None:
    contrary = scored(score=lambda block: 1 - float(block["messages"][-1]["content"].split()[-1]))
    with LoopbackJudge() as good, LoopbackJudge(then=contrary) as bad:
        files = [judge_file(tmp_path, good, "good"), judge_file(tmp_path, bad, "bad")]
        options = [o for f in files for o in ("--judge", f)]
        first, second = json.loads(art("audit", str(run.root), *options, "--json"))
    assert (first["judge"], first["groups"], first["failures"]) == ("good", 6, 0)
    assert first["agreement"]["value"] == 1 and first["tau"]["value"] == pytest.approx(1)
    assert second["agreement"]["value"] == 0
    assert "do not train on it" in " ".join(second["verdict"])
    assert len(good.asked) == 6 * 4  # each group four times, in other orders


def test_an_audit_reports_the_bias_of_the_first_place(run: RunDir, tmp_path: Path) -> None:
    with LoopbackJudge(then=first_gains) as judge:
        printed = art("audit", str(run.root), "--judge", judge_file(tmp_path, judge))
    assert "first-listed trajectories gain 0.10" in printed
    assert "pairs ordered as the env does" in printed


def test_an_audit_counts_failures(run: RunDir, tmp_path: Path) -> None:
    with LoopbackJudge(then=refused(500, "no luck")) as judge:
        file = judge_file(tmp_path, judge)
        [row] = json.loads(art("audit", str(run.root), "--judge", file, "--groups", "2", "--json"))
    assert (row["groups"], row["failures"], row["agreement"]) == (0, 2, None)


def test_a_second_judge_by_name_does_not_inherit_the_firsts_server(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with run.config.open("a") as config:
        config.write("judge: {model: openai/local, api_base: 'http://127.0.0.1:9/v1'}\n")
    with pytest.raises(ArtError, match="openai/o3 needs OPENAI_API_KEY"):
        art("audit", str(run.root), "--judge", "openai/o3")


def test_rescore_writes_what_the_judge_says_and_leaves_the_run_alone(
    run: RunDir, tmp_path: Path
) -> None:
    before = {p: p.read_bytes() for p in run.root.rglob("*") if p.is_file()}
    with LoopbackJudge() as judge:
        file = judge_file(tmp_path, judge)
        [row] = json.loads(art("rescore", str(run.root), "--judge", file, "--step", "2", "--json"))
    assert (row["groups"], row["failures"], row["tau"]) == (3, 0, pytest.approx(1))
    lines = [json.loads(line) for line in Path(row["file"]).read_text().splitlines()]
    assert [line["scenario_id"] for line in lines] == ["train-2-0", "train-2-1", "train-2-2"]
    assert lines[0]["scores"] == pytest.approx(QUALITIES) and lines[0]["explanations"][0]
    assert all(p.read_bytes() == content for p, content in before.items())


def test_mistakes_are_told(run: RunDir) -> None:
    with pytest.raises(UsageError, match="has no judge; name one"):
        art("audit", str(run.root))
    with pytest.raises(UsageError, match="there are steps 1 to 2"):
        art("rescore", str(run.root), "--step", "9", "--judge", "openai/o3")


# ---------------------------------------------------------------- art run with a judge


def run_with(folder: Path, judge: LoopbackJudge, *overrides: str) -> tuple[int, str]:
    """Exit code and output of a short run whose rewards are the judge's."""
    (folder / "config.yaml").write_text(SHORT_RUN)
    section = f"judge={{model: {judge.model}, api_base: '{judge.api_base}', retries: 0}}"
    art = Art(folder, "config.yaml", section, "train.steps=4", *overrides)
    return art.wait(), art.output


@pytest.mark.slow
def test_a_run_whose_money_is_spent_says_how_to_go_on(tmp_path: Path) -> None:
    prices = "judge.prices={input: 1000, output: 0}"  # a dollar for each call on loopback
    with LoopbackJudge() as judge:
        code, output = run_with(tmp_path, judge, prices, "judge.max_usd=6")
        assert code == 4
        assert "judge.max_usd=6 is used up: $" in output, output
        assert "All finished steps are saved" in output and "judge.max_usd=MORE --resume" in output
        more = [prices, "--resume", "judge.max_usd=100"]
        assert run_with(tmp_path, judge, *more)[0] == 0


def test_a_judge_that_refuses_the_key_stops_the_run_before_the_model_is_made(
    tmp_path: Path,
) -> None:
    with LoopbackJudge(then=refused(401, "wrong key")) as judge:
        code, output = run_with(tmp_path, judge)
    assert code == 3
    assert "the judge cannot be used" in output and "wrong key" in output
    assert "Traceback" not in output and "making the model" not in output
