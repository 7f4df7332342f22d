"""What of a judge's answer is believed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from art_cli.judges.answer import SCHEMA, AnswerError, parse_answer

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
    "wrap", ["{}", "```json\n{}\n```", "Here you are:\n{}", "{}\n\nI hope it helps.", "\ufeff{}\n"]
)
def test_what_stands_around_the_json_does_not_matter(wrap: str) -> None:
    assert len(parse_answer(wrap.replace("{}", answer(*GOOD)), IDS)) == 3


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


def test_a_complaint_shows_only_the_beginning_of_what_is_wrong() -> None:
    assert len(wrong(answer(*GOOD, entry("x" * 10_000, 1)))) < 200


def test_the_schema_asks_for_reasons_before_the_score() -> None:
    item = SCHEMA["properties"]["scores"]["items"]
    assert list(item["properties"]) == ["trajectory_id", "explanation", "score"]
    assert item["additionalProperties"] is False and item["required"] == list(item["properties"])
