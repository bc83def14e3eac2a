"""What an exported header says that a caller has to do: expressions by their text, alignment, zeros."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.winners.exported_winners import (
    FLAGS,
    WINNERS,
    assert_harmless,
    compile_cpp,
    map_files,
    needs_gpp,
    of_map,
)
from tuner.core.errors import DatabaseError
from tuner.core.model import Configuration
from tuner.winners.header import render_header
from tuner.winners.header_needs import KernelFiles, needs_lines, no_files

pytestmark = pytest.mark.usefixtures("forked_children", "defaults_once")


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
