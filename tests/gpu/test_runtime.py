"""Bundles are called with torch: every built-in kernel's default, on streams, in threads and in CUDA graphs."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tuner
from tests.stored_winners import store_winners
from tuner.core.errors import CallError
from tuner.core.model import Value
from tuner.devices.local import LocalDevice
from tuner.kernel.load import load_kernel
from tuner.kernel.space import SearchSpace
from tuner.runtime.operation import Operation

torch = pytest.importorskip("torch")
Make = Callable[..., Operation]


@pytest.fixture(scope="module")
def made(device: LocalDevice, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Return what makes the operation of a kernel's default configuration, as if it had won."""
    folders: dict[str, Path] = {}

    def make(name: str, sizes: dict[str, int], **choices: Value) -> Operation:
        kernel = load_kernel(name)
        dtypes = {key: str(value) for key, value in choices.items() if key in kernel.dtypes}
        options = {key: value for key, value in choices.items() if key in kernel.options}
        problem = kernel.problem(sizes=sizes, dtypes=dtypes, options=options)
        key = problem.key
        if key not in folders:
            folder = tmp_path_factory.mktemp(name)
            default = SearchSpace.from_kernel(kernel, problem, device.gpu).default
            store_winners(folder / "w.db", kernel, [(problem, default)], device.gpu)
            command = ["bundle", "--kernel", name, "--db", folder / "w.db", "-o", folder / "b"]
            subprocess.run([sys.executable, "-m", "tuner", *command], check=True)
            folders[key] = folder / "b"
        return tuner.load(name, bundle=folders[key])

    return make


def randn(*shape: int, dtype: str = "float32") -> Any:
    return torch.randn(shape, device="cuda", dtype=torch.float32).to(getattr(torch, dtype))


def close(actual: Any, expected: Any) -> None:
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if actual.element_size() == 2 else {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(actual.float(), expected.float(), **tolerance)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("size", [4096, 4099])
def test_elementwise_kernels(made: Make, dtype: str, size: int) -> None:
    x, y = randn(size, dtype=dtype), randn(size, dtype=dtype)
    close(made("vector_add", {"n": 4096}, input=dtype)(x, y), x + y)
    close(made("transform", {"n": 4096}, input=dtype)(x), x + 0.5 * (20 - x.float()))
    expected = 2.5 * x.float() + y.float()
    saxpy = made("saxpy", {"n": 4096}, input=dtype)
    assert saxpy(x, y) is y
    close(y, expected)
    saxpy(x, y, alpha=-2.0)
    close(y, expected - 2.0 * x.float())


@pytest.mark.parametrize("op", ["sum", "max", "mean"])
@pytest.mark.parametrize("size", [1 << 20, (1 << 20) + 17])
def test_reductions(made: Make, op: str, size: int) -> None:
    x = randn(size)
    reduce = made("reduce", {"n": 1 << 20}, input="float32", op=op)
    expected = getattr(x.double(), op)().reshape(1)
    for _ in range(3):  # what is zero once is left so
        torch.testing.assert_close(reduce(x).double(), expected, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("layout", ["nml", "mnl"])
def test_means_of_products(made: Make, layout: str) -> None:
    x, w = randn(64, 96, 128), randn(128, 128)
    op = made(
        "mean_matvec",
        {"groups": 64, "vectors": 96, "length": 128},
        input="float32",
        layout=layout,
        product="float32",
    )
    x = x if layout == "nml" else x.transpose(0, 1).contiguous()
    close(op(x, w), x.mean(1 if layout == "nml" else 0) @ w.T)


@pytest.mark.parametrize("sizes", [(512, 512, 512), (511, 513, 509), (16, 2048, 1024)])
def test_products(made: Make, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    op = made("gemm", {"m": 512, "n": 512, "k": 512}, input="bfloat16", layout="nt")
    x, w, out = randn(m, k, dtype="bfloat16"), randn(n, k, dtype="bfloat16"), randn(m, n, dtype="bfloat16")
    expected = x.float() @ w.float().T
    for result in (op(x, w.T), op(x, w.T, out=out), op(x, w.T)):
        torch.testing.assert_close(result.float(), expected, rtol=2e-2, atol=0.5)
    assert op(x, w.T, out=out) is out


def test_streams_threads_and_graphs(made: Make) -> None:
    op = made("gemm", {"m": 512, "n": 512, "k": 512}, input="bfloat16", layout="nt")
    x, w = [randn(512, 512, dtype="bfloat16") for _ in range(4)], randn(512, 512, dtype="bfloat16")
    expected = [each @ w.T for each in x]
    torch.cuda.synchronize()
    results: list[Any] = [None] * 4

    def run(number: int) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(50):
                results[number] = op(x[number], w.T)
        stream.synchronize()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for actual, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=2e-2, atol=0.5)


def test_products_in_a_row_see_what_the_one_before_wrote(made: Make) -> None:
    """Their kernels begin while the one before still runs: it is theirs to wait."""
    op = made("gemm", {"m": 512, "n": 512, "k": 512}, input="bfloat16", layout="nn")
    x, w = randn(512, 512, dtype="bfloat16"), randn(512, 512, dtype="bfloat16") / 512**0.5
    buffers = [torch.empty_like(x) for _ in range(3)]

    def run(*, wait: bool) -> Any:
        last = x
        for number in range(30):
            last = op(last, w, out=buffers[number % 3])
            if wait:
                torch.cuda.synchronize()
        return last

    expected = run(wait=True).clone()
    assert torch.isfinite(expected).all() and expected.abs().max() > 0
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run(wait=False)
    for again in range(10):
        for buffer in buffers:
            buffer.fill_(again)
        assert torch.equal(run(wait=False), expected)
        graph.replay()
        assert torch.equal(captured, expected)


def test_a_graph_captures_what_was_prepared(made: Make) -> None:
    op = made("reduce", {"n": 1 << 20}, input="float32", op="sum")
    op.warm([{"n": 1 << 20}])
    x = randn(1 << 20)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total = op(x)
    for number in range(3):
        x.fill_(number)
        graph.replay()
        op(x)  # beside it, in a workspace of its own
        torch.cuda.synchronize()
        assert total.item() == pytest.approx(number * (1 << 20), rel=1e-6)


def test_an_unprepared_problem_is_refused_in_a_capture(made: Make) -> None:
    op = made("reduce", {"n": 1 << 20}, input="float32", op="sum")
    x, stream = randn(12345), torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        graph.capture_begin()
        with pytest.raises(CallError, match="captured"):
            op(x)
        graph.capture_end()


def test_arrays_of_cupy(made: Make) -> None:
    cupy = pytest.importorskip("cupy")
    op = made("vector_add", {"n": 4096}, input="float32")
    x, y = cupy.arange(4096, dtype=cupy.float32), cupy.ones(4096, dtype=cupy.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        z = op(x, y)
    stream.synchronize()
    assert isinstance(z, cupy.ndarray) and bool((z == x + 1).all())
