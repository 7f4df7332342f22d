"""A check of model answers that a library's scorer evaluates as code.

[[1, 2], [3, 4]]              a literal: allowed
(94 - 39)*2**3 + sin(x)       arithmetic of numbers, names and known functions: allowed
__import__("os").listdir()    refused: it would run in the training process
9**9**9**9                    refused: it never ends
"""

from __future__ import annotations

import ast

LONGEST, MOST_DIGITS, HIGHEST_POWER = 10_000, 30, 64
GROWING = 8  # the power that `exp` counts as; two nested calls reach the limit
FUNCTIONS = (
    *("sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
    *("asinh", "acosh", "atanh", "exp", "log", "ln", "sqrt", "Abs", "abs"),
)
OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.UAdd, ast.USub)


class _Refused(Exception):
    """Raised if an expression is neither a literal nor arithmetic."""


def is_plain(text: str) -> bool:
    """Return whether a text is a literal or arithmetic that ends. Raise SyntaxError if neither."""
    if len(text) > LONGEST:
        return False
    try:
        _check(ast.parse(text.strip(), mode="eval").body, is_number=False)
    except (_Refused, RecursionError, MemoryError, ValueError):  # of a NUL: ValueError
        return False
    return True


def _check(node: ast.AST, is_number: bool) -> float:
    """Return the highest power in an expression. With `is_number`, refuse texts and lists."""
    power = 1.0
    match node:
        case ast.Constant(value=int() | float() | complex() as value):
            if len(str(value)) > MOST_DIGITS:
                raise _Refused
        case ast.Constant(value=str() | None) | ast.List() | ast.Tuple() if not is_number:
            power = max((_check(each, False) for each in getattr(node, "elts", ())), default=1)
        case ast.Name():
            pass
        case ast.UnaryOp() if isinstance(node.op, OPERATORS):
            power = _check(node.operand, True)
        case ast.BinOp() if isinstance(node.op, OPERATORS):
            power = max(_check(node.left, True), _check(node.right, True))
        case ast.BinOp(op=ast.Pow()):
            power = _check(node.left, True) * _exponent(node.right)
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in FUNCTIONS:
            power = max((_check(each, True) for each in node.args), default=1)
            power *= GROWING if name in ("exp", "sinh", "cosh") else 1
        case _:
            raise _Refused
    if power > HIGHEST_POWER:
        raise _Refused
    return power


def _exponent(node: ast.AST) -> float:
    """Return an upper bound of an exponent's value, taking each name as 1."""
    if _check(node, True) > 1:
        raise _Refused
    match node:
        case ast.Constant(value=int() | float() as value):
            return max(abs(value), 1)
        case ast.Name():
            return 1
        case ast.UnaryOp():
            return _exponent(node.operand)
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            return _exponent(node.left) + _exponent(node.right)
        case ast.BinOp(op=ast.Mult()):
            return _exponent(node.left) * _exponent(node.right)
        case ast.BinOp(op=ast.Div(), right=ast.Constant(value=int() as value)) if value:
            return _exponent(node.left)
    raise _Refused
