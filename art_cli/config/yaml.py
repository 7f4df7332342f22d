"""A YAML 1.2 reader that records the place of every key and value, and a writer.

PyYAML reads YAML 1.1, in which `no` is false, `1:30` is 90 and `1e-5` is text. Here only `true` and
`false` are booleans, and numbers are read as in JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.constructor import ConstructorError
from yaml.error import Mark, MarkedYAMLError
from yaml.nodes import MappingNode, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from art_cli.config.problem import KeyPath, Place, Problem
from art_cli.errors import ConfigError
from art_cli.system.files import read_text

DEEPEST = 50  # levels of nesting; later readers of configs have limits too
LONGEST_SHOWN = 200  # characters of an override
MOST = 100_000  # values; a few lines of nested aliases can stand for billions
LONGEST = 1 << 20  # characters of a file: PyYAML takes a second per 100,000

TAG = "tag:yaml.org,2002:"
CORE_SCALARS = (  # order matters: every int also looks like a float
    ("null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("int", re.compile(r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$"), list("-+0123456789")),
    (
        "float",
        re.compile(
            r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
        ),
        list("-+.0123456789"),
    ),
    ("merge", re.compile(r"^<<$"), ["<"]),
)


@dataclass(frozen=True, slots=True)
class Node:
    """A value and its places, which are both None for a default."""

    value: dict[str, Node] | list[Node] | str | int | float | bool | None
    place: Place | None = None
    key_place: Place | None = None


def leaves(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield path and value of everything that is not a mapping or list, or is an empty one."""
    if not value or not isinstance(value, dict | list):
        yield path, value
        return
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield from leaves(item, (*path, key))


def read_file(path: Path) -> tuple[Node | None, list[Problem]]:
    """Return the mapping in a file, and problems. The mapping is None if it cannot be read."""
    source = Place(str(path))

    def locate(mark: Mark) -> Place:
        return replace(source, line=mark.line + 1, column=mark.column + 1)

    try:
        text = read_text(path, LONGEST)
    except UnicodeDecodeError:
        return None, [Problem(source, (), "is not text in UTF-8; save it as UTF-8")]
    except FileNotFoundError:
        return None, [Problem(source, (), "no such file")]
    except IsADirectoryError:
        return None, [Problem(source, (), "is a folder; give the YAML file in it")]
    except OSError as error:
        return None, [Problem(source, (), f"cannot be read: {error.strerror}")]
    reader = _Reader(locate)
    node = reader.read(text, source)
    if node is None and not reader.problems:
        return None, [Problem(source, (), "is empty; a config needs at least env, model and train")]
    if node is not None and not isinstance(node.value, dict):
        message = f"the top level must be a mapping (lines like `seed: 0`), got {show(node.value)}"
        return None, [*reader.problems, Problem(node.place or source, (), message)]
    # A missing top-level key is reported for the file, not for its first line.
    return node and replace(node, key_place=source), reader.problems


def read_document(path: Path) -> dict[str, Any]:
    """Return the mapping in a file as plain values. Raises ConfigError with all mistakes."""
    node, problems = read_file(path)
    if node is None or problems:
        raise ConfigError([str(problem) for problem in problems])
    return plain(node)


def plain(node: Node) -> Any:
    """Return the value of a node without places."""
    if isinstance(node.value, dict):
        return {key: plain(item) for key, item in node.value.items()}
    return [plain(i) for i in node.value] if isinstance(node.value, list) else node.value


def read_override(text: str) -> tuple[Node | None, list[Problem]]:
    """Parse an override `key.path=value`, whose value is YAML, into a tree with one leaf."""
    shown = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
    place = Place(f"override {shown!r}")
    key, equals, value = text.partition("=")
    keys = key.strip().split(".")
    if not equals or not all(keys):
        return None, [Problem(place, (), "expected key.path=value, for example train.steps=20")]
    if len(keys) > DEEPEST:
        return None, [Problem(place, (), f"more than {DEEPEST} keys within each other")]
    reader = _Reader(lambda _mark: place)
    node = reader.read(value, place)
    if reader.problems:
        return None, reader.problems
    node = replace(node or Node(None), place=place, key_place=place)
    for name in reversed(keys):
        node = Node({name: node}, place, place)
    return node, []


def show(value: Any) -> str:
    """Return a value for a message, as in YAML; collections only by their type."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:56]}...{text[-1]}"


class CoreResolver(BaseResolver):
    """YAML 1.2's core schema, and merge keys."""


class _Loader(Reader, Scanner, Parser, Composer, CoreResolver):  # pyright: ignore[reportIncompatibleMethodOverride]
    """PyYAML up to its node tree. Values are constructed here, where their places are known."""

    def __init__(self, stream: str) -> None:
        Reader.__init__(self, stream)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        CoreResolver.__init__(self)


class _Dumper(yaml.SafeDumper):
    """Quotes text that YAML 1.1 or 1.2 would not read as text, so that any tool reads it right."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> ScalarNode:
    style = None
    if set(text) & set("\n\x85\u2028\u2029"):  # line breaks in YAML
        # Quoted text stays on one line. A block is easier to read, but cannot represent every text.
        block = text == text.strip() and not set(text) & set("\x85\u2028\u2029")
        style = "|" if block else '"'
    return dumper.represent_scalar(f"{TAG}str", text, style=style)


for _kind, _pattern, _first in CORE_SCALARS:
    CoreResolver.add_implicit_resolver(f"{TAG}{_kind}", _pattern, _first)
    _Dumper.add_implicit_resolver(f"{TAG}{_kind}", _pattern, _first)
_Dumper.add_representer(str, _represent_text)


class _Reader:
    """Converts PyYAML's nodes to ours and collects their problems."""

    def __init__(self, locate: Callable[[Mark], Place]) -> None:
        self.problems: list[Problem] = []
        self._locate = locate
        self._open: set[int] = set()  # ids of collections under construction
        self._num_built = 0

    def read(self, text: str, source: Place) -> Node | None:
        try:
            root = yaml.compose(text, Loader=_Loader)  # pyright: ignore[reportArgumentType]
            return root and self._build(root, (), None)
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = self._locate(mark) if mark else source
            self.problems.append(Problem(place, (), _explain(error)))
        except ReaderError as error:
            before = text[: error.position]
            line, column = before.count("\n"), len(before) - (before.rfind("\n") + 1)
            place = self._locate(Mark("", error.position, line, column, None, 0))
            message = f"not valid YAML: the character U+{error.character:04X}; remove it"
            self.problems.append(Problem(place, (), message))
        except RecursionError:
            self.problems.append(Problem(source, (), "is nested too deeply"))
        return None

    def _build(self, node: yaml.Node, path: KeyPath, key_place: Place | None) -> Node:
        place = self._locate(node.start_mark)
        self._num_built += 1
        if self._num_built > MOST:
            problem = f"more than {MOST} values, each counted as often as an alias repeats it"
            raise ConstructorError(None, None, problem, node.start_mark)
        if isinstance(node, ScalarNode):
            return Node(self._scalar(node, path), place, key_place)
        if id(node) in self._open:
            raise ConstructorError(None, None, "an alias contains itself", node.start_mark)
        if len(self._open) == DEEPEST:
            problem = f"more than {DEEPEST} values within each other"
            raise ConstructorError(None, None, problem, node.start_mark)
        if node.tag not in (f"{TAG}map", f"{TAG}seq"):
            self._complain(node, path, f"the tag {node.tag} is not supported; remove it")
        self._open.add(id(node))
        value: dict[str, Node] | list[Node]
        if isinstance(node, MappingNode):
            value = self._mapping(node, path)
        else:
            value = [self._build(item, (*path, i), None) for i, item in enumerate(node.value)]
        self._open.remove(id(node))
        return Node(value, place, key_place)

    def _mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Node]:
        merged: dict[str, Node] = {}
        own: dict[str, Node] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            if key_node.tag == f"{TAG}merge":
                # The first of several merged mappings wins, as specified for merge keys.
                merged = self._merged(value_node, path) | merged
                continue
            if not isinstance(key_node, ScalarNode):
                self._complain(key_node, path, "a key must be a single word")
                continue
            key = key_node.value
            if key in own:
                message = f"given twice, first on line {lines[key]}; keep one of them"
                self._complain(key_node, (*path, key), message)
            own[key] = self._build(value_node, (*path, key), self._locate(key_node.start_mark))
            lines.setdefault(key, key_node.start_mark.line + 1)
        return merged | own

    def _merged(self, node: yaml.Node, path: KeyPath) -> dict[str, Node]:
        merged: dict[str, Node] = {}
        for part in reversed(node.value if isinstance(node, SequenceNode) else [node]):
            built = self._build(part, path, None).value
            if isinstance(built, dict):
                merged |= built
            else:
                self._complain(part, path, "`<<` takes a mapping or a list of mappings")
        return merged

    def _scalar(self, node: ScalarNode, path: KeyPath) -> str | int | float | bool | None:
        text: str = node.value
        try:
            match node.tag.removeprefix(TAG):
                case "str" | "merge":
                    return text
                case "null":
                    return None
                case "bool":
                    return {"true": True, "false": False}[text.lower()]
                case "int":
                    return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
                case "float":
                    return float(re.sub(r"\.(?=inf|nan)", "", text.lower()))
        except (ValueError, KeyError):
            self._complain(node, path, f"{text!r} does not fit its tag {node.tag}")
            return None
        self._complain(node, path, f"the tag {node.tag} is not supported; remove it")
        return None

    def _complain(self, node: yaml.Node, path: KeyPath, message: str) -> None:
        self.problems.append(Problem(self._locate(node.start_mark), path, message))


def _explain(error: MarkedYAMLError) -> str:
    problem = error.problem or "cannot be parsed"
    if "another document" in problem:
        return "a second document starts here; a config is one document, so remove the `---`"
    if r"'\t'" in problem:
        return "not valid YAML: a tab; indent with spaces"
    if "mapping values are not allowed" in problem:
        return "not valid YAML: a `:` where no key can be; check the indentation, or quote the text"
    if "but got '{'" in problem:
        return 'not valid YAML: a `{` where none can be; inside {...} and [...] quote "${...}"'
    context = f" ({error.context})" if error.context else ""
    return f"not valid YAML: {problem}{context}"


def dump(document: Any, comment: Callable[[KeyPath], str] | None = None) -> str:
    """Return block-style YAML, with `comment(path)` after each leaf, aligned."""
    text = yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=float("inf")
    )
    if comment is None:
        return text
    lines = text.removesuffix("\n").split("\n")
    leaves = dict(_leaf_lines(yaml.compose(text, Loader=_Loader), ()))  # pyright: ignore[reportArgumentType]
    # One long prompt must not push every comment off the screen.
    column = max((len(lines[i]) for i in leaves if len(lines[i]) <= 60), default=0)
    for i, path in leaves.items():
        lines[i] = f"{lines[i]:<{column}}  # {comment(path)}"
    return "\n".join(lines) + "\n"


def _leaf_lines(node: Any, path: KeyPath) -> list[tuple[int, KeyPath]]:
    if isinstance(node, MappingNode) and node.value:
        pairs = [(key.value, value) for key, value in node.value]
    elif isinstance(node, SequenceNode) and node.value:
        pairs = list(enumerate(node.value))
    else:
        # The comment of a text block goes after the `|` in its first line.
        block = isinstance(node, ScalarNode) and node.style == "|"
        return [((node.start_mark if block else node.end_mark).line, path)]
    return [leaf for key, value in pairs for leaf in _leaf_lines(value, (*path, key))]
