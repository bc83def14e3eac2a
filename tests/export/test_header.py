from __future__ import annotations

import os
import random
import re
import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kernel_files import MAP, write
from tuner.database.records import Metrics, StoredWinner, WarmTime, Winner
from tuner.errors import DatabaseError
from tuner.export import cpp
from tuner.export.conditions import Launchable
from tuner.export.header import MARK, render_header
from tuner.export.needs import KernelFiles, needs_lines, no_files
from tuner.formats.files import new_file
from tuner.hardware.roofline import ARCHITECTURES
from tuner.kernel.load import load_kernel, read_kernel
from tuner.kernel.spec import KernelSpec
from tuner.model import Configuration, Gpu, Problem, Run, Status, Trial, Value
from tuner.space.space import SearchSpace
from tuner.space.validity import invalid_reason

pytestmark = pytest.mark.usefixtures("forked_children", "defaults_once")

GPP = shutil.which("g++")
NVCC = shutil.which("nvcc")
FLAGS = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
H200 = Gpu("NVIDIA H200", 90, 132, 60 << 20, 1 << 37, 232448, 233472, driver="580.95")
H100 = replace(H200, name="NVIDIA H100 PCIe", sm_count=114)
A100 = replace(H200, name="NVIDIA A100-SXM4-80GB", cc=80)
DTYPES = {"input": "float16", "accumulate": "float32", "output": "float16"}


def make(
    sizes: dict[str, int],
    block_m: Value,
    gpu: Gpu = H200,
    dtypes: dict[str, str] = DTYPES,
    options: dict[str, Value] | None = None,
    kernel: str = "gemm",
    variant: str = "tiled",
    more: dict[str, Value] | None = None,
    device: str = "cuda:0",
    verdict: str = "faster",
    run_id: str = "f" * 32,
) -> StoredWinner:
    configuration = Configuration.of(variant, {"block_m": block_m, **(more or {})})
    problem = Problem(kernel, sizes, dtypes, {"layout": "nn"} if options is None else options)
    run = Run(run_id, problem, gpu, device, 1, "tpe", 10, 1)
    trial = Trial(3, configuration, Status.OK, 190_100.0, 189_800.0, 190_400.0, id=12)
    winner = Winner(
        12, configuration, 190_000.0, 1, 240_000.0, 1.263, 1.25, 1.27, verdict, 190_300.0, True, True
    )
    return StoredWinner(1, winner, run, trial, Metrics(), "2026-11-21T01:02:03.000000Z")


def cube(n: int) -> dict[str, int]:
    return {"m": n, "n": n, "k": n}


WINNERS = [
    make(cube(4096), 128, more={"double_buffer": True, "raster": "row"}),
    make(cube(512), 64, more={"double_buffer": False, "raster": "128b"}),
    make(cube(4096), 32, options={"layout": "nt"}),
    make(cube(4096), 48, dtypes=dict.fromkeys(DTYPES, "float32")),
    make(cube(1024), 96, gpu=H100),
    make(cube(4096), 80, gpu=A100, device="replay:a100"),
    make({"n": 1 << 40}, 1, kernel="vector_add", dtypes={"input": "float32"}, options={}),
]

needs_gpp = pytest.mark.skipif(GPP is None, reason="needs g++")


class AnySize(KernelFiles):
    """Kernels whose configurations are valid for every size."""

    def launchable(self, stored: StoredWinner) -> Launchable:
        return Launchable((), "1", "0LL")


def compile_cpp(folder: Path, *lines: str, flags: list[str] = FLAGS) -> None:
    source = folder / "use.cpp"
    source.write_text("\n".join([*lines, "int main() { return 0; }", ""]))
    result = subprocess.run(
        ["g++", *flags, "-fsyntax-only", str(source)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr[:3000]


@needs_gpp
def test_the_header_selects_and_says_how_well(tmp_path: Path) -> None:
    files = AnySize(no_files)
    (tmp_path / "tuned.hpp").write_text(render_header(WINNERS, files=files))
    problem = "gemm::Problem{{{0}, {0}, {0}, gemm::layout_option::{1}, gemm::Types::{2}}}"
    half, single = "float16_accumulate_float32", "float32"
    cases = [
        # cc, device, size, layout, types -> match, block_m
        (90, None, 4096, "nn", half, "exact", 128),
        (90, "NVIDIA H200", 4096, "nn", half, "exact", 128),
        (90, None, 1024, "nn", half, "exact", 96),  # any device of this compute capability
        (90, "NVIDIA H200", 1024, "nn", half, "other_size", 64),  # 2 is nearer than 4
        (90, "NVIDIA H200", 3000, "nn", half, "other_size", 128),
        (90, "NVIDIA H200", 1, "nn", half, "other_size", 64),
        (90, "NVIDIA H100 PCIe", 4096, "nn", half, "other_size", 96),
        (90, "NVIDIA GH200", 4096, "nn", half, "other_device", 128),
        (90, "NVIDIA GH200", 600, "nn", half, "other_device", 64),
        (90, "NVIDIA H20", 4096, "nn", half, "other_device", 128),  # the start of a name is not the name
        (90, "NVIDIA H2000", 4096, "nn", half, "other_device", 128),
        (90, None, 4096, "nt", half, "exact", 32),
        (90, None, 17, "nt", half, "other_size", 32),
        (90, None, 4096, "nn", single, "exact", 48),
        (90, None, 4096, "nt", single, "none", 0),
        (80, None, 4096, "nn", half, "exact", 80),
        (120, None, 4096, "nn", half, "none", 0),
    ]
    lines = ['#include "tuned.hpp"', '#include "tuned.hpp"', "using namespace kernel_tune;"]
    for number, (cc, device, size, layout, types, match, block_m) in enumerate(cases):
        name, what = f'"{device}"' if device else "nullptr", problem.format(size, layout, types)
        lines.append(f"constexpr auto s{number} = gemm::select({cc}, {what}, {name});")
        lines.append(f'static_assert(s{number}.match == Match::{match}, "{number}");')
        lines.append(f'static_assert(s{number}.configuration.block_m == {block_m}, "{number}");')
    lines += [
        "static_assert(s0.configuration.variant == gemm::Variant::tiled && s0.configuration.double_buffer);",
        "static_assert(s0.configuration.raster == gemm::raster_value::row);",
        "static_assert(s3.configuration.raster == gemm::raster_value::v128b);",
        "static_assert(s2.configuration.raster == gemm::raster_value::none);",
        "static_assert(s15.replayed && !s0.replayed);",
        "namespace e = gemm::entries;",
        "static_assert(e::cc90_m4096_n4096_k4096_layout_nt_float16_accumulate_float32.block_m == 32);",
        "constexpr auto far_off = vector_add::select(90, {1LL << 40, vector_add::Types::float32});",
        "static_assert(far_off.match == Match::exact);",
    ]
    compile_cpp(tmp_path, *lines, flags=[*FLAGS, "-Wshadow", "-Wconversion", "-I", str(tmp_path)])


@needs_gpp
def test_without_its_file_a_configuration_is_for_the_size_and_device_it_was_tuned_for(tmp_path: Path) -> None:
    (tmp_path / "tuned.hpp").write_text(render_header(WINNERS[:1]))
    problem = "{{{0}, {0}, {0}, gemm::layout_option::nn, gemm::Types::float16_accumulate_float32}}"
    lines = ['#include "tuned.hpp"', "using namespace kernel_tune;"]
    for number, (cc, size, device, match) in enumerate(
        [(90, 4096, "nullptr", "exact"), (90, 512, "nullptr", "none"), (80, 4096, "nullptr", "none"),
         (90, 4096, '"NVIDIA H20"', "none")]
    ):  # fmt: skip
        lines.append(f"constexpr auto s{number} = gemm::select({cc}, {problem.format(size)}, {device});")
        lines.append(f'static_assert(s{number}.match == Match::{match}, "{number}");')
    compile_cpp(tmp_path, *lines, flags=[*FLAGS, "-I", str(tmp_path)])


@needs_gpp
@pytest.mark.parametrize("name", ["gemm", "reduce", "mean_matvec", "transform", "saxpy", "vector_add"])
def test_the_header_knows_for_which_sizes_a_configuration_is_valid(name: str, tmp_path: Path) -> None:
    kernel, chance = load_kernel(name), random.Random(name)
    small = kernel.problem(sizes=dict.fromkeys(kernel.sizes, 1024))
    gpu = ARCHITECTURES[90]
    space = SearchSpace.from_kernel(kernel, small, gpu)
    per_variant = [
        variant.configuration(chance.randrange(len(variant))) for variant in space.variants for _ in "123"
    ]
    configurations = list(dict.fromkeys(per_variant))
    winners = [
        replace(make({}, 1, gpu=gpu), id=i, run=replace(make({}, 1).run, problem=small, gpu=gpu),
                winner=replace(make({}, 1).winner, configuration=configuration))
        for i, configuration in enumerate(configurations)
    ]  # fmt: skip
    files = KernelFiles(lambda run: kernel)
    text = render_header(winners, files=files)
    values = [
        1,
        7,
        8,
        64,
        100,
        1000,
        1024,
        4095,
        4096,
        50257,
        1 << 20,
        (1 << 31) - 1,
        1 << 31,
        1 << 40,
    ]
    problems = [small] + [
        kernel.problem(sizes={size: chance.choice(values) for size in kernel.sizes}) for _ in range(200)
    ]
    (tmp_path / "tuned.hpp").write_text(text)
    ours = ", ".join(f"{{{', '.join(map(str, p.sizes.values()))}}}" for p in problems)
    (tmp_path / "use.cpp").write_text(
        f"""#include "tuned.hpp"
#include <cstdio>
using namespace kernel_tune::{name};
int main() {{
    const long long problems[][{len(kernel.sizes)}] = {{{ours}}};
    for (const auto& sizes : problems) {{
        Problem p = all_entries[0].problem;
        {" ".join(f"p.{size} = sizes[{i}];" for i, size in enumerate(kernel.sizes))}
        for (const Entry& entry : all_entries)
            std::putchar(detail::needs(entry.conditions, p).valid ? '1' : '0');
    }}
}}
"""
    )
    program = str(tmp_path / "use")
    subprocess.run(
        ["g++", *FLAGS, "-Wconversion", "-O0", "-o", program, str(tmp_path / "use.cpp")], check=True
    )
    said = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    expected = "".join(
        "10"[bool(invalid_reason(kernel, problem, gpu, configuration))]
        for problem in problems
        for configuration in configurations
    )
    assert said == expected
    assert 0.03 < said.count("1") / len(said) < 0.97


@needs_gpp
def test_its_arithmetic_says_where_a_result_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "tuned.hpp").write_text(render_header([make({"n": 8}, 64)]))
    checks = "".join(
        f"""static_assert([] {{ bool fine = true; const long long value = {call}; return {expected}; }}());
"""
        for call, expected in (
            ("mul(-1, least, fine)", "!fine && value == 0"), ("mul(least, 2, fine)", "!fine && value == 0"),
            ("mul(most, -1, fine)", "fine && value == -most"), ("mul(0, least, fine)", "fine && value == 0"),
            ("floor_div(least, -1, fine)", "!fine && value == 0"), ("floor_div(-7, 2, fine)", "fine && value == -4"),
            ("mod(-7, 2, fine)", "fine && value == 1"), ("ceil_div(7, 0, fine)", "!fine && value == 0"),
        )
    )  # fmt: skip
    (tmp_path / "use.cpp").write_text(
        f'#include "tuned.hpp"\nusing namespace kernel_tune::detail;\n{checks}int main() {{}}\n'
    )
    subprocess.run(["g++", *FLAGS, "-o", str(tmp_path / "use"), str(tmp_path / "use.cpp")], check=True)


@needs_gpp
def test_it_compiles_alone_and_beside_another(tmp_path: Path) -> None:
    (tmp_path / "alone.hpp").write_text(render_header(WINNERS[:1]))
    (tmp_path / "other.hpp").write_text(render_header(WINNERS[-1:]))
    for flags in (FLAGS, ["-std=gnu++17", *FLAGS[1:]], ["-std=c++20", *FLAGS[1:]]):
        compile_cpp(tmp_path, '#include "alone.hpp"', flags=flags)
    compile_cpp(tmp_path, '#include "alone.hpp"', '#include "other.hpp"')


def test_two_headers_of_one_kernel_need_two_namespaces(tmp_path: Path) -> None:
    (tmp_path / "one.hpp").write_text(render_header(WINNERS))
    (tmp_path / "two.hpp").write_text(render_header(WINNERS[:1], "two"))
    compile_cpp(tmp_path, '#include "one.hpp"', '#include "two.hpp"')


@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
def test_it_compiles_with_nvcc(tmp_path: Path) -> None:
    (tmp_path / "tuned.hpp").write_text(render_header(WINNERS))
    (tmp_path / "use.cu").write_text(
        '#include "tuned.hpp"\n'
        "using namespace kernel_tune::vector_add;\nconstexpr auto c = select(90, {1, Types::float32});\n"
        "template <int block_m> __global__ void kernel(int* out) { *out = block_m; }\n"
        "void launch(int* out) { kernel<c.configuration.block_m><<<1, 1>>>(out); }\n"
    )
    command = [str(NVCC), "-std=c++17", "-c", "-Werror", "all-warnings", str(tmp_path / "use.cu")]
    result = subprocess.run(
        [*command, "-o", str(tmp_path / "x.o")], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr[:3000]


def test_it_says_where_each_figure_comes_from() -> None:
    text = render_header(WINNERS)
    for part in (
        "// gemm m=4096 n=4096 k=4096 float16 layout=nn on NVIDIA H200",
        "// cc 90, driver 580.95, 2026-11-21",
        "// 190 us, measured (cold, rested); in the search 190.1 us (189.8 us .. 190.4 us)",
        "// versus the default configuration (240 us): 1.263x (1.250 .. 1.270), faster",
        "// confirmed: in a fresh process 190.3 us; right at sizes around its own tile",
        f"// trial 12 of run {'f' * 32}",
        "// 190 us, replayed from a recording (replay:a100; cold, rested)",
    ):
        assert part in text
    warm = WarmTime(170e3, 1.2, 1.19, 1.21, "faster", 1.004, 1.01, counts=True)
    stored = replace(WINNERS[0], winner=replace(WINNERS[0].winner, warm=warm))
    assert "hold back to back, too: warm 170 us, 0.4 % behind the fastest" in render_header([stored])
    assert text.startswith(MARK)
    assert text == render_header(list(reversed(WINNERS)))


# -- what the kernels' files say


def map_files(tmp_path: Path) -> tuple[KernelSpec, KernelFiles]:
    kernel = read_kernel(write(tmp_path, MAP))
    return kernel, KernelFiles(lambda run: kernel if run.problem.kernel == "map" else no_files(run))


def of_map(kernel: KernelSpec, op: str, n: int = 4096, dtype: str = "float32") -> StoredWinner:
    problem = kernel.problem({"n": n}, {"": dtype}, {"op": op})
    stored = make(problem.sizes, 1, dtypes=problem.dtypes, options=problem.options, kernel="map")
    winner = replace(stored.winner, configuration=Configuration.of("plain", {"block_size": 64}))
    return replace(stored, winner=winner)


@needs_gpp
def test_expressions_are_selected_by_their_text(tmp_path: Path) -> None:
    kernel, files = map_files(tmp_path)
    winners = [of_map(kernel, op) for op in ("x", "x * y + 1", "where(x <= y, x, -y)")]
    text = render_header(winners, files=files)
    assert_harmless(text)
    (tmp_path / "tuned.hpp").write_text(text)
    assert "// map n=4096 float32 order=up op=x * y + 1 on NVIDIA H200" in text
    lines = ['#include "tuned.hpp"', "using namespace kernel_tune;"]
    for number, (op, match) in enumerate(
        [("x * y + 1", "exact"), ("x", "exact"), ("where(x <= y, x, -y)", "exact"), ("x*y+1", "fallback")]
    ):
        problem = f'map::Problem{{4096, map::order_option::up, "{op}", map::Types::float32}}'
        lines.append(f"constexpr auto s{number} = map::select(90, {problem});")
        lines.append(f'static_assert(s{number}.match == Match::{match}, "{op}");')
    lines.append("constexpr auto none = map::select(90, map::Problem{});")
    lines.append("static_assert(none.match == Match::none);")
    compile_cpp(tmp_path, *lines, flags=[*FLAGS, "-Wshadow", "-Wconversion", "-I", str(tmp_path)])


def test_without_its_file_an_expression_is_known_by_its_form(tmp_path: Path) -> None:
    kernel, _ = map_files(tmp_path)
    text = render_header([of_map(kernel, "x * y"), of_map(kernel, "x")])
    assert "const char* op;" in text
    assert_harmless(text)
    named = render_header([of_map(kernel, "x")])
    assert "enum class op_option { x };" in named
    for op in ("x*y", "x * y\\n", 'x * "', "é * x", "x * y " + "+ y" * 300):
        stored = of_map(kernel, "x")
        stored = replace(
            stored, run=replace(stored.run, problem=replace(stored.run.problem, options={"op": op}))
        )
        with pytest.raises(DatabaseError):
            render_header([stored])


@needs_gpp
def test_the_caller_learns_of_alignment_and_of_zeros(tmp_path: Path) -> None:
    kernel, files = map_files(tmp_path)
    winners = [of_map(kernel, "x * y"), of_map(kernel, "x * y", dtype="float16"), WINNERS[0]]
    text = render_header(winners, files=files)
    assert_harmless(text)
    assert "// tensors start at multiples of 16 bytes\n" in text
    assert "// zero ticket (4 bytes) once, before the first launch; every launch leaves it zero\n" in text
    assert "// its kernel's file is gone: as when it was tuned, tensors start at multiples of 256;" in text
    (tmp_path / "tuned.hpp").write_text(text)
    (tmp_path / "use.cpp").write_text(
        '#include "tuned.hpp"\nusing namespace kernel_tune;\n'
        'constexpr auto single = map::select(90, {4096, map::order_option::up, "x * y", map::Types::float32});\n'
        'constexpr auto half = map::select(90, {4096, map::order_option::up, "x * y", map::Types::float16});\n'
        "static_assert(single.alignment == 16 && half.alignment == 8 && single.zeroed_once_bytes == 4);\n"
        'constexpr auto other = map::select(80, {9, map::order_option::up, "x", map::Types::float32});\n'
        "static_assert(other.match == Match::fallback && other.alignment == 16 && other.zeroed_once_bytes == 4);\n"
        "constexpr auto unknown = gemm::select(90, {4096, 4096, 4096, gemm::layout_option::nn, "
        "gemm::Types::float16_accumulate_float32});\n"
        "static_assert(unknown.alignment == 256);\n"
        "int main() {\n"
        "    alignas(16) static float x[8]; const float* y = x + 4; void* z = x; const float* absent = nullptr;\n"
        "    const bool right = map::misaligned(single, x, y, z, absent) == 0 && map::misaligned(single) == 0\n"
        "        && map::misaligned(single, x, x + 2) == 716 && map::misaligned(half, x, x + 2) == 0\n"
        "        && map::misaligned(half, x + 1) == 716 && map::misaligned(other, x) == 0;\n"
        "    return right ? 0 : 1;\n"
        "}\n"
    )
    command = ["g++", *FLAGS, "-Wshadow", "-Wconversion", "use.cpp", "-o", "use"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    assert subprocess.run([tmp_path / "use"], check=False).returncode == 0


def test_a_configuration_that_the_file_has_no_more_gets_the_careful_answer(tmp_path: Path) -> None:
    kernel, files = map_files(tmp_path)
    stored = of_map(kernel, "x")
    assert files.launchable(stored) is not None
    for gone in (Configuration.of("plain", {"block": 64}), Configuration.of("other", {})):
        other = replace(stored, winner=replace(stored.winner, configuration=gone))
        assert files.launchable(other) is None
        assert needs_lines(files.plan(other.run, gone)) == needs_lines(None)
    assert KernelFiles(no_files).launchable(stored) is None


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("x * y", "x * y"),
        ("a */ b", "a _ b"),
        ("a /* b", "a _ b"),
        ("**//", "*_/"),
        ("\\", "_"),
        ("??/", "__/"),
    ],
)
def test_comments_cannot_begin_or_end_another(text: str, safe: str) -> None:
    assert cpp.comment(text) == safe


HOSTILE = [
    *(
        "*/",
        "/*",
        "\\",
        "\\\n",
        "??/",
        "??/\n",
        "\n",
        "\r",
        "\0",
        '"',
        "'",
        "//",
        "#include </etc/passwd>",
        "}",
        ";",
    ),
    *(
        "🙂",
        "é",
        "\u202e",
        "\u2028",
        'R"(',
        ')"',
        "%:define x",
        "int x",
        "{{ 7 * 7 }}",
        "{% raw %}",
        "__LINE__",
    ),
    *(
        "class",
        "linux",
        "_X",
        "a__b",
        "Match",
        "std",
        "\x1b[31m",
        "int",
        "x" * 300,
        "",
        " ",
        "1",
        "-1",
        "a-b",
        "NULL",
    ),
    *(
        "variant",
        "types",
        "Problem",
        "Configuration",
        "Variant",
        "Types",
        "entries",
        "select",
        "detail",
        "none",
    ),
]


def hostile_text(chance: random.Random) -> str:
    if chance.random() < 0.4:
        return chance.choice(HOSTILE)
    return "".join(chance.choice([*HOSTILE, "a", "b", "_", "9"]) for _ in range(chance.randrange(1, 6)))


def hostile_value(chance: random.Random) -> Any:
    return chance.choice(
        [
            hostile_text(chance),
            True,
            0,
            -5,
            2**31,
            -(2**31),
            2**63 - 1,
            2**63,
            -(2**63),
            10**30,
            1.5,
            float("nan"),
        ]
    )


def hostile_option(chance: random.Random) -> Any:
    value = hostile_value(chance)
    return 2.5 if value != value else value  # the database cannot hold a NaN in a problem


TOKEN = re.compile(
    r"""\#(?:ifndef|define|endif)\b|//[^\n]*|"[A-Za-z0-9 ._,:;()+=/@#*<>!-]*"|"""
    r"""[A-Za-z_][A-Za-z0-9_]*|[0-9]+(?:\.[0-9])?(?:e[0-9])?"""
    r"""|::|<=|\+\+|&&|\|\||%(?= bytes| b )|[{}()\[\];,:<>=!*&?.+/-]|\n|\s"""
)


def assert_harmless(text: str) -> None:
    """Nothing but known lines, comments and declarations of the shapes that the template has."""
    assert text.isascii()
    assert not re.search(r"[\\\0\r`$@]|\?\?|/\*|\*/", re.sub(r'"[^"\n]*"|//[^\n]*', "", text))
    assert "\\" not in text
    assert "??" not in text
    position = 0
    while position < len(text):
        match = TOKEN.match(text, position)
        assert match, text[position : position + 60]
        position = match.end()
    directives = [line.split()[0] for line in text.splitlines() if line.lstrip().startswith("#")]
    parts = len(directives) // 3
    assert directives == ["#ifndef", "#define", "#endif"] * parts
    assert parts >= 3
    plain = re.sub(r'"[^"\n]*"|//[^\n]*', "", text)
    assert plain.count("{") == plain.count("}")


def test_hostile_strings_cannot_break_out(tmp_path: Path) -> None:
    chance, headers = random.Random(11), []
    refused = 0
    for _ in range(1000):
        text = [hostile_text(chance) for _ in range(8)]
        what = {name for name in ("gpu", "driver", "run", "device", "verdict") if chance.random() < 0.8}
        gpu = replace(
            H200, name=text[0] if "gpu" in what else "x", driver=text[1] if "driver" in what else ""
        )
        deep = chance.random() < 0.5
        winner = make(
            {text[2]: chance.choice([4096, 10**30, -1])} if deep and chance.random() < 0.4 else cube(64),
            hostile_value(chance) if deep and chance.random() < 0.5 else 64,
            gpu=gpu,
            dtypes={"input": text[3]} if deep and chance.random() < 0.3 else DTYPES,
            options={text[4]: hostile_option(chance)} if deep and chance.random() < 0.3 else None,
            kernel=text[5] if deep and chance.random() < 0.2 else "gemm",
            variant=text[6] if deep and chance.random() < 0.3 else "tiled",
            more={text[7]: hostile_value(chance)} if deep and chance.random() < 0.5 else None,
            device=text[4] if "device" in what else "cuda:0",
            verdict=text[5] if "verdict" in what else "",
            run_id=text[6] if "run" in what else "a",
        )
        try:
            header = render_header([winner, WINNERS[0]])
        except DatabaseError as error:
            assert str(error).isprintable()
            refused += 1
            continue
        assert_harmless(header)
        headers.append(header)
    assert refused > 125
    assert len(headers) > 500
    if GPP is None:
        pytest.skip("no g++ to compile them with")
    unusual = [h for h in headers if "enum class Variant { tiled };" not in h]
    batch = [*chance.sample(headers, 40), *chance.sample(unusual, min(40, len(unusual)))]
    for number, header in enumerate(batch):  # each in a namespace of its own: one compiler run for all
        body = re.sub(r"^#.*$", "", header, flags=re.MULTILINE)
        (tmp_path / f"h{number}.inc").write_text(body)
    lines = [f'namespace h{number} {{\n#include "h{number}.inc"\n}}' for number in range(len(batch))]
    compile_cpp(tmp_path, *lines)
    for header in chance.sample(batch, 8):  # and some just as they are
        (tmp_path / "tuned.hpp").write_text(header)
        compile_cpp(tmp_path, '#include "tuned.hpp"')


@pytest.mark.parametrize(
    "name", ["class", "co_await", "and", "1x", "a-b", "", "a" * 65, "é", "a\n", "_X", "a__b", "linux", 7]
)
def test_what_is_not_a_name_is_refused(name: object) -> None:
    with pytest.raises(DatabaseError, match="cannot be a name"):
        cpp.identifier(name, "the kernel")


@pytest.mark.parametrize("value", [1.5, "x", None, 1 << 63, -(1 << 63)])
def test_what_is_not_a_number_is_refused(value: object) -> None:
    with pytest.raises(DatabaseError, match="cannot be exported"):
        cpp.integer(value, "block")


@needs_gpp
def test_values_of_several_types_have_one(tmp_path: Path) -> None:
    winners = [make(cube(1), "x", more={"share": 1}), make(cube(2), -3, more={"share": 0.25})]
    (tmp_path / "tuned.hpp").write_text(text := render_header(winners))
    assert_harmless(text)
    lines = ["using namespace kernel_tune::gemm;"]
    for size, block, share in ((1, "x", "1.0"), (2, "vminus3", "0.25")):
        found = (
            f"select(90, {{{size}, {size}, {size}, layout_option::nn, Types::float16_accumulate_float32}})"
        )
        lines.append(f"static_assert({found}.configuration.block_m == block_m_value::{block});")
        lines.append(f"static_assert({found}.configuration.share - {share} == 0);")
    compile_cpp(tmp_path, '#include "tuned.hpp"', *lines)


def test_two_values_of_one_name_are_refused() -> None:
    with pytest.raises(DatabaseError, match="one name"):
        render_header([make(cube(1), "v3"), make(cube(2), "3")])


# -- the file


def test_it_is_written_in_one_step_with_plain_rights(tmp_path: Path) -> None:
    target = tmp_path / "tuned.hpp"

    def write_text(text: str) -> None:
        with new_file(target, force=True) as partial:
            partial.write_text(text)

    write_text("// one\n")
    kept = tmp_path / "kept.hpp"
    os.link(target, kept)
    write_text("// two\n")
    assert (kept.read_text(), target.read_text()) == (
        "// one\n",
        "// two\n",
    )  # replaced as a whole, not written into
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~umask
    assert sorted(tmp_path.iterdir()) == [kept, target]


def test_a_failing_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "tuned.hpp"
    target.write_text("// one\n")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(DatabaseError, match="No space left"), new_file(target, force=True) as partial:
        partial.write_text("// two\n")
    assert target.read_text() == "// one\n"
    assert list(tmp_path.iterdir()) == [target]
