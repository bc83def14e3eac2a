"""C expressions of sizes and indices: as Python's, which kernel files have, and as sums of products."""

from __future__ import annotations

import ast
import keyword
import re
from collections import Counter
from collections.abc import Iterable, Mapping

from tuner.kernel.source.types import NO_TYPE, NUMBERS, PASSED_AS
from tuner.runtime.dtypes import ITEMSIZE

DEPTH = 8
"""Definitions of variables that are put in for each other."""
MOST_TERMS = 64
_TOKEN = re.compile(r"\s*(\d[\w.']*|[A-Za-z_]\w*|->|::|&&|\|\||<<|>>|//|[<>=!]=|.)", re.DOTALL)
_TYPES = frozenset((*NUMBERS, *NO_TYPE, *PASSED_AS))
_CASTS = ("static_cast", "reinterpret_cast", "const_cast", "dynamic_cast")
_SUFFIX = re.compile(r"(?i)(?<=[\da-f.])(?:u?l{0,2}|l{1,2}u)\Z")
_WORDS = {"&&": " and ", "||": " or ", "!": " not ", "/": "//", "true": "1", "false": "0"}
_DIVISIONS = ("cdiv", "div_up", "divup", "ceildiv", "ceil_div", "div_ceil", "iceil")
"""Functions that sources define for a division that rounds up."""
_ALLOWED = (
    ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.operator,
    ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
)  # fmt: skip
Product = tuple[str, ...]
Sum = Mapping[Product, int]
"""Integer factors of products of names and of other parts, each product in alphabetical order; ``()`` is a number."""


def python_of(text: str) -> ast.expr | None:
    """Return a C expression as a tree of Python's; None for what has no such form."""
    words = [match[1] for match in _TOKEN.finditer(text)]
    try:
        return ast.parse(_without_casts(words).strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _without_casts(words: list[str]) -> str:
    """Return words as Python: without casts, suffixes of numbers and ``std::``; division rounds down."""
    out: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        if word == "(" and (close := _type_end(words, at + 1)) is not None:
            at = close  # (int) before what it casts, also (int)(x)
        elif word in _CASTS and words[at + 1 : at + 2] == ["<"] and ">" in words[at:]:
            at = words.index(">", at)
        elif word in _TYPES and words[at + 1 : at + 2] == ["("]:
            pass  # float(x): the parentheses stay
        elif word == "sizeof":
            close = _type_end(words, at + 2)
            out.append(_size_of(" ".join(words[at + 2 : close])) if close else "?")
            at = close or at
        elif word == "." and out and words[at + 1 : at + 2]:
            out[-1] += f"_{words[at + 1]}"  # threadIdx.x, in one name
            at += 1
        elif word == "::":
            if out and out[-1] in ("std", "cuda"):
                out.pop()
        elif re.match(r"\d", word):
            out.append(_SUFFIX.sub("", word.replace("'", "")) if not word.endswith(("f", "F")) else word[:-1])
        else:
            out.append(_WORDS.get(word) or python_name(word))
        at += 1
    return _choices("".join(f" {word}" if re.match(r"\w", word) else word for word in out))


def python_name(name: str) -> str:
    """Return how expressions call a C variable: another name for a keyword of Python's."""
    return f"{name}_" if keyword.iskeyword(name) else name


def _type_end(words: list[str], at: int) -> int | None:
    """Return where a type that begins at a place is closed by a parenthesis; None if none begins there."""
    start = at
    while at < len(words) and (words[at] in _TYPES or words[at] in ("*", "::", "std", "unsigned")):
        at += 1
    return at if at > start and words[at : at + 1] == [")"] and words[start] != "*" else None


def _size_of(kind: str) -> str:
    dtype = PASSED_AS.get(kind)
    return str(ITEMSIZE[dtype]) if dtype else "?"


def _choices(text: str) -> str:
    """Return ``a ? b : c`` as ``b if a else c``: the only one of a text, which no parenthesis holds."""
    match = re.fullmatch(r"([^?]*)\?([^?:]*):([^?:]*)", text)
    return f"({match[2]}) if ({match[1]}) else ({match[3]})" if match else text


def expression_text(text: str) -> str | None:
    """Return a C expression as kernel files have it, a division that rounds up as ``ceil_div``; None if it has no such.

    ``(n + BLOCK - 1) / BLOCK`` and ``ceil(n / (float)BLOCK)`` are ``ceil_div(n, BLOCK)``.
    """
    tree = python_of(text)
    if tree is None:
        return None
    tree = ast.fix_missing_locations(_Rounded().visit(tree))
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED) or (
            isinstance(node, ast.Constant) and not isinstance(node.value, int | float)
        ):
            return None
        if isinstance(node, ast.Call) and (
            not isinstance(node.func, ast.Name) or node.func.id not in ("ceil_div", "min", "max", "abs")
        ):
            return None
    return ast.unparse(tree)


def bare(text: str) -> str:
    """Return an expression without parentheses around the whole."""
    return text[1:-1] if re.fullmatch(r"\([^()]*\)", text) else text


class _Rounded(ast.NodeTransformer):
    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.LShift | ast.RShift):
            by = ast.Mult() if isinstance(node.op, ast.LShift) else ast.FloorDiv()
            node = ast.BinOp(node.left, by, _power_of_two(node.right))
        if isinstance(node.op, ast.FloorDiv) and (upper := _rounded_up(node)) is not None:
            return ast.Call(ast.Name("ceil_div"), [upper, node.right], [])
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Call(
                ast.Name("ceil" | "ceilf"), [ast.BinOp(left=above, op=ast.FloorDiv(), right=below), *_]
            ):
                return ast.Call(ast.Name("ceil_div"), [above, below], [])
            case ast.Call(ast.Name(name), [_, _]) if name.lower() in _DIVISIONS:
                return ast.Call(ast.Name("ceil_div"), node.args, [])
        return node


def _power_of_two(exponent: ast.expr) -> ast.expr:
    if isinstance(exponent, ast.Constant) and isinstance(exponent.value, int):
        return ast.Constant(2 ** max(min(exponent.value, 62), 0))
    return ast.BinOp(ast.Constant(2), ast.Pow(), exponent)


def _rounded_up(node: ast.BinOp) -> ast.expr | None:
    """Return ``n`` of ``(n + d - 1) // d``."""
    above, below = sum_of(node.left), sum_of(node.right)
    if above is None or below is None:
        return None
    rest = Counter(above)
    rest.subtract(below)
    rest[()] += 1
    left = {product: factor for product, factor in rest.items() if factor}
    inside = all(above.get(product, 0) >= factor for product, factor in below.items() if product)
    if not inside or set(left) <= {()} or any(factor < 0 for factor in left.values()):
        return None
    return python_of(text_of(left))


def sum_of(
    tree: ast.expr | None, variables: Mapping[str, str] | None = None, depth: int = DEPTH
) -> Sum | None:
    """Return an expression as a sum of products; None if it is none of integers, or too long.

    Args:
        tree: the expression.
        variables: what names stand for, as C expressions.
        depth: how often names may be replaced.
    """
    match tree:
        case ast.Constant(value=int(value)):
            return {(): int(value)} if value else {}
        case ast.Name(id=name):
            if variables and depth and name in variables:
                inner = sum_of(python_of(variables[name]), variables, depth - 1)
                return {(name,): 1} if inner is None else inner
            return {(name,): 1}
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _times(sum_of(operand, variables, depth), {(): -1})
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return sum_of(operand, variables, depth)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            one, other = sum_of(left, variables, depth), sum_of(right, variables, depth)
            other = _times(other, {(): -1}) if isinstance(op, ast.Sub) else other
            return None if one is None or other is None else plus([one, other])
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _times(sum_of(left, variables, depth), sum_of(right, variables, depth))
        case ast.BinOp(left=left, op=ast.LShift(), right=ast.Constant(value=int(value))) if 0 <= value < 62:
            return _times(sum_of(left, variables, depth), {(): 2**value})
        case None:
            return None
    return {(f"({ast.unparse(tree)})",): 1}


def plus(sums: Iterable[Sum]) -> Sum | None:
    """Return the sum of sums; None if it is too long."""
    total: Counter[Product] = Counter()
    for one in sums:
        for product, factor in one.items():
            total[product] += factor
    left = {product: factor for product, factor in total.items() if factor}
    return left if len(left) <= MOST_TERMS else None


def _times(one: Sum | None, other: Sum | None) -> Sum | None:
    if one is None or other is None or len(one) * len(other) > MOST_TERMS**2:
        return None
    total: Counter[Product] = Counter()
    for left, left_factor in one.items():
        for right, right_factor in other.items():
            total[tuple(sorted((*left, *right)))] += left_factor * right_factor
    return plus([total])


def text_of(terms: Sum) -> str:
    """Return a sum of products as text."""
    parts = []
    for product, factor in terms.items():
        factors = [*([str(abs(factor))] if abs(factor) != 1 or not product else []), *product]
        parts.append((" - " if factor < 0 else " + ") + " * ".join(factors))
    return "".join(parts).removeprefix(" + ").strip() or "0"
