"""Repositories with faults: files, tests that can be seen, tests that cannot, and the repair.

No fault of val or test (which node of which function became what, in whatever language and under
whatever names) occurs in train; at level 0, where there are few, no program text does.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import Any, TypedDict

from art_cli import Scenario, Split, seed_of
from art_envs.code_edit.faults import KINDS, Fault, cases, faults, in_words, module, wanted
from art_envs.code_edit.kinds import Kind, documented, draw_names, renamed
from art_envs.code_edit.sandbox.pool import Call, Language
from art_envs.code_edit.syntax import SUFFIX, places, symbols

NUM_FILES = {0: 1, 1: 2, 2: 3, 3: 4}
NUM_FUNCTIONS = {0: 1, 1: 4, 2: 7, 3: 10}
SHOWN = {0: (True,), 1: (True,), 2: (False,), 3: (True, False)}  # of each fault: does a test fail
MODULES: tuple[str, ...] = (
    "shop",
    "ledger",
    "garden",
    "route",
    "parcel",
    "menu",
    "harbour",
    "library_desk",
)
NUM_HIDDEN, NUM_HIDDEN_OTHERS = 8, 4  # cases of a faulty function, and of one that is right
ATTEMPTS = 300  # to find a case that differs from those that can be seen
MARK = "\0"


class Repair(TypedDict):
    """An edit that makes a function right again."""

    symbol: str
    old: str
    new: str
    nth: int


class Case(TypedDict):
    """A call, and what it must come to."""

    call: Call
    want: Any
    fails: bool  # as the repository stands


class Repository(TypedDict):
    """The data of a scenario."""

    language: Language
    files: dict[str, str]  # with the faults; no tests
    visible: list[Case]
    hidden: list[Case]
    repairs: list[Repair]
    shown: list[bool]  # of each repair: does a visible test fail without it
    kinds: list[str]  # of what is wrong


def split_of(content: str) -> Split:
    """Return the split that something belongs to, by its content."""
    bucket = seed_of(content) % 20
    return "val" if bucket < 3 else "test" if bucket < 6 else "train"


def generate(level: int, languages: tuple[Language, ...], split: Split) -> Iterator[Scenario]:
    """Return the scenarios of a split, without an end, all different."""
    seen: set[str] = set()
    for i in count():
        rng = random.Random(seed_of("code_edit", level, *languages, split, i))
        language = rng.choice(languages)
        data = _draw(level, language, split, rng)
        if data is None or (level == 0 and split_of(json.dumps(data["files"])) != split):
            continue
        content = json.dumps(data, sort_keys=True)
        if content not in seen:
            seen.add(content)
            yield Scenario(
                id=f"{split}-{len(seen) - 1}", split=split, seed=seed_of(content), data=dict(data)
            )


@cache
def _choices(level: int, language: Language, split: Split) -> dict[bool, tuple[Fault, ...]]:
    """Return the faults to draw from: those that tests show, and those that they can miss."""
    found = faults(language)
    if level == 0:
        found = [f for f in found if KINDS[f.kind].short and f.what in ("operator", "variable")]
    else:
        found = [f for f in found if split_of(f.content) == split]
    quiet = [f for f in found if len(f.fails) <= len(cases(KINDS[f.kind])) - 4]
    return {True: tuple(found), False: tuple(quiet)}


@dataclass(slots=True, kw_only=True)
class _Function:
    """A function of a repository, under its names."""

    kind: Kind
    language: Language
    module: str
    source: str  # right, with placeholders
    names: dict[str, str]
    fault: Fault | None = None
    shown: bool = True  # a visible test fails for the fault
    visible: list[Case] = field(default_factory=list)
    hidden: list[Case] = field(default_factory=list)

    def text(self, *, marked: bool = False) -> str:
        """Return it as it stands in its file; with MARK for what is wrong, if so."""
        source = self.source
        if self.fault:
            source = self.fault.with_text(MARK if marked else self.fault.new)
        text = documented(self.language, source, self.kind.does)
        return renamed(text, self.names)

    def cases(self, all_drawn: list[list], failing: list[list]) -> list[Case]:
        """Return cases of it; only those that can be seen need to know which fail."""
        name = self.names["f"]
        return [
            {
                "call": self.kind.call(self.module, name, drawn),
                "want": wanted(self.kind, drawn),
                "fails": drawn in failing,
            }
            for drawn in all_drawn
        ]


def _draw(level: int, language: Language, split: Split, rng: random.Random) -> Repository | None:
    """Return a random repository, or None where its cases cannot be told apart."""
    modules: list[str] = rng.sample(MODULES, NUM_FILES[level])
    chosen: dict[str, tuple[Fault | None, bool]] = {}
    for shown in SHOWN[level]:
        choices = [f for f in _choices(level, language, split)[shown] if f.kind not in chosen]
        kinds = sorted({f.kind for f in choices})
        kind = rng.choice(kinds)  # first the kind: some have many faults
        chosen[kind] = rng.choice([f for f in choices if f.kind == kind]), shown
    others = [k.name for k in KINDS.values() if language in k.sources and k.name not in chosen]
    for kind in rng.sample(others, NUM_FUNCTIONS[level] - len(chosen)):
        chosen[kind] = None, True
    names = rng.sample(list(chosen), len(chosen))
    functions: list[_Function] = []
    for i, name in enumerate(names):
        fault, shown = chosen[name]
        taken = {f.names["f"] for f in functions}
        where = modules[i] if i < len(modules) else rng.choice(modules)
        functions.append(_function(KINDS[name], language, where, fault, shown, taken, rng))
    if not all(_add_cases(function, rng) for function in functions):
        return None
    return _written(language, modules, functions)


def _function(
    kind: Kind,
    language: Language,
    where: str,
    fault: Fault | None,
    shown: bool,
    taken: set[str],
    rng: random.Random,
) -> _Function:
    source = fault.source if fault else rng.choice(kind.sources[language])
    names = draw_names(kind, f"{source} {kind.does}", rng, taken)
    return _Function(
        kind=kind,
        language=language,
        module=where,
        source=source,
        names=names,
        fault=fault,
        shown=shown,
    )


def _add_cases(function: _Function, rng: random.Random) -> bool:
    """Draw the tests of a function; return whether there are enough.

    At least one hidden case fails for the fault, none of them is visible, and no one answer is
    right for all: a table of the visible answers, or a constant, does not pass.
    """
    pool, fault = cases(function.kind), function.fault
    failing = list(fault.fails) if fault else []
    passing = [i for i in range(len(pool)) if i not in failing]
    rng.shuffle(failing)
    rng.shuffle(passing)
    num_failing = min(2, len(failing) - 1) if fault and function.shown else 0
    seen = [pool[i] for i in failing[:num_failing] + passing[: 2 if num_failing else 3]]
    drawn = [pool[i] for i in failing[num_failing : num_failing + 3]]
    most = NUM_HIDDEN if fault else NUM_HIDDEN_OTHERS
    answers = {json.dumps(wanted(function.kind, one)) for one in drawn}
    for _ in range(ATTEMPTS):
        one = function.kind.draw(rng)
        answer = json.dumps(wanted(function.kind, one))
        is_last = len(drawn) == most - 1
        if one in seen or one in drawn or (is_last and answers == {answer}):
            continue
        drawn.append(one)
        answers.add(answer)
        if len(drawn) == most:
            rng.shuffle(seen)
            rng.shuffle(drawn)
            shown = [pool[i] for i in failing[:num_failing]]
            function.visible = function.cases(seen, shown)
            function.hidden = function.cases(drawn, [])
            return True
    return False


def _written(language: Language, modules: list[str], functions: list[_Function]) -> Repository:
    files: dict[str, str] = {}
    repairs: dict[str, Repair] = {}
    for where in sorted(modules):
        own = [f for f in functions if f.module == where]
        names = [f.names["f"] for f in own]
        text = module(language, "\n\n\n".join(f.text() for f in own), names)
        files[f"{where}.{SUFFIX[language]}"] = text
        for function in own:
            if function.fault:
                at = module(
                    language,
                    "\n\n\n".join(f.text(marked=f is function) for f in own),
                    names,
                ).index(MARK)
                repairs[function.kind.name] = _repair(language, text, function, at)
    broken = [f for f in functions if f.fault]
    return {
        "language": language,
        "files": files,
        "visible": [case for f in functions for case in f.visible],
        "hidden": [case for f in functions for case in f.hidden],
        "repairs": [repairs[f.kind.name] for f in broken],
        "shown": [f.shown for f in broken],
        "kinds": [f.fault.what for f in broken if f.fault],
    }


def _repair(language: Language, text: str, function: _Function, at: int) -> Repair:
    assert function.fault
    name = function.names["f"]
    old, new = (renamed(t, function.names) for t in (function.fault.new, function.fault.old))
    symbol = next(s for s in symbols(language, text) if s.name == name)
    starts = [start for start, _ in places(language, text, symbol, old)]
    return {"symbol": name, "old": old, "new": new, "nth": starts.index(at) + 1}


def shown_call(language: Language, call: Call) -> str:
    """Return a call as the language writes it."""
    if language == "bash":
        return " ".join([call["name"], *(f'"{in_words(one)}"' for one in call["args"])])
    arguments = ", ".join(_shown(language, one) for one in call["args"])
    if "steps" not in call:
        return f"{call['name']}({arguments})"
    steps = [
        f".{method}({', '.join(_shown(language, one) for one in args)})"
        for method, *args in call["steps"]
    ]
    new = "" if language == "python" else "new "
    return f"{new}{call['name']}({arguments}), then {', '.join(steps)}"


def shown_value(language: Language, value: Any) -> str:
    """Return a value as the language writes it."""
    return f'"{in_words(value)}"' if language == "bash" else _shown(language, value)


def _shown(language: Language, value: Any) -> str:
    return repr(value) if language == "python" else json.dumps(value)


def shown_case(language: Language, case: Case) -> str:
    """Return a case as one line."""
    return f"{shown_call(language, case['call'])} should be {shown_value(language, case['want'])}"


def test_files(language: Language, visible: list[Case]) -> dict[str, str]:
    """Return the visible tests as files to be read. What is run never comes from these."""
    lines: dict[str, list[str]] = {}
    for case in visible:
        lines.setdefault(case["call"]["module"], []).append(shown_case(language, case))
    return {f"tests/{name}.txt": "\n".join(own) + "\n" for name, own in lines.items()}
