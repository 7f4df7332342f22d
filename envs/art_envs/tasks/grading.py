"""Grading of answers: one rule for each `grade`.

exact    it is the target, but for spaces around and between words; True is true
number   the last number in it is the last one in the target
choice   the option that it names last is the target
regex    the target, a regular expression, matches all of it
math     math-verify finds the same value in both
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from fractions import Fraction

from art_envs.tasks import mathematics
from art_envs.tasks.settings import Grade

# A sign that follows a digit or a letter is a dash or a hyphen: 3-5, covid-19.
NUMBER = re.compile(
    r"(?:(?<![\w.)])[-+])?"
    r"(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d{1,3}(?!\w))?"
    r"(?:\s*/\s*\d+(?![\d./]))?"
)
MOST_DIGITS = 300
LONGEST = 100_000  # characters, of what an answer is graded by: the last of it
PATTERN_SECONDS = 2.0


def is_right(
    grade: Grade, said: str, targets: Sequence[str], choices: Sequence[str], tolerance: float
) -> bool:
    """Return whether an answer is one of those that are right. May take seconds: use a thread."""
    said = said[-LONGEST:]
    if grade == "exact":
        answer = plain(said)
        return answer in {plain(target) for target in targets} or (
            answer in ("True", "False") and answer.lower() in targets  # as Python writes it
        )
    if grade == "number":
        value = last_number(said)
        wanted = [last_number(target) for target in targets]
        return value is not None and any(
            number is not None and abs(value - number) <= Fraction(str(tolerance))
            for number in wanted
        )
    if grade == "choice":
        return last_choice(said, choices) in targets
    if grade == "regex":
        return any(_matches(target, said.strip()) for target in targets)
    return any(mathematics.is_equal(target, said) for target in targets)


def why_not_gradable(grade: Grade, target: str, choices: Sequence[str] | None) -> str:
    """Return why no answer could be held against a target, or ""."""
    if grade == "number" and last_number(target) is None:
        return "there is no number in it; grade: exact compares texts"
    if grade == "choice" and target not in (choices or ()):
        return f"it is none of the options, {', '.join(choices or ())}"
    if grade == "regex":
        import regex

        try:
            regex.compile(target)
        except regex.error as e:
            return f"it is no regular expression ({e})"
    if grade == "math" and not mathematics.has_value(target):
        return "math-verify finds no value in it; LaTeX stands between $ and $"
    return ""


def plain(text: str) -> str:
    """Return a text with single spaces, and characters that look alike as one (NFKC)."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def same_choice(text: str) -> str:
    """Return an option without differences in case and spacing."""
    return plain(text).casefold()


def last_number(text: str) -> Fraction | None:
    """Return the last number: 1,234.5 and 1e3 and 3/4 are one each; units are ignored."""
    text = unicodedata.normalize("NFKC", text.replace("\N{MINUS SIGN}", "-"))
    found = NUMBER.findall(text)
    if not found or len(found[-1]) > MOST_DIGITS:
        return None
    top, _, bottom = found[-1].replace(",", "").partition("/")
    divisor = int(bottom or 1)
    return Fraction(top.strip()) / divisor if divisor else None


def last_choice(text: str, choices: Sequence[str]) -> str | None:
    """Return the option that is named last, as words of their own; a single letter counts in its
    own case alone, for "a" is a word."""
    long_first = sorted(choices, key=len, reverse=True)
    parts = [
        re.escape(c) if len(c) == 1 else f"(?i:{re.escape(c)})" for c in long_first if c.strip()
    ]
    found = re.findall(rf"(?<!\w)(?:{'|'.join(parts)})(?!\w)", text)
    if not found:
        return None
    same = [c for c in choices if c == found[-1]]
    return (same or [c for c in choices if c.lower() == found[-1].lower()])[0]


def _matches(pattern: str, text: str) -> bool:
    """Return whether all of a text matches; one that takes too long does not."""
    import regex  # as re, with a limit of time: some patterns take forever with some texts

    try:
        return regex.fullmatch(pattern, text, timeout=PATTERN_SECONDS) is not None
    except TimeoutError:
        return False
