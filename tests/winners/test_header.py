"""An exported header: which configuration it selects, for which sizes that is valid, and its file."""

from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.winners.exported_winners import FLAGS, WINNERS, compile_cpp, make, needs_gpp
from tuner.core.errors import DatabaseError
from tuner.database.records import StoredWinner, WarmTime
from tuner.formats.files import new_file
from tuner.kernel.load import load_kernel
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace
from tuner.kernel.validity import invalid_reason
from tuner.winners.header import MARK, render_header
from tuner.winners.header_conditions import Launchable
from tuner.winners.header_needs import KernelFiles, no_files

pytestmark = pytest.mark.usefixtures("forked_children", "defaults_once")


NVCC = shutil.which("nvcc")


class AnySize(KernelFiles):
    """Kernels whose configurations are valid for every size."""

    def launchable(self, stored: StoredWinner) -> Launchable:
        return Launchable((), "1", "0LL")


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
    assert "also chosen by its warm time: 170 us, 0.4 % behind the fastest" in render_header([stored])
    assert text.startswith(MARK)
    assert text == render_header(list(reversed(WINNERS)))


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
