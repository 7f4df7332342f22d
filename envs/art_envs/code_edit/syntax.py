"""A source file as a tree: its symbols, their nodes, and an edit of one node."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from art_envs.code_edit.sandbox.pool import Language

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Tree

SUFFIX: dict[Language, str] = {"python": "py", "javascript": "js", "bash": "sh"}
DEFINITIONS = {
    *("function_definition", "class_definition"),  # Python, bash
    *("function_declaration", "class_declaration"),  # JavaScript
}
NAMES = {"identifier", "variable_name"}
KEPT = 512  # trees


class SyntaxMissingError(Exception):
    """The package that reads syntax is not installed."""


class EditError(Exception):
    """An edit that cannot be made; its text says why."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A function or class at the top of a file."""

    name: str
    start: int  # byte offsets
    end: int


@cache
def parser(language: Language) -> Parser:
    """Return the language's parser. Raises SyntaxMissingError."""
    try:
        tree_sitter = importlib.import_module("tree_sitter")
        grammar = importlib.import_module(f"tree_sitter_{language}")
    except ModuleNotFoundError as e:
        raise SyntaxMissingError(
            f"code_edit reads programs with tree-sitter, and {e.name!r} is not installed: "
            "pip install 'art-cli[code]'"
        ) from None
    return tree_sitter.Parser(tree_sitter.Language(grammar.language()))


@lru_cache(maxsize=KEPT)
def tree(language: Language, text: str) -> Tree:
    """Return the tree of a file."""
    return parser(language).parse(text.encode())


def nodes(root: Node) -> Iterator[Node]:
    """Return a node and all below it, in the order of the text."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


def symbols(language: Language, text: str) -> list[Symbol]:
    """Return the functions and classes at the top of a file."""
    out = []
    for node in tree(language, text).root_node.children:
        name = node.child_by_field_name("name") if node.type in DEFINITIONS else None
        if name is not None and name.text:
            out.append(Symbol(name.text.decode(), node.start_byte, node.end_byte))
    return out


def places(language: Language, text: str, symbol: Symbol, old: str) -> list[tuple[int, int]]:
    """Return where in a symbol there is a syntax node with this text, each place once."""
    wanted, found = old.encode(errors="replace"), dict[tuple[int, int], None]()
    for node in nodes(tree(language, text).root_node):
        span = node.start_byte, node.end_byte
        if symbol.start <= span[0] and span[1] <= symbol.end and node.text == wanted:
            found[span] = None
    return list(found)


def leaves(language: Language, text: str, symbol: Symbol) -> list[tuple[str, bool]]:
    """Return the tokens of a symbol, and of each whether it is a name."""
    return [
        ((node.text or b"").decode(), node.type in NAMES)
        for node in nodes(tree(language, text).root_node)
        if not node.children and symbol.start <= node.start_byte < symbol.end
    ]


def edit(language: Language, text: str, name: str, old: str, new: str, nth: int) -> str:
    """Return the file with a node of a symbol replaced.

    `old` is the node's whole text, `nth` counts from 1 where there are several; an empty `old` is
    the whole symbol. Raises EditError.
    """
    symbol = next((s for s in symbols(language, text) if s.name == name), None)
    if symbol is None:
        raise EditError(f"there is no {name}")
    found = places(language, text, symbol, old) if old else [(symbol.start, symbol.end)]
    if not found:
        raise EditError(f"{name} has no syntax node {old!r}; give the whole text of one node")
    if not 1 <= nth <= len(found):
        raise EditError(f"{name} has {len(found)} of {old!r}; nth is 1 to {len(found)}")
    start, end = found[nth - 1]
    whole = text.encode()
    changed = (whole[:start] + new.encode(errors="replace") + whole[end:]).decode()
    if line := broken_line(language, changed):
        raise EditError(f"the file would not parse any more, at line {line}; nothing was changed")
    return changed


def broken_line(language: Language, text: str) -> int:
    """Return the first line that does not parse, counted from 1, or 0."""
    root = tree(language, text).root_node
    if not root.has_error:
        return 0
    bad = next((n for n in nodes(root) if n.is_error or n.is_missing), root)
    return bad.start_point[0] + 1
