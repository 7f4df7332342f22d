"""The functions of the repositories: their sources, names and cases.

In a source, an identifier that ends with `_` stands for a name that each repository draws anew, out
of NAMES: `xs_` is a list, `f_` the function itself.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from textwrap import dedent, indent

from art_envs.code_edit.sandbox.pool import Call, Language

PLACEHOLDER = re.compile(r"\b([a-z][a-z0-9]*)_\b")
NAMES: Mapping[str, tuple[str, ...]] = {
    "a": ("a", "first", "left"),
    "b": ("b", "second", "right"),
    "x": ("x", "value", "number"),
    "y": ("item", "entry", "each"),
    "xs": ("values", "items", "numbers"),
    "ys": ("others", "more", "added"),
    "low": ("low", "lower", "minimum"),
    "high": ("high", "upper", "maximum"),
    "n": ("n", "size", "count"),
    "i": ("i", "index", "at"),
    "j": ("j", "k", "position"),
    "out": ("out", "result", "found"),
    "s": ("text", "line", "string"),
    "c": ("c", "char", "letter"),
    "ws": ("words", "tokens", "parts"),
    "w": ("word", "token", "part"),
    "total": ("total", "amount", "running"),
    "best": ("best", "top", "chosen"),
    "limit": ("limit", "bound", "threshold"),
    "d": ("rest", "remaining", "left_over"),
}
Draw = Callable[[random.Random], list]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A function or a class that a repository can have."""

    name: str
    does: str  # one sentence, of what it returns; placeholders as in the sources
    names: tuple[str, ...]  # of the function itself
    draw: Draw  # arguments of a call; of a class, those of its steps: [arguments, step, step ...]
    sources: Mapping[Language, tuple[str, ...]]  # several ways to write it
    own: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # NAMES of its own
    is_class: bool = False
    short: bool = False  # so short that level 0 takes it

    def call(self, module: str, name: str, drawn: list) -> Call:
        """Return a case as the sandbox knows it."""
        call: Call = {"module": module, "name": name, "args": drawn}
        if self.is_class:
            call |= {"args": drawn[0], "steps": drawn[1:]}
        return call


def kind(name: str, does: str, names: str, draw: Draw, **given: object) -> Kind:
    """Make a Kind; sources are given by language, as one text or several."""
    sources: dict[Language, tuple[str, ...]] = {}
    for language in ("python", "javascript", "bash"):
        texts = given.pop(language, ())
        many = (texts,) if isinstance(texts, str) else texts
        sources[language] = tuple(dedent(text).strip("\n") for text in many)  # type: ignore[union-attr]
    sources = {language: texts for language, texts in sources.items() if texts}
    common = {"name": name, "does": does, "names": tuple(names.split()), "draw": draw}
    return Kind(**common, sources=sources, **given)  # type: ignore[arg-type]


def or_default(draw: Draw) -> Draw:
    """Return a draw that leaves the last argument out in one of three calls."""

    def drawn(rng: random.Random) -> list:
        arguments = draw(rng)
        return arguments[: -1 if rng.random() < 0.34 else None]

    return drawn


def documented(language: Language, source: str, does: str) -> str:
    """Return a source with its sentence."""
    if language == "python":
        head, _, body = source.partition("\n")
        return f'{head}\n    """{does}"""\n{body}'
    mark = "//" if language == "javascript" else "#"
    return f"{indent(does, f'{mark} ')}\n{source}"


def draw_names(one: Kind, text: str, rng: random.Random, taken: set[str]) -> dict[str, str]:
    """Return a name for each placeholder, all different, the function's not in `taken`."""
    out: dict[str, str] = {}
    for placeholder in dict.fromkeys(PLACEHOLDER.findall(text)):
        pool = one.names if placeholder == "f" else one.own.get(placeholder) or NAMES[placeholder]
        used = taken if placeholder == "f" else set(out.values()) | set(one.names)
        free = [name for name in pool if name not in used]
        out[placeholder] = rng.choice(free)
    return out


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Return a text with names for its placeholders."""
    return PLACEHOLDER.sub(lambda found: names[found[1]], text)
