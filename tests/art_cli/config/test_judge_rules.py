"""The sections `judge` and `reward`: what is read, and what is refused in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from art_cli.config.load import LoadedExperiment, load_experiment
from art_cli.config.resume import changes_on_resume
from art_cli.config.sections.judge import JudgeConfig
from art_cli.config.sections.llm import PricesConfig
from art_cli.config.sections.reward import RewardConfig
from art_cli.errors import ConfigError

BASE = "env: {use: tic_tac_toe}\nmodel: {base: some/model}\ntrain: {steps: 3}\n"
JUDGE = "judge.model=openai/o3"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(BASE)


def load(*overrides: str) -> LoadedExperiment:
    return load_experiment([Path("config.yaml")], overrides)


def problem(*overrides: str) -> str:
    with pytest.raises(ConfigError) as raised:
        load(*overrides)
    (found,) = raised.value.problems
    return found


def test_a_model_is_all_that_a_judge_needs() -> None:
    experiment = load(JUDGE).experiment
    assert experiment.judge == JudgeConfig(model="openai/o3") and experiment.reward is None
    assert experiment.judge.on_failure == "drop" and experiment.judge.cache


def test_without_a_judge_there_is_none() -> None:
    assert load().experiment.judge is None


def test_everything_about_a_judge_can_be_said() -> None:
    Path("config.yaml").write_text(
        BASE + "judge: {model: openai/x, api_base: 'http://localhost:8000/v1', "
        "api_key_env: MY_KEY, params: {reasoning_effort: low}, prices: {input: 2, output: 8.0}, "
        "fallbacks: [openai/o3], votes: 4, max_usd: 5, on_failure: env, rubric: short is good}\n"
        "reward: {env: 1, judge: 0.5, gate: env}\n"
    )
    experiment = load().experiment
    assert experiment.reward == RewardConfig(env=1.0, judge=0.5, gate="env")
    assert experiment.judge and experiment.judge.prices == PricesConfig(input=2.0, output=8.0)
    assert experiment.judge.params == {"reasoning_effort": "low"}


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["judge.votes=2"], "judge.model"),
        ([JUDGE, "judge.modle=x"], "judge.modle: unknown key. Did you mean 'model'?"),
        ([JUDGE, "judge.on_failure=zero"], "judge.on_failure: "),
        ([JUDGE, "judge.votes=0"], "judge.votes: must be"),
        ([JUDGE, "judge.max_per_call=3"], "judge.max_per_call: must be"),
        ([JUDGE, "judge.max_usd=0"], "judge.max_usd: must be"),
        ([JUDGE, "judge.timeout=0"], "judge.timeout: must be"),
        ([JUDGE, "judge.use=pairs"], "judge.use: "),
        ([JUDGE, "reward.judge=-1"], "reward.judge: must be"),
        ([JUDGE, "reward.gate=ruler"], "reward.gate: "),
        ([JUDGE, "judge.prices.input=1"], "judge.prices.output"),
        ([JUDGE, "judge.command=serve"], "judge.command: "),
    ],
)
def test_a_wrong_value_is_named(overrides: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(*overrides)
    assert any(words in p for p in raised.value.problems), raised.value.problems


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            [JUDGE, "judge.rubric=a", "judge.rubric_file=b"],
            "judge.rubric_file: stands beside judge.rubric; keep one of them",
        ),
        ([JUDGE, "judge.command=[a]", "judge.api_base=b"], "so judge.api_base has no effect"),
        (["reward.judge=1"], "needs a judge; add for example: judge: {model: openai/o3}"),
        ([JUDGE, "reward.env=1"], "is 0, so the judge has no effect; remove the section judge"),
        (
            ["reward.env=0"],
            "there is nothing to learn from; for the env's own score write reward.env",
        ),
        (["reward.env=1", "reward.gate=env"], "has no effect with reward.judge=0; remove it"),
        (
            ["judge.model=reference", "model.adapter=null"],
            "but model.adapter is null; name another model, or train an adapter",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_with_a_remedy(
    overrides: list[str], words: str
) -> None:
    assert words in problem(*overrides)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fallbacks", "[openai/o3]"),
        ("command", "[serve]"),
        ("api_base", "http://localhost"),
        ("api_key_env", "MY_KEY"),
        ("params", "{seed: 1}"),
        ("prices", "{input: 1, output: 1}"),
        ("max_usd", "5"),
        ("max_input_tokens", "9000"),
    ],
)
def test_the_reference_takes_no_settings_of_a_remote_model(key: str, value: str) -> None:
    found = problem("judge.model=reference", f"judge.{key}={value}")
    assert f"judge.{key}" in found and "has no effect with judge.model=reference" in found


@pytest.mark.parametrize("reward", [[], ["reward.judge=1"], ["reward.judge=0.5", "reward.env=1"]])
def test_good_combinations_are_good(reward: list[str]) -> None:
    load(JUDGE, *reward)
    load("judge.model=reference", *reward)


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ({"max_usd": 5}, {"max_usd": 9}, False),
        ({"max_usd": 5}, {"max_usd": None}, False),
        ({"timeout": 5, "retries": 1}, {"timeout": 9, "retries": 9}, False),
        ({"api_base": "http://a", "api_key_env": "A"}, {"api_base": "http://b"}, False),
        ({"model": "openai/o3"}, {"model": "openai/o4-mini"}, True),
        ({"votes": 1}, {"votes": 4}, True),
        ({"rubric": None}, {"rubric": "short is good"}, True),
    ],
)
def test_a_run_goes_on_with_more_money_but_not_with_another_judge(
    before: dict[str, Any], after: dict[str, Any], changed: bool
) -> None:
    def config(judge: dict[str, Any]) -> str:
        sections = ["judge.model=openai/o3"]
        sections += [f"judge.{k}={'null' if v is None else v}" for k, v in judge.items()]
        return load(*sections).to_yaml()

    assert bool(changes_on_resume(config(before), config(after))) == changed
