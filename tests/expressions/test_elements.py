"""Element expressions: what is one, its one text, its code, and error bounds that a correct kernel meets."""

from __future__ import annotations

import ast
import random
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tuner.compile.nvrtc import compile_source
from tuner.errors import ExpressionError
from tuner.expressions import magnitudes
from tuner.expressions.array import ArrayExpression
from tuner.expressions.elementwise import (
    FUNCTIONS,
    MAX_LENGTH,
    MAX_OPERATIONS,
    ElementExpression,
    exponent_of,
    multiplications,
    parse_element,
)
from tuner.expressions.elementwise_cuda import cuda, cuda_double, cuda_macro, cuda_magnitude, literal
from tuner.expressions.parsing import MAX_DEPTH
from tuner.kernel.tolerance import UNIT_ROUNDOFF, norm_allowance, tolerance

GPP = shutil.which("g++")
OF = ("x", "y", "z")

# -- what is one


@pytest.mark.parametrize(
    ("text", "canonical", "operations"),
    [
        ("x + 0.5 * (20 - x)", "x + 0.5 * (20 - x)", 3),
        ("  ( x+0.50*((20.0)-x) )\n", "x + 0.5 * (20 - x)", 3),
        ("x*1e3", "x * 1000", 1),
        ("x * 100_000", "x * 100000", 1),
        ("+x", "x", 0),
        ("-x", "-x", 0),
        ("x**2.0", "x ** 2", 1),
        ("x ** (-2)", "x ** -2", 2),
        ("x ** 7", "x ** 7", 4),
        ("x ** 0.5", "x ** 0.5", 1),
        ("x**0 + y", "x ** 0 + y", 1),
        ("maximum(x, 0)", "maximum(x, 0)", 1),
        ("where(x>=0, x, exp(x)-1)", "where(x >= 0, x, exp(x) - 1)", 4),
        ("where(x != y, 1, z)", "where(x != y, 1, z)", 2),
        ("x / (1 + exp(-x))", "x / (1 + exp(-x))", 3),
        ("1e22 * x", "1e+22 * x", 1),
        ("(x - y) - z", "x - y - z", 2),
        ("x - (y - z)", "x - (y - z)", 2),
        ("x / (y * z) / 2", "x / (y * z) / 2", 3),
        ("(x * y) / z", "x * y / z", 2),
        ("(x + y) * -z", "(x + y) * -z", 2),
        ("-(x ** 2)", "-x ** 2", 1),
        ("(-x) ** 2", "(-x) ** 2", 1),
        ("(x ** 2) ** 3", "(x ** 2) ** 3", 3),
        ("-(x + y)", "-(x + y)", 1),
        ("--(x * y)", "--(x * y)", 1),
    ],
)
def test_equal_expressions_have_one_text(text: str, canonical: str, operations: int) -> None:
    element = parse_element(text, OF)
    assert (element.text, element.operations) == (canonical, operations)
    assert parse_element(canonical, OF).text == canonical
    assert element.names == set(re.findall(r"\b[xyz]\b", canonical))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cannot parse"),
        ("x +", "cannot parse"),
        ("maximum(x, 0", "never closed"),
        ("x; y", "cannot parse"),
        ("q + x", "unknown name 'q'"),
        ("xx", "did you mean x"),
        ("tahn(x)", "unknown function 'tahn' in 'tahn(x)'; did you mean tanh?"),
        ("max(x, y)", "did you mean maximum"),
        ("__import__('os')", "unknown function"),
        ("x.real", "not allowed"),
        ("x[0]", "not allowed"),
        ("'x'", "not allowed"),
        ("True * x", "not allowed"),
        ("x if y else z", "not allowed"),
        ("x and y", "not allowed"),
        ("x > 0", "not allowed"),
        ("not x", "not allowed"),
        ("x @ y", "not allowed"),
        ("x // y", "not allowed"),
        ("x % y", "not allowed"),
        ("x ^ 2", "not allowed"),
        ("(lambda: x)()", "not allowed"),
        ("[x for x in y]", "not allowed"),
        ("f'{x}'", "not allowed"),
        ("(x := 1)", "not allowed"),
        ("(x, y)", "not allowed"),
        ("1j * x", "not allowed"),
        ("exp", "not allowed"),
        ("exp(x, y)", "exp takes 1"),
        ("exp(x=1)", "not allowed"),
        ("exp(*x)", "not allowed"),
        ("maximum(x)", "maximum takes 2"),
        ("where(x, y, z)", "no comparison"),
        ("where(x < y < z, 1, 2)", "no comparison"),
        ("where(x in y, 1, 2)", "no comparison"),
        ("x ** y", "exponent is a number"),
        ("x ** 65", "exponent is a number"),
        ("x ** --2", "exponent is a number"),
        ("1e39 * x", "no float32"),
        ("1e-60 * x", "no float32"),
        (f"{10**400} * x", "no float32"),
        ("x" + " " * MAX_LENGTH, "keep it under"),
        ("-" * (MAX_DEPTH + 1) + "x", "too deeply"),
        ("(" * 240 + "x" + ")" * 240, "cannot parse"),
        (" + ".join(["(x*x)"] * (MAX_OPERATIONS // 2 + 1)), "operations"),
    ],
)
def test_anything_else_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_element(text, OF)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_the_one_text_means_the_same() -> None:
    for expression in random_expressions(300, 23):
        again = parse_element(expression.text, OF)
        assert again.text == expression.text
        assert ast.dump(again.body) == ast.dump(expression.body)


def test_powers_by_repeated_squaring() -> None:
    assert [multiplications(p) for p in (0, 1, 2, 3, 4, 7, 8, 64, -1, -2, 0.5)] == [
        0,
        0,
        1,
        2,
        2,
        4,
        3,
        6,
        1,
        2,
        1,
    ]


# -- its code


def test_code_is_what_one_would_write() -> None:
    assert cuda("x + 0.5 * (20 - x)") == "(x + (0.5f * (20.0f - x)))"
    assert cuda_double("x + 0.5 * (20 - x)") == "(x + (0.5 * (20.0 - x)))"
    assert cuda("--x") == "(-(-x))"
    assert cuda("x ** 2 * x ** -0.5") == "((x * x) * powf(x, -0.5f))"
    assert cuda("x ** 0.5 + abs(x) ** -1") == "(sqrtf(x) + (1.0f / fabsf(x)))"
    assert cuda("where(x <= 0, minimum(x, y), log(z))") == "(x <= 0.0f ? fminf(x, y) : logf(z))"
    assert cuda_double("maximum(tanh(x), sin(y))") == "fmax(tanh(x), sin(y))"
    assert cuda_magnitude("maximum(x, -y)") == "0.0"
    assert cuda_macro("op", "x * z", OF) == "#define op(x, y, z) ((((float)(x)) * ((float)(z))))"


def test_literals_round_once() -> None:
    """Decimal digits that C reads as the float32 nearest to the number that was written."""
    for value in (0.1, 1 / 3, 1e-7, 16777217.0, 3.4e38, 1.4e-45, 20.0, 0.50000003):
        text = literal(value, "float")
        assert text.endswith("f")
        assert np.float32(text[:-1]) == np.float32(value)
        assert float(literal(value, "double")) == value
    assert (literal(20, "float"), literal(1e22, "float"), literal(1e22, "double")) == (
        "20.0f",
        "1e+22f",
        "1e+22",
    )


TOKEN = re.compile(
    r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+\.[0-9]+(?:e[+-][0-9]+)?f?|[0-9]+e[+-][0-9]+f?|[-+*/<>=!?:;,(){}&\[\] ]"
)
WORDS = {
    "x", "y", "z", "t", "float", "double", "bool", "const", "return",
    "fabs", "sqrt", "exp", "log", "tanh", "sin", "cos", "fmax", "fmin", "pow",
    "fabsf", "sqrtf", "expf", "logf", "tanhf", "sinf", "cosf", "fmaxf", "fminf", "powf",
}  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_code_is_nothing_but_known_tokens(seed: int) -> None:
    text = random_expression(random.Random(seed))
    for code in (cuda(text), cuda_double(text), cuda_magnitude(text), cuda_macro("op", text, OF)[8:]):
        position = 0
        while position < len(code):
            match = TOKEN.match(code, position)
            assert match, code[position:]
            word = match.group()
            if word[0].isalpha() and not re.fullmatch(r"e_\d+|t\d+|op", word):
                assert word in WORDS, word
            position = match.end()


def test_powers_do_not_double_the_code() -> None:
    nested = "x - y"
    for _ in range(6):
        nested = f"exp(({nested}) ** 3)"
    assert len(cuda(nested)) < 1000
    assert len(cuda_magnitude(nested)) < 10_000


# -- random expressions


def random_expression(chance: random.Random, depth: int = 4) -> str:
    """Make an expression of bounded depth whose functions mostly see what they are defined for."""
    if depth == 0 or chance.random() < 0.12:
        return chance.choice([*OF, *OF, "0.5", "2", "0.1", "3.7", "1"])

    def inner() -> str:
        return random_expression(chance, depth - 1)

    kind = chance.randrange(14)
    if kind < 6:
        return f"({inner()} {chance.choice('+-*')} {inner()})"
    return [
        lambda: f"({inner()} / (abs({inner()}) + 0.3))",
        lambda: f"(-{inner()})",
        lambda: f"({inner()}) ** {chance.choice([2, 3, 5])}",
        lambda: f"(abs({inner()}) + 0.1) ** {chance.choice([0.5, -1, -2, 1.5, -0.3])}",
        lambda: f"{chance.choice(['tanh', 'sin', 'cos', 'abs'])}({inner()})",
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


@pytest.mark.skipif(GPP is None, reason="needs g++")
def test_code_agrees_with_numpy(tmp_path: Path) -> None:
    """Values and magnitudes as C++ computes them in double are those of the reference; in float, nearly."""
    count = 64
    chosen = random_expressions(150, 5)
    values = inputs(count, 6)
    lines = ["#include <cmath>", "#include <cstdio>", "using namespace std;"]
    for i, expression in enumerate(chosen):
        text = expression.text
        for kind, code in (
            ("double", cuda_double(text)),
            ("magnitude", cuda_magnitude(text)),
            ("float", cuda(text)),
        ):
            number = "float" if kind == "float" else "double"
            variables = ", ".join(f"[[maybe_unused]] {number} {name}" for name in OF)
            lines.append(f"{number} {kind}_{i}({variables}) {{ return {code}; }}")
        lines.append(cuda_macro(f"macro_{i}", text, OF))
    lines.append("int main() {")
    lines += [
        f"const double {name}[] = {{{', '.join(float(v).hex() for v in values[name])}}};" for name in OF
    ]
    lines.append(f"for (int j = 0; j < {count}; ++j) {{ const double a = x[j], b = y[j], c = z[j];")
    lines.append("const float p = float(a), q = float(b), r = float(c);")
    lines += [
        f'printf("%.17g %.17g %.9g %.9g\\n", double_{i}(a, b, c), magnitude_{i}(a, b, c), '
        f"float_{i}(p, q, r), macro_{i}(a, b, c));"
        for i in range(len(chosen))
    ]
    lines += ["}", "}"]
    (tmp_path / "check.cpp").write_text("\n".join(lines))
    command = [
        "g++",
        "-std=c++17",
        "-O0",
        "-ffp-contract=off",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-variable",
    ]
    done = subprocess.run(
        [*command, "check.cpp", "-o", "check"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[:3000]
    output = subprocess.run([tmp_path / "check"], capture_output=True, text=True, check=True).stdout
    printed = np.array([line.split() for line in output.splitlines()], np.float64).reshape(
        count, len(chosen), 4
    )
    for i, expression in enumerate(chosen):
        names = {name: values[name] for name in expression.names}
        value, magnitude = ArrayExpression(expression.text).evaluate(names)
        assert np.isfinite(value).all()
        bound = tolerance(max(expression.operations, 1), "float32", "float32")
        np.testing.assert_allclose(printed[:, i, 0], value, rtol=1e-9, atol=1e-12, err_msg=expression.text)
        # At a threshold the double's own rounding may choose the other side of a window's edge.
        np.testing.assert_allclose(
            printed[:, i, 1], magnitude, rtol=1e-9, atol=1e-12, err_msg=expression.text
        )
        assert worst_ratio(printed[:, i, 2], value, magnitude, expression.operations, "float32") <= 1.0, (
            expression
        )
        np.testing.assert_array_equal(printed[:, i, 2], printed[:, i, 3], err_msg=expression.text)
        assert bound.coefficient < 1e-4


@pytest.mark.parametrize("arch", ["sm_75", "sm_90a"])
def test_code_compiles_for_the_gpu(arch: str) -> None:
    bodies = []
    for i, expression in enumerate(random_expressions(12, 9)):
        text = expression.text
        bodies.append(cuda_macro(f"op_{i}", text, OF))
        bodies.append(
            f'extern "C" __global__ void kernel_{i}(const float* in, float* out, double* value, double* size) {{\n'
            f"  {{ const float x = in[0], y = in[1], z = in[2]; *out = {cuda(text)}; }}\n"
            f"  out[1] = op_{i}(in[0], in[1], in[2]);\n"
            f"  const double x = in[0], y = in[1], z = in[2];\n"
            f"  *value = {cuda_double(text)};\n  *size = {cuda_magnitude(text)};\n}}"
        )
    assert compile_source("\n".join(bodies), "kernel_0", arch).cubin


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
            return np.asarray(getattr(np, name)(*map(run, arguments)), np.float32)
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


@pytest.mark.parametrize("exponent", [4.0000002, 7.3, 33.000002, -2.7])
def test_an_exponent_that_is_no_float32_is_rounded_like_any_number(exponent: float) -> None:
    """Of a base far from 1, that moves the result by more than the function itself may err."""
    largest = 85.0 / abs(exponent)  # e ** 85 is still a float32
    base = np.exp(np.linspace(-largest, largest, 1001)).astype(np.float32)
    expression = parse_element(f"x ** {exponent}", OF)
    value, magnitude = ArrayExpression(expression.text).evaluate({"x": base.astype(np.float64)})
    computed = in_float32(expression.body, {"x": base}).astype(np.float64)
    assert worst_ratio(computed, value, magnitude, expression.operations, "float32") <= 1.0


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_float32_arithmetic_passes(dtype: str) -> None:
    """A thousand random expressions, on inputs of each dtype, some of them at each other's thresholds."""
    tight = []
    for i, expression in enumerate(random_expressions(1000, 17)):
        values = inputs(2000, i, dtype)
        values["y"][:100] = values["x"][:100]
        values["z"][50:200] = 0.0
        names = {name: values[name] for name in expression.names}
        with np.errstate(all="ignore"):
            value, magnitude = ArrayExpression(expression.text).evaluate(names)
            computed = in_float32(expression.body, {name: v.astype(np.float32) for name, v in names.items()})
        computed = np.broadcast_to(computed, value.shape).astype(np.float64)
        good = np.isfinite(value) & np.isfinite(computed)
        assert good.mean() > 0.99, expression
        ratio = worst_ratio(computed[good], value[good], magnitude[good], expression.operations, "float32")
        assert ratio <= 1.0, (expression, ratio)
        tight.append(ratio)
    assert np.median(tight) > 0.02  # and the bounds mean something


WRONG = [
    ("x + 0.5 * (20 - x)", "x + 0.5001 * (20 - x)"),
    ("x + 0.5 * (20 - x)", "x + 0.5 * (20 - y)"),
    ("x * y + 1", "x * y"),
    ("x * y + 1", "x * y + 1.00001"),
    ("maximum(x, 0)", "maximum(x, 0.000001)"),
    ("tanh(x)", "tanh(x) * 1.00001"),
    ("x / (1 + exp(-x))", "x / (1.00001 + exp(-x))"),
    ("where(x * y > 0.1, x, y)", "where(x * y > 0.11, x, y)"),
    ("where(x > 0, x, 0.01 * x)", "where(x > 0, x, 0.0101 * x)"),
    ("log(abs(x) + 1)", "log(abs(x) + 1.00001)"),
    ("sqrt(x ** 2 + y ** 2)", "sqrt(x ** 2 + y ** 2) + 0.00001"),
]


@pytest.mark.parametrize(("right", "wrong"), WRONG)
def test_a_wrong_kernel_does_not_pass(right: str, wrong: str) -> None:
    expression = parse_element(right, OF)
    values = inputs(100_000, 3)
    value, magnitude = ArrayExpression(expression.text).evaluate(values)
    computed = ArrayExpression(parse_element(wrong, OF).text).evaluate(values)[0]
    assert worst_ratio(computed, value, magnitude, expression.operations, "float32") > 1.0


def test_arithmetic_in_half_does_not_pass() -> None:
    values = inputs(10_000, 3, "float16")
    for text in ("x + 0.5 * (20 - x)", "x * y + z", "x * x + y * y"):
        expression = parse_element(text, OF)
        names = {name: v.astype(np.float16) for name, v in values.items()}
        computed = ArrayExpression(text).compute(names).astype(np.float64)
        value, magnitude = ArrayExpression(text).evaluate(values)
        assert worst_ratio(computed, value, magnitude, expression.operations, "float32") > 1.0
        rounded = value.astype(np.float16).astype(np.float64)
        assert worst_ratio(rounded, value, magnitude, expression.operations, "float16") <= 1.0


def test_what_only_selects_is_exact() -> None:
    values = {"x": np.array([1.0, -2.0, 3.0]), "y": np.array([-1.0, 5.0, 3.0])}
    for text in (
        "x",
        "-x",
        "maximum(x, y)",
        "abs(minimum(x, 2))",
        "where(x > y, x, -y)",
        "max(x)",
        "transpose(x)",
    ):
        assert not ArrayExpression(text).evaluate(values)[1].any(), text
    assert ArrayExpression("where(x > y, x, 0.1)").evaluate(values)[1].any()  # 0.1 is no float32


def test_at_a_threshold_either_branch_is_right() -> None:
    """Where rounding decides a comparison, and nowhere else; between inputs it never does."""
    x = np.array([1.0, 1.0 + 2.0**-23, 1.5, 0.5])
    value, magnitude = ArrayExpression("where(x * x * x > 1, 5, 7)").evaluate({"x": x})
    allowed = tolerance(3, "float32", "float32").coefficient * magnitude
    assert list(value) == [7.0, 5.0, 5.0, 7.0]
    assert list(allowed >= 2.0) == [True, True, False, False]
    assert allowed[2:].max() < 1e-5
    exact = ArrayExpression("where(x > 1, 5, 7) + 0").evaluate({"x": x})[1]
    assert exact.max() < 10.0


def test_where_float32_has_no_digits_left_any_result_is_allowed() -> None:
    x, y = np.array([3.0, 3.0, 3.0]), np.array([1 / 3, 0.5, 1 / 3 + 2.0**-26])
    for text in ("1 / (x * y - 1)", "log(x * y - 1)", "sqrt(x * y - 1)", "(x * y - 1) ** -2"):
        magnitude = ArrayExpression(text).evaluate({"x": x, "y": y})[1]
        assert list(magnitude >= magnitudes.ANYTHING) == [True, False, True], text


def test_unit_roundoff_is_that_of_the_reference() -> None:
    assert UNIT_ROUNDOFF["float32"] == magnitudes.UNIT
    assert set(FUNCTIONS) - {"where"} <= set(magnitudes.NUMPY)
