"""Messages name the template's line, and sources that say where they come from compile to the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.faults.kernels import configuration, write_kernel
from tests.kernel.test_render import GPU, PARAMETERS, kernel_with
from tuner.children.compilation import Compilation, RenderRequest, SourceRequest
from tuner.children.compile_worker import Compiler
from tuner.children.nvrtc import SourceRejected, compile_source
from tuner.core.model import Configuration
from tuner.kernel.line_map import LineMap, with_line_directives
from tuner.kernel.load import load_kernel, read_kernel
from tuner.kernel.render import line_map, render
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.spec import KernelSpec

HOPPER = ARCHITECTURES[90]


def maps_of(kernel: KernelSpec, configuration: Configuration) -> list[tuple[str, LineMap | None]]:
    problem = kernel.problem()
    launches = kernel.launches(problem, HOPPER, configuration)
    sources = render(kernel, problem, HOPPER, configuration)
    return [
        (source, line_map(kernel, launch, problem, HOPPER, configuration))
        for (source, _), launch in zip(sources, launches, strict=True)
    ]


def named(source: str, lines: LineMap | None) -> list[str]:
    """Return each line of a source after its location."""
    assert lines is not None
    texts = source.split("\n")
    locations = [lines.location(number) for number in range(1, len(texts) + 1)]
    return [
        f"{location.name}:{location.line} {text}" if location else text
        for location, text in zip(locations, texts, strict=True)
    ]


@pytest.mark.parametrize("name", ["norm", "scaled_mm"])
def test_lines_that_a_template_leaves_alone_are_where_the_map_says(name: str) -> None:
    kernel = load_kernel(name)
    checked = 0
    for variant in kernel.usable_variants(kernel.problem(), HOPPER)[0]:
        for source, lines in maps_of(kernel, Configuration.of(variant.name, variant.defaults)):
            assert lines is not None, variant.name
            for number, text in enumerate(source.split("\n"), 1):
                location = lines.location(number)
                assert location is not None
                if text.strip() and "{" not in location.text:
                    assert location.text.strip() == text.strip()
                    checked += 1
    assert checked > 100


def test_includes_macros_loops_and_comments_keep_their_lines(tmp_path: Path) -> None:
    (tmp_path / "own.cuh.j2").write_text("{# two\nlines #}\nown {{ block_size }}\n\nend\n")
    (tmp_path / "macros.j2").write_text(
        "{% macro twice(a) %}\nfirst {{ a }}\nsecond {{ a }}\n{%- endmacro %}\n"
    )
    text = (
        '{% from "macros.j2" import twice %}\n'
        "start {{ block_size }}\n"
        '{% include "own.cuh.j2" %}\n'
        "{% for i in range(2) -%}\n"
        "\n"
        "    row {{ i }}\n"
        "{% endfor %}\n"
        "    {{ twice(7) | indent(4) }} after\n"
        "{% if fast %}\n"
        "{{ mode }}\n"
        "{% endif %}\n"
        "{% raw %}\n"
        "{{ left }}\n"
        "{% endraw %}\n"
        "\x0cpage\n"
        "last"
    )
    kernel = kernel_with(tmp_path, text)
    [(source, lines)] = maps_of(kernel, Configuration.of("v", PARAMETERS))
    assert lines is not None
    last = lines.location(source.count("\n") + 1)
    assert last is not None
    assert last.text == "last"
    assert [line for line in named(source, lines) if line[-1] != " "] == [
        "k.cu.j2:2 start 64",
        "own.cuh.j2:3 own 64",
        "own.cuh.j2:5 end",
        "k.cu.j2:6 row 0",
        "k.cu.j2:6 row 1",
        "macros.j2:2     first 7",
        "macros.j2:3     second 7 after",
        "k.cu.j2:10 plain",
        "k.cu.j2:13 {{ left }}",
        "k.cu.j2:15 \x0cpage",
        "k.cu.j2:16 last",
    ]


def test_template_that_measures_a_macro_has_no_map(tmp_path: Path) -> None:
    text = "{% macro word() %}four{% endmacro %}\n{% for i in range(word() | length) %}\nx\n{% endfor %}\n"
    kernel = kernel_with(tmp_path, text)
    [(source, lines)] = maps_of(kernel, Configuration.of("v", PARAMETERS))
    assert source == "x\n" * 4
    assert lines is None


# -- messages

KERNEL = """\
{# a comment of
   two lines #}
{% include "own.cuh.j2" %}
{% from "macros.j2" import add %}
#include "plain.cuh"
extern "C" __global__ void scale__{{ fault }}(const float* x, float* y, long long n) {
    {{ add(items) | indent(4) }}
    y[0] = MAIN * {{ block_size }};
    y[1] = of_include(2.0f) + of_header();
}
"""
INCLUDE = "// own\ntemplate <typename T>\n__device__ T of_include(T x) {\n    return INCLUDE;\n}\n"
MACROS = "{% macro add(a) %}\nfloat q = {{ a }};\nq += MACRO;\n{% endmacro %}\n"
HEADER = "#pragma once\n__device__ inline float of_header() {\n    return HEADER;\n}\n"
GOOD = {"MAIN": "2", "INCLUDE": "x", "MACRO": "1", "HEADER": "1"}


def compiled(folder: Path, **wrong: str) -> Compilation:
    def text(template: str) -> str:
        for name, value in {**GOOD, **wrong}.items():
            template = re.sub(rf"\b{name}\b", value, template)
        return template

    file = write_kernel(folder, source=text(KERNEL))
    for name, content in (("own.cuh.j2", INCLUDE), ("macros.j2", MACROS), ("plain.cuh", HEADER)):
        (folder / name).write_text(text(content))
    request = RenderRequest(file, read_kernel(file).problem(), HOPPER, configuration())
    return Compiler(None).answer(request)


@pytest.mark.parametrize(
    ("part", "location"),
    [
        ("MAIN", "scale.cu.j2:8"),
        ("INCLUDE", "own.cuh.j2:4"),
        ("MACRO", "macros.j2:3"),
        ("HEADER", "plain.cuh:3"),
    ],
)
def test_compile_error_names_the_templates_line(part: str, location: str, tmp_path: Path) -> None:
    compilation = compiled(tmp_path, **{part: "nonsense"})
    assert compilation.status == "compile_error"
    assert re.fullmatch(rf"(/\S+/)?{re.escape(location)}: error: .*nonsense.*", compilation.error)
    assert compilation.error in compilation.log
    assert "kernel.cu(" not in compilation.log


def test_instantiations_and_warnings_name_the_templates_line(tmp_path: Path) -> None:
    log = compiled(tmp_path, INCLUDE="x.member").log
    assert "own.cuh.j2:4: error: " in log
    assert re.search(r"instantiation of .* at scale\.cu\.j2:9\n", log)
    compilation = compiled(tmp_path / "warned", MAIN="2; int unused = 3; y[0] = 3")
    assert compilation.status == "ok"
    assert "scale.cu.j2:8: warning" in compilation.log


# -- directives


@pytest.mark.usefixtures("any_code")
def test_source_with_line_directives_compiles_to_the_same() -> None:
    kernel = load_kernel("saxpy")
    configuration = Configuration.of("vectorized", kernel.variants["vectorized"].defaults)
    entries = [entry for _, entry in render(kernel, kernel.problem(), HOPPER, configuration)]
    assert entries
    for (source, lines), entry in zip(maps_of(kernel, configuration), entries, strict=True):
        assert lines is not None
        directed = with_line_directives(source, lines)
        assert directed.count("#line ") > 2
        assert (
            compile_source(directed, entry, "sm_90a").cubin == compile_source(source, entry, "sm_90a").cubin
        )


def test_compiler_reads_the_templates_line_from_the_directives(tmp_path: Path) -> None:
    when = "{% if fast %}\n"
    text = (
        f"/* a {{{{ mode }}}}\n{when}of\n{{% endif %}}\nlines */\n"
        f"#define TWO \\\n{when}  2\n{{% endif %}}\n"
        f'const char* s = R"x(\n{when}//\n{{% endif %}}\n)x";\n'
        "\nint a = TWO + nonsense;\n"
    )
    kernel = kernel_with(tmp_path, text)
    [(source, lines)] = maps_of(kernel, Configuration.of("v", PARAMETERS))
    assert lines is not None
    directed = with_line_directives(source, lines)
    assert [line for line in directed.split("\n") if not line.startswith("#line ")] == source.split("\n")
    with pytest.raises(SourceRejected) as refused:
        compile_source(directed, "k", GPU.arch)
    assert str(refused.value).startswith(f"k.cu.j2({text.count(chr(10))}): error: ")


def test_error_without_a_map_names_the_rendered_line(tmp_path: Path) -> None:
    source = "{% macro word() %}four{% endmacro %}\nint a;\n{{ word() | length }} nonsense;\n"
    file = write_kernel(tmp_path, source=source)
    request = RenderRequest(file, read_kernel(file).problem(), HOPPER, configuration())
    assert Compiler(None).answer(request).error.startswith("kernel.cu:2: error: ")


def test_error_of_a_source_of_its_own(tmp_path: Path) -> None:
    request = SourceRequest('#line 1 "mine.cu"\n\nnonsense;\n', "k", HOPPER, (tmp_path,))
    assert Compiler(None).answer(request).error.startswith("mine.cu:2: error: ")
