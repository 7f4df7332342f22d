"""The values that a sweep tries: `KEY=A,B,C` or `KEY=LOW..HIGH`, and a config with one of each."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from art_cli.config.load import LoadedExperiment
from art_cli.errors import ConfigError, UsageError
from art_cli.lab.candidates import GIVEN, MEASURED

_NUMBER = r"([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)"
_RANGE = re.compile(rf"{_NUMBER}\.\.{_NUMBER}(?::(log|{_NUMBER}))?")
_LIKE_A_RANGE = re.compile(r"[^\s/'\"\[{]*\.\.[^\s/'\"\]}]*")  # a text with a slash is a path
FORMS = "A,B,C or LOW..HIGH, LOW..HIGH:log, LOW..HIGH:STEP"
EXAMPLE = "train.learning_rate=1e-4..1e-2:log train.group_size=4,8,16"
SHOWN_DIGITS = 4  # digits of a sampled number, so that the printed value is the one trained with

Load = Callable[[list[str]], LoadedExperiment]
Point = dict[str, str]  # key -> value, as text of an override


@dataclass(frozen=True, slots=True)
class Choices:
    """`KEY=A,B,C`: the values as they were written."""

    key: str
    values: tuple[str, ...]

    @property
    def size(self) -> int:
        """The number of values."""
        return len(self.values)

    @property
    def edges(self) -> tuple[str, ...]:
        """The values that must all be valid for the axis to be valid."""
        return self.values

    def text_of(self, value: Any) -> str:
        """Return a value as text of an override."""
        return str(value)

    def texts(self) -> list[str]:
        """Return all values."""
        return [*self.values]


@dataclass(frozen=True, slots=True)
class NumberRange:
    """`KEY=LOW..HIGH`: all numbers between, both ends included."""

    key: str
    edges: tuple[str, str]
    is_log: bool = False
    step: float | None = None
    is_whole: bool = False  # integers only

    @property
    def low(self) -> float:
        """The lower end."""
        return float(self.edges[0])

    @property
    def high(self) -> float:
        """The upper end."""
        return float(self.edges[1])

    @property
    def size(self) -> int | None:
        """The number of values, or None if it is infinite."""
        step = self.step or (1 if self.is_whole else None)
        return math.floor((self.high - self.low) / step + 1e-9) + 1 if step else None

    def text_of(self, value: float) -> str:
        """Return a value as text of an override, rounded to `SHOWN_DIGITS` but within the range."""
        if self.is_whole:
            return str(int(value))
        text = f"{value:.{SHOWN_DIGITS}g}"
        return text if self.low <= float(text) <= self.high else repr(value)

    @property
    def last(self) -> float:
        """The highest value, which may be below the upper end because of the step."""
        return self.high if self.size is None else self._at(self.size - 1)

    def texts(self) -> list[str]:
        """Return all values of a finite range."""
        return [self.text_of(self._at(i)) for i in range(self.size or 0)]

    def _at(self, index: int) -> float:
        return round(self.low + index * (self.step or 1), 12)


Axis = Choices | NumberRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The search space of a sweep."""

    words: list[str]  # config files and overrides of all trials
    axes: list[Axis]
    loaded: LoadedExperiment  # with the first value of each axis
    is_whole: bool  # whether the config is valid without these values
    own: Point | None  # the config's own values, if they are in the space

    @property
    def size(self) -> int | None:
        """The number of points, or None if it is infinite."""
        sizes = [axis.size for axis in self.axes]
        return None if None in sizes else math.prod(s for s in sizes if s)

    def grid(self) -> list[Point]:
        """Return all points of a finite space, the config's own first."""
        keys = [axis.key for axis in self.axes]
        rows = product(*(axis.texts() for axis in self.axes))
        points = [dict(zip(keys, row, strict=True)) for row in rows]
        return sorted(points, key=lambda point: point != self.own)


def overrides(point: Point) -> list[str]:
    """Return a point as arguments of a command line."""
    return [f"{key}={text}" for key, text in point.items()]


def read_space(given: Sequence[str], load: Load) -> Space:
    """Return the space of `CONFIG KEY=VALUE... KEY=RANGE...`.

    A word with one value is an override of all trials. Raise UsageError if a range is invalid or
    changes how runs are measured, ConfigError if the config rejects a value.
    """
    words: list[str] = []
    axes: list[Axis] = []
    for word in given:
        axis = _axis(word)
        if axis is None:
            words.append(word)
            continue
        if axis.key in (other.key for other in axes):
            raise UsageError(f"{axis.key} is given two ranges; put them into one")
        _check_may_vary(axis.key)
        axes.append(axis)
    if not axes:
        raise UsageError(f"no key has a range; give one, as {FORMS}, for example: {EXAMPLE}")
    first = {axis.key: axis.edges[0] for axis in axes}
    loaded = load([*words, *overrides(first)])
    axes = [_with_kind(axis, loaded) for axis in axes]
    values: dict[str, dict[str, Any]] = {axis.key: {} for axis in axes}
    for axis in axes:
        for text in axis.edges:
            tried = load([*words, *overrides(first | {axis.key: text})])
            values[axis.key][text] = value_at(tried, axis.key)
        _check_kind(axis, list(values[axis.key].values()))
    try:
        without = load(words)
    except ConfigError:  # the values may be what the config lacks
        without = None
    own = without and _own(axes, values, without)
    is_whole = without is not None
    return Space(words=words, axes=axes, loaded=loaded, is_whole=is_whole, own=own)


def value_at(loaded: LoadedExperiment, key: str) -> Any:
    """Return the checked value of a key, or None if the section above it is null."""
    value: Any = loaded.experiment
    parts = key.split(".")
    if parts[:2] == ["env", "args"]:
        value, parts = loaded.env_settings, parts[2:]
    for part in parts:
        value = value.get(part) if isinstance(value, dict) else getattr(value, part, None)
    return value


def _axis(word: str) -> Axis | None:
    """Return the range of a word, or None if it is a file or a single value."""
    key, equals, text = word.partition("=")
    text = text.strip()
    if not equals or not re.fullmatch(r"[A-Za-z_][\w.]*", key):
        return None
    if found := _RANGE.fullmatch(text):
        low, high, scale = found[1], found[2], found[3]
        step = float(scale) if scale and scale != "log" else None
        numbers = NumberRange(key, (low, high), is_log=scale == "log", step=step)
        _check_range(word, numbers)
        return numbers
    parts = _split(text)
    if len(parts) > 1:
        if "" in parts:
            raise UsageError(f"{word}: a value is missing beside a comma")
        if twice := [part for i, part in enumerate(parts) if part in parts[:i]]:
            raise UsageError(f"{word}: {twice[0]} is there twice")
        return Choices(key, tuple(parts))
    if not text:
        raise UsageError(f"{word}: it has no value; give one, or a range: {FORMS}")
    if _LIKE_A_RANGE.fullmatch(text):
        raise UsageError(f"{word}: {text} is no range; expected {FORMS}, with numbers")
    return None


def _split(text: str) -> list[str]:
    """Split a text at commas that are outside of brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        depth += (sign in "[{") - (sign in "]}") if not quote else 0
        if sign == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts]


def _check_range(word: str, numbers: NumberRange) -> None:
    if not numbers.low < numbers.high:
        raise UsageError(f"{word}: the low end must be less than the high one")
    if numbers.is_log and numbers.low <= 0:
        raise UsageError(f"{word}: a range by the logarithm must begin above 0")
    if numbers.step is not None and not 0 < numbers.step <= numbers.high - numbers.low:
        raise UsageError(f"{word}: the step must be above 0 and fit into the range")


def _check_may_vary(key: str) -> None:
    if key in GIVEN:
        other = (
            "--seeds N has each trial run with N of them" if key == "seed" else "--name names it"
        )
        raise UsageError(f"{key} cannot be swept: each trial has it from the sweep; {other}")
    if key.split(".")[0] in MEASURED:
        raise UsageError(
            f"{key} cannot be swept: held-out rewards of its trials would measure different "
            f"things, as with all of {', '.join(MEASURED)}. One value with a comma goes in quotes: "
            f"{key}='\"A, B\"'"
        )


def _with_kind(axis: Axis, loaded: LoadedExperiment) -> Axis:
    """Return the axis, converted to integers if the key takes integers."""
    if isinstance(axis, Choices) or not isinstance(value_at(loaded, axis.key), int):
        return axis
    return NumberRange(axis.key, axis.edges, axis.is_log, axis.step, is_whole=True)


def _check_kind(axis: Axis, values: list[Any]) -> None:
    if isinstance(axis, Choices):
        return
    text = f"{axis.key}={axis.edges[0]}..{axis.edges[1]}"
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        raise UsageError(f"{text}: {axis.key} takes no numbers; list its values: A,B,C")
    if axis.is_whole and axis.step and axis.step != int(axis.step):
        raise UsageError(f"{text}: {axis.key} takes integers, so its step must be one")
    if axis.is_whole and axis.is_log and axis.low < 1:
        raise UsageError(f"{text}: integers by the logarithm begin at 1 or above")


def _own(
    axes: list[Axis], values: dict[str, dict[str, Any]], loaded: LoadedExperiment
) -> Point | None:
    """Return the config's own values of the axes, or None unless all of them are in the space."""
    found = {a.key: _among(a, value_at(loaded, a.key), values[a.key]) for a in axes}
    own = {key: text for key, text in found.items() if text is not None}
    return own if len(own) == len(axes) else None


def _among(axis: Axis, own: Any, values: dict[str, Any]) -> str | None:
    if isinstance(axis, Choices):
        return next((text for text, value in values.items() if value == own), None)
    if isinstance(own, bool) or not isinstance(own, int | float):
        return None
    steps = (own - axis.low) / axis.step if axis.step else 0.0
    is_on = axis.low <= own <= axis.high and abs(steps - round(steps)) < 1e-9
    return axis.text_of(own) if is_on else None
