"""The process that asks math-verify: a question a line on stdin, true or false a line on stdout.

{"target": "\\\\frac{1}{2}"}                    is there a value in it
{"target": "\\\\frac{1}{2}", "said": "0.5"}     is it the same one
"""

from __future__ import annotations

import contextlib
import json
import sys
from functools import lru_cache
from typing import Any

MEMORY = 2 * 2**30  # bytes
MARKS = ("$", "\\(", "\\[", "\\boxed", "\\begin")  # that LaTeX stands between, or in
LONGEST_BARE = 200  # characters of an answer that may be LaTeX without marks


@lru_cache(maxsize=4096)
def of_target(text: str) -> list[Any]:
    """Return the values of a right answer: LaTeX, with or without marks around it."""
    from math_verify import parse

    return parse(text if any(mark in text for mark in MARKS) else f"${text}$") or parse(text)


def is_equal(target: str, said: str) -> bool:
    """Return whether what was said has the value of the target."""
    from math_verify import parse, verify

    wanted = of_target(target)
    if verify(wanted, parse(said)):
        return True
    bare = len(said) <= LONGEST_BARE and not any(mark in said for mark in MARKS)
    return bare and verify(wanted, parse(f"${said}$"))


def main() -> None:
    """Answer until stdin closes."""
    import math_verify  # noqa: F401 (the one who waits allows more time for this)

    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    answers, sys.stdout = sys.stdout, sys.stderr
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            said = question.get("said")
            target = question["target"]
            right = bool(of_target(target)) if said is None else is_equal(target, said)
        except Exception:  # of sympy's own, for some texts; MemoryError too
            right = False
        print(json.dumps(bool(right)), file=answers, flush=True)


if __name__ == "__main__":
    main()
