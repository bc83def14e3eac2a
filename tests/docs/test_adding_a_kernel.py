"""The kernels of docs/adding-a-kernel.md, in docs/examples, are right and compile in every configuration.

docs/kernel-files.md has every key and word of the language.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from tests.on_host import HostConfiguration
from tuner.children.headers import header_folders
from tuner.children.nvrtc import compile_source
from tuner.core.model import Configuration, Gpu, Problem
from tuner.expressions import array
from tuner.expressions.arithmetic import FUNCTION_NAMES, operations, uses
from tuner.expressions.elementwise import MAX_EXPONENT, MAX_LENGTH, MAX_OPERATIONS
from tuner.expressions.elementwise_cuda import cuda, cuda_double, cuda_magnitude
from tuner.inspect.emulator.building import COMPILER
from tuner.inspect.emulator.host import HostArray, Schedule
from tuner.kernel.contents import INITS
from tuner.kernel.functions import PythonFunction
from tuner.kernel.given import Given
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import invalid_reason, make_plan, reference_launch, tensors_of
from tuner.kernel.python_reference import expected_on_host, run_function
from tuner.kernel.reference import settle_reference, tolerance
from tuner.kernel.render import render, render_launch
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec
from tuner.kernel.toml.problem import ROLES
from tuner.kernel.variant_spec import RESOURCE_NAMES
from tuner.runtime.dtypes import ITEMSIZE
from tuner.runtime.launch_limits import DEVICE_LIMITS
from tuner.runtime.launches import Buffer

DOCS = Path(__file__).parents[2] / "docs"
pytestmark = pytest.mark.usefixtures("any_code")

REFERENCE = (DOCS / "kernel-files.md").read_text()
GPU = Gpu("an H200's limits", 90, 132, 60 << 20, 141 << 30, 227 << 10, 228 << 10)

FILTERS = (cuda, cuda_double, cuda_magnitude, uses, operations)


def example(name: str) -> KernelSpec:
    return load_kernel(str(DOCS / "examples" / name / f"{name}.toml"))


def compile_configuration(kernel: KernelSpec, problem: Problem, configuration: Configuration) -> None:
    make_plan(kernel, problem, GPU, configuration)
    for source, entry in render(kernel, problem, GPU, configuration):
        compiled = compile_source(source, entry, GPU.arch, kernel.compile_options, kernel.include)
        assert compiled.resources.registers > 0
        assert ("<" in entry) == (compiled.entry != entry)


@pytest.mark.skipif(not header_folders(), reason="cuda_fp16.h is not installed")
def test_configurations_of_the_plain_kernel_compile() -> None:
    kernel = example("softmax")
    space = SearchSpace.from_kernel(kernel, kernel.problem(), GPU, ("strided",))
    for configuration in list(space.configurations())[::6]:
        compile_configuration(kernel, kernel.problem(), configuration)
    for dtype in ("bfloat16", "float32"):
        compile_configuration(kernel, kernel.problem(dtypes={"": dtype}), configuration)


def test_configurations_of_the_jinja_variant_compile() -> None:
    kernel = example("softmax")
    for dtype in ("float16", "float32"):
        problem = kernel.problem(dtypes={"": dtype})
        space = SearchSpace.from_kernel(kernel, problem, GPU, ("in_registers",))
        for configuration in list(space.configurations())[::26]:
            compile_configuration(kernel, problem, configuration)


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "chosen"),
    [
        (1, 1, "float32", {"warps_per_row": 1, "vector_width": 1}),
        (7, 33, "bfloat16", {"warps_per_row": 1, "rows_per_block": 4, "vector_width": 1}),
        (2, 40, "float16", {"warps_per_row": 32, "vector_width": 8}),  # most warps have no column
        (3, 1001, "float16", {"warps_per_row": 8, "vector_width": 1}),
        (2, 2048, "bfloat16", {"warps_per_row": 4, "vector_width": 8}),  # every thread has whole vectors
    ],
)
def test_the_jinja_variant_is_right_at_any_size(
    rows: int, columns: int, dtype: str, chosen: dict[str, int], tmp_path: Path
) -> None:
    """In the emulator; also with minus infinity in the first half of each row, as a mask writes it."""
    kernel, rng = example("softmax"), np.random.default_rng(3)
    problem = kernel.problem({"rows": rows, "columns": columns}, {"": dtype})
    configuration = Configuration.of("in_registers", {**kernel.variants["in_registers"].defaults, **chosen})
    assert not invalid_reason(kernel, problem, GPU, configuration)
    host = HostConfiguration(kernel, problem, GPU, configuration, tmp_path / "host")
    allowed = tolerance(columns, "float32", dtype)
    for masked in (0, columns // 2):
        memory = {tensor.name: HostArray(tensor.count, dtype) for tensor in tensors_of(kernel, problem, GPU)}
        x = rng.normal(size=(rows, columns))
        x[:, :masked] = -np.inf
        memory["x"].fill(x.ravel())
        x = memory["x"].numbers.astype(np.float64).reshape(rows, columns)
        host.run(problem.sizes, memory, Schedule())
        powers = np.exp(x - x.max(1, keepdims=True))
        expected = powers / powers.sum(1, keepdims=True)
        error = np.abs(memory["y"].numbers.astype(np.float64).reshape(rows, columns) - expected)
        assert (error <= (allowed.coefficient + allowed.unit) * expected + allowed.tiny).all()


@pytest.mark.parametrize("cc", [75, 90])
def test_the_stencil_compiles_everywhere(cc: int) -> None:
    kernel, device = example("smooth"), dataclasses.replace(GPU, cc=cc)
    for dtype in ("float32", "float16", "bfloat16"):
        problem = kernel.problem(dtypes={"": dtype})
        for configuration in list(SearchSpace.from_kernel(kernel, problem, device).configurations())[::26]:
            ((source, entry),) = render(kernel, problem, device, configuration)
            assert compile_source(source, entry, device.arch).resources.registers > 0


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_stencil_is_right_at_any_size(dtype: str, tmp_path: Path) -> None:
    """In the emulator, by its own reference and the tolerance that follows from it."""
    kernel, rng = example("smooth"), np.random.default_rng(2)
    problem = kernel.problem(dtypes={"": dtype})
    allowed = tolerance(5, "float32", dtype)
    values = {"block_x": 32, "block_y": 2, "rows": 4}
    host = HostConfiguration(kernel, problem, GPU, Configuration.of("columns", values), tmp_path / "host")
    for height, width in ((1, 1), (1, 33), (8, 32), (9, 31), (17, 70)):
        sizes = {"height": height, "width": width}
        here = kernel.problem(sizes, {"": dtype})
        tensors = tensors_of(kernel, here, GPU)
        memory = {tensor.name: HostArray(tensor.count, dtype) for tensor in tensors}
        memory["x"].fill(rng.normal(size=height * width))
        inputs = {"x": memory["x"].numbers.astype(np.float64).reshape(height, width)}
        expected = expected_on_host(settle_reference(kernel, here, GPU), tensors, inputs, dict(sizes))["y"]
        host.run(sizes, memory, Schedule())
        error = np.abs(memory["y"].numbers.astype(np.float64).reshape(height, width) - expected.value)
        assert expected.value.shape == (height, width)
        assert (
            error <= allowed.coefficient * expected.magnitude + allowed.unit * np.abs(expected.value)
        ).all()


def test_the_python_functions_of_the_page_are_right(tmp_path: Path) -> None:
    inputs, code = re.findall(r"```python\n(import numpy as np\n.*?)```", REFERENCE, re.DOTALL)
    (tmp_path / "inputs.py").write_text(inputs)
    counts = {"first": 5, "column": 60, "order": 500, "ascending": 500, "skewed": 500, "mean": 5}
    given = [
        Buffer(name, (count,), "int32" if name != "mean" else "float32", "input", "file",
               file=tmp_path / "inputs.py", function=name)
        for name, count in counts.items()
    ]  # fmt: skip
    x = np.random.default_rng(2).normal(size=(5, 9))
    sizes = {"rows": 4, "columns": 9, "nonzeros": 60, "n": 500, "bins": 64}
    tensors = [*given, Buffer("x", x.shape, "float64", "input")]
    values = Given(tensors, sizes, seed=3).values({"x": x})
    assert values["first"][[0, -1]].tolist() == [0, 60] and np.diff(values["first"]).min() >= 0
    assert 0 <= values["column"].min() < values["column"].max() < 9
    for row in np.split(values["column"], values["first"][1:-1]):
        assert (np.diff(row) >= 0).all()
    assert sorted(values["order"]) == list(range(500)) and values["order"][0] != 0
    assert (np.diff(values["ascending"]) >= 0).all() and values["ascending"][0] < -(2**30)
    shares = np.bincount(values["skewed"], minlength=64) / 500
    assert len(shares) == 64 and shares[0] > 0.3 and shares[1:8].max() < 0.2
    assert np.array_equal(values["mean"], x.mean(axis=1))
    (tmp_path / "median.py").write_text(code)
    x = np.random.default_rng(4).normal(size=(5, 9))
    tensors = [Buffer("x", x.shape, "float32", "input"), Buffer("y", x.shape, "float32", "output")]
    function = PythonFunction(tmp_path / "median.py", "median")
    value = run_function(function, tensors, ["y"], {"x": x}, {"rows": 5})["y"].value
    assert value[2, 4] == np.median(x[2, 3:6])
    assert value[0, 0] == x[0, 0]  # of itself twice, and one neighbour


def test_every_configuration_of_the_cpp_template_compiles() -> None:
    kernel = example("heat")
    for dtype in ("float32", "float64"):
        problem = kernel.problem(sizes={"height": 1000, "width": 700}, dtypes={"": dtype})
        seen = set()
        for configuration in SearchSpace.from_kernel(kernel, problem, GPU).configurations():
            make_plan(kernel, problem, GPU, configuration)
            if configuration.values["rows"] not in seen:  # a template parameter; the block's sides are not
                compile_configuration(kernel, problem, configuration)
            seen.add(configuration.values["rows"])
        assert kernel.reference.cuda is not None
        source, entry = render_launch(kernel, kernel.reference.cuda, problem, GPU, Configuration("", ()))
        compile_source(source, entry, GPU.arch, kernel.compile_options, kernel.include)
        launch = reference_launch(kernel, problem, GPU)
        assert launch is not None
        assert launch.grid == (22, 125, 1)


@pytest.mark.parametrize(
    "word",
    sorted(
        {*ROLES, *INITS, *ITEMSIZE, *DEVICE_LIMITS, *RESOURCE_NAMES, *FUNCTION_NAMES, *array.FUNCTION_NAMES}
    ),
)
def test_page_explains_every_word_of_the_language(word: str) -> None:
    assert re.search(rf"`[^`\n]*\b{word}\b[^`\n]*`", REFERENCE)


def test_page_explains_every_filter_and_limit_of_element_expressions() -> None:
    section = REFERENCE.split("## Element expressions")[1].split("\n## ")[0]
    for function in FILTERS:
        assert f"`{{{{ op \\| {function.__name__}" in section
    for limit in (MAX_LENGTH, MAX_OPERATIONS, f"-{MAX_EXPONENT} to {MAX_EXPONENT}"):
        assert re.search(rf"\b{limit}\b".replace(r"\b-", "-"), section)


def test_page_explains_every_key() -> None:
    """Every key that the readers of a kernel's file ask for."""
    readers = ("load", "toml/problem", "toml/variants", "toml/table")
    source = "".join((DOCS.parent / "tuner/kernel" / f"{name}.py").read_text() for name in readers)
    keys = set(re.findall(r"""\.(?:get|table|tables)\("(\w+)\"""", source))
    keys |= set(
        re.findall(r"""\b(?:expressions?|optional|checked|choice|value_list)\(\w+, "(\w+)\"""", source)
    )
    assert len(keys) > 50
    missing = [key for key in sorted(keys) if not re.search(rf"`[^`\n]*\b{key}\b[^`\n]*`", REFERENCE)]
    assert not missing
