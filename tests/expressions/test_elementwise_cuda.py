"""The code of element expressions: what one would write, and the same values as NumPy's."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.compiled_once import run_once
from tests.expressions.random_expressions import (
    OF,
    inputs,
    random_expression,
    random_expressions,
    worst_ratio,
)
from tuner.children.nvrtc import compile_source
from tuner.expressions.array import ArrayExpression
from tuner.expressions.elementwise import parse_element
from tuner.expressions.elementwise_cuda import cuda, cuda_double, cuda_macro, cuda_magnitude, literal
from tuner.kernel.reference import tolerance

GPP = shutil.which("g++")


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
    "fabs", "sqrt", "exp", "erf", "log", "tanh", "sin", "cos", "fmax", "fmin", "pow",
    "fabsf", "sqrtf", "expf", "erff", "logf", "tanhf", "sinf", "cosf", "fmaxf", "fminf", "powf",
}  # fmt: skip


def test_code_is_nothing_but_known_tokens() -> None:
    texts = [random_expression(random.Random(seed)) for seed in range(40)]
    makers = (cuda, cuda_double, cuda_magnitude, lambda text: cuda_macro("op", text, OF)[8:])
    for code in (make(text) for text in texts for make in makers):
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


def test_only_a_whole_expression_of_16_bits_is_a_short_form() -> None:
    precise = ("gelu(x) - y", "float16"), ("2 * silu(x)", "bfloat16"), ("gelu(x)", "float32")
    assert not any("exp2_normal" in cuda(text, output) for text, output in precise)
    assert all("exp2_normal" in cuda(f"{name}(x + y)", "float16") for name in ("gelu", "gelu_tanh", "silu"))


@pytest.mark.skipif(GPP is None, reason="needs g++")
def test_short_forms_for_16_bits_are_within_their_promise(tmp_path: Path) -> None:
    names = ("gelu", "gelu_tanh", "silu")
    x = np.linspace(-14.0, 14.0, 14_001).astype(np.float32)
    lines = ["#include <cmath>", "#include <cstdio>", "using namespace std;"]
    lines += ["float exp2_normal(float a) { const float e = exp2f(a); return e < 0x1p-126f ? 0.0f : e; }"]
    for name in names:
        lines.append(f"float of_{name}(float x) {{ return {cuda(f'{name}(x)', 'bfloat16')}; }}")
    calls = ", ".join(f"of_{name}(x)" for name in names)
    lines += ["int main() {", 'auto print = [](float x) { printf("%.9g %.9g %.9g\\n", ' + calls + "); };"]
    lines += ["for (int i = 0; i <= 14000; ++i) print(float(-14.0 + i * 2e-3));"]
    lines += ["print(INFINITY); print(NAN); print(-0.0f);", "}"]
    (tmp_path / "short.cpp").write_text("\n".join(lines))
    done = run_once("g++", "-std=c++17", "-O1", "short.cpp", "-o", "short", folder=tmp_path, output="short")
    assert done.returncode == 0, done.stderr[:3000]
    output = subprocess.run([tmp_path / "short"], capture_output=True, text=True, check=True).stdout
    printed = np.array([line.split() for line in output.splitlines()], np.float64)
    for column, name in zip(printed.T, names, strict=True):
        expression = ArrayExpression(f"{name}(x)")
        value, magnitude = expression.evaluate({"x": x})
        bound = tolerance(parse_element(expression.text).operations, "float32", "float32")
        allowed = 2.0**-13 * np.abs(value) + bound.coefficient * magnitude
        assert (np.abs(column[: len(x)] - value) <= allowed).all(), name
        assert column[-3] == np.inf and np.isnan(column[-2]) and column[-1] == 0.0


@pytest.mark.skipif(GPP is None, reason="needs g++")
def test_code_agrees_with_numpy(tmp_path: Path) -> None:
    """Values and magnitudes as C++ computes them in double are those of the reference; in float, nearly."""
    count = 64
    chosen = random_expressions(30, 5)
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
    options = (
        "-std=c++17",
        "-O0",
        "-ffp-contract=off",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-variable",
    )
    command = ["g++", *options]
    done = run_once(*command, "check.cpp", "-o", "check", folder=tmp_path, output="check")
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


def test_code_compiles_for_the_gpu() -> None:
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
    assert compile_source("\n".join(bodies), "kernel_0", "sm_75").cubin
