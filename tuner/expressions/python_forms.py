"""Python's own ways to write a condition, as scripts for other tuners have them, in the grammar of kernel files.

What a form stands for is written out: ``sum([a, b])`` is ``a + b``. Nothing is run, and nothing grows by much.
"""

from __future__ import annotations

import ast
import functools
import itertools

from tuner.core.trees import parsed
from tuner.expressions.parsing import copied, parse_tree, with_names

MAX_ITEMS = 64
"""Of a list that is written out: each is one level of the expression."""
MAX_NODES = 2000
"""Of what is written out of a comprehension."""
MAX_REPEATED = 50
"""Nodes of a part that the grammar has to say several times."""


def without_python_forms(tree: ast.expr) -> ast.expr:
    """Return an expression with the grammar's forms instead of Python's; what has no such form stays.

    Raises:
        ExpressionError: it would be nested too deeply.
    """
    try:
        return parse_tree(ast.unparse(_Forms().visit(copied(tree))))
    except RecursionError:  # of what was put together
        return tree


class _Forms(ast.NodeTransformer):
    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return _filled("-a - 1", a=node.operand) if isinstance(node.op, ast.Invert) else node

    def visit_ListComp(self, node: ast.ListComp | ast.GeneratorExp) -> ast.expr:
        self.generic_visit(node)
        match node.generators:
            case [ast.comprehension(target=ast.Name(id=name), iter=of, ifs=[], is_async=0)]:
                if (items := _items(of)) and len(items) * _nodes(node.elt, MAX_NODES) <= MAX_NODES:
                    return ast.List([with_names(copied(node.elt), {name: item}) for item in items])
        return node

    visit_GeneratorExp = visit_ListComp  # noqa: N815 - a name of Python's own

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[of]):
                one: ast.expr | None = None
                if isinstance(op, ast.Eq | ast.NotEq):
                    one = _equal(left, of)
                elif isinstance(op, ast.In | ast.NotIn):
                    one = _among(left, of)
                if one is not None:
                    return one if isinstance(op, ast.Eq | ast.In) else ast.UnaryOp(ast.Not(), one)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node.func:
            case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="math" | "np" | "numpy"), attr=name):
                return node if node.keywords else _called(name, node)
        return node


def _items(of: ast.expr) -> list[ast.expr] | None:
    """Return the items of a list that stands in the text."""
    fits = isinstance(of, ast.List | ast.Tuple | ast.Set) and len(of.elts) <= MAX_ITEMS
    return of.elts if fits and not any(isinstance(one, ast.Starred) for one in of.elts) else None  # type: ignore[attr-defined]


def _nodes(tree: ast.expr, most: int = MAX_REPEATED) -> int:
    """Return how many nodes an expression has, counted no further than one above a bound."""
    return sum(1 for _ in itertools.islice(ast.walk(tree), most + 1))


def _filled(text: str, **parts: ast.expr) -> ast.expr:
    return with_names(parsed(text, "eval").body, parts)


def _equal(one: ast.expr, other: ast.expr) -> ast.expr | None:
    """Return whether two tuples are equal, item for item."""
    if not (isinstance(one, ast.Tuple | ast.List) and isinstance(other, type(one))):
        return None
    if len(one.elts) != len(other.elts) or not one.elts:
        return ast.Constant(len(one.elts) == len(other.elts))
    pairs = zip(one.elts, other.elts, strict=True)
    return ast.BoolOp(ast.And(), [ast.Compare(a, [ast.Eq()], [b]) for a, b in pairs])


def _among(one: ast.expr, of: ast.expr) -> ast.expr | None:
    """Return whether something is in a set, a range, or is a tuple of a list of them."""
    match of:
        case ast.Set(elts=items):
            return _among(one, ast.List(items)) or ast.Compare(one, [ast.In()], [ast.List(items)])
        case ast.List(elts=items) | ast.Tuple(elts=items) if isinstance(one, ast.Tuple):
            equal = [_equal(one, item) or ast.Constant(False) for item in items]
            return ast.BoolOp(ast.Or(), [*equal, ast.Constant(False)])
        case ast.Call(func=ast.Name(id="range"), args=[_, *_] as args, keywords=[]) if (
            len(args) <= 3 and max(map(_nodes, (one, *args))) <= MAX_REPEATED
        ):
            first, end = ([ast.Constant(0), *args] if len(args) == 1 else args)[:2]
            step = args[2] if len(args) == 3 else ast.Constant(1)
            match step:
                case ast.Constant(value=int() as by) if by > 0:
                    text = "first <= x and x < end and (x - first) % step == 0"
                    return _filled(text, x=one, first=first, end=end, step=step)
    return None


def _called(name: str, node: ast.Call) -> ast.expr:
    """Return what a call stands for."""
    match node.args:
        case [of] if (items := _items(of)) is not None:
            if name in ("sum", "prod"):
                sign, start = (ast.Add(), 0) if name == "sum" else (ast.Mult(), 1)
                each = items or [ast.Constant(start)]
                return functools.reduce(lambda a, b: ast.BinOp(a, sign, b), each)
            if name in ("any", "all"):
                both = ast.Or() if name == "any" else ast.And()
                return ast.BoolOp(both, [*items, ast.Constant(name == "all")])
            if name in ("min", "max") and items:
                return ast.Call(ast.Name(name), list(items), [])
            return ast.Constant(len(items)) if name == "len" else node
        case [a, b] if name == "pow":
            return ast.BinOp(a, ast.Pow(), b)
        case [a] if name in _OF_ONE and _nodes(a) <= MAX_REPEATED:
            return _filled(_OF_ONE[name], a=a)
    plain = {"maximum": "max", "minimum": "min", "log2": "log2", "abs": "abs", "max": "max", "min": "min"}
    return ast.Call(ast.Name(plain[name]), node.args, []) if name in plain else node


_OF_ONE = {
    "bool": "not not a",
    "ceil": "-(-a // 1)",
    "floor": "a // 1",
    "int": "a // 1 if a >= 0 else -(-a // 1)",
    "sqrt": "a ** 0.5",
}
