"""An exported header: what it holds, as programs that include it see it, and its file."""

from __future__ import annotations

import os
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.compiled_once import run_once
from tests.kernel_files import GOOD, MAP, write
from tests.winners.exported_winners import (
    A100,
    COMPILERS,
    FLAGS,
    H200,
    WINNERS,
    assert_harmless,
    compile_cpp,
    files_of,
    needs_compiler,
    winner_of,
)
from tuner.core.errors import DatabaseError
from tuner.core.model import Configuration
from tuner.database.records import StoredWinner, WarmTime
from tuner.formats.files import new_file
from tuner.kernel.default import default_configuration
from tuner.kernel.load import builtin_kernels, load_kernel, read_kernel
from tuner.kernel.spec import KernelSpec
from tuner.winners.header import MARK, render_header

pytestmark = pytest.mark.usefixtures("forked_children")

HALF = '"float16", "float32", "float16"'
SINGLE = '"float32", "float32", "float32"'


@needs_compiler
def test_a_winner_is_found_by_its_gpu_and_problem_and_nothing_else_is(tmp_path: Path) -> None:
    (tmp_path / "tuned.hpp").write_text(render_header(WINNERS))
    cases = [
        # GPU, size, dtypes, layout -> block_m, 0 for none
        ("NVIDIA H200", 4096, HALF, "nn", 128),
        ("NVIDIA H200", 512, HALF, "nn", 64),
        ("NVIDIA H200", 4096, HALF, "nt", 32),
        ("NVIDIA H200", 4096, SINGLE, "nn", 48),
        ("NVIDIA H100 PCIe", 1024, HALF, "nn", 96),
        ("NVIDIA A100-SXM4-80GB", 4096, HALF, "nn", 80),
        ("NVIDIA H200", 1024, HALF, "nn", 0),  # another GPU's size
        ("NVIDIA H200", 4095, HALF, "nn", 0),
        ("NVIDIA H200", 4096, SINGLE, "nt", 0),
        ("NVIDIA H20", 4096, HALF, "nn", 0),  # the start of a name is not the name
        ("NVIDIA H2000", 4096, HALF, "nn", 0),
        ("", 4096, HALF, "nn", 0),
    ]
    lines = ['#include "tuned.hpp"', '#include "tuned.hpp"', "using namespace kernel_tune;"]
    for number, (gpu, size, dtypes, layout, block_m) in enumerate(cases):
        problem = f'{{{size}, {size}, {size}, {dtypes}, "{layout}"}}'
        lines.append(f'constexpr auto w{number} = gemm::find("{gpu}", {problem});')
        said = f"w{number}->configuration.block_m == {block_m}" if block_m else f"!w{number}"
        lines.append(f'static_assert({said}, "{number}");')
    lines += [
        'static_assert(w0->configuration.variant == "tiled" && w0->configuration.double_buffer);',
        'static_assert(w0->configuration.raster == "row" && w1->configuration.raster == "128b");',
        'static_assert(w2->configuration.raster == "" && !w2->configuration.double_buffer);',
        "static_assert(w5->replayed && !w0->replayed && w5->cc == 80 && w0->cc == 90);",
        'static_assert(w0->time_ns > 189999 && w0->time_ns < 190001 && w0->conditions == "cold, rested");',
        'static_assert(w0->gpu == "NVIDIA H200" && w0->problem.layout == "nn" && w0->problem.m == 4096);',
        "static_assert(sizeof(gemm::winners) / sizeof(gemm::Winner) == 6);",
        'static_assert(vector_add::find("NVIDIA H200", {1LL << 40, "float32"}));',
        "template <int block_m, bool pipelined> constexpr int kernel() { return block_m + pipelined; }",
        "static_assert(kernel<w0->configuration.block_m, w0->configuration.double_buffer>() == 129);",
    ]
    compile_cpp(tmp_path, *lines)


@needs_compiler
def test_headers_of_built_in_kernels_have_what_their_files_name(tmp_path: Path) -> None:
    """Each with a winner on two GPUs; problems and parameters are as Python has them."""
    kernels = [load_kernel(name) for name in builtin_kernels()]
    winners, lines = [], ['#include "tuned.hpp"', "using namespace kernel_tune;"]
    for kernel in kernels:
        problem = kernel.problem()
        configuration = default_configuration(kernel, problem, H200)
        assert configuration is not None
        winners += [winner_of(problem, configuration, gpu) for gpu in (H200, A100)]
        given = ", ".join(
            map(literal, (*problem.sizes.values(), *problem.dtypes.values(), *problem.options.values()))
        )
        name = kernel.name
        lines.append(f'constexpr auto {name}_found = {name}::find("{A100.name}", {{{given}}});')
        lines.append(f"static_assert({name}_found && {name}_found->cc == 80);")
        parameters = {"variant": configuration.variant, **configuration.values}
        parameters |= {
            parameter: absent(values[0])
            for variant in kernel.variants.values()
            for parameter, values in ((p.name, p.values) for p in variant.parameters.values())
            if parameter not in parameters and not mixed(kernel, parameter)
        }
        lines += [
            f"static_assert({name}_found->configuration.{parameter} == {literal(value)});"
            for parameter, value in parameters.items()
        ]
    text = render_header(winners, kernel_of=files_of(*kernels))
    assert_harmless(text)
    (tmp_path / "tuned.hpp").write_text(text)
    compile_cpp(tmp_path, *lines)


def literal(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def absent(value: object) -> object:
    return type(value)()


def mixed(kernel: KernelSpec, parameter: str) -> bool:
    """Return whether a parameter has values of several types."""
    every = [
        variant.parameters[parameter]
        for variant in kernel.variants.values()
        if parameter in variant.parameters
    ]
    return len({type(value) for each in every for value in each.values}) > 1


@needs_compiler
def test_members_come_from_the_kernels_file(tmp_path: Path) -> None:
    """Code that uses a header still compiles when other winners are exported."""
    gemm = load_kernel("gemm")
    problem = gemm.problem({"m": 512})
    chosen = [Configuration.of(name, variant.defaults) for name, variant in gemm.variants.items()]
    texts = [render_header([winner_of(problem, one)], kernel_of=files_of(gemm)) for one in chosen]
    assert (
        len({text[text.index("struct Problem {") : text.index("inline constexpr Winner")] for text in texts})
        == 1
    )
    gone = render_header([winner_of(problem, chosen[0])], kernel_of=files_of())
    assert "// its kernel's file is gone" in gone and "is gone" not in texts[0]


def scale(folder: Path, text: str = GOOD) -> KernelSpec:
    folder.mkdir(exist_ok=True)
    return read_kernel(write(folder, text))


def of_scale(kernel: KernelSpec, n: int, block_size: int) -> StoredWinner:
    return winner_of(
        kernel.problem({"n": n}), Configuration.of("plain", {"block_size": block_size, "fast": True})
    )


FOUND = '::scale::find("NVIDIA H200", {1000, "float32", "float32", "up"})->configuration.block_size'


@needs_compiler
def test_headers_of_several_and_of_one_kernel_can_be_included_together(tmp_path: Path) -> None:
    kernel = scale(tmp_path / "scale")
    headers = {
        "one": render_header([of_scale(kernel, 1000, 64)], kernel_of=files_of(kernel)),
        "same": render_header([of_scale(kernel, 1000, 64), WINNERS[0]], kernel_of=files_of(kernel)),
        "named": render_header([of_scale(kernel, 1000, 128)], "named", files_of(kernel)),
        "other": render_header([of_scale(kernel, 1000, 128)], kernel_of=files_of(kernel)),
    }
    for name, text in headers.items():
        (tmp_path / f"{name}.hpp").write_text(text)
    every = [f'#include "{name}.hpp"' for name in headers]
    used = [f"static_assert(kernel_tune{FOUND} == 64);", f"static_assert(named{FOUND} == 128);"]
    compile_cpp(tmp_path, *every[:-1], *used)
    with pytest.raises(AssertionError, match="ambiguous"):  # two winners of one problem: which is meant?
        compile_cpp(tmp_path, *every, *used)
    compile_cpp(tmp_path, '#include "same.hpp"', flags=["-std=c++20", *FLAGS[1:]])


@needs_compiler
def test_versions_of_a_header_in_one_program_stay_apart(tmp_path: Path) -> None:
    """Each translation unit looks up in the header that it was compiled with."""
    kernel = scale(tmp_path / "scale")
    grown = scale(tmp_path / "grown", GOOD.replace("values = [64, 128, 256]", "values = [64, 128, 256, 512]")
                  .replace("fast = {", "slow = { values = [1, 2] }\nfast = {"))  # fmt: skip
    more = Configuration.of("plain", {"block_size": 512, "slow": 1, "fast": True})
    headers = {
        "old": render_header([of_scale(kernel, 1000, 64)], kernel_of=files_of(kernel)),
        "new": render_header([of_scale(kernel, 1000, 128)], kernel_of=files_of(kernel)),
        "grown": render_header([winner_of(grown.problem({"n": 1000}), more)], kernel_of=files_of(grown)),
    }
    main = ["#include <cstdio>"]
    for name, text in headers.items():
        (tmp_path / f"{name}.hpp").write_text(text)
        asked = FOUND.replace("1000", "n")
        (tmp_path / f"{name}.cpp").write_text(
            f'#include "{name}.hpp"\nint {name}_block(long long n);\n'
            f"int {name}_block(long long n) {{ return kernel_tune{asked}; }}\n"
        )
        main.append(f"int {name}_block(long long n);")
    main += [
        'int main() { std::printf("%d %d %d", old_block(1000), new_block(1000), grown_block(1000)); }',
        "",
    ]
    (tmp_path / "main.cpp").write_text("\n".join(main))
    for order in (["old", "new", "grown", "main"], ["main", "grown", "new", "old"]):
        command = [COMPILERS[0], *FLAGS, "-O0", *(f"{name}.cpp" for name in order), "-o", "use"]
        assert run_once(*command, folder=tmp_path, output="use").returncode == 0
        said = subprocess.run([tmp_path / "use"], capture_output=True, text=True, check=True).stdout
        assert said == "64 128 512"


@needs_compiler
def test_element_expressions_are_text(tmp_path: Path) -> None:
    kernel = read_kernel(write(tmp_path, MAP))
    configuration = Configuration.of("plain", {"block_size": 64})
    ops = ("x", "x * y + 1", "where(x <= y, x, -y)")
    problems = [kernel.problem({"n": 4096}, {}, {"op": op}) for op in ops]
    text = render_header([winner_of(each, configuration) for each in problems], kernel_of=files_of(kernel))
    assert_harmless(text)
    (tmp_path / "tuned.hpp").write_text(text)
    assert "// map n=4096 float32 order=up op=x * y + 1 on NVIDIA H200" in text
    lines = [
        f'static_assert((kernel_tune::map::find("NVIDIA H200", {{4096, "float32", "float32", "up", "{op}"}})'
        f".has_value()) == {found});"
        for op, found in (*((op, "true") for op in ops), ("x*y+1", "false"), ("y", "false"))
    ]
    compile_cpp(tmp_path, '#include "tuned.hpp"', *lines)
    for op in ("x * y\\n", 'x * "', "é * x", "x * y " + "+ y" * 300):
        problem = replace(problems[0], options={"order": "up", "op": op})
        with pytest.raises(DatabaseError):
            render_header([winner_of(problem, configuration)])


def test_it_says_where_each_figure_comes_from() -> None:
    text = render_header(WINNERS)
    for part in (
        "// gemm m=4096 n=4096 k=4096 float16 layout=nn on NVIDIA H200",
        "// cc 90, driver 580.95, 2026-11-21",
        "// 190 us, measured (cold, rested); in the search 190.1 us (189.8 us .. 190.4 us)",
        "// versus the default configuration (240 us): 1.263x (1.250 .. 1.270), faster",
        "// confirmed: 190.3 us in a fresh process, right at edge-case sizes",
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
