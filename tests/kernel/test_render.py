"""Templates: what they see, what they must not reach, and errors that name the place."""

from __future__ import annotations

import errno
import os
import resource
import threading
import time
from pathlib import Path

import pytest

from tuner.core.errors import KernelError
from tuner.core.model import Configuration, Gpu
from tuner.expressions.elementwise_cuda import cuda_magnitude
from tuner.kernel.load import read_kernel
from tuner.kernel.render import render
from tuner.kernel.spec import KernelSpec
from tuner.kernel.templates import apart, environment_of, read_templates_once

GPU = Gpu("a GPU", 90, 132, 60 << 20, 141 << 30, 227 << 10, 228 << 10)

FILE = """\
[kernel]
name = "k"
[problem]
sizes = { n = 1000 }
dtypes = { input = ["float16", "bfloat16", "float64"], output = "float32" }
options = { order = ["up", "down"] }
[tensors]
y = { shape = ["n"], dtype = "output", role = "output" }
[work]
bytes = "n"
[variants.v.parameters]
block_size = { values = [64, 128] }
fast = { values = [true, false] }
scale = { values = [0.5] }
mode = { values = ["plain"] }
[[variants.v.launches]]
template = "TEMPLATE"
entry = "ENTRY"
arguments = ["y"]
grid = ["1"]
block = ["block_size"]
"""

FOR, IF = "{% for x in [cc] %}", "{% if cc %}"
PARAMETERS: dict[str, int | float | bool | str] = {
    "block_size": 64,
    "fast": True,
    "scale": 0.5,
    "mode": "plain",
}


def kernel_with(folder: Path, text: str, template: str = "k.cu.j2", entry: str = "k") -> KernelSpec:
    (folder / template).write_text(text)
    file = folder / "k.toml"
    file.write_text(FILE.replace("TEMPLATE", template).replace("ENTRY", entry))
    return read_kernel(file)


def rendered(kernel: KernelSpec, dtype: str = "float16") -> tuple[str, str]:
    configuration = Configuration.of("v", PARAMETERS)
    ((source, entry),) = render(kernel, kernel.problem(dtypes={"": dtype}), GPU, configuration)
    return source, entry


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(KernelError) as caught:
        rendered(kernel_with(folder, text))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_template_sees_parameters_problem_and_filters(tmp_path: Path) -> None:
    text = (
        "{{ block_size }} {{ fast }} {{ scale }} {{ mode }} {{ input }} {{ input | c_type }} "
        "{{ input | itemsize }} {{ output | c_type }} {{ order }} {{ problem.n }} {{ cc }} "
        "{{ ceil_div(problem.n, 64) }} {{ round_up(5, 4) }} {{ 'is_' ~ fast }}"
        " {{ '%s%d' % (fast, fast) }} {{ '%s' | format(fast) }} {{ '{}'.format(fast) }} {{ [fast] }}"
        " {{ [mode, fast] | join(',') }}"
    )
    source, entry = rendered(kernel_with(tmp_path, text, entry="k<{{ input | c_type }}, {{ block_size }}>"))
    assert (
        source
        == "64 true 0.5 plain float16 half_t 2 float up 1000 90 16 8 is_true true1 true true [true] plain,true"
    )
    assert entry == "k<half_t, 64>"


@pytest.mark.parametrize("template", ["k.cu.j2", "k.cu"])
def test_files_are_utf_8_with_and_without_a_byte_order_mark(template: str, tmp_path: Path) -> None:
    kernel = kernel_with(tmp_path, "// größe\n", template)
    plain = rendered(kernel)
    (tmp_path / template).write_bytes("\ufeff// größe\n".encode())
    kernel.file.write_bytes(b"\xef\xbb\xbf" + kernel.file.read_bytes())
    assert rendered(read_kernel(kernel.file)) == plain
    (tmp_path / template).write_bytes(
        "// größe\n".encode("latin-1")
    )  # of an older source: its code is the same
    assert rendered(kernel) == plain


def test_spaces_behind_a_backslash_do_not_end_a_macro(tmp_path: Path) -> None:
    """As for nvcc; NVRTC would end it."""
    source, _ = rendered(
        kernel_with(tmp_path, "#define TWO(x) \\ \t\n    2 * (x) // a \\ b\nint y;\n", "k.cu")
    )
    assert "#define TWO(x) \\\n    2 * (x) // a \\ b\n" in source


def test_plain_cuda_file_gets_defines(tmp_path: Path) -> None:
    body = "// {{ not a template }}\nint x = block_size;\n"
    source, _ = rendered(kernel_with(tmp_path, body, "k.cu"))
    assert source == (
        "#define order up\n#define block_size 64\n#define fast 1\n#define scale 0.5\n#define mode plain\n"
        f'#define input_type __half\n#define output_type float\n#line 1 "k.cu"\n{body}'
    )
    source, _ = rendered(kernel_with(tmp_path, body, "k.cu"), "bfloat16")
    assert "#define input_type __nv_bfloat16\n" in source


WITH_ELEMENT = FILE.replace(
    'order = ["up", "down"] }', 'order = ["up", "down"], op = { expression = "x - 0.5", of = ["x", "z"] } }'
).replace(
    "[tensors]\n",
    '[tensors]\nx = { shape = ["n"], dtype = "input" }\nz = { shape = ["n"], dtype = "input" }\n',
)


def element_kernel(folder: Path, text: str, template: str) -> KernelSpec:
    (folder / template).write_text(text)
    file = folder / "k.toml"
    file.write_text(WITH_ELEMENT.replace("TEMPLATE", template).replace("ENTRY", "k"))
    return read_kernel(file)


def test_template_sees_element_expressions(tmp_path: Path) -> None:
    text = (
        "{{ op }} | {{ op | cuda }} | {{ op | cuda_double }} | {{ op | uses('x') }}{{ op | uses('z') }} | "
        "{{ op | operations }} | {{ op | cuda_magnitude }}"
    )
    source, _ = rendered(element_kernel(tmp_path, text, "k.cu.j2"))
    value, single, double, used, operations, magnitude = source.split(" | ")
    assert (value, single, double, used, operations) == ("x - 0.5", "(x - 0.5f)", "(x - 0.5)", "10", "1")
    assert magnitude == cuda_magnitude("x - 0.5")
    with pytest.raises(KernelError, match="cuda: unknown function 'open'"):
        rendered(element_kernel(tmp_path, "{{ 'open(1)' | cuda }}", "other.cu.j2"))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("\n\n{{ blok_size }}", ("k.cu.j2:3: ", "'blok_size' is undefined; did you mean block_size?")),
        ("\n{% if %}", ("k.cu.j2:2: ", "Expected an expression")),
        ('{% include "nowhere.cuh.j2" %}', ("k.cu.j2:1: ", "nowhere.cuh.j2")),
        ('{% include "../../../etc/passwd" %}', ("k.cu.j2:1: ", "to include")),
        ("{{ [1, 2] | random }}", ("random",)),
        (FOR * 30 + "{% endfor %}" * 30, ("k.cu.j2: blocks are nested too deeply",)),
        ("{{ 1" + "0" * 5000 + " }}", ("k.cu.j2: Exceeds the limit", "value has 5001 digits; correct")),
        ("{{ cc" + " + cc" * 300 + " }}", ("k.cu.j2: expressions are nested too deeply",)),
        ("{% macro m() %}{{ m() }}{% endmacro %}\n{{ m() }}", ("k.cu.j2:1: ", "nested too deeply")),
        ("{{ range(a=1, a=2) }}", ("k.cu.j2: keyword argument repeated",)),
        ("{{ '\\ud800' }}", ("k.cu.j2: ", "surrogates")),
        ("\n{{ '{rows}'.format() }}", ("k.cu.j2:2: there is no 'rows'",)),
    ],
)
def test_errors_name_the_template_and_the_line(text: str, parts: tuple[str, ...], tmp_path: Path) -> None:
    message = refusal(tmp_path, text)
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ('\n{% include "wrong/value.cuh.j2" %}', "wrong/value.cuh.j2:3: "),
        ('{% from "wrong/macro.j2" import m %}\n\n{{ m(1) }}', "wrong/macro.j2:2: "),
        ("{% macro m() %}\n{{ 1 // 0 }}\n{% endmacro %}\n\n{{ m() }}", "k.cu.j2:2: "),
    ],
)
def test_errors_in_includes_and_macros_name_their_file(text: str, location: str, tmp_path: Path) -> None:
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "value.cuh.j2").write_text("\n\n{{ problem.nothing }}\n")
    (tmp_path / "wrong" / "syntax.cuh.j2").write_text("\n{% if %}\n")
    (tmp_path / "wrong" / "include.cuh.j2").write_text('\n{% include "nowhere" %}\n')
    (tmp_path / "wrong" / "macro.j2").write_text("{% macro m(a) %}\n{{ a + unknown }}\n{% endmacro %}\n")
    assert refusal(tmp_path, text).startswith(location)


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__ }}", "{{ cc.__class__ }}", "{{ (''|attr('__class__')).mro() }}", "{{ ''['__class__'] }}",
        "{{ '{0.__class__}'.format(cc) }}", "{% set _ = problem.update({'n': 1}) %}", "{{ range(10 ** 9) | list }}",
    ],
)  # fmt: skip
def test_templates_cannot_reach_python(text: str, tmp_path: Path) -> None:
    refusal(tmp_path, text)


def test_memory_that_a_template_takes_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process without a limit of its own, which has none again afterwards."""
    monkeypatch.setattr("tuner.kernel.templates.MEMORY_BYTES", 1 << 26)
    before = resource.getrlimit(resource.RLIMIT_AS)
    assert before[0] == resource.RLIM_INFINITY
    doubling = "{% set t = namespace(s='x') %}{% for i in range(32) %}{% set t.s = t.s ~ t.s %}{% endfor %}"
    with pytest.raises(MemoryError):
        rendered(kernel_with(tmp_path, doubling))
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_constants_that_are_computed_while_a_template_is_compiled_are_bounded(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(MemoryError):
        rendered(kernel_with(tmp_path, "{{ 'a' | center(3 * 10 ** 9) }}"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


@pytest.mark.parametrize(
    "text", ["{{ 1 | round(10 ** 9, 'ceil') }}", FOR.replace("[cc]", "range(99999)") * 3]
)
def test_rendering_ends_where_no_signal_is_handled(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power in C, which Python's alarm does not interrupt; and loops, which it does."""
    monkeypatch.setattr("tuner.kernel.templates.RENDER_S", 0.2)
    kernel = kernel_with(tmp_path, text + "{% endfor %}" * text.count("{% for"))
    configuration = Configuration.of("v", PARAMETERS)
    began = time.monotonic()
    with pytest.raises(KernelError, match=r"k\.(toml|cu\.j2.*): not rendered after 0\.[25] s"):
        apart(lambda: render(kernel, kernel.problem(), GPU, configuration), "k.toml", 0.5)
    assert time.monotonic() - began < 100.0  # not for ever


def test_what_is_rendered_apart_is_what_is_rendered_here(tmp_path: Path) -> None:
    kernel = kernel_with(tmp_path, f"int a = {{{{ cc }}}};  // {'x' * 100}\n" * 1000)
    configuration = Configuration.of("v", PARAMETERS)
    here = render(kernel, kernel.problem(), GPU, configuration)
    there = apart(lambda: render(kernel, kernel.problem(), GPU, configuration), "k.toml")
    assert [tuple(launch) for launch in there] == here
    with pytest.raises(KernelError, match="out of memory while rendering"):
        apart(lambda: "x" * (2 << 30), "k.toml")
    with pytest.raises(KernelError, match=r"k\.toml: the process that renders it died"):
        apart(lambda: os._exit(0), "k.toml")


def test_a_changed_include_is_seen_until_templates_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = kernel_with(tmp_path, '{% include "part.cuh.j2" %}')
    part = tmp_path / "part.cuh.j2"

    def source_after(text: str, changed_s: int) -> str:
        part.write_text(text)
        os.utime(part, (changed_s, changed_s))
        return rendered(kernel)[0]

    assert source_after("int a;", 1) == "int a;"
    assert source_after("int b;", 2) == "int b;"
    monkeypatch.setattr("tuner.kernel.templates._READ_ONCE", threading.Event())
    read_templates_once()
    try:
        assert source_after("int c;", 3) == "int c;"
        assert source_after("int d;", 4) == "int c;"
    finally:
        environment_of.cache_clear()


def test_a_kernel_that_may_begin_early_has_to_wait(tmp_path: Path) -> None:
    body = 'extern "C" __global__ void k(float* y) { WAIT y[0] = 0; }'
    for wait in ("cudaGridDependencySynchronize();", 'asm("griddepcontrol.wait;");', ""):
        (tmp_path / "k.cu.j2").write_text(body.replace("WAIT", wait))
        file = tmp_path / "k.toml"
        file.write_text(FILE.replace("TEMPLATE", "k.cu.j2").replace("ENTRY", "k") + "programmatic = true\n")
        kernel = read_kernel(file)
        if wait:
            assert wait in rendered(kernel)[0]
        else:
            with pytest.raises(KernelError, match="does not wait"):
                rendered(kernel)


@pytest.mark.parametrize(
    "text", ["{{ 'x' * 10 ** 12 }}", "{{ 10 ** 12 * 'x' }}", "{{ [1] * 10 ** 12 }}", "{{ 10 ** (10 ** 12) }}"]
)
def test_operators_stay_within_the_limit(text: str, tmp_path: Path) -> None:
    assert "limit" in refusal(tmp_path, text)


def test_a_file_that_cannot_be_read_for_want_of_memory_is_no_fault_of_the_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = kernel_with(tmp_path, "int a;")

    def open_none(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(Path, "open", open_none)
    with pytest.raises(MemoryError):
        rendered(kernel)


def test_a_kernel_with_a_huge_entry_is_read_at_once(tmp_path: Path) -> None:
    """Jinja's compiler computes constants; reading a file must not."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kernel = kernel_with(tmp_path, "int a;", entry="k{{ 'a' | center(10 ** 9) }}")
    assert kernel.variants["v"].launches[0].entry.startswith("k{{")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


def test_plain_cuda_file_gets_an_element_expression_as_a_macro(tmp_path: Path) -> None:
    source, _ = rendered(element_kernel(tmp_path, "float y = op(1, 2);\n", "k.cu"))
    assert source.startswith(
        "#define order up\n#define op(x, z) ((((float)(x)) - 0.5f))\n#define op_uses_x 1\n#define op_uses_z 0\n"
        "#define block_size 64\n"
    )


def test_an_error_in_an_entry_names_the_kernels_file(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match=r"^k\.toml: entry .*unknown"):
        rendered(kernel_with(tmp_path, "int a;", entry="k<{{ mode.unknown }}>"))


def test_template_that_includes_itself_is_refused(tmp_path: Path) -> None:
    refusal(tmp_path, '{% include "k.cu.j2" %}')


def test_template_that_is_no_text_is_refused(tmp_path: Path) -> None:
    kernel = kernel_with(tmp_path, "")
    (tmp_path / "k.cu.j2").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(KernelError, match=r"k\.cu\.j2"):
        rendered(kernel)
