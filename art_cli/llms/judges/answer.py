"""Validation of a judge's answer, as pure functions."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from typing import Any

from art_cli.llms.answer import in_complaint
from art_cli.llms.judges.base import Score

# The explanation comes first, so that the score follows from it.
SHAPE: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["scores"],
    "properties": {
        "scores": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["trajectory_id", "explanation", "score"],
                "properties": {
                    "trajectory_id": {"type": "string"},
                    "explanation": {"type": "string"},
                    "score": {"type": "number"},
                },
            },
        }
    },
}
MOST_EXPLAINED = 400  # characters for one trajectory, if the schema's bounds are enforced
MOST_TRIES = 1000  # positions tried as the beginning of JSON
_BEGIN = re.compile(r"[\[{]")
SHOWN = 80  # characters of a wrong value in an error message


class AnswerError(Exception):
    """The answer cannot be used. The text lists all problems, for the judge to correct."""


def bounded_schema(ids: list[str]) -> dict[str, Any]:
    """Return a schema for valid answers only: a score for each id, in this order."""
    schema = deepcopy(SHAPE)
    scores = schema["properties"]["scores"]
    entry = scores.pop("items")
    entry["properties"]["explanation"]["maxLength"] = MOST_EXPLAINED
    entry["properties"]["score"] |= {"minimum": 0, "maximum": 1}
    scores |= {"minItems": len(ids), "maxItems": len(ids), "prefixItems": []}
    for id in ids:
        own = entry["properties"] | {"trajectory_id": {"const": id}}
        scores["prefixItems"].append(entry | {"properties": own})
    return schema


def parse_answer(text: str, ids: list[str], cut: bool = False) -> dict[str, Score]:
    """Return the score of each id. Each id must occur once, with a finite score in [0, 1].

    Raises AnswerError.
    """
    entries = _entries(text, cut)
    found: dict[str, Score] = {}
    wrong: list[str] = []
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict):
            wrong.append(f"entry {number} is not an object")
            continue
        id, score = entry.get("trajectory_id"), entry.get("score")
        if id not in ids:
            wrong.append(f"there is no trajectory with the id {in_complaint(id, SHOWN)}")
        elif id in found:
            wrong.append(f"{id} is scored twice")
        elif isinstance(score, bool) or not isinstance(score, int | float):
            wrong.append(f"the score of {id} is not a number: {in_complaint(score, SHOWN)}")
        elif not 0 <= score <= 1:  # also rejects NaN
            wrong.append(f"the score of {id} is not between 0 and 1: {in_complaint(score, SHOWN)}")
        else:
            explanation = entry.get("explanation")
            explanation = explanation if isinstance(explanation, str) else ""
            # A lone surrogate, which JSON can express, cannot be stored as text.
            explanation = explanation.encode(errors="replace").decode()
            found[id] = Score(score=float(score), explanation=explanation)
            continue
        if id in ids:  # do not also report it as missing
            found.setdefault(id, Score(score=0.0, explanation=""))
    missing = [id for id in ids if id not in found]
    if missing:
        wrong.append(f"there is no score for {', '.join(missing)}")
    if wrong:
        raise AnswerError("; ".join(wrong))
    return found


def _entries(text: str, cut: bool) -> list[Any]:
    """Return the last list of scores in an answer, which may also hold prose and code fences.

    The list may be in an object, as requested, or alone.
    """
    twice: list[str] = []  # duplicate keys of the value decoded last
    decoder = json.JSONDecoder(object_pairs_hook=lambda pairs: _object(pairs, twice))
    scores: tuple[list[Any], str] | None = None  # with a duplicate key in it
    is_json, why = False, "it is empty" if not text.strip() else "it has no object"
    begin = _BEGIN.search(text)
    for _ in range(MOST_TRIES):
        if begin is None:
            break
        end = begin.end()
        twice.clear()
        try:
            value, end = decoder.raw_decode(text, begin.start())
            is_json = True
            entries = value.get("scores") if isinstance(value, dict) else value
            if isinstance(entries, list) and (isinstance(value, dict) or _has_objects(entries)):
                scores = entries, (twice or [""])[0]
        except ValueError as e:
            why = why if is_json else str(e)
        except RecursionError as e:
            raise AnswerError(f"the answer is not JSON: {e}") from None
        begin = _BEGIN.search(text, end)
    if scores is None and is_json and not cut:
        raise AnswerError('the answer is not an object with a list "scores"')
    if scores is None:
        raise AnswerError(f"the answer is not JSON: {'it was cut off' if cut else why}")
    entries, key = scores
    if key:
        raise AnswerError(f"an object has the key {in_complaint(key, SHOWN)} twice")
    return entries


def _has_objects(entries: list[Any]) -> bool:
    return any(isinstance(entry, dict) for entry in entries)


def _object(pairs: list[tuple[str, Any]], twice: list[str]) -> dict[str, Any]:
    """Return the pairs as a dict. A duplicate key is appended to `twice`."""
    out = dict(pairs)
    if len(out) < len(pairs):
        keys = [key for key, _ in pairs]
        twice.append(next(key for key in keys if keys.count(key) > 1))
    return out
