"""The pages that the project shows, and the code in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
}


def blocks(language: str) -> list[tuple[str, str]]:
    """Return all code blocks in a language, each with the page that it stands on."""
    return [
        (page, code)
        for page, text in PAGES.items()
        for code in re.findall(rf"```{language}\n(.*?)```", text, re.S)
    ]


def code_of(page: str, language: str) -> str:
    """Return the one block in a language that a page has."""
    [code] = [code for where, code in blocks(language) if where == page]
    return code


def commands() -> list[tuple[str, str]]:
    """Return each line that begins with `art ...` in a block of commands, with its page."""
    return [
        (page, line.strip())
        for page, text in PAGES.items()
        for line in re.findall(r"^ {4}(?:\$ )?(art [a-z].*)$", text, re.M)
    ]
