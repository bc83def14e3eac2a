"""Random element expressions, their inputs, and how far off a kernel is."""

from __future__ import annotations

import ast
import random
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tuner.core.errors import ExpressionError
from tuner.expressions.elementwise import ElementExpression, exponent_of, parse_element
from tuner.expressions.magnitudes import NUMPY
from tuner.kernel.reference import norm_allowance, tolerance

OF = ("x", "y", "z")


# -- random expressions


def random_expression(chance: random.Random, depth: int = 4) -> str:
    """Make an expression of bounded depth whose functions mostly see what they are defined for."""
    if depth == 0 or chance.random() < 0.12:
        return chance.choice([*OF, *OF, "0.5", "2", "0.1", "3.7", "1"])

    def inner() -> str:
        return random_expression(chance, depth - 1)

    kind = chance.randrange(15)
    if kind < 6:
        return f"({inner()} {chance.choice('+-*')} {inner()})"
    return [
        lambda: f"({inner()} / (abs({inner()}) + 0.3))",
        lambda: f"(-{inner()})",
        lambda: f"({inner()}) ** {chance.choice([2, 3, 5])}",
        lambda: f"(abs({inner()}) + 0.1) ** {chance.choice([0.5, -1, -2, 1.5, -0.3])}",
        lambda: f"{chance.choice(['tanh', 'sin', 'cos', 'abs'])}({inner()})",
        lambda: f"{chance.choice(['erf', 'sigmoid', 'silu', 'gelu', 'gelu_tanh', 'relu'])}({inner()})",
        lambda: chance.choice([f"exp(minimum({inner()}, 3))", f"log(0.2 + abs({inner()}))", f"sqrt(abs({inner()}))"]),
        lambda: f"{chance.choice(['maximum', 'minimum'])}({inner()}, {inner()})",
        lambda: f"where({inner()} {chance.choice(['<', '<=', '>', '>='])} {inner()}, {inner()}, {inner()})",
    ][kind - 6]()  # fmt: skip


def random_expressions(count: int, seed: int) -> list[ElementExpression]:
    chance, expressions = random.Random(seed), []
    while len(expressions) < count:
        try:
            expression = parse_element(random_expression(chance), OF)
        except ExpressionError:
            continue  # too many operations
        if expression.names and expression.operations >= 1:
            expressions.append(expression)
    return expressions


def inputs(count: int, seed: int, dtype: str = "float32") -> dict[str, npt.NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=count).astype(dtype).astype(np.float64) for name in OF}


# -- errors: no correct kernel is rejected


def in_float32(node: ast.expr, names: Mapping[str, npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
    """Evaluate as a kernel does: every number a float32, every result rounded to one."""

    def run(child: ast.expr) -> npt.NDArray[np.float32]:
        return in_float32(child, names)

    match node:
        case ast.Constant(value=int() | float() as value):
            return np.asarray(value, np.float32)
        case ast.Name(id=name):
            return names[name]
        case ast.UnaryOp(operand=operand):
            return -run(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            exponent = exponent_of(right)
            assert exponent is not None
            base = run(left)
            if exponent == 0.5:
                return np.sqrt(base)
            if exponent != int(exponent):
                return np.asarray(base.astype(np.float64) ** float(np.float32(exponent)), np.float32)
            product = np.ones_like(base)
            for _ in range(abs(int(exponent))):
                product = product * base
            return np.float32(1) / product if exponent < 0 else product
        case ast.BinOp(left=left, op=op, right=right):
            a, b = run(left), run(right)
            value = {ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.Div: np.divide}[
                type(op)
            ](a, b)
            return np.asarray(value, np.float32)
        case ast.Call(func=ast.Name(id="where"), args=[ast.Compare() as test, then, otherwise]):
            a, b = run(test.left), run(test.comparators[0])
            holds = {ast.Lt: a < b, ast.LtE: a <= b, ast.Gt: a > b, ast.GtE: a >= b}[type(test.ops[0])]
            return np.where(holds, run(then), run(otherwise)).astype(np.float32)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return np.asarray(NUMPY[name](*map(run, arguments)), np.float32)
    raise AssertionError(node)


def worst_ratio(
    computed: npt.NDArray[np.float64],
    value: npt.NDArray[np.float64],
    magnitude: npt.NDArray[np.float64],
    operations: int,
    output: str,
    summands: int = 0,
) -> float:
    """Return the largest of error over allowed error, of one element and of the whole, as the GPU compares them."""
    bound = tolerance(summands or max(operations, 1), "float32", output)
    bounded = magnitude < np.finfo(np.float32).max
    error, value, magnitude = np.abs(computed - value)[bounded], value[bounded], magnitude[bounded]
    allowed = bound.coefficient * magnitude + bound.unit * np.abs(value) + bound.tiny
    scale = float(np.sum(value**2 + magnitude**2 / bound.reduction))
    norm = np.sqrt(float(np.sum(error**2)) / scale) if scale else 0.0
    if not len(value):
        return 0.0
    return max(float(np.max(error / allowed)), norm / (bound.norm_coefficient * norm_allowance(len(value))))
