"""What the judge answers, believed only as far as it can be checked. Pure functions."""

from __future__ import annotations

import json
from typing import Any

from art_cli.llms.answer import in_complaint
from art_cli.llms.judges.base import Score

# The explanation comes first: a score that is written after its reasons follows from them.
SCHEMA: dict[str, Any] = {
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
SHOWN = 80  # characters of what was wrong, in a complaint


class AnswerError(Exception):
    """The answer cannot be used; the text says all that is wrong with it, for the judge to mend."""


def parse_answer(text: str, ids: list[str], cut: bool = False) -> dict[str, Score]:
    """Return the score of each id: every one once and no other, finite, in [0, 1].

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
        elif not 0 <= score <= 1:  # NaN is not, either
            wrong.append(f"the score of {id} is not between 0 and 1: {in_complaint(score, SHOWN)}")
        else:
            explanation = entry.get("explanation")
            explanation = explanation if isinstance(explanation, str) else ""
            # Half a surrogate pair, which JSON can spell, is no text that could be stored.
            explanation = explanation.encode(errors="replace").decode()
            found[id] = Score(score=float(score), explanation=explanation)
            continue
        if id in ids:  # it was named; that its score is wrong has been said
            found.setdefault(id, Score(score=0.0, explanation=""))
    missing = [id for id in ids if id not in found]
    if missing:
        wrong.append(f"there is no score for {', '.join(missing)}")
    if wrong:
        raise AnswerError("; ".join(wrong))
    return found


def _entries(text: str, cut: bool) -> list[Any]:
    """Return the list of scores; around it a model may have put a fence or a sentence."""
    start, end = text.find("{"), text.rfind("}")
    try:
        text = text[start : end + 1] if start >= 0 else text
        answer = json.loads(text, object_pairs_hook=_unambiguous)
    except (ValueError, RecursionError) as e:
        why = "it was cut off" if cut else f"{e}" if text.strip() else "it is empty"
        raise AnswerError(f"the answer is not JSON: {why}") from None
    entries = answer.get("scores") if isinstance(answer, dict) else None
    if not isinstance(entries, list):
        raise AnswerError('the answer is not an object with a list "scores"')
    return entries


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs as a dict. Raises AnswerError for a key that stands there twice."""
    out = dict(pairs)
    if len(out) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise AnswerError(f"an object has the key {in_complaint(twice, SHOWN)} twice")
    return out
