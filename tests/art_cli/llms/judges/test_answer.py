"""What of a judge's answer is believed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fuzz import any_json, any_json_text, any_scalar, any_text, broken, fuzz, nested
from hypothesis import given
from hypothesis import strategies as st

from art_cli.llms.judges.answer import SHAPE, AnswerError, parse_answer

HUGE = pytest.param(10**400, id="huge")  # too large for a float
IDS = ["t-a", "t-b", "t-c"]


def entry(id: Any, score: Any, **more: Any) -> dict[str, Any]:
    return {"trajectory_id": id, "explanation": f"why {id}", "score": score, **more}


GOOD = [entry("t-a", 0.1), entry("t-b", 0.5), entry("t-c", 1)]


def answer(*entries: Any) -> str:
    return json.dumps({"scores": list(entries)})


def wrong(text: str, cut: bool = False) -> str:
    with pytest.raises(AnswerError) as raised:
        parse_answer(text, IDS, cut)
    return str(raised.value)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_scores_are_matched_by_id_whatever_the_order(order: tuple[int, ...]) -> None:
    found = parse_answer(answer(*(GOOD[n] for n in order)), IDS)
    assert {id: s.score for id, s in found.items()} == {"t-a": 0.1, "t-b": 0.5, "t-c": 1.0}
    assert found["t-b"].explanation == "why t-b"


@pytest.mark.parametrize(
    "wrap",
    [
        *("{}", "```json\n{}\n```", "Here you are:\n{}", "{}\n\nI hope it helps.", "\ufeff{}\n"),
        *("{}\nHope it {helps}.", "maybe {'a': 1} or [x]?\n{}", '{"scores": []}\n{}'),
        '{"scores": [{"trajectory_id": "t-a", "score": 1}]} No, rather:\n{}',
    ],
)
def test_what_stands_around_the_json_does_not_matter(wrap: str) -> None:
    assert len(parse_answer(wrap.replace("{}", answer(*GOOD)), IDS)) == 3


def test_a_list_that_stands_alone_is_an_answer() -> None:
    assert len(parse_answer(f"Scores: {json.dumps(GOOD)} [1]", IDS)) == 3


def test_the_bounds_themselves_are_scores() -> None:
    found = parse_answer(answer(entry("t-a", 0), entry("t-b", 1), entry("t-c", -0.0)), IDS)
    assert [found[id].score for id in IDS] == [0.0, 1.0, 0.0]


def test_an_answer_without_reasons_is_an_answer() -> None:
    bare = [{"trajectory_id": id, "score": 0.5} for id in IDS]
    assert parse_answer(answer(*bare), IDS)["t-a"].explanation == ""


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (GOOD[:2], ["there is no score for t-c"]),
        (GOOD[:1], ["there is no score for t-b, t-c"]),
        ([*GOOD, GOOD[0]], ["t-a is scored twice"]),
        ([*GOOD, entry("t-x", 1)], ['there is no trajectory with the id "t-x"']),
        ([*GOOD, entry(["t-a"], 1)], ['there is no trajectory with the id ["t-a"]']),
        ([*GOOD, entry("T-A", 1)], ['there is no trajectory with the id "T-A"']),
        ([*GOOD, "t-a"], ["entry 4 is not an object"]),
        ([*GOOD[:2], {"score": 1}], ["with the id null", "there is no score for t-c"]),
    ],
)
def test_missing_foreign_and_repeated_ids_are_named(entries: list[Any], words: list[str]) -> None:
    message = wrong(answer(*entries))
    assert message == "; ".join(words) or all(w in message for w in words)


@pytest.mark.parametrize(
    "score",
    [1.01, -0.01, 7, 1e999, -1e999, float("nan"), HUGE, "0.5", None, True, [0.5], {"a": 1}],
)
def test_a_score_that_is_not_a_number_from_0_to_1_is_refused(score: Any) -> None:
    message = wrong(answer(*GOOD[:2], entry("t-c", score)))
    assert message.startswith("the score of t-c is not ") and "no score for" not in message


def test_all_that_is_wrong_is_said_at_once() -> None:
    message = wrong(answer(entry("t-a", 2), entry("t-x", 1)))
    for words in ("the score of t-a", 'the id "t-x"', "no score for t-b, t-c"):
        assert words in message


@pytest.mark.parametrize(
    ("text", "cut", "words"),
    [
        ('{"scores": [{"trajectory_id": "t-a", "sc', True, "not JSON: it was cut off"),
        ('{"scores": [{"trajectory_id": "t-a", "sc', False, "the answer is not JSON: "),
        ("", False, "it is empty"),
        ("  \n", False, "it is empty"),
        ("They are all good.", False, "the answer is not JSON"),
        ("[1, 2]", False, 'not an object with a list "scores"'),
        ('{"scores": {"t-a": 1}}', False, 'not an object with a list "scores"'),
        ("{" * 50_000 + "}" * 50_000, False, "the answer is not JSON"),
        ('{"scores": ' + "[" * 50_000 + "]" * 50_000 + "}", False, "the answer is not JSON"),
    ],
)
def test_what_is_no_answer_at_all_is_said(text: str, cut: bool, words: str) -> None:
    assert words in wrong(text, cut)


def test_a_whole_answer_counts_even_if_the_limit_was_hit_behind_it() -> None:
    assert len(parse_answer(answer(*GOOD), IDS, cut=True)) == 3


@pytest.mark.parametrize("depth", range(100, 1000, 100))
def test_an_answer_of_any_depth_ends_in_words(depth: int) -> None:
    deep: Any = 0.5
    for _ in range(depth):
        deep = [deep]
    assert wrong(answer(*GOOD[:2], entry("t-c", deep)))


@pytest.mark.parametrize("depth", [500, 700, 900, 960, 980])
def test_an_explanation_of_any_depth_is_none(depth: int) -> None:
    text = answer(*GOOD).replace('"why t-c"', "[" * depth + "]" * depth)
    try:
        assert parse_answer(text, IDS)["t-c"].explanation == ""
    except AnswerError as e:  # the stack was deep already
        assert "the answer is not JSON: maximum recursion depth" in str(e)


def test_half_of_a_surrogate_pair_is_not_kept() -> None:
    spoilt = entry("t-c", 1) | {"explanation": "good \ud800"}
    assert parse_answer(answer(*GOOD[:2], spoilt), IDS)["t-c"].explanation == "good ?"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"scores": [{"trajectory_id": "t-a", "score": 0.1, "score": 0.9}]}', '"score"'),
        ('{"scores": [], "scores": [{"trajectory_id": "t-a", "score": 0.9}]}', '"scores"'),
        ('{"scores": [], "\\ud800": 1, "\\ud800": 2}', '"\\ud800"'),
    ],
)
def test_a_key_that_is_there_twice_is_not_guessed_at(text: str, key: str) -> None:
    assert wrong(text) == f"an object has the key {key} twice"


odd = st.one_of(any_scalar, any_json, st.sampled_from([500, 700, 900, 980]).map(nested))
scores = st.one_of(st.floats(-0.5, 1.5), st.sampled_from([0, 1]), odd)
ids = st.sampled_from(IDS) | odd
entries = st.fixed_dictionaries(
    {"trajectory_id": ids, "score": scores}, optional={"explanation": odd | any_text}
)
ranked = st.permutations(IDS).map(lambda order: [entry(id, 0.5) for id in order])
answers = st.one_of(
    ranked,
    st.tuples(ranked, scores, odd).map(
        lambda t: [*t[0][:2], entry(t[0][2]["trajectory_id"], t[1], explanation=t[2])]
    ),
    st.lists(entries | odd, max_size=4),
)


@fuzz(1500)
@given(
    st.one_of(
        answers.map(lambda found: json.dumps({"scores": found})),
        broken(answer(*GOOD)),
        any_json_text,
        any_text,
    ),
    st.booleans(),
)
def test_any_answer_gives_scores_that_can_be_used_or_a_complaint(text: str, cut: bool) -> None:
    try:
        found = parse_answer(text, IDS, cut)
    except AnswerError as e:
        str(e).encode()
        assert 0 < len(str(e)) < 10_000
    else:
        assert sorted(found) == IDS and all(0 <= s.score <= 1 for s in found.values())
        assert all(s.explanation.encode() is not None for s in found.values())


def test_a_complaint_shows_only_the_beginning_of_what_is_wrong() -> None:
    assert len(wrong(answer(*GOOD, entry("x" * 10_000, 1)))) < 200


def test_the_schema_asks_for_reasons_before_the_score() -> None:
    item = SHAPE["properties"]["scores"]["items"]
    assert list(item["properties"]) == ["trajectory_id", "explanation", "score"]
    assert item["additionalProperties"] is False and item["required"] == list(item["properties"])
