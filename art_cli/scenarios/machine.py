"""Detection of answers that depend on this machine or the time: dates, paths, processes, settings.

Such a result repeats while the tasks are created, but not where they are trained on.
"""

from __future__ import annotations

import os
import platform
import re
import socket
import sys
from datetime import UTC, date, datetime, timedelta
from functools import cache

DAYS = 1  # days around today: a server may use another time zone, and creating tasks takes time
DATES = (  # the formats that servers write
    *("%Y-%m-%d", "%Y/%m/%d", "%Y%m%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y"),
    *("%d %b %Y", "%d %B %Y", "%b %d %Y", "%B %d %Y", "%b %d, %Y", "%B %d, %Y"),
)
EPOCH = re.compile(r"(?<![\d.])(\d{10}|\d{13}|\d{16}|\d{19})(?!\d)")  # s, ms, us, ns
PATH = re.compile(
    r"(?<![\w./:-])(?:/(?:home|Users|root|tmp|var|usr|etc|opt|private|proc|dev|mnt|run|app)/[\w.~-]"
    r"|[A-Za-z]:\\\w|file:///\w)"
)
PROCESS = re.compile(r"\b(?:p?pid|process[ _]?id)\b\W{0,4}\d", re.IGNORECASE)
LOOPBACK = re.compile(r"\b(?:localhost|127\.0\.0\.1|0\.0\.0\.0):\d+")
TIME = "the date or the time"
COMMON = 4  # characters; a shorter host name may occur in any result
# Keys whose values depend on the machine or the time.
NAMES = re.compile(
    r"p?pid|process_?id|cwd|pwd|working_?dir(?:ectory)?|home_?dir(?:ectory)?|"
    r"up_?time(?:_\w+)?|now|today|(?:current|local|server)_?(?:date|time|timestamp)",
    re.IGNORECASE,
)


def of_this_machine(answer: str, name: str = "") -> str | None:
    """Return what in an answer depends on the machine or the time, or None.

    `name` is the key that the answer stands under in its result.
    """
    if NAMES.fullmatch(name) or PROCESS.search(answer):
        return "a time, a folder or a process of the server"
    if name in _variables() or is_environment(answer):
        return "an environment variable"
    if PATH.search(answer):
        return "a path of the server's machine"
    if LOOPBACK.search(answer):
        return "an address of the server's machine"
    text = answer.casefold()
    if any(host in text for host in _hosts()) or answer.strip() in _versions():
        return "the server's machine"
    if any(day in text for day in _days(datetime.now(UTC).date())) or _is_now(answer):
        return TIME
    return None


def is_environment(result: str) -> bool:
    """Return whether a result lists environment variables: then all of it is of the machine."""
    return sum(f'"{name}"' in result or f"{name}=" in result for name in _variables()) > 1


def is_part_of_now(answer: str, result: str) -> bool:
    """Return whether an answer is today's year, month or weekday, in a result with the date."""
    now = datetime.now(UTC)
    parts = {now.strftime(form).casefold() for form in ("%Y", "%m", "%d", "%A", "%a", "%B", "%b")}
    parts |= {str(int(part)) for part in parts if part.isdigit()}
    return answer.strip().casefold() in parts and of_this_machine(result) == TIME


def _is_now(answer: str) -> bool:
    """Return whether a number is a current timestamp, in seconds or fractions of them."""
    now = datetime.now(UTC).timestamp()
    near = (DAYS + 1) * 24 * 3600
    numbers = (int(found[:10]) for found in EPOCH.findall(answer))
    return any(abs(number - now) < near for number in numbers)


@cache
def _days(today: date) -> frozenset[str]:
    """Return the dates around today as text in lower case, with and without leading zeros."""
    days = (today + timedelta(days=n) for n in range(-DAYS, DAYS + 1))
    texts = {day.strftime(form) for day in days for form in DATES}
    short = {re.sub(r"(?<!\d)0(\d)(?!\d)", r"\1", text) for text in texts}
    return frozenset(text.casefold() for text in texts | short)


@cache
def _variables() -> tuple[str, ...]:
    """Return names of environment variables that other data does not use as keys."""
    return tuple(name for name in {"PATH", "HOME", *os.environ} if name.isupper() and len(name) > 3)


@cache
def _hosts() -> tuple[str, ...]:
    """Return the names of this host, in lower case."""
    names = {name.casefold() for name in (socket.gethostname(), platform.node())}
    return tuple(name for name in names - {"localhost"} if len(name) > COMMON)


@cache
def _versions() -> frozenset[str]:
    """Return the names and versions of this system."""
    named = {platform.platform(), platform.release(), platform.version(), platform.machine()}
    named |= {sys.version, platform.python_version()}
    return frozenset(name for name in named if name)
