"""The arithmetic of the assistant's calculator tool."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from decimal import Decimal, DecimalException

from art_cli import ToolError

MAX_LENGTH = 200  # characters
OPERATIONS: dict[type[ast.operator], Callable[[Decimal, Decimal], Decimal]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def calculated(expression: str) -> str:
    """Return the value of an arithmetic expression, rounded to two places. Raise ToolError
    otherwise.
    """
    expected = "expected numbers, + - * / and parentheses"
    if len(expression) > MAX_LENGTH:
        raise ToolError(f"the expression is longer than {MAX_LENGTH} characters; {expected}")
    try:
        value = _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ToolError(f"cannot read {expression!r}; {expected}") from None
    except (DecimalException, ArithmeticError):
        raise ToolError(f"{expression!r} has no value") from None
    return f"{value:.2f}"


def _value(node: ast.expr) -> Decimal:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return Decimal(str(node.value))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        return OPERATIONS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError
