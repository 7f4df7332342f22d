"""The types of the fields in a run's files, checked when they are read.

A missing field stays missing: older runs lack some. A field of another type, or a number that is
not finite, is removed and named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from art_cli.system.untrusted import UntrustedValueError, is_number

Spec = Callable[[Any], bool] | dict[str, "Spec"] | list["Spec"]  # of a value, an object, a list

MOST_STEPS = 10**9  # limit of a run's counts: steps, groups, tokens and others
MOST_TOKENS = 2**32  # limit of token ids
WRONG = object()


def is_count(value: Any) -> bool:
    """Return whether a value is a count, for example of steps, groups or tokens."""
    return type(value) is int and 0 <= value < MOST_STEPS


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_number_or_none(value: Any) -> bool:
    return value is None or is_number(value)


def _is_flag(value: Any) -> bool:
    return value in (0, 1) and isinstance(value, int)


def _is_whole_number(value: Any) -> bool:
    return isinstance(value, int) and (isinstance(value, bool) or is_number(value))


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _are_arguments(value: Any) -> bool:
    return isinstance(value, dict | str)  # a malformed call has its text


def _are_ids(value: Any) -> bool:
    return _are(value, {int}) and (not value or (min(value) >= 0 and max(value) < MOST_TOKENS))


def _are_flags(value: Any) -> bool:
    return _are(value, {int}) and set(value) <= {0, 1}


def _are_logprobs(value: Any) -> bool:
    return _are(value, {float, int, type(None)})  # null: it was not finite


def _are(value: Any, types: set[type]) -> bool:
    return isinstance(value, list) and set(map(type, value)) <= types


_MESSAGE: Spec = {
    "role": _is_text,
    "content": _is_text_or_none,
    "name": _is_text_or_none,
    "tool_calls": [{"name": _is_text, "arguments": _are_arguments}],
    "is_error": _is_flag,
}
EPISODE: dict[str, Spec] = {
    **dict.fromkeys(("step", "group", "index", "num_turns", "num_calls", "num_sampled"), is_count),
    **dict.fromkeys(("split", "scenario_id", "stop_reason", "judge_context"), _is_text),
    **dict.fromkeys(("reward", "advantage"), _is_number_or_none),
    "reward_parts": {
        **dict.fromkeys(("env", "agent", "judge", "win", "cost"), is_number),
        "is_gated": _is_flag,
        "explanation": _is_text,
    },
    "turn_advantages": [is_number],
    "seed": _is_whole_number,
    "scenario": _is_object,
    "truncated": _is_flag,
    "error": _is_text_or_none,
    **dict.fromkeys(("traceback", "crash"), _is_text),
    "logs": [_is_text],
    "policy_versions": [is_count],
    "steps": [
        {
            "turn": _is_whole_number,
            "tool": _is_text_or_none,
            "arguments": _are_arguments,
            "said": _is_text_or_none,
            "result": _is_text_or_none,
            **dict.fromkeys(("is_error", "is_unknown"), _is_flag),
        }
    ],
    "messages": [_MESSAGE],
    "side_conversations": [[_MESSAGE]],
    "sequences": [
        {
            "ids": _are_ids,
            "mask": _are_flags,
            "engine_logprobs": _are_logprobs,
            "begins": [is_count],
            "constrained": [{"begin": is_count, "end": is_count, "grammar": _is_text}],
        }
    ],
}
JUDGEMENT: dict[str, Spec] = {
    "step": is_count,
    "scenario_id": _is_text,
    "scores": [_is_number_or_none],
    "explanations": [_is_text],
}


def check_episode(row: dict[str, Any]) -> list[str]:
    """Remove invalid fields from the row of a trajectory. Return their names."""
    wrong = _wrong_of(row, EPISODE)
    metrics = row.get("metrics")
    if isinstance(metrics, dict):
        return wrong + _wrong_numbers(metrics, "metrics.")
    return wrong + ([] if row.pop("metrics", None) is None else ["metrics"])


def check_judgement(row: dict[str, Any]) -> list[str]:
    """Remove invalid fields from a judgement of a group. Return their names."""
    return _wrong_of(row, JUDGEMENT)


def check_metrics(row: dict[str, Any]) -> list[str]:
    """Remove values that are not numbers from a line of metrics.jsonl. Return their names.

    Raises UntrustedValueError if its step is invalid.
    """
    if not is_count(row.get("training_step", 0)):
        raise UntrustedValueError("its training_step is not a count")
    return _wrong_numbers(row, "")


def _wrong_numbers(row: dict[str, Any], place: str) -> list[str]:
    """Remove values that are not numbers, but not infinity and NaN, which are informative."""
    names = [
        name
        for name, value in row.items()
        if not _is_number_or_none(value) and not (isinstance(value, float) and _is_endless(value))
    ]
    for name in names:
        del row[name]
    return [f"{place}{name:.100}" for name in names]


def _is_endless(value: float) -> bool:
    return value - value != 0.0  # infinity or NaN


def _wrong_of(row: dict[str, Any], spec: dict[str, Spec]) -> list[str]:
    wrong: list[str] = []
    _kept(row, spec, "", wrong)
    return wrong


def _kept(value: Any, spec: Spec, place: str, wrong: list[str]) -> Any:
    """Return the value without its invalid parts; WRONG if nothing is left."""
    if isinstance(spec, list) and isinstance(value, list):
        parts = [_kept(v, spec[0], f"{place}[{n}]", wrong) for n, v in enumerate(value)]
        value[:] = [part for part in parts if part is not WRONG]
        return value
    if isinstance(spec, dict) and isinstance(value, dict):
        for name, inner in spec.items():
            within = f"{place}.{name}" if place else name
            if name in value and _kept(value[name], inner, within, wrong) is WRONG:
                del value[name]
        return value
    if callable(spec) and spec(value):
        return value
    wrong.append(place)
    return WRONG
