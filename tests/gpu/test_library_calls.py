"""Libraries' calls and users' functions, captured into graphs on memory that is not theirs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.core.errors import TunerError
from tuner.gpu.arrays import TensorView
from tuner.gpu.baselines import function_call, library_call
from tuner.gpu.captured import Call, capture
from tuner.gpu.driver import Context, Graph
from tuner.kernel.functions import load_function
from tuner.runtime.driver import check

Array = np.ndarray[Any, Any]


class Tensors:
    """Arrays on the GPU, in memory of the driver's."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._held: list[int] = []

    def put(self, array: Array, dtype: str = "", *, transposed: bool = False) -> TensorView:
        from cuda.bindings import driver as cu

        array = np.ascontiguousarray(array)
        self._held.append(int(check(cu.cuMemAlloc(array.nbytes))))
        check(cu.cuMemcpyHtoD(self._held[-1], array.ctypes.data, array.nbytes))
        return TensorView(self._held[-1], array.shape, dtype or str(array.dtype), transposed)

    def get(self, view: TensorView, dtype: str = "") -> Array:
        from cuda.bindings import driver as cu

        array = np.empty(view.shape, dtype or view.dtype)
        check(cu.cuMemcpyDtoH(array.ctypes.data, view.address, array.nbytes))
        return array

    def fill(self, view: TensorView, like: Array) -> None:
        from cuda.bindings import driver as cu

        check(cu.cuMemcpyHtoD(view.address, np.ascontiguousarray(like).ctypes.data, like.nbytes))

    def replay(self, calls: list[Call], runs: int = 1) -> None:
        """Capture calls, put them into one graph behind each other, and launch it."""
        captured = capture(self.context, calls)
        graph = Graph(self.context)
        try:
            for copy in range(len(calls)):
                captured.add_to(graph, copy)
            for _ in range(runs):
                graph.launch()
            self.context.synchronize()
        finally:
            graph.close()
            captured.close()

    def close(self) -> None:
        from cuda.bindings import driver as cu

        for address in self._held:
            cu.cuMemFree(address)


@pytest.fixture(scope="module")
def context() -> Context:
    return Context(0)


@pytest.fixture
def gpu(context: Context) -> Iterator[Tensors]:
    tensors = Tensors(context)
    yield tensors
    tensors.close()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def call(text: str, views: dict[str, TensorView], scalars: dict[str, float] | None = None) -> Call:
    library = text.removeprefix("tf32(").split(".")[0]
    pytest.importorskip(library)
    return library_call(text, views, scalars or {})


@pytest.mark.parametrize("text", ["torch.add(a, b, out=c)", "cupy.add(a, b, out=c)"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int32"])
def test_sum_on_several_copies(text: str, dtype: str, gpu: Tensors, rng: np.random.Generator) -> None:
    hosts, views = [], []
    for _ in range(3):
        a, b = ((100 * rng.standard_normal(1000)).astype(dtype) for _ in range(2))
        hosts.append(a + b)
        views.append({"a": gpu.put(a), "b": gpu.put(b), "c": gpu.put(np.zeros_like(a))})
    calls = [call(text, v) for v in views]
    gpu.replay(calls)
    for host, v in zip(hosts, views, strict=True):
        np.testing.assert_array_equal(gpu.get(v["c"]), host)


def test_the_graph_computes_and_not_only_the_warm_up(gpu: Tensors) -> None:
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    views = {"x": gpu.put(x), "y": gpu.put(y)}
    for library, text in (
        ("torch", "torch.add(y, x, alpha=alpha, out=y)"),
        ("cupy", "cupy.add(cupy.multiply(x, alpha), y, out=y)"),
    ):
        pytest.importorskip(library)
        gpu.fill(views["y"], y)
        captured = capture(gpu.context, [call(text, views, {"alpha": 2.5})])
        graph = Graph(gpu.context)
        captured.add_to(graph)
        gpu.fill(views["y"], y)
        for _ in range(4):
            graph.launch()
        gpu.context.synchronize()
        assert gpu.get(views["y"]).tolist() == [10.0] * 64, library
        graph.close()
        captured.close()


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1e-6), ("float16", 1e-3)])
def test_product_of_torch(
    layout: str, dtype: str, bound: float, gpu: Tensors, rng: np.random.Generator
) -> None:
    a, b = rng.standard_normal((200, 264)).astype(dtype), rng.standard_normal((264, 136)).astype(dtype)
    views = {
        **{
            name: gpu.put(matrix.T if letter == "t" else matrix, transposed=letter == "t")
            for name, matrix, letter in zip("ab", (a, b), layout, strict=True)
        },
        "c": gpu.put(np.zeros((200, 136), dtype)),
    }
    gpu.replay([call("torch.mm(a, b, out=c)", views)], runs=2)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert np.linalg.norm(gpu.get(views["c"]) - exact) < bound * np.linalg.norm(exact)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(200, 264, 136), (1, 512, 256), (77, 129, 51)])
def test_the_best_of_cublaslt(
    shape: tuple[int, int, int], dtype: str, layout: str, gpu: Tensors, rng: np.random.Generator
) -> None:
    """The baseline in scripts/, whose choice is made before the capture; odd rows are in the library's list, too."""
    pytest.importorskip("torch")
    m, k, n = shape
    # Small integers are exact in either dtype, and so are their sums in float32.
    a, b = (rng.integers(-2, 3, size).astype(np.float32) for size in ((m, k), (k, n)))
    exact = a @ b

    def bits(array: Array) -> Array:
        return (
            array.astype(np.float16)
            if dtype == "float16"
            else (array.view(np.uint32) >> 16).astype(np.uint16)
        )

    views = {
        **{
            name: gpu.put(
                bits(np.ascontiguousarray(matrix.T if letter == "t" else matrix)),
                dtype,
                transposed=letter == "t",
            )
            for name, matrix, letter in zip("ab", (a, b), layout, strict=True)
        },
        "c": gpu.put(bits(np.zeros((m, n), np.float32)), dtype),
    }
    baseline = Path(__file__).parents[2] / "scripts" / "rivals" / "cublaslt.py"
    stream = int(gpu.context.stream)
    product = load_function("cublaslt", baseline)
    gpu.replay([function_call("cublaslt", product, views, {}, stream)], runs=2)
    found = gpu.get(views["c"], "float16" if dtype == "float16" else "uint16")
    wide = found if dtype == "float16" else (found.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose(wide, exact, rtol=2**-8, atol=0)


def test_tf32_only_where_it_is_asked_for(gpu: Tensors, rng: np.random.Generator) -> None:
    pytest.importorskip("torch")
    a, b = (rng.standard_normal((512, 512)).astype(np.float32) for _ in range(2))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    errors = []
    for text in ("torch.mm(a, b, out=c)", "tf32(torch.mm(a, b, out=c))", "torch.mm(a, b, out=c)"):
        views = {"a": gpu.put(a), "b": gpu.put(b), "c": gpu.put(np.zeros_like(a))}
        gpu.replay([call(text, views)])
        errors.append(np.linalg.norm(gpu.get(views["c"]) - exact) / np.linalg.norm(exact))
    assert max(errors[0], errors[2]) < 2e-6 < 5e-5 < errors[1] < 2e-3


def test_bfloat16(gpu: Tensors) -> None:
    pytest.importorskip("torch")
    bits = (np.array([1.0, 2.0, -3.0], np.float32).view(np.uint32) >> 16).astype(np.uint16)
    views = {n: gpu.put(bits, "bfloat16") for n in "abc"}
    gpu.replay([call("torch.add(a, b, out=c)", views)])
    got = gpu.get(views["c"], "uint16").astype(np.uint32) << 16
    assert got.view(np.float32).tolist() == [2.0, 4.0, -6.0]


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_memory_taken_in_a_call_stays_its_own(library: str, gpu: Tensors, rng: np.random.Generator) -> None:
    """What a capture allocates must not be given to others, or back to the driver, while the graph lives."""
    module = pytest.importorskip(library)
    x, y = (rng.standard_normal(1 << 20).astype(np.float32) for _ in range(2))
    views = {"x": gpu.put(x), "y": gpu.put(y), "z": gpu.put(np.zeros_like(x))}
    multiply = "mul" if library == "torch" else "multiply"
    text = f"{library}.add({library}.{multiply}(x, 2), {library}.{multiply}(y, 3), out=z)"
    captured = capture(gpu.context, [call(text, views)])
    graph = Graph(gpu.context)
    captured.add_to(graph)
    if library == "torch":
        module.cuda.empty_cache()
        other = [module.full((1 << 20,), float("nan"), device="cuda") for _ in range(8)]
    else:
        module.get_default_memory_pool().free_all_blocks()
        other = [module.full(1 << 20, float("nan"), dtype="float32") for _ in range(8)]
    for _ in range(3):
        graph.launch()
    gpu.context.synchronize()
    np.testing.assert_allclose(gpu.get(views["z"]), 2 * x + 3 * y, rtol=1e-6, atol=1e-5)
    assert all(bool((array != array).all()) for array in other), "the graph wrote into other tensors"
    graph.close()
    captured.close()


def test_what_cannot_be_captured_says_so(gpu: Tensors) -> None:
    """And the stream can be used afterwards."""
    square = np.ones((8, 8), np.float32)
    views = {n: gpu.put(square) for n in "abc"}
    pytest.importorskip("torch")
    with pytest.raises(TunerError, match=r"torch\.mm\(a, b, out=c\): RuntimeError: "):
        capture(
            gpu.context, [call("torch.mm(a, b, out=c)", {**views, "b": gpu.put(np.ones((3, 3), np.float32))})]
        )
    gpu.replay([call("torch.mm(a, b, out=c)", views)])
    assert gpu.get(views["c"]).tolist() == (8 * square).tolist()


def function(source: str, folder: Path, views: dict[str, TensorView], stream: int = 0) -> Call:
    file = folder / "mine.py"
    file.write_text(source)
    return function_call("f", load_function("f", file), views, {"alpha": 2.0, "n": 8}, stream)


@pytest.mark.parametrize(
    ("library", "source"),
    [
        ("torch", "import torch\ndef f(x, y, alpha): torch.add(x, x, alpha=alpha - 1, out=y)"),
        ("torch", "def f(x, y, n):\n    y.copy_(x.clone() * (n / 4))"),
        ("cupy", "import cupy\ndef f(x, y):\n    cupy.multiply(cupy.asarray(x), 2, out=cupy.asarray(y))"),
    ],
)
def test_functions_of_a_user(library: str, source: str, gpu: Tensors, tmp_path: Path) -> None:
    pytest.importorskip(library)
    x = np.arange(8, dtype=np.float32)
    views = {"x": gpu.put(x), "y": gpu.put(np.zeros_like(x))}
    gpu.replay([function(source, tmp_path, views)], runs=2)
    assert gpu.get(views["y"]).tolist() == (2 * x).tolist()


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("def f(x): ...", "queues nothing on the current stream"),
        ("def f(x): raise ValueError('first\\nsecond')", "f: ValueError: first"),
        ("def f(x): float(x.sum())", "f: "),
    ],
)
def test_functions_that_cannot_be_captured(source: str, part: str, gpu: Tensors, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    x = np.ones(8, np.float32)
    views = {"x": gpu.put(x), "y": gpu.put(np.zeros_like(x))}
    with pytest.raises(TunerError, match=part) as caught:
        capture(gpu.context, [function(source, tmp_path, views)])
    assert "\n" not in str(caught.value)
    gpu.replay([call("torch.add(x, x, out=y)", views)])
    assert gpu.get(views["y"]).tolist() == [2.0] * 8, "the broken capture has left something behind"
