"""The comparison of every output with the expected one, run on the host: right, wrong, and impossible to tell."""

from __future__ import annotations

import math
import shutil
import subprocess

import pytest

from tests.compiled_once import run_once
from tuner.kernel.render import render_helpers

GPP = shutil.which("g++")

HOST = """
#include <cmath>
#include <cstdio>
#include <cstring>
using namespace std;
#define __device__
struct half_t { unsigned short bits; };
struct bf16_t { unsigned short bits; };
struct float2 { float x, y; };
struct double2 { double x, y; };
static double to_double(double x) { return x; }
static double to_double(float x) { return x; }
static double to_double(long long x) { return static_cast<double>(x); }
static double to_double(int x) { return x; }
static double to_double(unsigned x) { return x; }
static double to_double(signed char x) { return x; }
static double to_double(unsigned char x) { return x; }
static double to_double(short x) { return x; }
static double to_double(unsigned short x) { return x; }
static double to_double(half_t x) {
    const int exponent = x.bits >> 10 & 31, digits = x.bits & 1023;
    const double size = exponent == 31 ? (digits ? NAN : INFINITY) : ldexp(exponent ? 1024 + digits : digits, (exponent ? exponent : 1) - 25);
    return x.bits & 0x8000 ? -size : size;
}
struct Grid { unsigned x; };
static const Grid gridDim{1}, blockDim{1}, blockIdx{0}, threadIdx{0};
static double __longlong_as_double(long long x) { double y; memcpy(&y, &x, 8); return y; }
static long long __double_as_longlong(double x) { long long y; memcpy(&y, &x, 8); return y; }
template <typename T> T alone(T) { return T(); }
template <typename T> void atomicAdd(T* to, T value) { *to += value; }
template <typename T> void atomicMax(T* to, T value) { if (value > *to) *to = value; }
template <typename T> void atomicMin(T* to, T value) { if (value < *to) *to = value; }
"""  # noqa: E501

# Of integers: what is there, its dtype, and what should be.
INTEGERS: list[tuple[int, str, int, bool]] = [
    (2**60 + 1, "long long", 2**60 + 1, False),
    (2**60 + 1, "long long", 2**60, True),
    (2**63 - 1, "long long", 2**63 - 2, True),
    (-(2**63) + 1, "long long", 2**63 - 1, True),
    (2**32 - 1, "unsigned int", -1, True),
    (-128, "signed char", 128, True),
    (255, "unsigned char", -1, True),
    (65535, "unsigned short", -1, True),
    (2**64 - 1, "unsigned long long", 2**64 - 2, True),
    (0, "unsigned long long", 2**64 - 1, True),
]

# Complex numbers: both parts, the same as expected, the magnitude, and whether it is wrong.
COMPLEX = [
    ("float2", (1.0, 2.0), (1.0, 2.0), 1.0, False),
    ("float2", (1.0, 2.0), (1.0, -2.0), 1.0, True),
    ("float2", (1e-7, 4.0), (0.0, 4.0), 0.0, False),  # a rounding of the whole number
    ("float2", (1e-7, 4e-7), (0.0, 4e-7), 0.0, True),
    ("float2", (math.inf, 2.0), (1.0, 2.0), 1.0, True),
    ("float2", (math.inf, 0.0), (1e39, 0.0), 1e39, False),  # too large for it
    ("double2", (1.0, 2.001), (1.0, 2.0), 1.0, True),
]

HALF = {"inf": 0x7C00, "-inf": 0xFC00, "nan": 0x7E00, "65504": 0x7BFF, "1": 0x3C00, "untouched": 0xFFFF}

# What is there, its dtype, what should be, the magnitude, the bound's coefficient, unit and tiny; whether it is wrong.
FLOAT = (2e-7, 2.0**-24, 1e-45)
TO_HALF = (2e-7, 2.0**-11, 6e-8)
DISTANCE = (0.0, 0.0, 1.0)
NUMBERS = (1.0, 0.0, 1.0)
CASES: list[tuple[str, str, float, float, tuple[float, float, float], bool]] = [
    ("1", "float", 1.0, 1.0, FLOAT, False),
    ("1", "float", 1.000001, 1.0, FLOAT, True),
    ("1", "float", 1.000001, 10.0, FLOAT, False),
    ("1", "half", 1.0004, 1.0, TO_HALF, False),
    ("nan", "float", 1.0, 1.0, FLOAT, True),
    ("inf", "float", 1.0, 1.0, FLOAT, True),
    ("inf", "float", math.inf, 1.0, FLOAT, False),
    ("-inf", "float", math.inf, 1.0, FLOAT, True),
    ("inf", "half", 70000.0, 70000.0, TO_HALF, False),  # too large for it
    ("-inf", "half", -70000.0, 70000.0, TO_HALF, False),
    ("-inf", "half", 70000.0, 70000.0, TO_HALF, True),
    ("inf", "half", 65000.0, 65000.0, TO_HALF, True),
    ("inf", "half", 65519.99, 65520.0, TO_HALF, False),  # its own error may carry it over the edge
    ("65504", "half", 65510.0, 65510.0, TO_HALF, False),
    ("65504", "half", 70000.0, 70000.0, TO_HALF, True),
    ("nan", "half", 70000.0, 70000.0, TO_HALF, True),
    ("nan", "float", 3.0, math.inf, FLOAT, False),  # rounding decides everything
    ("untouched", "half", 3.0, math.inf, TO_HALF, True),  # not written
    ("1", "float", math.inf, math.inf, FLOAT, False),
    ("nan", "float", math.nan, math.inf, FLOAT, True),
    ("3", "double", 3.0, 3.0, NUMBERS, False),
    ("3", "double", 3.0, math.inf, NUMBERS, False),
    ("nan", "double", math.nan, math.inf, NUMBERS, True),
    ("3", "double", 3.0, math.nan, NUMBERS, True),
    ("inf", "half", 70000.0, 70000.0, DISTANCE, True),
    ("inf", "double", math.inf, 3.0, DISTANCE, False),
    ("3", "double", 3.0, math.inf, DISTANCE, True),
]


def number(value: float) -> str:
    return (
        "NAN"
        if math.isnan(value)
        else f"{'-' if value < 0 else ''}INFINITY"
        if math.isinf(value)
        else repr(value)
    )


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[bool, float]]:
    """Return for each case whether it was called wrong, and the square of its error in the norm."""
    if GPP is None:
        pytest.skip("needs g++")
    folder = tmp_path_factory.mktemp("comparison")
    source = render_helpers()
    text = source[
        source.index("struct Comparison") : source.index('extern "C"', source.index("struct Comparison"))
    ]
    text = text.replace("__shfl_down_sync(0xffffffffu, first, lane)", "~0ull")
    for name in ("wrong", "worst", "errors", "scales"):
        text = text.replace(f"__shfl_down_sync(0xffffffffu, {name}, lane)", f"alone({name})")
    lines = [HOST, text, "int main() {"]
    for value, dtype, want, weight, (coefficient, unit, tiny), _ in CASES:
        kind = {"half": "half_t", "float": "float", "double": "double"}[dtype]
        there = f"half_t{{{HALF[value]}}}" if dtype == "half" else f"({kind}){number(float(value))}"
        lines.append(
            f"{{ const {kind} out = {there}; const double want = {number(want)}; const float weight = {number(weight)};"
            f" Comparison r{{0, ~0ull, 0, 0.0, 0.0}};"
            f" compare(&out, &want, &weight, 1, {coefficient}, {unit}, {tiny}, 1.0, &r);"
            ' printf("%llu %g\\n", r.mismatches, r.error_squares); }'
        )
    for number_there, kind, wanted, _ in INTEGERS:
        wide, ending = ("unsigned long long", "ull") if kind == "unsigned long long" else ("long long", "ll")
        lines.append(
            f"{{ const {kind} out = ({kind}){number_there}{ending}; const {wide} want = {wanted}{ending};"
            " const float weight = 1;"
            " Comparison r{0, ~0ull, 0, 0.0, 0.0}; compare(&out, &want, &weight, 1, 0.0, 0.0, 0.5, 1.0, &r);"
            ' printf("%llu %g\\n", r.mismatches, r.error_squares); }'
        )
    for kind, got, right, weight, _ in COMPLEX:
        there, wanted = (", ".join(map(number, pair)) for pair in (got, right))
        lines.append(
            f"{{ const {kind} out{{{there}}}; const double2 want{{{wanted}}};"
            f" const float weight = {number(weight)}f; Comparison r{{0, ~0ull, 0, 0.0, 0.0}};"
            f" compare(&out, &want, &weight, 1, {', '.join(map(str, FLOAT))}, 1.0, &r);"
            ' printf("%llu %g\\n", r.mismatches, r.error_squares); }'
        )
    (folder / "compare.cpp").write_text("\n".join([*lines, "}"]))
    command = ["g++", "-std=c++17", "-O0", "compare.cpp", "-o", "compare"]
    done = run_once(*command, folder=folder, output="compare")
    assert done.returncode == 0, done.stderr[:3000]
    output = subprocess.run([folder / "compare"], capture_output=True, text=True, check=True).stdout
    return [(line.split()[0] == "1", float(line.split()[1])) for line in output.splitlines()]


def test_verdicts(found: list[tuple[bool, float]]) -> None:
    """Right elements do not spoil the norm; in a distance an overflow is infinitely far."""
    for (wrong, square), case in zip(found, CASES, strict=False):
        assert wrong == case[-1], case
        assert wrong or math.isfinite(square), case
    assert found[CASES.index(("inf", "half", 70000.0, 70000.0, DISTANCE, True))][1] == math.inf


def test_integers_are_compared_as_integers(found: list[tuple[bool, float]]) -> None:
    for (wrong, square), case in zip(found[len(CASES) :], INTEGERS, strict=False):
        assert wrong == case[-1] == (square > 0), case


def test_complex_numbers_are_compared_as_wholes(found: list[tuple[bool, float]]) -> None:
    for (wrong, _), case in zip(found[len(CASES) + len(INTEGERS) :], COMPLEX, strict=True):
        assert wrong == case[-1], case
