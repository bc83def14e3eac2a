"""Operations as operators of torch: dispatch, fakes, compilation. Launches are computed on the CPU."""

from __future__ import annotations

import copy
import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.torch_operators import CASES, LAYOUTS, as_gpu, assert_like, operation_of, randn  # noqa: F401 - a fixture

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import tuner  # noqa: E402
from tests import torch_on_cpu as cpu  # noqa: E402 - it needs torch
from tests.torch_on_cpu import OnCpu, on_cpu  # noqa: E402
from tuner.core.errors import CallError  # noqa: E402
from tuner.runtime.torch_ops import TorchFunction  # noqa: E402

pytestmark = pytest.mark.usefixtures("forked_children")


EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SOFTMAX = str(EXAMPLES / "softmax" / "softmax.toml")


@pytest.fixture(scope="module")
def gemm() -> OnCpu:
    kinds = [{"input": dtype, "layout": layout} for dtype in ("float32", "bfloat16") for layout in LAYOUTS]
    return on_cpu("gemm", cpu.gemm, kinds)


def softmax_gradient(grad: Any, _inputs: tuple[Any, ...], y: Any) -> Any:
    return y * (grad - (grad * y).sum(1, keepdim=True))


def softmax() -> OnCpu:
    return on_cpu("softmax", cpu.own_softmax, [{"input": "float32"}], path=SOFTMAX)


def test_only_a_tensor_that_some_sizes_lack_is_optional(gemm: OnCpu) -> None:
    assert str(gemm.torch().overload._schema).endswith("(Tensor a, Tensor b) -> Tensor")


def test_gaps_and_odd_addresses_are_copied_and_nothing_else(gemm: OnCpu) -> None:
    whole, b = randn(9, 16), randn(8, 3)
    function = gemm.torch()
    for a in (
        whole[:, :8],
        whole[::2, 8:],
        whole.t()[:8].t(),
        whole[:1, :8].expand(4, 8),
        whole.flatten()[1:65].view(8, 8),
    ):
        torch.testing.assert_close(function(a, b), a @ b)
        torch.testing.assert_close(function(b.t(), a.t()), b.t() @ a.t())
    function(whole[:, :8], b)
    assert gemm.addresses[0] != whole.data_ptr() and gemm.addresses[1] == b.data_ptr()


def test_rows_apart_are_passed_as_they_lie_to_tensor_maps() -> None:
    gemm = on_cpu("gemm", cpu.gemm, [{"input": "float32", "layout": layout} for layout in LAYOUTS])
    gemm.apart = frozenset("ab")
    function, x, w = gemm.torch(), randn(2, 9, 16), randn(5, 24)
    for a, b in ((x[0, :, 4:12], w[:, 8:16].t()), (w[:, :8], x[1, :8, 8:]), (x[0, :, :8], w[:, 16:].t())):
        a, b = a.requires_grad_(), b.requires_grad_()
        torch.testing.assert_close(function(a, b), a @ b)
        assert gemm.addresses[:2] == [a.data_ptr(), b.data_ptr()]
        gradients = (torch.autograd.grad(each(a, b).sin().sum(), [a, b]) for each in (function, torch.mm))
        for found, wanted in zip(*gradients, strict=True):
            torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(function.linear(x[:, :, :8], w[:, 4:12]), x[:, :, :8] @ w[:, 4:12].t())
    assert gemm.addresses[:2] == [x.data_ptr(), w[:, 4:12].data_ptr()]
    odd = x[0, :, 1:9]  # not at a multiple of 16 bytes
    torch.testing.assert_close(function(odd, w[:, :8].t()), odd @ w[:, :8].t())
    assert gemm.addresses[0] != odd.data_ptr()


def test_products_without_elements_are_zeros(gemm: OnCpu) -> None:
    function = gemm.torch()
    assert function(randn(0, 7), randn(7, 3)).shape == (0, 3)
    assert torch.equal(function(randn(4, 0), randn(0, 3)), torch.zeros(4, 3))
    assert function.linear(randn(2, 0, 7), randn(5, 7)).shape == (2, 0, 5)


def test_compiled_as_a_whole_for_all_sizes(gemm: OnCpu) -> None:
    function, graphs = gemm.torch(), []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    def block(x: Any, w: Any, v: Any) -> Any:
        return function(torch.relu(function.linear(x, w)).flatten(0, 1), v.t())

    def plain(x: Any, w: Any, v: Any) -> Any:
        return torch.relu(x @ w.t()).flatten(0, 1) @ v.t()

    compiled = torch.compile(block, fullgraph=True, backend=backend)
    for rows in (6, 10, 14):
        assert_like(
            compiled, plain, randn(2, rows, 7, grad=True), randn(5, 7, grad=True), randn(3, 5, grad=True)
        )
    assert len(graphs) == 2  # the second with symbols


def test_compiled_for_sizes_that_depend_on_data(gemm: OnCpu) -> None:
    function = gemm.torch()
    chosen, x, weight = torch.arange(8), randn(8, 7, grad=True), randn(4, 7, grad=True)
    compiled = torch.compile(
        lambda x, weight, mask: function.linear(x[mask], weight) + function(x[mask], weight.t()),
        fullgraph=True,
        backend="aot_eager",
    )
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        for count in (3, 0, 5):
            mask = chosen < count
            assert_like(
                lambda x, weight, mask=mask: compiled(x, weight, mask),
                lambda x, weight, mask=mask: 2 * (x[mask] @ weight.t()),
                x,
                weight,
            )


def test_fakes_need_no_gpu_and_keep_the_device(gemm: OnCpu) -> None:
    function = gemm.torch()
    with FakeTensorMode():
        a, w = (
            torch.empty(5, 7, device="cuda", dtype=torch.bfloat16),
            torch.empty(3, 7, device="cuda", dtype=torch.bfloat16),
        )
        for made in (function(a, w.t()), function.linear(a, w)):
            assert (made.shape, made.stride(), made.dtype, made.device.type) == (
                (5, 3),
                (3, 1),
                torch.bfloat16,
                "cuda",
            )
        assert function.linear(a.view(5, 1, 7), w).shape == (5, 1, 3)
        with pytest.raises(RuntimeError, match=r"b of gemm has shape .*: k differs"):
            function(a, w)
        with pytest.raises(CallError, match="gemm is called with float64 of 2 dimensions"):
            function(a.double(), w.t())


def test_autocast_casts_as_for_torchs_products(gemm: OnCpu, monkeypatch: pytest.MonkeyPatch) -> None:
    function = gemm.torch()
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    with FakeTensorMode(), torch.autocast("cuda", dtype=torch.bfloat16):
        a, b = torch.empty(5, 7, device="cuda"), torch.empty(7, 3, device="cuda", dtype=torch.bfloat16)
        assert function(a, b).dtype == function.linear(a, b.t()).dtype == torch.bfloat16


def test_a_tensor_that_is_changed_is_copied_or_changed_in_place() -> None:
    operation = operation_of(CASES["saxpy"])
    function = operation.torch()
    x, y = randn(65), randn(65)
    old, version = y.clone(), y._version
    torch.testing.assert_close(function(x, y, alpha=-2.0), y - 2 * x)
    assert torch.equal(y, old)
    assert function.in_place(x, y) is y
    torch.testing.assert_close(y, 2.5 * x + old)
    assert y._version > version
    strided = randn(130)[::2]
    expected = 2.5 * x + strided
    torch.testing.assert_close(function.in_place(x, strided), expected)
    with pytest.raises(CallError, match="has no gradient"):
        function.in_place(x.clone().requires_grad_(), y)
    with pytest.raises(CallError, match="overlaps"):
        function.in_place(y, y)
    torch.library.opcheck(function.in_place_overload, (x, y), {"alpha": 0.5})

    def steps(x: Any, y: Any) -> Any:
        z = y * 2
        function.in_place(x, z, alpha=3.0)
        return z + 1

    compiled = torch.compile(steps, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, y), 2 * y + 3 * x + 1)


def test_a_kernel_of_ones_own() -> None:
    operation = softmax()
    x = randn(4, 9, grad=True)
    without = operation.torch()
    torch.testing.assert_close(without(x), torch.softmax(x, 1))
    with pytest.raises(
        CallError, match=r"softmax has no gradient; give it one: op\.torch\(backward=function\)"
    ):
        without(x).sum().backward()
    function = operation.torch(softmax_gradient)
    assert function is operation.torch(softmax_gradient) is not without and function.name != without.name
    assert_like(function, lambda x: torch.softmax(x, 1), x)
    torch.library.opcheck(function.overload, (x,))
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert_like(compiled, lambda x: torch.softmax(x, 1), x)
    wrong = operation.torch(lambda grad, inputs, output: (grad, grad))
    with pytest.raises(CallError, match="returned 2 gradients; return 1"):
        wrong(x).sum().backward()


def test_names_are_the_same_in_each_process_and_taken_once() -> None:
    first, second = softmax(), softmax()
    assert first.torch() is first.torch() and copy.deepcopy(first.torch()) is first.torch()
    assert (
        second.torch().name == f"{first.torch().name}_2"
        or second.torch().name[:-1] == first.torch().name[:-1]
    )
    assert isinstance(first.torch(), TorchFunction)


def test_errors_have_one_line(gemm: OnCpu) -> None:
    function = gemm.torch()
    for call in (
        lambda: function(randn(5, 7).double(), randn(7, 3).double()),
        lambda: function(randn(5, 7, 2), randn(7, 3)),
        lambda: operation_of(CASES["vector_add"]).torch().linear(randn(2, 2), randn(2, 2)),
        lambda: function.in_place(randn(2, 2), randn(2, 2)),
        lambda: gemm.torch(backward=3),  # type: ignore[arg-type]
    ):
        with pytest.raises(CallError) as raised:
            call()
        assert "\n" not in str(raised.value)


def test_transforms_of_functions(gemm: OnCpu) -> None:
    a, b = randn(5, 7), randn(7, 3)
    slope = torch.func.grad(lambda a: gemm.torch()(a, b).sum())(a)
    torch.testing.assert_close(slope, b.sum(1).expand(5, 7))
    many = torch.func.vmap(gemm.torch(), in_dims=(0, None))(randn(2, 5, 7), b)
    assert many.shape == (2, 5, 3)


def test_several_outputs_of_sizes_that_a_caller_gives() -> None:
    """Of a kernel that takes the first elements: their sums with a number, and all of them twice."""
    tensors = [
        {"name": "x", "role": "input", "dtype": "float32", "shape": ["n"]},
        {"name": "first", "role": "output", "dtype": "float64", "shape": ["count"]},
        {
            "name": "twice",
            "role": "output",
            "dtype": "float32",
            "shape": [2, ["*", 2, "n"]],
            "transposed": True,
        },
    ]
    scalars = [{"name": "beta", "dtype": "float32", "value": 1.0}]
    computation = {"dtypes": {"input": "float32"}, "options": {}, "tensors": tensors, "scalars": scalars}

    def compute(tensors: Any, beta: float, **_: Any) -> None:
        x, first, twice = (tensors[name] for name in ("x", "first", "twice"))
        first.copy_(x[: len(first)] + beta)
        twice.copy_(x.repeat(2, 2))

    function = cpu.of_manifest("parts", "parts", ["n", "count"], [computation], compute).torch()
    x = randn(6)

    def call(x: Any) -> Any:
        first, twice = function(x, count=4, beta=0.5)
        return first * 2, twice

    for made in (call(x), torch.compile(call, fullgraph=True, backend="aot_eager", dynamic=True)(x)):
        torch.testing.assert_close(made[0], 2 * (x[:4].double() + 0.5))
        assert made[1].stride() == (1, 2) and torch.equal(made[1], x.repeat(2, 2))
    torch.library.opcheck(function.overload, (x,), {"count": 4})
    with pytest.raises(RuntimeError, match="count"):
        function(x)


def test_a_halo_tells_the_size_that_it_surrounds() -> None:
    """Of a convolution whose input is two elements longer than its output, also for symbolic sizes."""
    shapes = {"x": [["-", ["+", "n", 3], 1]], "w": [3], "y": ["n"]}
    tensors = [
        {"name": name, "role": "output" if name == "y" else "input", "dtype": "float32", "shape": shape}
        for name, shape in shapes.items()
    ]
    computation = {"dtypes": {"input": "float32"}, "options": {}, "tensors": tensors, "scalars": []}

    def compute(tensors: Any, **_: Any) -> None:
        x, w, y = (tensors[name] for name in shapes)
        y.copy_(x[:-2] * w[0] + x[1:-1] * w[1] + x[2:] * w[2])

    operation = cpu.of_manifest("conv", "conv", ["n"], [computation], compute)
    x, w = randn(9), randn(3)
    right = torch.nn.functional.conv1d(x.view(1, 1, -1), w.view(1, 1, -1)).view(-1)
    compiled = torch.compile(operation.torch(), fullgraph=True, backend="aot_eager", dynamic=True)
    for made in (operation(x, w), operation.torch()(x, w), compiled(x, w)):
        torch.testing.assert_close(made, right)
    with pytest.raises(CallError, match="do not tell n"):
        operation(randn(2), w)


def test_computations_of_different_tensors_are_no_operator() -> None:
    problems = [{"input": "float32", "op": op} for op in ("x + 1", "x + y")]
    operation = on_cpu("transform", cpu.transform, problems)
    with pytest.raises(CallError, match="different tensors; say which"):
        operation.torch()
    chosen = on_cpu("transform", cpu.transform, problems, options={"op": "x + 1"})
    torch.testing.assert_close(chosen.torch()(torch.ones(3)), torch.full((3,), 2.0))


def test_without_torch_an_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tuner.runtime.torch_ops", None)
    with pytest.raises(CallError, match=r"torch cannot be imported: .*; install torch"):
        softmax().torch()


@pytest.mark.parametrize("name", ["linear", "own_kernel"])
def test_an_example_runs_on_the_cpu_as_far_as_it_can(
    name: str,
    gemm: OnCpu,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (EXAMPLES / "torch" / f"{name}.py").read_text().replace('"cuda"', '"cpu"')
    text = text.replace("range(20)", "range(2)").replace("1024", "48").replace("512", "32")
    text = text.partition("    # Captured")[0].replace(
        "fullgraph=True", 'fullgraph=True, backend="aot_eager"'
    )
    monkeypatch.setattr(
        tuner, "load", lambda kernel, bundle: gemm if kernel == "gemm" else softmax(), raising=False
    )
    (tmp_path / f"example_of_{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module(f"example_of_{name}")
    assert re.search(r"largest difference [0-9]\.[0-9]e-0[6-9]|difference 0\.0e\+00", capsys.readouterr().out)
