"""C expressions of sizes and indices: as Python's, which kernel files have, and as sums of products."""

from __future__ import annotations

import ast
import contextlib
import keyword
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from tuner.core.errors import KernelError, TunerError
from tuner.core.trees import parsed
from tuner.expressions.arithmetic import parse
from tuner.expressions.parsing import copied, with_names
from tuner.kernel.source.tree import expression, name_node, text_of, walk, words
from tuner.kernel.source.types import NO_TYPE, NUMBERS, PASSED_AS, base_of, vector_of
from tuner.runtime.dtypes import ITEMSIZE

if TYPE_CHECKING:
    from tree_sitter import Node

    from tuner.kernel.source.declarations import Source

DEPTH = 8
"""Definitions of variables that are put in for each other."""
MOST_TERMS = 64
_TYPES = frozenset((*NUMBERS, *NO_TYPE, *PASSED_AS))
_CASTS = ("static_cast", "reinterpret_cast", "const_cast", "dynamic_cast")
_OPERATORS: dict[str, Any] = {
    "+": ast.Add(), "-": ast.Sub(), "*": ast.Mult(), "/": ast.FloorDiv(), "%": ast.Mod(),
    "&": ast.BitAnd(), "|": ast.BitOr(), "^": ast.BitXor(), "<": ast.Lt(), ">": ast.Gt(),
    "<=": ast.LtE(), ">=": ast.GtE(), "==": ast.Eq(), "!=": ast.NotEq(), "&&": ast.And(), "||": ast.Or(),
}  # fmt: skip
_SIGNS = {"-": ast.USub(), "+": ast.UAdd(), "!": ast.Not(), "~": ast.Invert()}
_DIVISIONS = ("cdiv", "div_up", "divup", "ceildiv", "ceil_div", "div_ceil", "iceil")
"""Functions that sources define for a division that rounds up."""
_ALLOWED = (
    ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.operator,
    ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
)  # fmt: skip
Product = tuple[str, ...]
Sum = Mapping[Product, int]
"""Integer factors of products of names and of other parts, each product in alphabetical order; ``()`` is a number."""


def python_of(node: Node | str | None) -> ast.expr | None:
    """Return a C expression as a tree of Python's; None for what has no such form.

    Casts and namespaces are left out. Integers are divided: ``(n + BLOCK - 1) / BLOCK`` and ``ceil(n / (float)BLOCK)``
    are ``ceil_div(n, BLOCK)``.
    """
    try:
        return _tree(expression(node) if isinstance(node, str) else node)
    except (ValueError, LookupError, RecursionError):
        return None


def names_of(tree: ast.expr) -> set[str]:
    """Return the names that an expression has, but for functions."""
    functions = {one.func for one in ast.walk(tree) if isinstance(one, ast.Call)}
    return {one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and one not in functions}


def python_text(text: str) -> ast.expr:
    """Return the tree of an expression of Python's.

    Raises:
        KernelError: it is none, as of damaged text.
    """
    try:
        return parsed(text, "eval").body
    except SyntaxError:
        raise KernelError(
            f"the source has {text!r} where a name or a number is expected", "correct it"
        ) from None


def _tree(node: Node | None) -> ast.expr:
    """Return a tree.

    Raises:
        ValueError: the expression has no such form.
    """
    if node is None:
        raise ValueError
    parts = node.named_children
    match node.type:
        case "identifier" | "type_identifier":
            return ast.Name(python_name(text_of(node)))
        case "number_literal":
            return ast.Constant(_number(text_of(node)))
        case "true" | "false":
            return ast.Constant(int(node.type == "true"))
        case "field_expression" if len(parts) == 2 and text_of(node.children[1]) == ".":
            return ast.Name(f"{_name(_tree(parts[0]))}_{text_of(parts[1])}")  # threadIdx.x, in one name
        case "binary_expression":
            left, right, mark = _tree(parts[0]), _tree(parts[-1]), text_of(node.children[1])
            if mark in ("<<", ">>"):
                one_shifted = mark == "<<" and isinstance(left, ast.Constant) and left.value == 1
                mark = "*" if mark == "<<" else "/"
                match right:
                    case ast.Constant(value=int(by)) if by < 63:
                        right = ast.Constant(2**by)
                    case _:
                        right = ast.BinOp(ast.Constant(2), ast.Pow(), right)
                if one_shifted:
                    return right
            operator = _OPERATORS[mark]
            if isinstance(operator, ast.cmpop):
                return ast.Compare(left, [operator], [right])
            if isinstance(operator, ast.boolop):
                return ast.BoolOp(operator, [left, right])
            if mark == "/" and isinstance(left, ast.BinOp) and isinstance(left.op, ast.FloorDiv):
                right = ast.BinOp(left.right, ast.Mult(), right)  # i / width / height
                left = left.left
            upper = _rounded_up(left, right) if mark == "/" else None
            return _ceil_div(upper, right) if upper is not None else ast.BinOp(left, operator, right)
        case "unary_expression":
            return ast.UnaryOp(_SIGNS[text_of(node.children[0])], _tree(parts[-1]))
        case "conditional_expression":
            test, then, otherwise = map(_tree, parts)
            return ast.IfExp(test, then, otherwise)
        case "subscript_expression":
            return ast.Subscript(_tree(parts[0]), _tree(parts[-1]))
        case "call_expression":
            function, arguments = parts[0], parts[-1].named_children
            cast = words(function)[0] in _CASTS or text_of(function) in _TYPES
            if cast or (text_of(function).endswith("_t") and len(arguments) == 1):  # a type's name
                return _tree(arguments[0] if arguments else None)
            name, given = _name(_tree(function)), [_tree(one) for one in arguments]
            match name, given:
                case "ceil" | "ceilf", [ast.BinOp(left=above, op=ast.FloorDiv(), right=below)]:
                    return _ceil_div(above, below)
                case "__mul24" | "__umul24" | "mul24", [left, right]:
                    return ast.BinOp(left, ast.Mult(), right)
                case _, [above, below] if name.lower() in _DIVISIONS:
                    return _ceil_div(above, below)
            name = name.lower() if name.lower() in ("min", "max") else name
            return ast.Call(ast.Name(name), given, [])
        case "lambda_expression" | "function_definition":
            return _function(node)
        case "sizeof_expression" if parts:
            base, lanes = vector_of(base_of([one for one in words(parts[0]) if one not in "()"]))
            return ast.Constant(ITEMSIZE[PASSED_AS[base]] * lanes)
        case "parameter_declaration" if len(parts) == 2 and parts[1].type == "pointer_declarator":
            return ast.BinOp(
                _tree(parts[0]), ast.Mult(), _tree(parts[1].named_children[-1])
            )  # dim3 grid(a * b)
        case "cast_expression" | "qualified_identifier" | "condition_clause" if parts:
            return _tree(parts[-1])
        case (
            "parenthesized_expression"
            | "argument_list"
            | "initializer_list"
            | "parameter_list"
            | ("parameter_declaration" | "subscript_argument_list")
        ) if len(parts) == 1:
            return _tree(parts[0])
    raise ValueError


def _function(node: Node) -> ast.Lambda:
    """Return a function, or a lambda, that returns an expression of its arguments."""
    body = node.child_by_field_name("body")
    declarator = next(walk(node, "function_declarator", "lambda_declarator"), None)
    given = declarator.child_by_field_name("parameters") if declarator is not None else None
    if body is None or given is None or [one.type for one in body.named_children] != ["return_statement"]:
        raise ValueError
    names = [name_node(one.child_by_field_name("declarator")) for one in given.named_children]
    arguments = [ast.arg(python_name(text_of(name))) for name in names if name is not None]
    if len(arguments) < len(names):
        raise ValueError
    return ast.Lambda(
        ast.arguments([], arguments, None, [], [], None, []), _tree(body.named_children[0].named_children[0])
    )


def called(tree: ast.expr | None, functions: Mapping[str, ast.expr | None]) -> ast.expr | None:
    """Return what a call of a function by name returns; None for something else, or another function."""
    match tree:
        case ast.Call(func=ast.Name(id=name), args=given):
            function = functions.get(name)
            if isinstance(function, ast.Lambda) and len(given) == len(function.args.args):
                values = dict(zip((one.arg for one in function.args.args), given, strict=True))
                return with_names(copied(function.body), values)
    return None


def replaced(
    tree: ast.expr | None, names: Mapping[str, str], values: Mapping[str, ast.expr | None]
) -> ast.expr | None:
    """Return an expression with other names, and with values instead of names: 8 within each other, 256 in all."""
    depth, left = DEPTH, 256

    class Names(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            nonlocal depth, left
            name = node.id if isinstance(node, ast.Name) else None
            value = values.get(name) if name is not None and name not in names else None
            value = called(node, values) if isinstance(node, ast.Call) else value
            if value is None or isinstance(value, ast.Lambda) or not (depth and left):
                return self.generic_visit(node) if name is None else ast.Name(names.get(name, name))
            depth, left = depth - 1, left - 1
            result = self.visit(copied(value))
            depth += 1
            return result

    return cast("ast.expr", Names().visit(copied(tree))) if tree is not None else None


def _number(text: str) -> int | float:
    plain = text.replace("'", "").rstrip("uUlL")
    if plain.lower().startswith(("0x", "0b")):
        return int(plain, 0)
    return int(plain) if plain.lstrip("-").isdecimal() else float(plain.rstrip("fF"))


def _name(tree: ast.expr) -> str:
    if isinstance(tree, ast.Name):
        return tree.id
    raise ValueError


def python_name(name: str) -> str:
    """Return how expressions call a C variable: another name for a keyword of Python's."""
    return f"{name}_" if keyword.iskeyword(name) else name


def expression_text(tree: ast.expr | None) -> str | None:
    """Return an expression as kernel files have it; None if it has no such form."""
    for node in ast.walk(tree) if tree is not None else ():
        constant = isinstance(node, ast.Constant) and not isinstance(node.value, int | float)
        if constant or not isinstance(node, _ALLOWED):
            return None
        called = ast.unparse(node.func) if isinstance(node, ast.Call) else "abs"
        if called not in ("ceil_div", "min", "max", "abs"):
            return None
    return ast.unparse(tree) if tree is not None else None


def _ceil_div(above: ast.expr, below: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("ceil_div"), [above, below], [])


def _rounded_up(left: ast.expr, right: ast.expr) -> ast.expr | None:
    """Return ``n`` of ``(n + d - 1) / d``."""
    above, below = sum_of(left), sum_of(right)
    if above is None or below is None:
        return None
    rest = Counter(above)
    rest.subtract(below)
    rest[()] += 1
    left_over = {product: factor for product, factor in rest.items() if factor}
    inside = all(above.get(product, 0) >= factor for product, factor in below.items() if product)
    if not inside or set(left_over) <= {()} or any(factor < 0 for factor in left_over.values()):
        return None
    return python_text(sum_text(left_over))


def sum_of(
    tree: ast.expr | None, variables: Mapping[str, ast.expr | None] | None = None, depth: int = DEPTH
) -> Sum | None:
    """Return an expression as a sum of products; None if it is none of integers, or too long.

    Args:
        tree: the expression.
        variables: what names stand for.
        depth: how often names may be replaced.
    """
    match tree:
        case ast.Constant(value=int(value)):
            return {(): int(value)} if value else {}
        case ast.Name(id=name):
            if variables and depth and name in variables and not isinstance(variables[name], ast.Lambda):
                inner = sum_of(variables[name], variables, depth - 1)
                return {(name,): 1} if inner is None else inner
            return {(name,): 1}
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return times(sum_of(operand, variables, depth), {(): -1})
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return sum_of(operand, variables, depth)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            one, other = sum_of(left, variables, depth), sum_of(right, variables, depth)
            other = times(other, {(): -1}) if isinstance(op, ast.Sub) else other
            return None if one is None or other is None else plus([one, other])
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return times(sum_of(left, variables, depth), sum_of(right, variables, depth))
        case ast.BinOp(left=ast.Constant(value=2), op=ast.Pow(), right=right) if (
            (by := sum_of(right, variables, depth)) is not None and set(by) == {()} and by[()] < 63
        ):
            return {(): 2 ** by[()]}
        case None:
            return None
        case ast.Call() if variables and depth and (inner_tree := called(tree, variables)) is not None:
            return sum_of(inner_tree, variables, depth - 1)
    return {(f"({ast.unparse(tree)})",): 1}


def smallest_of(tree: ast.expr | None, variables: Mapping[str, ast.expr | None]) -> list[ast.expr]:
    """Return the numbers of which an expression is the smallest: a and b of ``min(a, b)``; none of another."""
    for _ in range(DEPTH):
        match tree:
            case ast.Name(id=name):
                tree = variables.get(name)
            case ast.Call(func=ast.Name(id="min"), args=given):
                return given
            case ast.Call(func=ast.Name(id="max"), args=[tree, ast.Constant()] | [ast.Constant(), tree]):
                continue
    return []


def number_of(written: Node | str, known: Mapping[str, ast.expr | None]) -> int | None:
    """Return the whole number that a C expression is by what names stand for; None if it is none."""
    return whole_of(replaced(python_of(written), {}, known))


def whole_of(tree: ast.expr | None) -> int | None:
    """Return the whole number that an expression without names is; None for another one."""
    if (terms := sum_of(tree)) is not None and set(terms) <= {()}:
        return terms.get((), 0)
    text = expression_text(tree)
    with contextlib.suppress(TunerError, ArithmeticError):
        number = parse(text).number({}) if tree is not None and text and not names_of(tree) else 0.5
        return int(number) if number == int(number) else None
    return None


def plus(sums: Iterable[Sum]) -> Sum | None:
    """Return the sum of sums; None if it is too long."""
    total: Counter[Product] = Counter()
    for one in sums:
        for product, factor in one.items():
            total[product] += factor
    left = {product: factor for product, factor in total.items() if factor}
    return left if len(left) <= MOST_TERMS else None


def times(one: Sum | None, other: Sum | None) -> Sum | None:
    """Return the product of sums; None if it is too long."""
    if one is None or other is None or len(one) * len(other) > MOST_TERMS**2:
        return None
    total: Counter[Product] = Counter()
    for left, left_factor in one.items():
        for right, right_factor in other.items():
            total[tuple(sorted((*left, *right)))] += left_factor * right_factor
    return plus([total])


def sum_text(terms: Sum) -> str:
    """Return a sum of products as text."""
    parts = []
    for product, factor in terms.items():
        factors = [*([str(abs(factor))] if abs(factor) != 1 or not product else []), *product]
        parts.append((" - " if factor < 0 else " + ") + " * ".join(factors))
    return "".join(parts).removeprefix(" + ").strip() or "0"


def largest_of(extents: Iterable[str]) -> str:
    """Return the largest of extents, as of ``n`` and ``3 * n``; ``max`` of those that cannot be compared."""
    sums = {text: sum_of(python_text(text)) or {} for text in extents}
    kept = [
        text
        for text, one in sums.items()
        if not any(
            one != other and all(one.get(product, 0) <= other.get(product, 0) for product in {*one, *other})
            for other in sums.values()
        )
    ]
    return kept[0] if len(kept) == 1 else f"max({', '.join(kept)})"


def quotient(larger: Sum, smaller: Sum) -> str | None:
    """Return a sum by another one; None if that is not whole, negative or too long."""
    found: dict[Product, int] = {}
    left: Sum | None = larger
    by = max(smaller, key=_degree)
    while left:
        most = max(left, key=_degree)
        number, rest = divmod(left[most], smaller[by])
        if Counter(by) - Counter(most) or rest or (number < 1 and not found):
            return None
        part = tuple(sorted((Counter(most) - Counter(by)).elements()))
        found[part] = number
        left = plus([left, times({part: -number}, smaller) or {}])
    return sum_text(found) if left is not None else None


def _degree(product: Product) -> tuple[int, Product]:
    return len(product), product


def numbers_of(source: Source, but: Collection[str] = ()) -> dict[str, ast.expr | None]:
    """Return the numbers that a source names, and its functions, but for some."""
    plain = {name: one.value for name, one in source.macros.items() if one.parameters is None}
    numbers = {name: python_of(text) for name, text in {**plain, **source.constants}.items()}
    return {name: tree for name, tree in {**source.functions, **numbers}.items() if name not in but}
