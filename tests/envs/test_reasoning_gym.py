"""Reasoning Gym through the adapter: its questions, its scores, and nothing of a model's runs."""

import re
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from art_cli.rollout.rollout import play, play_episode
from art_cli.types import Trajectory
from art_envs.adapters.reasoning_gym_env import BY_EVAL, BY_SYMPY, UNSTEADY, ReasoningGym

gym = pytest.importorskip("reasoning_gym", reason="pip install 'art-cli[reasoning-gym]'")

# Data sets, and answers that their scorers tell apart.
STORED = {
    "chain_sum": ["7", "seven", "-4"],
    "gcd": ["2", "the answer is 2"],
    "spiral_matrix": ["[1, 2]", "1 2"],
    "countdown": ["1 + 1", "94*2", "?"],
    "polynomial_multiplication": ["x", "x*(x + 1)"],
    "number_sorting": ["['1', '2']", "1, 2"],
    "propositional_logic": ["P", "(P ∧ Q)"],
    "fraction_simplification": ["1/2", "$\\frac{1}{2}$"],
    "word_sorting": ["a, b"],
    "composite": ["1", "Yes"],
}
MIXTURE = {"datasets": [{"name": "gcd", "weight": 2}, {"name": "syllogism"}]}
NO_ANSWER = ("boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour")


def settings(dataset: str, **args: Any) -> ReasoningGym.Config:
    config = MIXTURE if dataset == "composite" else {}
    return ReasoningGym.Config(dataset=dataset, **{"config": config} | args)


def answered(cfg: ReasoningGym.Config, text: str, number: int = 0) -> tuple[Trajectory, Any]:
    """Return the episode of a val question in which this is said, and its env."""
    scenario = next(islice(ReasoningGym.scenarios(cfg, "val"), number, None))
    env = ReasoningGym(scenario, cfg)
    return play_episode(env, lambda: text), env


@pytest.mark.parametrize("dataset", STORED)
def test_question_and_score_are_the_librarys(dataset: str) -> None:
    cfg = settings(dataset)
    config = cfg.config
    if dataset == "composite":
        spec = gym.composite.DatasetSpec
        config = {"datasets": [spec("gcd", 2, {}), spec("syllogism", 1, {})]}
    theirs = gym.create_dataset(dataset, seed=10_000_000, size=512, **config)
    for number in range(2):
        entry = theirs[number]
        for answer in (entry["answer"], *STORED[dataset], None):
            text = "I do not know." if answer is None else f"Well: <answer>{answer}</answer>"
            trajectory, _ = answered(cfg, text, number)
            assert trajectory.messages[1]["content"] == entry["question"]
            assert trajectory.reward == theirs.score_answer(answer and answer.strip(), entry)


@pytest.mark.parametrize("dataset", [*STORED, "ab", "maze", "sudoku", "list_functions"])
def test_gold_earns_1_where_there_is_an_answer(dataset: str) -> None:
    cfg = settings(dataset)
    for scenario in islice(ReasoningGym.scenarios(cfg, "train"), 3):
        env = ReasoningGym(scenario, cfg)
        turns = env.gold()
        assert (turns is None) == (dataset in NO_ANSWER)
        if turns is not None:
            assert play_episode(env, turns.__next__).reward == 1


def test_scenarios_of_a_split_have_seeds_of_their_own() -> None:
    cfg = settings("gcd")
    found = {s: [x.seed for x in ReasoningGym.scenarios(cfg, s)] for s in ("train", "val", "test")}
    assert max(found["train"]) < min(found["val"]) < max(found["val"]) < min(found["test"])


@pytest.mark.parametrize("dataset", [*BY_EVAL, *BY_SYMPY])
def test_what_a_model_writes_is_never_run(dataset: str, tmp_path: Path) -> None:
    none, _ = answered(settings(dataset), "I do not know.")
    for code in (f"open({str(tmp_path / 'made')!r}, 'w')", "9**9**9**9", "exec('x')"):
        trajectory, _ = answered(settings(dataset), f"<answer>{code}</answer>")
        assert (trajectory.reward, trajectory.metrics["refused"]) == (none.reward, 1)
    assert list(tmp_path.iterdir()) == []


def test_all_scorers_that_evaluate_are_known() -> None:
    calls = re.compile(r"\beval\(answer\)|parse_expr\(|sympify\(|exec\(answer")
    home = Path(gym.__file__).parent
    found = {
        p.stem
        for p in home.rglob("*.py")
        if re.search(calls, re.sub(r"\bdef parse_expr|= parse_expr\(expr", "", p.read_text()))
    }
    found -= {"propositional_logic"}  # has a parser of its own
    assert found == {*BY_EVAL, *BY_SYMPY}


def test_a_scorer_that_fails_on_an_answer_gives_0() -> None:
    trajectory, _ = answered(settings("prime_factorization"), "<answer>two</answer>")
    assert trajectory.reward == 0 and trajectory.metrics["scorer_failed"] == 1


def test_a_question_that_cannot_be_made_is_made_of_another_number() -> None:
    cfg = settings("maze")
    questions = {ReasoningGym(s, cfg).entry["question"] for s in ReasoningGym.scenarios(cfg, "val")}
    assert len(questions) > 500


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"dataset": "chian_sum"}, "no data set 'chian_sum'.*Did you mean 'chain_sum'"),
        (
            {"dataset": "gcd", "config": {"max_valu": 1}},
            "config.max_valu: .*mean 'max_value'",
        ),
        ({"dataset": "gcd", "config": {"seed": 1}}, "config.seed: the data set gcd has"),
        ({"dataset": "gcd", "config": {"min_numbers": 0}}, "refuses its config"),
        ({"dataset": "gcd", "config": {"min_value": "a"}}, "refuses its config"),
        ({"dataset": "composite"}, "needs a list"),
        ({"dataset": "composite", "config": {"datasets": [{"nam": "gcd"}]}}, "unknown nam"),
        ({"dataset": "composite", "config": {"datasets": [{"name": "g"}]}}, "no data set 'g'"),
    ],
)
def test_a_wrong_setting_says_what_there_is(args: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ReasoningGym.Config(**args)


def test_demonstrations_are_as_often_right_as_demo_noise_says() -> None:
    cfg = settings("chain_sum", demo_noise=0.5)
    rewards = []
    pairs = zip(
        ReasoningGym.scenarios(cfg, "train"), ReasoningGym.demonstrations(cfg, 200), strict=False
    )
    for scenario, messages in pairs:
        env = ReasoningGym(scenario, cfg)
        assert play(env, lambda m=messages: m[-1]["content"]) == messages
        rewards.append(env.score(Trajectory(scenario=scenario)))
    assert 0.4 < sum(rewards) / len(rewards) < 0.6


def test_questions_that_differ_between_processes_are_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    monkeypatch.setattr("art_envs.adapters.reasoning_gym_env.tell", said.append)
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    for dataset in ("gcd", *UNSTEADY):
        next(iter(ReasoningGym.scenarios(settings(dataset), "val")))
    assert len(said) == len(UNSTEADY) and "PYTHONHASHSEED=0" in said[0]
