"""What identifies a kernel: wording does not count, what is computed and how it is done do."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.edited_kernels import edit, identity, implementation
from tests.faults.kernels import write_kernel
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import builtin_kernels, load_kernel


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_kernel(tmp_path / "kernel").resolve()


def test_a_copy_elsewhere_is_the_same_kernel(path: Path, tmp_path: Path) -> None:
    shutil.copytree(path.parent, tmp_path / "zz" / "deeper")
    copy = tmp_path / "zz" / "deeper" / path.name
    assert identity(copy).computation == identity(path).computation
    assert identity(copy).text == identity(path).text
    assert implementation(copy) == implementation(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda toml: edit(toml, "[problem]", "# a comment\n[problem]"),
        lambda toml: edit(toml.with_name("scale.cu.j2"), "{\n", "{  // why\n{# and how #}"),
        lambda toml: edit(toml, 'numpy = "2 * x"', 'numpy = "(2*x)"'),
    ],
)
def test_wording_does_not_count(path: Path, change: Callable[[Path], None]) -> None:
    before, done = identity(path), implementation(path)
    digests = before.computation, before.text
    change(path)
    assert (identity(path).computation, identity(path).text) == digests
    assert implementation(path) == done


def test_another_reference_computes_something_else(path: Path) -> None:
    before = identity(path)
    parts = dict(before.parts)
    edit(path, "2 * x", "3 * x")
    after = identity(path)
    assert {name for name in parts if after.parts[name] != parts[name]} == {"reference"}
    assert after.computation != before.computation


def test_another_template_computes_the_same_in_another_way(path: Path) -> None:
    before, done = identity(path), implementation(path)
    digests = before.computation, before.text
    edit(path.with_name("scale.cu.j2"), "2.0f * x[i]", "x[i] + x[i]")
    assert identity(path).computation == digests[0]
    assert identity(path).text != digests[1]
    assert implementation(path) != done


def test_the_same_source_launched_otherwise_is_another_implementation(path: Path) -> None:
    done = implementation(path)
    edit(path, "block = [", "shared_bytes = 1024\nblock = [")
    assert implementation(path) != done


def test_what_jinja_divides_counts(path: Path) -> None:
    edit(path.with_name("scale.cu.j2"), "{\n", "{\n{% set half = items // 2 %}\n")
    before = identity(path).text
    edit(path.with_name("scale.cu.j2"), "items // 2", "items // 4")
    assert identity(path).text != before


@pytest.mark.parametrize(
    "tag", ['{% include "parts/" ~ fault ~ ".j2" %}', '{% include "a.j2" if items == 1 else "b.j2" %}']
)
def test_templates_that_may_be_included_count(path: Path, tag: str) -> None:
    for name in ("a.j2", "b.j2"):
        path.with_name(name).write_text("// nothing\n")
    with path.with_name("scale.cu.j2").open("a") as file:
        file.write(tag)
    before = identity(path).text
    edit(path.with_name("b.j2"), "// nothing", "int something;")
    assert identity(path).text != before


@pytest.mark.parametrize("name", ["own.cuh", "{{ fault }}_own.cuh"])
def test_headers_count_where_they_are_included(path: Path, name: str) -> None:
    for header in ("own.cuh", "ok_own.cuh", "unused.cuh"):
        path.with_name(header).write_text('#include "deeper.cuh"\n')
    path.with_name("deeper.cuh").write_text("#define DEEP 1\n")
    edit(path.with_name("scale.cu.j2"), "extern", f'#include "{name}"\nextern')
    before, done = identity(path).text, implementation(path)
    edit(path.with_name("unused.cuh"), "#include", "int unused;\n#include")
    edit(path.with_name("deeper.cuh"), "#define", "// how deep\n#define")
    assert (identity(path).text, implementation(path)) == (before, done)
    edit(path.with_name("deeper.cuh"), "DEEP 1", "DEEP 2")
    assert identity(path).text != before
    assert implementation(path) != done


def test_the_name_of_a_source_does_not_count(path: Path) -> None:
    path.with_name("scale.cu.j2").rename(path.with_name("scale.cu"))
    edit(path, "scale.cu.j2", "scale.cu")
    before, done = identity(path).text, implementation(path)
    path.with_name("scale.cu").rename(path.with_name("times_two.cu"))
    edit(path, "scale.cu", "times_two.cu")
    assert (identity(path).text, implementation(path)) == (before, done)


PYTHON = "import helper\n\ndef expected(x):\n    return helper.factor * x\n"


@pytest.mark.parametrize(
    ("file", "text", "same"),
    [
        (
            "reference.py",
            '"""What is right."""\n' + PYTHON.replace("    return", '    "Twice."\n    return'),
            True,
        ),
        ("reference.py", PYTHON.replace("* x", "* x * 1"), False),
        ("helper.py", "factor = 2  # twice\n", True),
        ("helper.py", "factor = 3\n", False),
    ],
)
def test_a_python_reference_counts_with_what_it_imports(path: Path, file: str, text: str, same: bool) -> None:
    path.with_name("reference.py").write_text(PYTHON)
    path.with_name("helper.py").write_text("factor = 2\n")
    edit(path, 'numpy = "2 * x"', 'python = "reference.py:expected"')
    before = identity(path).computation
    path.with_name(file).write_text(text)
    assert (identity(path).computation == before) is same


def test_built_in_kernels_compute_different_things() -> None:
    kernels = builtin_kernels()
    assert len({KernelIdentity(load_kernel(name)).computation for name in kernels}) == len(kernels)
