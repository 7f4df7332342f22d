"""Mending a small program: tools to read and edit it by its syntax, tests to run, tests kept back.

One episode at level 1, as a perfect engineer plays it:

    user        Some tests fail: collide(1, 6, 6, 11) should be False. ...
    assistant   <tool_call>{"name": "read", "arguments": {"name": "collide"}}</tool_call>
    tool        def collide(begin, end, from_other, to_other): ...
    assistant   <tool_call>{"name": "edit", "arguments": {"symbol": "collide", "old": "<=", ...
    tool        changed
    assistant   done

What is edited is the text that the env holds. Whatever is run is written anew from it, for a
process behind walls (sandbox/), which is asked for the values of calls and does not know what they
should be: there is no verdict in there to fake, no test to delete, and no answer to read.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import Field

from art_cli import Done, Env, Message, Scenario, Split, ToolError, Trajectory, play, tell, tool
from art_envs.code_edit import syntax
from art_envs.code_edit.faults import is_right
from art_envs.code_edit.sandbox.pool import Language, Outcome, languages, run
from art_envs.code_edit.scenarios import (
    Case,
    Repair,
    Repository,
    generate,
    shown_case,
    shown_value,
    test_files,
)

MOST_NEW, MOST_FILE = 4000, 20_000  # limits of characters of an edit and of a file
MOST_SHOWN = 3000  # characters of a tool's result
ALIKE = (("<", "<=", ">", ">=", "==", "!="), ("+", "-", "*"))  # what is taken for one another
ALL: tuple[Language, ...] = ("python", "javascript", "bash")


class CodeEdit(Env):
    """Mend small Python, JavaScript and shell programs by syntax node; hidden tests decide."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of `env.args`."""

        # 0: one short function, shown with a failing test; the first edit ends the episode. 1: a
        # repository, and its failing tests. 2: larger; no test fails, and a sentence says which
        # function is wrong. 3: two faults, one of them without a failing test.
        level: Annotated[int, Field(ge=0, le=3)] = 1
        languages: tuple[Literal["python", "javascript", "bash"], ...] = ALL
        # Share of the demonstrated edits that are guesses, so that the right edit is left to be
        # learned.
        demo_noise: Annotated[float, Field(ge=0, le=1)] = 0.5

    system = (
        "You mend a small program. What a function's sentence says is right, and so are the tests; "
        "the code is not. edit replaces one syntax node: old is its whole text (an operator, a "
        "name, a number, an expression, a statement), nth which of several, an empty old the whole "
        "symbol. Tests that you cannot see decide. Say done when it is right."
    )
    tool_timeout = 300.0  # a call waits for one of a few processes; see sandbox/pool.py
    num_scenarios = {"train": 2000, "val": 200, "test": 200}  # noqa: RUF012

    def __init__(self, scenario: Scenario, cfg: Config) -> None:
        super().__init__(scenario, cfg)
        self.repository: Repository = scenario.data  # type: ignore[assignment]
        self.language: Language = self.repository["language"]
        self.texts = dict(self.repository["files"])
        self._on_disk = dict(self.texts)  # the content of the agent's folder, if it has one
        self.max_turns = 2 if cfg.level == 0 else 24
        self.num_edits = self.num_runs = self.num_refused = 0
        self.failed_hidden: list[Case] = []

    @classmethod
    def scenarios(cls, cfg: Config, split: Split) -> Iterable[Scenario]:
        """See Env. Scenarios depend on the languages that this machine can run."""
        able = languages()
        asked: tuple[Language, ...] = tuple(
            language for language in ALL if language in cfg.languages
        )
        if missing := [language for language in asked if language not in able]:
            tell(f"left out, for this machine cannot run it: {', '.join(missing)}")
        here: tuple[Language, ...] = tuple(language for language in asked if language in able)
        if not here:
            raise ValueError(f"env.args.languages: this machine cannot run {', '.join(asked)}")
        return islice(generate(cfg.level, here, split), cls.num_scenarios[split])

    def start(self) -> str:
        """Return the known part of the fault: failing tests, or a sentence."""
        visible = self.repository["visible"]
        if self.cfg.level == 0:
            text = next(iter(self.texts.values())).strip()
            case = next(c for c in visible if c["fails"])
            return f"{shown_case(self.language, case)}\n{text}"
        lines = []
        repairs, all_shown = self.repository["repairs"], self.repository["shown"]
        for repair, shown in zip(repairs, all_shown, strict=True):
            if shown:
                lines += ["Some tests fail, among them:"]
                lines += [shown_case(self.language, c) for c in visible if c["fails"]]
            else:
                name = repair["symbol"]
                lines += [f"{name} does not always do what it says, though its tests pass."]
        return "\n".join([*lines, f"Mend the program. It is written in {self.language}."])

    def files(self) -> dict[str, str]:
        """Return the program and its tests, for an agent with tools of its own."""
        return self.texts | self._tests()

    def _take_over(self) -> None:
        """Read the changes that such an agent has written to its folder. Edits by a tool change no
        file.
        """
        for path, before in self._on_disk.items():
            content = self.read_workdir(path, MOST_FILE)
            text = before if content is None else content.decode(errors="replace")
            if text != before:
                self.texts[path] = self._on_disk[path] = text

    @tool()
    def list_files(self) -> str:
        """List the files and the symbols in them."""
        self._take_over()
        lines = [
            f"{path}: {', '.join(s.name for s in syntax.symbols(self.language, text))}"
            for path, text in self.texts.items()
        ]
        return "\n".join([*lines, *self._tests()])

    @tool()
    def read(self, name: str) -> str:
        """Read a symbol, or a file.

        Args:
            name: of a function or class, or the path of a file
        """
        self._take_over()
        files = self.texts | self._tests()
        if name in files:
            return _cut(files[name])
        path, symbol = self._find(name)
        return _cut(self.texts[path].encode()[symbol.start : symbol.end].decode())

    @tool()
    def search(self, text: str) -> str:
        """Search all files for lines with a text."""
        self._take_over()
        files = self.texts | self._tests()
        lines = [
            f"{path}:{i}: {line}"
            for path, content in files.items()
            for i, line in enumerate(content.split("\n"), 1)
            if text and text in line
        ]
        return _cut("\n".join(lines) or "no line has it")

    @tool(writes=True)
    def edit(self, symbol: str, old: str, new: str, nth: int = 1) -> str | Done:
        """Replace one syntax node of a function or class.

        Args:
            symbol: name of the function or class
            old: the whole text of the node; empty: the whole symbol
            new: what is to stand there
            nth: which one, where several nodes have this text
        """
        self._take_over()
        path, found = self._find(symbol)
        if len(new) > MOST_NEW or len(self.texts[path]) + len(new) > MOST_FILE:
            raise ToolError(f"new is too long: at most {MOST_NEW} characters")
        try:
            changed = syntax.edit(self.language, self.texts[path], found.name, old, new, nth)
        except syntax.EditError as e:
            self.num_refused += 1
            raise ToolError(_cut(str(e))) from None
        self.texts[path] = changed
        self.num_edits += 1
        return Done() if self.cfg.level == 0 else "changed"

    @tool()
    def run_tests(self) -> str:
        """Run the tests that can be seen."""
        self.num_runs += 1
        self._take_over()
        visible = self.repository["visible"]
        outcome = self._run(visible)
        lines = []
        for case, got in zip(visible, outcome.answers, strict=True):
            if not is_right(self.language, case["want"], got):
                came = got.error or f"it is {shown_value(self.language, got.value)}"
                lines.append(f"failed: {shown_case(self.language, case)}; {came[:200]}")
        lines.append(f"{len(visible) - len(lines)} of {len(visible)} tests passed")
        if outcome.printed:
            lines.append(f"the program printed: {outcome.printed[:500]}")
        return _cut("\n".join(lines))

    def reply(self, text: str) -> Done:
        """End the episode: a turn without a call means that the work is done."""
        return Done()

    def score(self, trajectory: Trajectory) -> float:
        """Return 1 if all hidden tests pass, including those of other functions, otherwise 0."""
        hidden, visible = self.repository["hidden"], self.repository["visible"]
        right = [False] * (len(hidden) + len(visible))
        self._take_over()
        if self.texts != self.repository["files"]:  # else a hidden test is known to fail
            cases = hidden + visible
            answers = self._run(cases).answers
            pairs = zip(cases, answers, strict=True)
            right = [is_right(self.language, case["want"], got) for case, got in pairs]
        passed = right[: len(hidden)]
        self.failed_hidden = [
            c for c, is_passed in zip(hidden, passed, strict=True) if not is_passed
        ]
        self.metrics = {
            "success": float(all(passed)),
            "hidden_passed": sum(passed) / len(passed),
            "only_visible": float(all(right[len(hidden) :]) and not all(passed)),
            "edits": float(self.num_edits),
            "edits_refused": float(self.num_refused),
            "test_runs": float(self.num_runs),
        }
        return self.metrics["success"]

    def judge_context(self) -> str:
        """Return the fault, and the tests that still fail."""
        lines = [
            f"In {r['symbol']}, {r['old']!r} should have become {r['new']!r} ({kind})."
            for r, kind in zip(self.repository["repairs"], self.repository["kinds"], strict=True)
        ]
        num = len(self.failed_hidden)
        return "\n".join([*lines, f"{num} of {len(self.repository['hidden'])} hidden tests fail."])

    def _run(self, cases: list[Case]) -> Outcome:
        return run(self.language, self.texts, [case["call"] for case in cases])

    def _tests(self) -> dict[str, str]:
        return test_files(self.language, self.repository["visible"])

    def _find(self, name: str) -> tuple[str, syntax.Symbol]:
        """Return the file and the symbol of a name. Raise ToolError."""
        if name in self._tests() or name.startswith("tests/"):
            raise ToolError("the tests are right and cannot be edited")
        for path, text in self.texts.items():
            for symbol in syntax.symbols(self.language, text):
                if symbol.name == name:
                    return path, symbol
        raise ToolError(_cut(f"there is no function or class {name!r}; list_files says which are"))

    @classmethod
    def demonstrations(cls, cfg: Config, num: int) -> Iterable[list[Message]]:
        """Return episodes of an engineer who knows the tools, and often guesses the edit."""
        for scenario in islice(cls.scenarios(cfg, "train"), num):
            env = cls(scenario, cfg)
            yield play(env, env._engineer(cfg.demo_noise).__next__)

    def gold(self) -> Iterator[str]:
        """Return the turns of an engineer who knows the fault."""
        return self._engineer(noise=0.0)

    def _engineer(self, noise: float) -> Iterator[str]:
        if self.cfg.level:
            yield _call("list_files")
        for repair in self.repository["repairs"]:
            if self.cfg.level:
                yield _call("read", name=repair["symbol"])
            if self.rng.random() < noise:
                repair = self._guess(repair, self.rng)
            nth = {"nth": repair["nth"]} if repair["nth"] > 1 else {}
            yield _call(
                "edit", symbol=repair["symbol"], old=repair["old"], new=repair["new"], **nth
            )
        if self.cfg.level:
            yield _call("run_tests")
        yield "done"

    def _guess(self, repair: Repair, rng: random.Random) -> Repair:
        """Return an edit of an operator or a name in the same symbol."""
        name = repair["symbol"]
        path, symbol = self._find(name)
        text = self.texts[path]
        found = syntax.leaves(self.language, text, symbol)
        names = sorted({t for t, is_name in found if is_name and t != name})
        options = [
            (old, new)
            for old, is_name in sorted(set(found))
            for group in ([names] if is_name else ALIKE)
            for new in group
            if old in group and new != old
        ]
        if not options:
            return repair
        old, new = rng.choice(options)
        num = len(syntax.places(self.language, text, symbol, old))
        return {"symbol": name, "old": old, "new": new, "nth": rng.randint(1, num)}


def _cut(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _call(tool_name: str, /, **arguments: Any) -> str:
    call = json.dumps({"name": tool_name, "arguments": arguments})
    return f"<tool_call>{call}</tool_call>"
