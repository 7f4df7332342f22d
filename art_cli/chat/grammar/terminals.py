"""Terminals of a grammar in llguidance's dialect of Lark, made from plain text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

TAG = re.compile(r"</[^<>]+>")


@dataclass(frozen=True, slots=True)
class Terminals:
    """Converts text to terminals for one tokenizer; `specials` are those of `Grammars`."""

    specials: dict[str, int]

    def literal(self, text: str) -> str:
        """Return a text as terminals. Each special token is a separate terminal."""
        return " ".join(self._part(part) for part in self._parts(text)) or '""'

    def loose(self, text: str) -> str:
        """Return a text as terminals whose line breaks are optional."""
        parts = [part for whole in self._parts(text) for part in re.split(r"(\n+)", whole) if part]
        written = (r"/\n{0,2}/" if part.isspace() else self._part(part) for part in parts)
        return " ".join(written) or '""'

    def is_special(self, text: str) -> bool:
        """Return whether a text is a special token, which only its own terminal matches."""
        return text in self.specials

    def free(self, without: Iterable[str], length: str = "*") -> str:
        """Return the body of a terminal that matches any text without the given substrings.

        `length` is a quantifier of a regular expression.
        """
        ends = "|".join(_regex(text) for text in without)
        return f"/(?s:.{length})/" + (f" & ~/(?s:.*)({ends})(?s:.*)/" if ends else "")

    def _parts(self, text: str) -> list[str]:
        cuts = "|".join(map(re.escape, sorted(self.specials, key=len, reverse=True)))
        return [part for part in (re.split(f"({cuts})", text) if cuts else [text]) if part]

    def _part(self, part: str) -> str:
        known = self.specials
        return any_of([known[part]]) if part in known else json.dumps(part, ensure_ascii=False)


def any_of(ids: Iterable[int]) -> str:
    """Return a terminal that matches any one of these tokens."""
    return f"<[{','.join(map(str, sorted(ids)))}]>"


def _regex(text: str) -> str:
    """Return a text escaped for a regular expression between slashes."""
    return re.escape(text).replace("/", r"\/").replace("\n", "n")
