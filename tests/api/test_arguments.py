"""What a call of ``tuner.tune`` passes to a kernel: structs, complex numbers, constant memory, template parameters."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tuner
from tests.api.conftest import KERNEL, STENCIL, X
from tuner.api.arrays import on_host
from tuner.api.call import values_of
from tuner.core.errors import UsageError

TURN = """
struct Range { int count; float factor; };
extern "C" __global__ void turn(const float2* x, float2* y, const bool* mask, bool twice, Range range, float4 shift) {
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < range.count) {
        const float by = mask[i] ? (twice ? 2 : 1) * range.factor : 0;
        y[i] = make_float2(by * x[i].x + shift.x, -by * x[i].y);
    }
}
"""


def test_complex_bool_and_structs_are_passed_as_they_are(tmp_path: Path) -> None:
    x = np.linspace(0, 1, 500).astype(np.complex64) * (1 + 2j)
    span = np.array((500, 0.5), [("count", "i4"), ("factor", "f4")])[()]
    kernel = tuner.Kernel(
        TURN, [x, np.zeros_like(x), x.real > 0.5, True, span, (1, 0, 0, 0)], {"BLOCK": [64]},
        grid="ceil_div(range_count, BLOCK)", block="BLOCK", outputs=["y"], reference="conj(x) * mask + 1",
    )  # fmt: skip
    text = kernel.save(tmp_path / "turn.toml").read_text()
    data = tomllib.loads(text)
    assert {name: tensor["dtype"] for name, tensor in data["tensors"].items()} == {
        "x": "complex64", "y": "complex64", "mask": "bool",
    }  # fmt: skip
    *_, twice, of_range, shift = data["variants"]["main"]["launches"][0]["arguments"]
    assert (twice, data["scalars"]["twice"]) == ("twice", {"dtype": "bool", "value": 1})
    assert [one.rpartition("_")[2] for one in of_range["fields"]] == ["count", "factor"]
    assert [data["scalars"][one]["value"] for one in shift["fields"]] == [1.0, 0.0, 0.0, 0.0]


def test_bytes_of_another_machine_are_turned() -> None:
    values, dtype = on_host("x", np.array([1, 2], ">f4"))
    assert values.view("uint32")[0] == 0x3F800000 and dtype == "float32"


def test_what_a_struct_is_given_is_said() -> None:
    x = np.zeros(8, np.complex64)
    for value, said in (
        (3.0, "a float, and the kernel takes Range by value; pass a struct of NumPy's"),
        (
            np.array((1,), [("count", "i4")])[()],
            "int32 count; and Range int count, float factor; pass np.array(",
        ),
        (np.array((1, 2), [("count", "i4"), ("factor", "f8")])[()], "float64 factor; and Range int count"),
        (
            np.array((1, 2j), [("count", "i4"), ("factor", "c8")])[()],
            "complex64; pass members that are numbers",
        ),
    ):
        with pytest.raises(UsageError, match=re.escape(said)):
            tuner.Kernel(
                TURN, [x, x, x.real > 0, True, value, (1, 0, 0, 0)], {"BLOCK": [64]}, grid=1, block="BLOCK"
            )
    span = np.array((8, 0.5), [("count", "i4"), ("factor", "f4")])[()]
    with pytest.raises(UsageError, match="the kernel takes float4; pass 4 numbers"):
        tuner.Kernel(TURN, [x, x, x.real > 0, True, span, (1, 2)], {"BLOCK": [64]}, grid=1, block="BLOCK")


def test_a_complex_number_is_passed_as_its_parts(tmp_path: Path) -> None:
    source = """
#include <cuComplex.h>
__global__ void scale(cuFloatComplex a, const cuFloatComplex* x, cuFloatComplex* y, int n) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) y[i] = cuCmulf(a, x[i]);
}
"""
    x = np.ones(64, np.complex64)

    def described(a: object) -> dict[str, Any]:
        how = {"grid": "ceil_div(n, BLOCK)", "block": "BLOCK", "reference": "default"}
        kernel = tuner.Kernel(source, [a, x, x, 64], {"BLOCK": [32, 64]}, **how)
        return tomllib.loads(kernel.save(tmp_path / f"{len(list(tmp_path.iterdir()))}.toml").read_text())

    for given in (1 + 2j, np.complex64(1 + 2j), np.complex128(1 + 2j)):
        data = described(given)
        fields = data["variants"]["main"]["launches"][0]["arguments"][0]["fields"]
        assert [data["scalars"][one] for one in fields] == [
            {"dtype": "float32", "value": 1.0},
            {"dtype": "float32", "value": 2.0},
        ]
    assert described(1.5)["scalars"]["a"] == {"dtype": "complex64", "value": 1.5}


def test_a_texture_is_refused_with_what_to_do() -> None:
    source = "__global__ void k(float* y, cudaTextureObject_t t) { y[threadIdx.x] = tex1D<float>(t, 0); }"
    with pytest.raises(UsageError, match="by a pointer"):
        tuner.Kernel(source, [np.zeros(64, np.float32), np.uint64(1)], {"B": [64]}, grid=1, block="B")


def test_arrays_and_truths_in_a_struct_are_numbers(tmp_path: Path) -> None:
    source = "struct Taps { float w[3]; bool mirrored; };\n" + STENCIL.replace("int n)", "int n, Taps taps)")
    taps = np.array(([0.25, 0.5, 0.25], True), [("w", "f4", 3), ("mirrored", "?")])[()]
    data = tomllib.loads(
        tuner.Kernel(source, **{**KERNEL, "args": [X, X, len(X), taps]}).save(tmp_path / "k.toml").read_text()
    )
    assert {name: one["value"] for name, one in data["scalars"].items()} == {
        "taps_w_0": 0.25, "taps_w_1": 0.5, "taps_w_2": 0.25, "taps_mirrored": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("declared", "given"),
    [
        ("float2 w[3]", np.ones(3, np.complex64)),
        ("float w[2][3]", np.ones(6, np.float32)),
        ("float w[T]", np.ones(5, np.float32)),  # which is tuned
        ("int w[1 << 2]", np.arange(4, dtype=np.int32)),
    ],
)
def test_constant_memory_is_filled_as_it_is_declared(declared: str, given: Any) -> None:
    source = f"__constant__ {declared};\n" + STENCIL.replace("TILE", "T").replace("0.5f *", "sizeof(w) *")
    tuner.Kernel(
        source, [X, X, len(X)], {"BLOCK": [64], "T": [1, 2]}, grid="n", block="BLOCK", constants={"w": given}
    )


def test_constant_memory_may_be_in_a_namespace(tmp_path: Path) -> None:
    source = "namespace a { __constant__ float w; }\n" + STENCIL.replace("0.5f *", "a::w *")
    tuner.Kernel(source, **KERNEL, constants={"a::w": 0.5}).save(tmp_path / "k.toml")
    assert 'constants = { "a::w" = "a__w_" }' in (tmp_path / "k.toml").read_text()


def test_whole_numbers_beside_fractions_are_fractions(tmp_path: Path) -> None:
    values = {**KERNEL["params"], "PART": [0.5, 1, 2]}
    tuner.Kernel(STENCIL.replace("0.5f", "PART"), **{**KERNEL, "params": values}).save(tmp_path / "k.toml")
    assert "PART = { values = [0.5, 1.0, 2.0]" in (tmp_path / "k.toml").read_text()


@pytest.mark.parametrize(
    "given", [np.array(2), np.int64(2), np.array([2]), (2 for _ in "a"), memoryview(b"\2")]
)
def test_values_may_be_of_any_collection(given: Any) -> None:
    values = values_of("PART", given)
    assert values == [2] and type(values[0]) is int


def test_a_template_gets_the_parameters_of_its_names(tmp_path: Path) -> None:
    source = STENCIL.replace("__global__", "template <int BLOCK, int TILE> __global__").replace(
        'extern "C" ', ""
    )
    for entry in ("", "stencil<BLOCK, TILE>"):
        file = tmp_path / f"{len(entry)}.toml"
        tuner.Kernel(source, **KERNEL, entry=entry).save(file)
        assert 'entry = "stencil<{{ BLOCK }}, {{ TILE }}>"' in file.read_text()


BRACES = """
struct Weights { float of[1]; };
__constant__ float bounds[2][2] = {{0.5f, 1.0f}, {2.0f, 3.0f}};
// {% no statement %}, {{ nor a parameter }}
extern "C" __global__ void f(const float* x, float* y, int n) {
    Weights weights[1] = {{7}};
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) y[i] = x[i] * bounds[1][1] + weights[0].of[0];
}
"""


@pytest.mark.parametrize(
    ("source", "file"),
    [
        (BRACES, "f.cu"),
        (BRACES.replace("BLOCK", "{{ BLOCK }}").replace("{{7}}", "{{1, 7}}"), "f.cu.j2"),
        (BRACES.replace("BLOCK", "{{ ceil_div(BLOCK, 1) }}"), "f.cu.j2"),
        (BRACES.replace("bounds[1][1]", "{% if BLOCK > 64 %}1{% else %}2{% endif %}"), "f.cu.j2"),
    ],
)
def test_two_braces_are_jinja_where_they_print_something(source: str, file: str, tmp_path: Path) -> None:
    call: dict[str, Any] = {
        **KERNEL,
        "args": [X, X, len(X)],
        "params": {"BLOCK": [64, 128]},
        "grid": "ceil_div(n, BLOCK)",
    }
    kernel = tuner.Kernel(source, **{**call, "where": {"not too large": "BLOCK <= 128"}, "reference": "x"})
    text = kernel.save(tmp_path / "f.toml").read_text()
    assert (tmp_path / file).read_text() == source
    assert '"not too large" = "BLOCK <= 128"' in text
