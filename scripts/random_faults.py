"""Faults at random places of the program: each kind of `KINDS` has the same share of them.

A place is a node of a file's syntax tree that a kind of fault can change. Places are drawn evenly,
so a file with more of them receives more faults.
"""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDERS = ("art_cli", "envs/art_envs")
# Run inside vLLM, beside its servers, or inside libraries that need an environment of their own:
# only tests/integration sees faults there.
APART = (
    *(f"art_cli/engines/vllm/{name}.py" for name in ("engine", "machines", "worker")),
    *(f"envs/art_envs/adapters/tau2_{name}.py" for name in ("library", "world")),
    *(f"envs/art_envs/adapters/verifiers_{name}.py" for name in ("classic", "tasksets")),
    "envs/art_envs/adapters/verifiers_plugins/art_chat.py",
)
EQUIVALENT = {  # (file, before, after): why nothing changes
    (
        "art_cli/cli/inputs.py",
        "now - _last_told >= SILENCE",
        "(now - _last_told > SILENCE)",
    ): "two readings of a clock in floats are not exactly so many seconds apart",
}
LEFT_OUT = "/template/"  # copied by `art init`, never imported from here


@dataclass(frozen=True, slots=True)
class Fault:
    """One change: the text `before`, which begins at byte `begin` of the file, becomes `after`."""

    file: str
    kind: str
    line: int
    function: str  # the qualified name of the function around it; "" outside of any
    begin: int
    before: str
    after: str

    def planted(self, text: str) -> str:
        """Return the text of the file with the fault."""
        data, before = text.encode(), self.before.encode()
        end = self.begin + len(before)
        if data[self.begin : end] != before:
            raise ValueError(f"{self.file}:{self.line} does not say {self.before!r}")
        return (data[: self.begin] + self.after.encode() + data[end:]).decode()


NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.Is: ast.IsNot,
    ast.In: ast.NotIn,
    ast.Lt: ast.GtE,
    ast.Gt: ast.LtE,
}
NEGATED |= {other: one for one, other in NEGATED.items()}
SHIFTED: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.LtE, ast.Gt: ast.GtE}
SHIFTED |= {other: one for one, other in SHIFTED.items()}


def _negated(node: ast.AST) -> ast.AST | None:
    return _compared(node, NEGATED)


def _boundary(node: ast.AST) -> ast.AST | None:
    """`<` for `<=`, and the like; `x` for `x + 1`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        is_one = isinstance(node.right, ast.Constant) and node.right.value == 1
        return node.left if is_one else None
    return _compared(node, SHIFTED)


def _compared(node: ast.AST, others: dict[type[ast.cmpop], type[ast.cmpop]]) -> ast.AST | None:
    if not isinstance(node, ast.Compare) or type(node.ops[0]) not in others:
        return None
    return ast.Compare(node.left, [others[type(node.ops[0])](), *node.ops[1:]], node.comparators)


def _dropped(node: ast.AST) -> ast.AST | None:
    """A call, an assignment to a part of something, a raise, a jump."""
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await)
    is_part = isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name | ast.Tuple)
    others = (ast.AugAssign, ast.Raise, ast.Continue, ast.Break, ast.Delete)
    return ast.Pass() if is_call or is_part or isinstance(node, others) else None


def _swapped(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.Call) or len(node.args) < 2:
        return None
    one, other, *more = node.args
    if isinstance(node.func, ast.Name) and node.func.id in ("max", "min"):
        return None  # the same in either order
    if isinstance(one, ast.Starred) or isinstance(other, ast.Starred):
        return None
    return ast.Call(node.func, [other, one, *more], node.keywords)


def _other_value(node: ast.AST) -> ast.AST | None:
    """A default: of a parameter, of a field, of `get`. See `_defaults`."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, bool | int | float | str):
        return None
    value = node.value
    if isinstance(value, bool):
        return ast.Constant(not value)
    if isinstance(value, str):
        return ast.Constant("" if value else "x")
    return ast.Constant(value + 1 if isinstance(value, int) else 2 * value + 1)


def _not_awaited(node: ast.AST) -> ast.AST | None:
    return node.value if isinstance(node, ast.Await) else None


def _and_or(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.BoolOp):
        return None
    return ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)


def _without_not(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.UnaryOp) or not isinstance(node.op, ast.Not):
        return None
    return node.operand


KINDS: dict[str, Callable[[ast.AST], ast.AST | None]] = {
    "comparison": _negated,
    "boundary": _boundary,
    "dropped statement": _dropped,
    "swapped arguments": _swapped,
    "wrong default": _other_value,
    "missing await": _not_awaited,
    "and for or": _and_or,
    "dropped not": _without_not,
}


def drawn(root: Path, num: int, seed: int) -> list[Fault]:
    """Draw this many faults, in an order in which each kind takes its turn."""
    places: dict[str, list[Fault]] = {kind: [] for kind in KINDS}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            file = path.relative_to(root).as_posix()
            if file not in APART and LEFT_OUT not in file:
                for fault in faults_of(file, path.read_text(encoding="utf-8")):
                    places[fault.kind].append(fault)
    rng = random.Random(seed)
    for faults in places.values():
        rng.shuffle(faults)
    turns = list(KINDS) * (num // len(KINDS) + 1)
    return [places[kind].pop() for kind in turns[:num]]


def faults_of(file: str, text: str) -> Iterator[Fault]:
    """Yield every fault that can be planted in a file."""
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    defaults: set[ast.AST] = set()

    def visit(node: ast.AST, within: str) -> Iterator[Fault]:
        if isinstance(node, ast.JoinedStr) or _is_for_types(node):
            return  # Python 3.11 does not know where the parts of an f-string are
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            within = f"{within}.{node.name}".lstrip(".")
        defaults.update(_defaults(node))
        for kind, change in KINDS.items():
            changed = change(node) if kind != "wrong default" or node in defaults else None
            if changed is not None and ast.dump(changed) != ast.dump(node):
                yield planted(node, kind, changed, within)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, within)

    def planted(node: ast.AST, kind: str, changed: ast.AST, within: str) -> Fault:
        assert isinstance(node, ast.expr | ast.stmt) and node.end_lineno and node.end_col_offset
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        after = ast.unparse(ast.fix_missing_locations(copy.deepcopy(changed)))
        if isinstance(changed, ast.Compare | ast.BoolOp | ast.BinOp | ast.UnaryOp | ast.IfExp):
            after = f"({after})"
        before = text.encode()[begin:end].decode()
        return Fault(file, kind, node.lineno, within, begin, before, after)

    yield from visit(ast.parse(text), "")


def _defaults(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.arguments):
        yield from (d for d in (*node.defaults, *node.kw_defaults) if d)
    elif isinstance(node, ast.ClassDef):
        yield from (n.value for n in node.body if isinstance(n, ast.AnnAssign) and n.value)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in ("get", "pop", "setdefault"):
            yield from node.args[1:2]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        yield from (k.value for k in node.keywords if k.arg == "default")
        yield from node.args[-1:] if node.func.id in ("getattr", "next") else ()


def _is_for_types(node: ast.AST) -> bool:
    """What only type checkers read: no test can notice it."""
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    is_note = isinstance(node, ast.AnnAssign) and node.value is None
    names = {ast.unparse(base).partition("[")[0] for base in getattr(node, "bases", ())}
    return is_note or (isinstance(node, ast.ClassDef) and "Protocol" in names)
