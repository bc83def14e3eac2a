"""Operators of torch on the GPU: results and gradients, compilation, graphs, streams, autocast, and the examples."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import tuner
from tests.stored_winners import store_defaults
from tuner.core.errors import CallError
from tuner.devices.local import LocalDevice
from tuner.kernel.load import load_kernel

torch = pytest.importorskip("torch")

from tests.torch_cases import OperatorCase, cases, error_ratios  # noqa: E402

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SOFTMAX = str(EXAMPLES / "softmax" / "softmax.toml")
CASES = {case.name: case for case in cases(4099, (254, 192, 320), (64, 96, 128))}
ODD = {case.name: case for case in cases(65, (126, 65, 33), (7, 9, 24))}
NT = {"input": "bfloat16", "layout": "nt"}
DTYPES = ("float32", "float16", "bfloat16")
Make = Callable[[OperatorCase, str], Any]


@pytest.fixture(scope="module")
def made(device: LocalDevice, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Return what makes the operation of a case's default configurations, as if they had won."""
    operations: dict[tuple[str, str], Any] = {}

    def make(case: OperatorCase, dtype: str) -> Any:
        key = (f"{case.kernel} {case.sizes} {case.choices}", dtype)
        if key not in operations:
            path = tmp_path_factory.mktemp("winners") / "w.db"
            kernel, problems = case.problems(dtype)
            store_defaults(path, kernel, problems, device.gpu)
            operations[key] = tuner.load(case.kernel, db=path)
        return operations[key]

    return make


@pytest.fixture(autouse=True)
def forget_graphs() -> Iterator[None]:
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("case", "dtype"),
    [*product(CASES.values(), DTYPES), *product(ODD.values(), ["bfloat16"])],
    ids=lambda value: value if isinstance(value, str) else f"{value.name} {value.sizes}",
)
def test_results_and_gradients(made: Make, case: OperatorCase, dtype: str) -> None:
    function = case.function(made(case, dtype).torch())
    assert max(error_ratios(case, function, dtype, "cuda")) <= 1


@pytest.mark.parametrize("name", CASES)
def test_opcheck(made: Make, name: str) -> None:
    case = CASES[name]
    operator = made(case, "float32").torch()
    torch.library.opcheck(
        operator.linear_overload if case.method else operator.overload, case.inputs("float32", "cuda")
    )


@pytest.mark.parametrize("name", CASES)
def test_compiled_as_a_whole(made: Make, name: str) -> None:
    case = CASES[name]
    function = torch.compile(case.function(made(case, "bfloat16").torch()), fullgraph=True, dynamic=True)
    assert max(error_ratios(case, function, "bfloat16", "cuda")) <= 1


@pytest.mark.parametrize("name", CASES)
def test_a_replayed_graph_equals_eager_bit_by_bit(made: Make, name: str) -> None:
    case = CASES[name]
    function = case.function(made(case, "bfloat16").torch())
    inputs = [each.detach() for each in case.inputs("bfloat16", "cuda")]
    expected = function(*inputs).clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = function(*inputs)
    for _ in range(3):
        captured.zero_()
        graph.replay()
        assert torch.equal(captured, expected)
        inputs[0].neg_()
        again = function(*inputs).clone()
        graph.replay()
        assert torch.equal(captured, again)
        inputs[0].neg_()


def test_compiled_into_cuda_graphs_by_torch(made: Make) -> None:
    linear = made(CASES["linear"], "bfloat16").torch().linear
    x, weight = (each.detach() for each in CASES["linear"].inputs("bfloat16", "cuda"))
    square = torch.randn(weight.shape[0], weight.shape[0], device="cuda", dtype=torch.bfloat16)

    def block(x: Any) -> Any:
        return linear(torch.nn.functional.gelu(linear(x, weight)), square)

    expected, compiled = block(x), torch.compile(block, fullgraph=True, mode="reduce-overhead")
    for _ in range(4):
        torch.testing.assert_close(compiled(x).clone(), expected, rtol=2e-2, atol=0.5)


def test_a_capture_takes_only_what_was_prepared(made: Make) -> None:
    operation = made(CASES["gemm nt"], "bfloat16")
    function, stream, graph = operation.torch(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    sizes = {"m": 48, "n": 40, "k": 56}
    a, w = (torch.randn(rows, 56, device="cuda", dtype=torch.bfloat16) for rows in (48, 40))
    with torch.cuda.stream(stream):
        graph.capture_begin()
        with pytest.raises(
            CallError, match="not prepared for this problem, and the stream is being captured"
        ):
            function(a, w.t())
        graph.capture_end()
    operation.warm([{**sizes, "dtypes": {"input": "bfloat16"}, "options": {"layout": "nt"}}])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = function(a, w.t())
    graph.replay()
    assert torch.equal(captured, function(a, w.t()))


def test_the_current_stream(made: Make) -> None:
    function = made(CASES["gemm nn"], "float32").torch()
    a, b = (each.detach() for each in CASES["gemm nn"].inputs("float32", "cuda"))
    function(a, b)
    torch.cuda.synchronize()
    stream, filled = torch.cuda.Stream(), torch.zeros_like(a)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(1_000_000_000)  # half a second: other tests may have the processor
        filled.copy_(a)
        result = function(filled, b)
        assert not stream.query()
    stream.synchronize()
    assert torch.equal(result, function(a, b))


def test_autocast(made: Make) -> None:
    function = made(CASES["gemm nn"], "bfloat16").torch()
    a, b = CASES["gemm nn"].inputs("float32", "cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        results = function(a, b), function.linear(a, b.t())
    for result in results:
        assert result.dtype == torch.bfloat16
        for grad in torch.autograd.grad(result.sum(), (a, b)):
            assert grad.dtype == torch.float32 and bool(grad.any())


def test_gaps_odd_addresses_and_no_elements(made: Make) -> None:
    function = made(CASES["gemm nt"], "bfloat16").torch()
    whole = torch.randn(257, 640, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(192, 320, device="cuda", dtype=torch.bfloat16)
    for x in (whole[:, :320], whole[1:, 320:], whole.flatten()[1 : 1 + 254 * 320].view(254, 320)):
        torch.testing.assert_close(function(x, w.t()), x @ w.t(), rtol=2e-2, atol=0.5)
    assert function.linear(w[:0], w).shape == (0, 192)


def test_changed_in_place(made: Make) -> None:
    function = made(CASES["saxpy"], "float32").torch()
    x, y = (each.detach() for each in CASES["saxpy"].inputs("float32", "cuda"))
    expected = y - 3 * x
    torch.library.opcheck(function.in_place_overload, (x, y.clone()), {"alpha": -3.0})
    compiled = torch.compile(lambda x, y: function.in_place(x, y, alpha=-3.0) + 1, fullgraph=True)
    torch.testing.assert_close(compiled(x, y), expected + 1)
    torch.testing.assert_close(y, expected)


def test_tensors_of_the_cpu_are_refused(made: Make) -> None:
    with pytest.raises(CallError, match="is in the memory of cpu; move it to the GPU"):
        made(CASES["vector_add"], "float32").torch()(torch.zeros(8), torch.zeros(8))


@pytest.mark.parametrize(
    ("program", "kernel", "sizes", "choices", "says"),
    [
        ("torch/linear.py", "gemm", {"m": 512, "n": 1024, "k": 256}, NT, "by bit: True"),
        ("torch/own_kernel.py", SOFTMAX, {"rows": 1024, "columns": 512}, {"input": "float32"}, "largest difference"),
        ("cupy/vector_add.py", "vector_add", {"n": 1 << 20}, {"input": "float32"}, "right: True"),
        ("jax/vector_add.py", "vector_add", {"n": 1 << 20}, {"input": "float32"}, "right: True"),
    ],
)  # fmt: skip
def test_an_example_runs(
    device: LocalDevice,
    tmp_path: Path,
    program: str,
    kernel: str,
    sizes: dict[str, int],
    choices: dict[str, str],
    says: str,
) -> None:
    pytest.importorskip(program.partition("/")[0])
    spec = load_kernel(kernel)
    options = {key: value for key, value in choices.items() if key in spec.options}
    problem = spec.problem(sizes, {"input": choices["input"]}, options)
    store_defaults(tmp_path / "w.db", spec, [problem], device.gpu)
    words = ["bundle", "--kernel", kernel, "--db", tmp_path / "w.db", "-o", tmp_path / f"{spec.name}_bundle"]
    subprocess.run([sys.executable, "-m", "tuner", *words], check=True)
    done = subprocess.run(
        [sys.executable, EXAMPLES / program], cwd=tmp_path,
        env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert says in done.stdout
