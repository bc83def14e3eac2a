"""What identifies a kernel: wording does not count, what is computed and how it is done do."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest

from tests.edited_kernels import edit, identity, implementation
from tests.faults.kernels import write_kernel
from tuner.expressions.arithmetic import parse
from tuner.kernel.functions import PythonFunction
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import load_kernel
from tuner.kernel.variant_spec import ParameterSpec, VariantSpec
from tuner.runtime.entries import ScratchEntry

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
COMPUTATIONS = {
    "gemm": ("26d78ff682761a1bd07ce8fba87f1a9e", "f11a7c9b73d9bdcc06bc70e517623822"),
    "mean_matvec": ("97895e9296e443e49f5c9194181926c4", "737e296c4d026a95ea950cc7bb05517c"),
    "reduce": ("6ed0929d01c24070941e116455d29a54", "70ab99a96fca166e40f0109540ee9c85"),
    "reduce_axis": ("486f96fd6368dcecd88ffb5e69321196", ""),
    "rope": ("a11ea224b4583b18ec021a29161cbbde", ""),
    "saxpy": ("c4402130697b3b693e5b6cd9cb1af528", "b647d75566705133d4eee72fadc23008"),
    "transform": ("8936c0908d8aea22f600f2f7612fb522", "f85668ad5a7f2083f8312bf004a95397"),
    "permute": ("4d54e987fd645ad35debac812242de4a", ""),
    "transpose": ("699abc49277ca40b6a3ebb08e350e467", ""),
    "vector_add": ("ea9d2385979591d652bd3deac1f95018", "23df90602c5b3e6a5395b6281d869525"),
    "heat": ("670a88025293c612e4125637091da3f2", "fb33594c83772cb3caf9a2ed804deb91"),
    "rms_norm": ("6f9b417941f09aa0b1b6a75a24a66b26", "389a856ae14d0c373939fa6ebfe548b3"),
    "smooth": ("7c92d7e2db2c32de5640c85815ebe00c", "ee4cf9ddd27cc249be4b68f4134c19b0"),
    "softmax": ("86e6463bb4ccf2696062821ea2f57042", "c6b06325b83699257d90067a1273944f"),
}
"""Digests of what each kernel computes, now and (of kernels as old) by schema 2: stored results are found by them."""


@pytest.mark.parametrize("name", COMPUTATIONS)
def test_stored_results_are_still_found(name: str) -> None:
    own = KernelIdentity(
        load_kernel(str(example) if (example := EXAMPLES / name / f"{name}.toml").is_file() else name)
    )
    computation, legacy = COMPUTATIONS[name]
    assert own.computation == computation
    assert own.legacy == legacy or not legacy


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_kernel(tmp_path / "kernel").resolve()


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


def test_the_same_source_launched_otherwise_is_another_implementation(path: Path) -> None:
    done = implementation(path)
    edit(path, "block = [", "shared_bytes = 1024\nblock = [")
    assert implementation(path) != done


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


CHANGED: dict[str, object] = {
    "requires": parse("n > 1"),
    "parameters": {"vector": ParameterSpec("vector", (1, 2, 4), 1)},
    "constraints": (("odd", parse("items > 0")),),
    "scratch": (ScratchEntry("sums", (parse("n"),), "float32"),),
    "launches": (),
    "state": ("counter",),
    "compile_options": ("-use_fast_math",),
    "call": PythonFunction(Path(__file__), "run"),
}
"""Each field of a variant that decides what comes of it, with another value."""
UNCOUNTED = {"name", "summary", "requirements", "pruning_rules", "listed"}
"""A key of the digest, wording, what is joined in ``requires``, what is tried, another tool's space."""


def test_every_field_of_a_variant_counts_or_is_left_out_on_purpose(path: Path) -> None:
    assert {field.name for field in fields(VariantSpec)} == {*CHANGED, *UNCOUNTED}
    kernel = load_kernel(str(path))
    ((name, variant),) = kernel.variants.items()
    texts = {KernelIdentity(kernel).text}
    for field, value in CHANGED.items():
        other = replace(kernel, variants={name: replace(variant, **{field: value})})
        texts.add(KernelIdentity(other).text)
    assert len(texts) == 1 + len(CHANGED)


def test_another_template_computes_the_same_in_another_way(path: Path) -> None:
    before, done = identity(path), implementation(path)
    digests = before.computation, before.text
    edit(path.with_name("scale.cu.j2"), "2.0f * x[i]", "x[i] + x[i]")
    assert identity(path).computation == digests[0]
    assert identity(path).text != digests[1]
    assert implementation(path) != done


def test_what_jinja_divides_counts(path: Path) -> None:
    edit(path.with_name("scale.cu.j2"), "{\n", "{\n{% set half = items // 2 %}\n")
    before = identity(path).text
    edit(path.with_name("scale.cu.j2"), "items // 2", "items // 4")
    assert identity(path).text != before


def test_the_name_of_a_source_does_not_count(path: Path) -> None:
    path.with_name("scale.cu.j2").rename(path.with_name("scale.cu"))
    edit(path, "scale.cu.j2", "scale.cu")
    before, done = identity(path).text, implementation(path)
    path.with_name("scale.cu").rename(path.with_name("times_two.cu"))
    edit(path, "scale.cu", "times_two.cu")
    assert (identity(path).text, implementation(path)) == (before, done)


def test_a_copy_elsewhere_is_the_same_kernel(path: Path, tmp_path: Path) -> None:
    shutil.copytree(path.parent, tmp_path / "zz" / "deeper")
    copy = tmp_path / "zz" / "deeper" / path.name
    assert identity(copy).computation == identity(path).computation
    assert identity(copy).text == identity(path).text
    assert implementation(copy) == implementation(path)
