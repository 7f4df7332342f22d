"""The faults that a function can be given: a syntax node replaced, each tried before its use."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from art_cli import seed_of, tell
from art_envs.code_edit.dates import DATES
from art_envs.code_edit.kinds import PLACEHOLDER, Kind
from art_envs.code_edit.lists import LISTS
from art_envs.code_edit.numbers import NUMBERS
from art_envs.code_edit.objects import OBJECTS
from art_envs.code_edit.sandbox.pool import Answer, Call, Language, run
from art_envs.code_edit.syntax import SUFFIX, broken_line, nodes, places, symbols, tree
from art_envs.code_edit.texts import TEXTS
from art_envs.service.cache import cached

if TYPE_CHECKING:
    from tree_sitter import Node

KINDS: dict[str, Kind] = {one.name: one for one in (*NUMBERS, *DATES, *LISTS, *TEXTS, *OBJECTS)}
NUM_CASES = 24  # that each fault is tried on
CALLS_AT_ONCE = 400
SWAPS: dict[str, tuple[str, ...]] = {
    "<": ("<=", ">"),
    "<=": ("<", ">="),
    ">": (">=", "<"),
    ">=": (">", "<="),
    "==": ("!=",),
    "!=": ("==",),
    "===": ("!==",),
    "!==": ("===",),
    "+": ("-",),
    "-": ("+",),
    "*": ("+",),
    "//": ("%",),
    "%": ("//", "/"),
    "and": ("or",),
    "or": ("and",),
    "&&": ("||",),
    "||": ("&&",),
    "+=": ("-=",),
    "-=": ("+=",),
}
OPERATIONS = {
    *("binary_operator", "comparison_operator", "boolean_operator", "augmented_assignment"),
    *("binary_expression", "augmented_assignment_expression"),
}
WHOLE_NUMBERS = {"integer", "number"}
ARGUMENTS = {"argument_list", "arguments"}
LOOPS = {"while_statement", "for_statement", "c_style_for_statement"}  # in JavaScript and bash
GIVES_A_NAME = {  # what has a name that is given, not used, and in which field
    "assignment": "left",
    "for_statement": "left",
    "for_in_clause": "left",
    "for_in_statement": "left",
    "assignment_expression": "left",
    "variable_declarator": "name",
    "variable_assignment": "name",
    "arrow_function": "parameter",
}
DEFINED = {"parameters", "formal_parameters", "lambda_parameters", "pattern_list", "array_pattern"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A node of a source, and what stands in its place."""

    kind: str
    language: Language
    variant: int
    what: str
    start: int  # of the node in the source, in characters
    old: str  # right
    new: str  # wrong
    fails: tuple[int, ...] = ()  # on which of the kind's cases

    @property
    def source(self) -> str:
        """The right source."""
        return KINDS[self.kind].sources[self.language][self.variant]

    def with_text(self, text: str) -> str:
        """Return the source with a text for the node."""
        source = self.source
        return source[: self.start] + text + source[self.start + len(self.old) :]

    @property
    def content(self) -> str:
        """The fault, whatever the language and the names: a split is chosen by it."""
        old, new = self.old.replace("===", "==").replace("!==", "!="), self.new
        return f"{self.kind} {self.what} {old} {new.replace('===', '==').replace('!==', '!=')}"


def cases(kind: Kind) -> list[list]:
    """Return the arguments that the faults of a kind are tried on, all different."""
    rng, out = random.Random(seed_of("cases", kind.name)), []
    for _ in range(50 * NUM_CASES):
        drawn = kind.draw(rng)
        if drawn not in out:
            out.append(drawn)
        if len(out) == NUM_CASES:
            break
    return out


def wanted(kind: Kind, drawn: list) -> Any:
    """Return the right answer, as our own Python source gives it. In this process: it is ours."""
    call = kind.call("", "f_", drawn)
    found = _right(kind.name)
    if not kind.is_class:
        return found(*call["args"])
    made = found(*call["args"])
    return [getattr(made, method)(*args) for method, *args in call["steps"]]


@cache
def _right(name: str) -> Any:
    scope: dict[str, Any] = {}
    exec(KINDS[name].sources["python"][0], scope)
    return scope["f_"]


@cache
def faults(language: Language) -> tuple[Fault, ...]:
    """Return the faults of a language that at least two cases show, in a fixed order.

    The faulty functions are run, some hundred in all: seconds, once for all runs of a user.
    """
    found = cached(f"code_edit-{language}", Path(__file__).parent, [], lambda: _shown(language))
    return tuple(Fault(**values | {"fails": tuple(values["fails"])}) for values in found)


def _shown(language: Language) -> list[dict[str, Any]]:
    tell(f"trying the faults of code_edit in {language}, once for all runs")
    candidates = [f for kind in KINDS.values() for f in _candidates(kind, language)]
    out = []
    for fault, answers in _tried(language, candidates):
        kind = KINDS[fault.kind]
        right = [wanted(kind, drawn) for drawn in cases(kind)]
        pairs = zip(right, answers, strict=True)
        fails = tuple(i for i, (want, got) in enumerate(pairs) if not is_right(language, want, got))
        if len(fails) >= 2 and not any(a.error.startswith("it ") for a in answers):
            out.append(asdict(fault) | {"fails": fails})
    return out


def is_right(language: Language, want: Any, got: Answer) -> bool:
    """Return whether an answer is the wanted one; a shell answers in words."""
    if got.error:
        return False
    return same(in_words(want), got.value) if language == "bash" else same(want, got.value)


def in_words(value: Any) -> str:
    """Return a value as a shell has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return " ".join(map(in_words, value)) if isinstance(value, list) else str(value)


def same(want: Any, got: Any) -> bool:
    """Return whether two JSON values are the same; true is not 1."""
    if isinstance(want, bool) or isinstance(got, bool):
        return want is got
    if isinstance(want, list) and isinstance(got, list):
        return len(want) == len(got) and all(map(same, want, got))
    if isinstance(want, dict) and isinstance(got, dict):
        return want.keys() == got.keys() and all(same(want[key], got[key]) for key in want)
    return want == got


def module(language: Language, source: str, names: list[str]) -> str:
    """Return a file that offers what it defines."""
    if language != "javascript":
        return source + "\n"
    return f"{source}\n\nmodule.exports = {{ {', '.join(names)} }};\n"


def _tried(
    language: Language, candidates: list[Fault]
) -> Iterator[tuple[Fault, tuple[Answer, ...]]]:
    at_once = 1 if language == "bash" else CALLS_AT_ONCE // NUM_CASES  # a shell may end halfway
    for first in range(0, len(candidates), at_once):
        some = candidates[first : first + at_once]
        files: dict[str, str] = {}
        calls: list[Call] = []
        for i, fault in enumerate(some):
            files[f"m{i}.{SUFFIX[language]}"] = module(language, fault.with_text(fault.new), ["f_"])
            kind = KINDS[fault.kind]
            calls += [kind.call(f"m{i}", "f_", drawn) for drawn in cases(kind)]
        answers = iter(run(language, files, calls).answers)
        for fault in some:
            yield fault, tuple(next(answers) for _ in cases(KINDS[fault.kind]))


def _candidates(kind: Kind, language: Language) -> Iterator[Fault]:
    for variant, source in enumerate(kind.sources.get(language, ())):
        assert source.isascii()  # offsets in bytes are offsets in characters
        parameters = _parameters(language, source)
        for node in nodes(tree(language, source).root_node):
            for what, new in _changes(node, parameters):
                fault = Fault(
                    kind=kind.name,
                    language=language,
                    variant=variant,
                    what=what,
                    start=node.start_byte,
                    old=_text(node),
                    new=new,
                )
                if _is_a_node(fault):
                    yield fault


def _is_a_node(fault: Fault) -> bool:
    """Return whether what is wrong can be edited: it may read as something else."""
    faulty, language = fault.with_text(fault.new), fault.language
    if broken_line(language, faulty):
        return False
    return any(
        (fault.start, fault.start + len(fault.new)) in places(language, faulty, symbol, fault.new)
        for symbol in symbols(language, faulty)
    )


def _changes(node: Node, parameters: list[str]) -> Iterator[tuple[str, str]]:
    """Return what may be wrong at a node. Nothing that could make a loop endless."""
    text, parent = _text(node), node.parent
    above = list(_above(node))
    if parent is None or _decides_a_loop(node):
        return
    if parent.type in OPERATIONS and text in SWAPS and not node.is_named:
        for new in SWAPS[text]:
            if "/" not in new or text == "%":
                yield "operator", new
    elif node.type in WHOLE_NUMBERS and text.isdigit() and len(text) < 4:
        what = "default" if any("default" in n.type for n in above[:1]) else "off by one"
        for new in {int(text) + 1, abs(int(text) - 1)}:
            yield what, str(new)
    elif text in parameters and node.type in ("identifier", "variable_name") and _is_use(node):
        for other in parameters:
            if other != text:
                yield "variable", other
    elif node.type == "return_statement" and len(node.children) > 1 and node.children[1].is_named:
        yield "missing return", text.removeprefix("return").strip()
    elif node.type in ARGUMENTS and len(named := node.named_children) == 2:
        yield "arguments swapped", f"({_text(named[1])}, {_text(named[0])})"


def _decides_a_loop(node: Node) -> bool:
    """Return whether a node is in a loop's head, or in the body of one that counts by itself."""
    below = node
    for outer in _above(node):
        if outer.type in LOOPS and below != outer.child_by_field_name("body"):
            is_each = outer.child_by_field_name("right") is not None  # for x in xs
            return not is_each
        if outer.type == "while_statement":
            return True
        below = outer
    return False


def _is_use(node: Node) -> bool:
    parent = node.parent
    if parent is None or any(n.type in DEFINED for n in list(_above(node))[:2]):
        return False
    return parent.child_by_field_name(GIVES_A_NAME.get(parent.type, "-")) != node


def _parameters(language: Language, source: str) -> list[str]:
    """Return the names that a function is given, in their order."""
    if language == "bash":
        first = source.partition("\n")[2].partition("\n")[0]
        return [word.partition("=")[0] for word in first.split() if "=$" in word]
    head = source.partition("\n")[0].partition("(")[2]
    return [f"{name}_" for name in dict.fromkeys(PLACEHOLDER.findall(head))]


def _above(node: Node) -> Iterator[Node]:
    while (parent := node.parent) is not None:
        yield parent
        node = parent


def _text(node: Node) -> str:
    return (node.text or b"").decode()
