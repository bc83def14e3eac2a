"""Plain CUDA sources as people have them: what becomes a macro, and what of a file is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import said_by
from tuner.children.compilation import RenderRequest
from tuner.children.compile_worker import Compiler
from tuner.core.model import Configuration, Status
from tuner.kernel.load import read_kernel
from tuner.kernel.plan import make_plan
from tuner.kernel.render import render
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.spec import KernelSpec
from tuner.winners.records import baked_names

FILE = """\
reference = { numpy = "2 * x" }
[kernel]
name = "twice"
[problem]
sizes = { count = 1000 }
dtypes = { input = "float32" }
[tensors]
x = { shape = ["count"], dtype = "input" }
y = { shape = ["count"], dtype = "input", role = "output" }
[variants.main.parameters]
BM = { values = [64, 128] }
SCALE = { values = [2] }
fast = { values = [true, false] }
[[variants.main.launches]]
template = "twice.cu"
entry = "ENTRY"
arguments = ["x", "y", "count"]
grid = ["ceil_div(count, BM)"]
block = ["BM"]
"""
TEMPLATE = """\
template <int BM, bool FAST> __global__ void twice(const float* x, float* y, int n) {
    const int i = blockIdx.x * BM + threadIdx.x;
    if (i < n) y[i] = (FAST ? SCALE : 2) * x[i];
}
"""
ENTRY = "twice<{{ BM }}, {{ fast }}>"


def kernel_of(folder: Path, source: str, entry: str, file: str = FILE) -> KernelSpec:
    (folder / "twice.cu").write_text(source)
    (folder / "twice.toml").write_text(file.replace("ENTRY", entry))
    return read_kernel(folder / "twice.toml")


def configuration(**values: int | bool) -> Configuration:
    given = {"BM": 64, "SCALE": 2, "fast": True, **values}
    return Configuration("main", tuple(given.items()))


def compiled(kernel: KernelSpec) -> Status:
    request = RenderRequest(kernel.file, kernel.problem(), ARCHITECTURES[90], configuration())
    compilation = Compiler(None).answer(request)
    assert compilation.status is Status.OK, compilation.error
    return compilation.status


def test_what_a_template_gets_is_no_macro(tmp_path: Path) -> None:
    kernel = kernel_of(tmp_path, TEMPLATE, ENTRY)
    ((source, entry),) = render(kernel, kernel.problem(), ARCHITECTURES[90], configuration())
    assert entry == "twice<64, true>"
    assert "#define SCALE 2" in source and "#define BM" not in source
    assert compiled(kernel)


@pytest.mark.parametrize("value", ["fast * 1"])
def test_what_an_argument_passes_as_another_dtype_is_no_macro(tmp_path: Path, value: str) -> None:
    source = TEMPLATE.replace("template <int BM, bool FAST> ", "").replace("FAST", "fast")
    source = source.replace("int n)", "int n, bool fast)")
    passed = f'"y", "count", {{ value = "{value}", dtype = "bool" }}'
    assert compiled(kernel_of(tmp_path, source, "twice", FILE.replace('"y", "count"', passed)))


def test_a_text_is_what_the_entry_prints_of_it(tmp_path: Path) -> None:
    source = TEMPLATE.replace("<int BM", "<typename KIND, int BM").replace("float*", "KIND*")
    file = FILE.replace("fast = {", 'KIND = { values = ["float"] }\nfast = {')
    kernel = kernel_of(tmp_path, source, "twice<{{ KIND }}, {{ BM }}, {{ fast }}>", file)
    given = Configuration("main", (("BM", 64), ("SCALE", 2), ("KIND", "float"), ("fast", True)))
    ((rendered, entry),) = render(kernel, kernel.problem(), ARCHITECTURES[90], given)
    assert entry == "twice<float, 64, true>" and "#define KIND" not in rendered
    kernel = kernel_of(tmp_path, source, "twice<KIND, {{ BM }}, {{ fast }}>", file)
    ((rendered, _),) = render(kernel, kernel.problem(), ARCHITECTURES[90], given)
    assert "#define KIND float" in rendered


def test_sizes_that_nothing_defines_are_macros(tmp_path: Path) -> None:
    source = TEMPLATE.replace(", int n", "").replace("< n", "< count")
    file = FILE.replace('["x", "y", "count"]', '["x", "y"]')
    kernel = kernel_of(tmp_path, source, ENTRY, file)
    assert compiled(kernel)
    assert baked_names(kernel, kernel.variants["main"].launches) == ["count"]
    (tmp_path / "sizes.cuh").write_text("enum { count = 1000 };\n")
    kernel = kernel_of(tmp_path, f'#include "sizes.cuh"\n{source}', ENTRY, file)
    assert compiled(kernel) and not baked_names(kernel, kernel.variants["main"].launches)
    kernel = kernel_of(tmp_path, TEMPLATE.replace("int n", "int count").replace("< n", "< count"), ENTRY)
    assert compiled(kernel) and not baked_names(kernel, kernel.variants["main"].launches)


@pytest.mark.parametrize("place", ["guarded", "guarded expression", "header", "constant"])
def test_a_size_takes_the_place_of_the_sources_own_number(place: str, tmp_path: Path) -> None:
    own = "#define count (1 << 20)  // elements\n"
    own = "static constexpr int count = 1 << 20;  // elements\n" if place == "constant" else own
    own = "#define count (4 * ROWS)\n" if place == "guarded expression" else own
    own = f"#ifndef count\n{own}#endif\n" if place.startswith("guarded") else own
    (tmp_path / "sizes.cuh").write_text(f"#pragma once\n{own}#define last count - 1\n")
    head = '#include "sizes.cuh"\n' if place == "header" else f"{own}#define last count - 1\n"
    source = head + TEMPLATE.replace(", int n", "").replace("i < n", "i <= last")
    kernel = kernel_of(tmp_path, source, ENTRY, FILE.replace('["x", "y", "count"]', '["x", "y"]'))
    ((text, _),) = render(kernel, kernel.problem({"count": 77}), ARCHITECTURES[90], configuration())
    assert text.count("#define count 77\n") == 1 and (place.startswith("guarded") or "1 << 20" not in text)
    assert compiled(kernel) and baked_names(kernel, kernel.variants["main"].launches) == ["count"]


def test_a_number_of_the_sources_that_no_kernel_uses_stays(tmp_path: Path) -> None:
    host = "#define count 1024\nint main() { return count; }\n"
    source = host + TEMPLATE
    kernel = kernel_of(tmp_path, source, ENTRY)
    ((text, _),) = render(kernel, kernel.problem({"count": 77}), ARCHITECTURES[90], configuration())
    assert "#define count 77" not in text and compiled(kernel)
    assert not baked_names(kernel, kernel.variants["main"].launches)


OTHERS = [
    "__global__ void unlaunched(float* x) { __shared__ float at[1 << 20]; at[threadIdx.x] = x[0]; x[1] = at[2]; }",
    "__global__ void of_another_variant(float* x) { x[threadIdx.x] = NOWHERE; }",
    "static float mean(const std::vector<float>& of) { float sum = 0; for (float one : of) sum += one; return sum; }",
    "class Runner { public: void run(); };\nvoid Runner::run() { cudaMalloc(&data, 4); }\ntemplate class Pool<Runner>;",
    "void twice(const char* file) { twice<64, true><<<1, 64>>>(nullptr, nullptr, 0); }\nint main() { twice(nullptr); }",
]


@pytest.mark.parametrize("other", OTHERS)
def test_only_what_the_launched_kernel_needs_counts(other: str, tmp_path: Path) -> None:
    assert compiled(kernel_of(tmp_path, f"{TEMPLATE}{other}\n", ENTRY))


def test_what_the_kernel_needs_is_kept(tmp_path: Path) -> None:
    needed = """
    struct Pair { float a, b; };
    __device__ float4 operator*(float by, float4 of) { return make_float4(by * of.x, 0, 0, 0); }
    #define HALF(x) half_of(x)
    namespace { using Real = float; enum Kind { one = 1, two }; constexpr int PLACES = 1; }
    __device__ Real table[PLACES];
    inline float half_of(float x) { return x / two; }
    """
    source = TEMPLATE.replace(
        "y[i] =", "y[i] = Pair{1, 2}.a * table[0] + HALF(1) * (2 * make_float4(1, 0, 0, 0)).x *"
    )
    assert compiled(kernel_of(tmp_path, f"{needed}{source}{OTHERS[-1]}", ENTRY))


def test_errors_name_the_macro_on_their_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = FILE.replace("SCALE = ", "x = { values = [1, 2] }\nSCALE = ").replace(
        "x = { shape", "in_ = { shape"
    )
    file = file.replace("2 * x", "2 * in_").replace('["x", "y"', '["in_", "y"')
    source = TEMPLATE.replace("float* x", "float* of").replace("x[i];", "of[i];")
    kernel_of(tmp_path, source, ENTRY, file)
    said = said_by(
        capsys, "check", str(tmp_path / "twice.toml"), "--no-cpu", "--configurations", "1", "--cc", "90"
    )
    assert said.code == 1
    assert "twice.cu:2: " in said.out and "; x is a macro here" in said.out


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "template <int SCALE> GLOBAL twice ARGUMENTS",
            "the kernel's template in entry, as NAME<{{ SCALE }}>",
        ),
        (
            "#define MAKE(name, of) GLOBAL name ARGUMENTS\nMAKE(twice, *)\nvoid run() { twice<<<1, 1>>>(0, 0, 0); }",
            "code of the CPU goes between #ifndef __CUDACC_RTC__",
        ),
    ],
)
def test_what_does_not_compile_has_a_remedy(
    source: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = source.replace("GLOBAL", "__global__ void").replace(
        "ARGUMENTS", "(const float* x, float* y, int n) { y[0] = 0; }"
    )
    kernel_of(tmp_path, code, "twice")
    words = ("--no-cpu", "--configurations", "1", "--cc", "90")
    assert said in said_by(capsys, "check", str(tmp_path / "twice.toml"), *words).out


def test_own_headers_may_have_host_code(tmp_path: Path) -> None:
    (tmp_path / "inner.h").write_text(
        "#pragma once\ninline float one() { return 1; }\nint lines() { return getc(stdin); }\n"
    )
    header = '#pragma once\n#include <vector>\n#include "inner.h"\nstd::vector<float> kept;\n'
    (tmp_path / "both.h").write_text(f"{header}void report() {{ std::cout << kept.size(); }}\n")
    of_hosts = ("SetTimer(0);", "gettimeofday(&now, 0);")
    timers = [f"struct Timer {{ void start(); }};\nvoid Timer::start() {{ {code} }}\n" for code in of_hosts]
    switched = f"#if defined(WIN32) || defined(_WIN64)\n{timers[0]}#else\n{timers[1]}#endif\n"
    typed = "#ifdef __DRIVER_TYPES_H__\nconst char* named(cudaError_t e) { return cudaGetErrorName(e); }\n#endif\n"
    (tmp_path / "timer.h").write_text(switched + typed)
    source = f'#include "timer.h"\n#include "both.h"\n#include "inner.h"\n{TEMPLATE.replace("SCALE", "SCALE * one()")}'
    assert compiled(kernel_of(tmp_path, source, ENTRY))
    kernel = kernel_of(tmp_path, source.replace("x[i];", "nowhere[i];"), ENTRY)
    request = RenderRequest(kernel.file, kernel.problem(), ARCHITECTURES[90], configuration())
    assert Compiler(None).answer(request).error.startswith('twice.cu:6: error: identifier "nowhere"')


def test_a_macro_in_a_header_that_the_kernel_does_not_need_is_said(tmp_path: Path) -> None:
    (tmp_path / "box.h").write_text("struct Box {\n    int SCALE;\n};\n")
    kernel = kernel_of(tmp_path, f'#include "box.h"\n{TEMPLATE}', ENTRY)
    request = RenderRequest(kernel.file, kernel.problem(), ARCHITECTURES[90], configuration())
    assert "box.h:2: error: expected an identifier" in Compiler(None).answer(request).error


def test_an_argument_may_be_an_expression(tmp_path: Path) -> None:
    kernel = kernel_of(tmp_path, TEMPLATE, ENTRY, FILE.replace('"y", "count"', '"y", "count // 2 * 2"'))
    plan = make_plan(kernel, kernel.problem(), ARCHITECTURES[90], configuration())
    assert plan.launches[0].arguments[-1][-1] == 1000


def test_a_macro_in_another_kernel_is_left_out_with_it(tmp_path: Path) -> None:
    other = "__global__ void other(float* y, int SCALE) { y[SCALE] = 0; }\n"
    assert compiled(kernel_of(tmp_path, f"{TEMPLATE}{other}", ENTRY))


def test_what_is_of_the_host_alone_does_not_hinder(tmp_path: Path) -> None:
    """NVRTC refuses members of the host, also of a struct that the device has."""
    own = """struct Count {
    int n;
    __host__ int get() const { return n; }
    __host__ __device__ float half() const { return n / 2.f; }
};
"""
    source = f"{own}{TEMPLATE.replace('* x[i]', '* x[i] * Count{2}.half()')}"
    kernel = kernel_of(tmp_path, source, ENTRY)
    assert compiled(kernel) is Status.OK
