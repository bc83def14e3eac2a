"""Element expressions: a user's formula for each element, such as ``x + 0.5 * (20 - x)``, as an option of a kernel.

An element expression is parsed by a whitelist and not run as Python. Its text is canonical, so that two ways to write
the same formula are one problem. ``tuner.expressions.elementwise_cuda`` translates the checked tree to CUDA;
``tuner.expressions.array`` evaluates it for the reference.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Iterable

import numpy as np

from tuner.core.errors import ExpressionError, suggestion
from tuner.core.trees import parsed
from tuner.expressions.parsing import BINARY_SIGNS, COMPARE_SIGNS, copied, parse_tree, shown, with_names

FUNCTIONS = {
    "abs": 1,
    "sqrt": 1,
    "exp": 1,
    "log": 1,
    "tanh": 1,
    "erf": 1,
    "sigmoid": 1,
    "sin": 1,
    "cos": 1,
    "maximum": 2,
    "minimum": 2,
    "where": 3,
}
"""The functions with their numbers of arguments: those that are applied element by element."""
SHORT_FORMS = {
    "relu": (("a",), "maximum(a, 0)"),
    "silu": (("a",), "a * sigmoid(a)"),
    "gelu": (("a",), "a * (0.5 + 0.5 * erf(0.7071067811865476 * a))"),
    "gelu_tanh": (("a",), "a * (0.5 + 0.5 * tanh(0.7978845608028654 * (a + 0.044715 * a ** 3)))"),
    "clamp": (("a", "low", "high"), "minimum(maximum(a, low), high)"),
}
"""Functions that stand for an expression of their arguments. Both gelus are as torch defines them: for large
negative arguments ``0.5 + 0.5 * erf(y)``, likewise with ``tanh``, is the difference of nearly equal numbers, so that
float32 leaves an error of some 3e-8 times the argument."""
MAX_LENGTH = 500
MAX_OPERATIONS = 64
"""Rounding errors add up; with at most so many, the allowed error that ``operations`` implies covers the worst case."""
MAX_EXPONENT = 64
MAX_SHORT_FORMS = 4
"""One within the other: each writes its argument up to three times."""
NAMES = (*FUNCTIONS, *SHORT_FORMS)
"""Of all functions."""
USAGE = "use numbers, + - * /, ** with a number, comparisons in where(), and " + ", ".join(NAMES)


class ElementExpression:
    """A checked element expression.

    Args:
        text: the source.
        of: the names that it may use; any when None.

    Raises:
        ExpressionError: the text is no such expression, or uses another name.
    """

    def __init__(self, text: str, of: Iterable[str] | None = None) -> None:
        if len(text) > MAX_LENGTH:
            raise ExpressionError(
                f"element expression of {len(text)} characters", f"keep it under {MAX_LENGTH}"
            )
        body = parse_tree(text, remedy=USAGE)
        names: dict[str, None] = {}
        checked = _checked(body, names, text)
        self.written: ast.expr = checked
        """The checked tree: names, numbers, operators and functions of the grammar only."""
        self.body: ast.expr = expanded(copied(checked))
        """The same without short forms."""
        self.names: frozenset[str] = frozenset(names)
        """The names that it uses."""
        for name in names if of is not None else ():
            _check_name(name, tuple(of or ()), text)
        self.functions: frozenset[str] = frozenset(
            node.func.id
            for node in ast.walk(checked)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        )
        """The functions and short forms that it calls."""
        self.text: str = _text(checked)
        """Canonical: independent of white space, needless parentheses and the notation of numbers."""
        self.operations: int = _operations(self.body)
        """Each ``+ - * /``, comparison and function counts as one, ``**`` as its number of multiplications."""
        if self.operations > MAX_OPERATIONS:
            raise ExpressionError(
                f"{shown(text)} has {self.operations} operations",
                f"an element expression has at most {MAX_OPERATIONS}",
            )


@functools.lru_cache(maxsize=1024)
def parse_element(text: str, of: tuple[str, ...] | None = None) -> ElementExpression:
    """Return the :class:`ElementExpression` of a text; cached."""
    return ElementExpression(text, of)


def exponent_of(node: ast.expr) -> float | None:
    """Return a constant exponent, or None for anything else."""
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return float(value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return None if isinstance(value, bool) else -float(value)
    return None


def checked_exponent(node: ast.expr) -> float:
    """Return the exponent of an expression that was checked, so that it has one."""
    exponent = exponent_of(node)
    assert exponent is not None
    return exponent


def multiplications(exponent: float) -> int:
    """Return the multiplications (and a division) of a power by repeated squaring; 1 for an exponent with a
    fraction."""
    if exponent != int(exponent):
        return 1
    whole = abs(int(exponent))
    squarings = max(whole.bit_length() - 1, 0)
    return squarings + max(whole.bit_count() - 1, 0) + (exponent < 0)


def expanded(node: ast.expr) -> ast.expr:
    """Return a tree in which the short forms are what they stand for."""
    return _Expanded().visit(node)  # type: ignore[no-any-return]


class _Expanded(ast.NodeTransformer):
    depth = 0

    def visit_Call(self, node: ast.Call) -> ast.expr:
        short = node.func.id if isinstance(node.func, ast.Name) and node.func.id in SHORT_FORMS else ""
        if not short:
            self.generic_visit(node)
            return node
        self.depth += 1
        if self.depth > MAX_SHORT_FORMS:
            raise ExpressionError(f"{short} stands too deep in other functions", "write what it stands for")
        arguments = [self.visit(argument) for argument in node.args]
        self.depth -= 1
        names, text = SHORT_FORMS[short]
        if len(arguments) != len(names):
            raise ExpressionError(f"{short} takes {len(names)}", f"not {len(arguments)}")
        values = dict(zip(names, arguments, strict=True))
        return with_names(parsed(text, "eval").body, values)


def _checked(node: ast.expr, names: dict[str, None], text: str) -> ast.expr:
    """Return the tree with numbers in canonical form, or raise an error for anything outside the grammar."""

    def child(inner: ast.expr) -> ast.expr:
        return _checked(inner, names, text)

    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return _number(value, text)
        case ast.Name(id=name) if name not in NAMES:
            names[name] = None
            return ast.Name(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return ast.UnaryOp(ast.USub(), child(operand))
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return child(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return ast.BinOp(child(left), ast.Pow(), _exponent(right, text))
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), right=right):
            return ast.BinOp(child(left), node.op, child(right))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in NAMES:
            takes = FUNCTIONS[name] if name in FUNCTIONS else len(SHORT_FORMS[name][0])
            if len(arguments) != takes:
                raise ExpressionError(f"{name} takes {takes} in {shown(text)}", f"not {len(arguments)}")
            if name != "where":
                return ast.Call(ast.Name(name), [child(item) for item in arguments], [])
            match arguments[0]:
                case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARE_SIGNS:
                    condition = ast.Compare(child(left), [op], [child(right)])
                    return ast.Call(ast.Name(name), [condition, child(arguments[1]), child(arguments[2])], [])
            part = ast.unparse(arguments[0])
            raise ExpressionError(f"{part!r} is no comparison in {shown(text)}", "write where(x > 0, a, b)")
        case ast.Call(func=ast.Name(id=name)) if name not in NAMES:
            _check_name(name, NAMES, text, "function")
    part = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
    raise ExpressionError(f"{shown(part)} is not allowed in {shown(text)}", USAGE)


def _number(value: float, text: str) -> ast.Constant:
    """Return a number in canonical form: a whole number that a double represents exactly is an integer."""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    with np.errstate(all="ignore"):
        rounded = float(np.float32(number))
    if not math.isfinite(rounded) or (number != 0.0 and rounded == 0.0):
        raise ExpressionError(
            f"{shown(str(value))} in {shown(text)} is no float32", "they are 1e-45 to 3.4e38"
        )
    return ast.Constant(int(number) if number == int(number) and abs(number) < 2**53 else number)


def _exponent(node: ast.expr, text: str) -> ast.expr:
    exponent = exponent_of(node)
    if exponent is None or not abs(exponent) <= MAX_EXPONENT:
        raise ExpressionError(
            f"** {ast.unparse(node)} in {shown(text)}",
            f"the exponent is a number from -{MAX_EXPONENT} to {MAX_EXPONENT}",
        )
    constant = _number(abs(exponent), text)
    return ast.UnaryOp(ast.USub(), constant) if exponent < 0 else constant


_BINDS: dict[type[ast.operator], int] = {ast.Add: 1, ast.Sub: 1, ast.Mult: 2, ast.Div: 2}
"""How tightly an operation binds."""


def _text(node: ast.expr, binds: int = 0) -> str:
    """Return a tree as text, in parentheses if the operator around it binds more tightly.

    ``ast.unparse`` is no substitute: its parentheses differ between versions of Python, and this text identifies
    problems in databases.
    """
    match node:
        case ast.Constant(value=value):
            return repr(value)
        case ast.Name(id=name):
            return name
        case ast.UnaryOp(operand=operand):
            text, own = f"-{_text(operand, 3)}", 3
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            text, own = f"{_text(left, 5)} ** {_text(right)}", 4
        case ast.BinOp(left=left, op=op, right=right):
            own = _BINDS[type(op)]
            text = f"{_text(left, own)} {BINARY_SIGNS[type(op)]} {_text(right, own + 1)}"
        case ast.Compare(left=left, ops=[comparison], comparators=[right]):
            return f"{_text(left)} {COMPARE_SIGNS[type(comparison)]} {_text(right)}"
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return f"{name}({', '.join(map(_text, arguments))})"
        case _:
            raise AssertionError(node)
    return f"({text})" if own < binds else text


def _operations(node: ast.expr) -> int:
    match node:
        case ast.UnaryOp(operand=operand):
            return _operations(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _operations(left) + multiplications(checked_exponent(right))
        case ast.BinOp(left=left, right=right) | ast.Compare(left=left, comparators=[right]):
            return 1 + _operations(left) + _operations(right)
        case ast.Call(args=arguments):
            return 1 + sum(map(_operations, arguments))
    return 0


def _check_name(name: str, allowed: tuple[str, ...], text: str, what: str = "name") -> None:
    if name not in allowed:
        raise ExpressionError(f"unknown {what} {name!r} in {shown(text)}", suggestion(name, allowed))
