"""Baselines: what a kernel's file may call, and what the command line may name."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.torch_on_numpy import torch_on_numpy
from tuner.core.errors import ExpressionError, TunerError, UsageError
from tuner.core.model import Gpu, Problem
from tuner.expressions.library_call import FUNCTIONS, LibraryCall
from tuner.kernel.baselines import baselines_of, launch_of, parse_baseline, settle_baseline
from tuner.kernel.functions import BaselineKind
from tuner.kernel.load import builtin_kernels, load_kernel
from tuner.kernel.reference import numpy_of
from tuner.runtime.launch_limits import UnlaunchableError

GPU = Gpu("an H200's limits", 90, 132, 60 << 20, 141 << 30, 227 << 10, 228 << 10)

# -- calls of libraries


@pytest.mark.parametrize(
    ("text", "library", "names", "outputs"),
    [
        ("torch.add(y, x, alpha=-alpha, out=y)", "torch", {"x", "y", "alpha"}, ("y",)),
        ("torch.sum(torch.mul(x, 2.5), dim=(0, -1), keepdim=True, out=y)", "torch", {"x", "y"}, ("y",)),
        ("cupy.add(cupy.multiply(x, 3), y, out=(y,))", "cupy", {"x", "y"}, ("y",)),
        ("  torch.cat([a, b],\n out=c)", "torch", {"a", "b", "c"}, ("c",)),
    ],
)
def test_calls_that_are_understood(
    text: str, library: str, names: set[str], outputs: tuple[str, ...]
) -> None:
    call = LibraryCall(text)
    assert (call.library, call.names, call.outputs, call.tf32) == (library, names, outputs, False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "torch.mm(a, b)",  # where to?
        "torch.mm(a, b, out=c); torch.mm(a, b, out=c)",
        "torch.mm(a, b, out=torch.abs(c))",
        "torch.mm(torch.abs(a, out=a), b, out=c)",  # would change an input
        "torch.mm(*a, out=c)",
        "torch.mm(a, 'b', out=c)",
        "torch.mm(a, 1e999, out=c)",
        "torch.mm(a.T, b, out=c)",
        "torch.mm(lambda: 1, b, out=c)",
        "torch.mm(f(a), b, out=c)",
        "torch.load('model.pt', out=c)",
        "torch.mm.__globals__(a, out=c)",
        "torch.__builtins__.eval(a, out=c)",
        "os.system(a, out=c)",
        "__import__('os').system('true', out=c)",
        "cupy.cuda.runtime.free(a, out=c)",
        "cupy.add(torch.abs(a), b, out=c)",
        "tf32(cupy.matmul(a, b, out=c))",
        "torch.mm(a, b, out=c)\0",
        "torch.abs(" * 300 + "a" + ")" * 300,
        "torch.add(a, " + "-" * 1900 + "1, out=c)",
        "torch.add(a, " + "1" * 3000 + ", out=c)",
    ],
)
def test_everything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        LibraryCall(text)
    assert "\n" not in str(caught.value)


def test_only_functions_on_the_list_are_ever_looked_up() -> None:
    looked_up: list[str] = []

    class Library:
        __version__ = "0"

        def __getattr__(self, name: str) -> Any:
            looked_up.append(name)
            raise AttributeError(name)

    with pytest.raises(TunerError, match=r"torch 0 has no torch\.mm; update it"):
        LibraryCall("torch.mm(a, b, out=c)").bind(Library())
    assert looked_up == ["mm"]
    for library, names in FUNCTIONS.items():
        private = [n for n in names if any(part.startswith("_") for part in n.split("."))]
        assert private == (["_scaled_mm"] if library == "torch" else []), library


@pytest.mark.parametrize("library", FUNCTIONS)
def test_the_page_lists_every_function(library: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "kernel-files.md").read_text()
    row = page.split(f"\n| `{library}` | ")[1].split(" |\n")[0]
    assert sorted(row.replace("`", "").replace(",", " ").split()) == sorted(FUNCTIONS[library])


def test_a_call_gets_values_numbers_and_keywords() -> None:
    given: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def add(*positional: Any, **named: Any) -> str:
        given.append((positional, named))
        return "sum"

    library = SimpleNamespace(
        add=add, nn=SimpleNamespace(functional=SimpleNamespace(silu=lambda x: ("s", x)))
    )
    text = (
        "tf32(torch.add(torch.nn.functional.silu(x), -n, [1, (2.5, None)], alpha=-alpha, flag=True, out=y))"
    )
    call = LibraryCall(text)
    assert call.tf32
    assert call.bind(library)({"x": "X", "y": "Y", "n": 3, "alpha": 0.5}) == "sum"
    assert given == [((("s", "X"), -3, [1, (2.5, None)]), {"alpha": -0.5, "flag": True, "out": "Y"})]


def problems_of(name: str) -> Iterator[Problem]:
    """Return a small problem of a built-in kernel for each choice of its options."""
    kernel = load_kernel(name)
    sizes = {size: 5 + i for i, size in enumerate(kernel.sizes)}
    if name == "scaled_mm":  # what torch takes
        sizes.update(n=16, k=512)
    for values in itertools.product(*kernel.options.values()):
        problem = kernel.problem(sizes, options=dict(zip(kernel.options, values, strict=True)))
        if kernel.usable_variants(problem, GPU)[0]:
            yield problem


@pytest.mark.parametrize(
    "problem",
    [p for name in builtin_kernels() if load_kernel(name).baselines for p in problems_of(name)],
    ids=str,
)
def test_baselines_of_builtin_kernels_compute_the_reference(problem: Problem) -> None:
    kernel = load_kernel(problem.kernel)
    names = kernel.environment(problem, GPU)
    rng = np.random.default_rng(0)
    libraries = {"torch": torch_on_numpy(), "cupy": np}
    compared = []
    for each in baselines_of(kernel):
        try:
            baseline = settle_baseline(each, kernel, problem)
        except UsageError:
            continue  # the file names no call for this problem
        compared.append(baseline.name)
        values: dict[str, Any] = {s.name: s.value.evaluate(names) for s in kernel.scalars.values()}
        for tensor in kernel.present(problem).values():
            shape = tuple(int(dim.evaluate(names)) for dim in tensor.shape)
            whole = tensor.dtype == "int64"
            values[tensor.name] = rng.standard_normal(shape).astype(np.int64 if whole else np.float32)
        (output,) = (t.name for t in kernel.present(problem).values() if t.role != "input")
        expected = numpy_of(kernel, problem)[output].evaluate({**problem.sizes, **values})[0]
        call = LibraryCall(baseline.text)
        assert call.library == baseline.library == each.library
        call.bind(libraries[call.library])(values)
        np.testing.assert_allclose(
            values[output], expected.reshape(values[output].shape), rtol=1e-5, atol=1e-5
        )
    called = kernel.baselines and problem.options.get("mask") != "causal"  # which torch's functions have not
    assert set(compared) >= ({"torch"} if called else set())


def test_the_call_that_fits_a_problem_is_made() -> None:
    kernel = load_kernel("reduce")
    torch = next(baseline for baseline in baselines_of(kernel) if baseline.name == "torch")
    assert torch.library == "torch"

    def text(dtype: str, op: str) -> str:
        problem = kernel.problem(dtypes={"": dtype}, options={"op": op})
        return settle_baseline(torch, kernel, problem).text

    assert text("float16", "sum") == "torch.sum(x, 0, keepdim=True, out=out)"
    assert text("float32", "max") == "torch.amax(x, 0, keepdim=True, out=out)"
    assert "dtype=float32" in text("bfloat16", "mean")
    with pytest.raises(UsageError, match="torch has no call for reduce n=67108864 float16 op=max"):
        text("float16", "max")
    # In the measuring process there is only what fits.
    answer = settle_baseline(torch, kernel, kernel.problem())
    assert settle_baseline(answer, kernel, kernel.problem(options={"op": "max"})) == answer


def test_a_call_may_name_a_dtype() -> None:
    call = LibraryCall("torch.mean(x, 0, keepdim=True, dtype=float32, out=y)")
    assert call.names == {"x", "y"}
    given: dict[str, Any] = {}
    library = SimpleNamespace(mean=lambda *_, **named: given.update(named), float32="its float32")
    call.bind(library)({"x": "X", "y": "Y"})
    assert given == {"keepdim": True, "dtype": "its float32", "out": "Y"}
    with pytest.raises(TunerError, match="no float32"):
        call.bind(SimpleNamespace(mean=None))
    for wrong in ("x", "float31", "'float32'", "torch.float32"):
        with pytest.raises(ExpressionError):
            LibraryCall(f"torch.mean(x, 0, dtype={wrong}, out=y)")


# -- what the command line names


@pytest.fixture
def cu_file(tmp_path: Path) -> Path:
    file = tmp_path / "mine.cu"
    file.write_text('extern "C" __global__ void add(const float* a) {}\n  // tune: add<<<n, 32>>>(a)\n')
    return file


def parsed(text: str) -> tuple[str, BaselineKind, str]:
    baseline = parse_baseline(text)
    return baseline.name, baseline.kind, baseline.text


def test_kernels_of_a_user(cu_file: Path) -> None:
    cubin = cu_file.with_suffix(".cubin")
    cubin.write_bytes(b"\x7fELF")
    assert parsed(f"{cu_file}:add<<<ceil_div(n, 256),\n 256>>>(a, b)") == (
        "mine.cu:add", BaselineKind.LAUNCH, "add<<<ceil_div(n, 256), 256>>>(a, b)",
    )  # fmt: skip
    assert parsed(str(cu_file)) == ("mine.cu", BaselineKind.LAUNCH, "add<<<n, 32>>>(a)")
    assert parsed(f"{cubin}:add<<<1, 32>>>()")[:2] == ("mine.cubin:add", BaselineKind.LAUNCH)
    assert parse_baseline(str(cu_file)).file == cu_file.resolve()


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "cannot compare with ''"), ("trch", "cannot compare with 'trch'"),
        ("missing.cu:add<<<1, 1>>>()", "no file"), ("x" * 5000 + ".cu", "no file"), ("a\0.cu", "no file"),
        ("FILE.cubin", "does not say how to launch it"), ("FILE.cu:add", "is no launch"),
        ("FILE.cu:add<<<1, 1>>>", "is no launch"), ("FILE.cu:add<<<1>>>(a)", "has 1 items"),
        ("FILE.cu:add<<<(1, 1, 1, 1), 1>>>(a)", "4 dimensions"), ("FILE.cu:add<<<n.real, 1>>>(a)", "not allowed"),
        ("FILE.cu:add<<<1, 1>>>(__import__('os'))", "there is no function"),
        ("FILE.cu:add<<<1, 1>>>(a) or (b)", "cannot read"), ("FILE.cu:{{ x }}<<<1, 1>>>(a)", "is no launch"),
        ("FILE.py:", "is no function's name"), ("a:b:c", "cannot compare with"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_with(text: str, part: str, cu_file: Path) -> None:
    for suffix in (".cubin", ".py"):
        cu_file.with_suffix(suffix).write_text("")
    with pytest.raises(UsageError) as caught:
        parse_baseline(text.replace("FILE", str(cu_file.with_suffix(""))))
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def launched(cu_file: Path, launch: str, kernel: str = "saxpy", **sizes: int) -> Any:
    spec = load_kernel(kernel)
    return launch_of(parse_baseline(f"{cu_file}:{launch}"), spec, spec.problem(sizes), GPU)


def test_a_launch_is_settled(cu_file: Path) -> None:
    launch = launched(cu_file, "k<<<ceil_div(n, 256), 256>>>(alpha, x, y, n, int64(n + 1), 2 * n)", n=1000)
    assert (launch.grid, launch.block, launch.shared_bytes) == ((4, 1, 1), (256, 1, 1), 0)
    assert launch.arguments == (
        ("scalar", "float32", 2.5), ("buffer", "x", 0), ("buffer", "y", 0),
        ("scalar", "int32", 1000), ("scalar", "int64", 1001), ("scalar", "int32", 2000),
    )  # fmt: skip
    launch = launched(cu_file, "ns::k<float, 4><<<dim3(2, 3), (n, 2, 1), 4 * n>>>(x, float32(0.5));", n=64)
    assert (launch.grid, launch.block, launch.shared_bytes) == ((2, 3, 1), (64, 2, 1), 256)
    assert launch.arguments[1] == ("scalar", "float32", 0.5)


@pytest.mark.parametrize(
    ("launch", "error", "part"),
    [
        ("k<<<n, 1>>>(z)", UsageError, "unknown name 'z'"),
        ("k<<<1, 1>>>(int64(x))", UsageError, "unknown name 'x'"),
        ("k<<<(n + 255) / 256, 256>>>(x)", UsageError, "write ceil_div(a, b), or //"),
        ("k<<<1 // 0, 1>>>(x)", UsageError, "mine.cu:k: "),
        ("k<<<1, 1>>>(0.5)", UsageError, "not a whole number"),
        ("k<<<1, 1>>>(n * n)", UnlaunchableError, "write int64(...) around it"),
        ("k<<<1, 2048>>>(x)", UnlaunchableError, "limit in this dimension is 1024"),
    ],
)
def test_launches_that_cannot_be(launch: str, error: type[TunerError], part: str, cu_file: Path) -> None:
    with pytest.raises(error) as caught:
        launched(cu_file, launch, n=100_001)
    assert part in str(caught.value)
    assert "mine.cu:k" in str(caught.value)
