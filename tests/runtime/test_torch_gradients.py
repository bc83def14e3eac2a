"""Gradients of operators of torch: those of torch's own functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.runtime.torch_operators import CASES, LAYOUTS, as_gpu, assert_like, operation_of, randn  # noqa: F401 - a fixture

torch = pytest.importorskip("torch")


from tests import torch_on_cpu as cpu  # noqa: E402 - it needs torch
from tests.torch_on_cpu import OnCpu, on_cpu  # noqa: E402
from tuner.core.errors import CallError  # noqa: E402

pytestmark = pytest.mark.usefixtures("forked_children")


@pytest.fixture(scope="module")
def gemm() -> OnCpu:
    kinds = [{"input": dtype, "layout": layout} for dtype in ("float32", "bfloat16") for layout in LAYOUTS]
    return on_cpu("gemm", cpu.gemm, kinds)


@pytest.mark.parametrize(
    "text", ["gelu(x) - silu(y)", "where(x > y, tanh(x) * y, x ** 3 - 2.5 * y)", "abs(-x) / y", "x + y - y"]
)
def test_an_expression_has_the_gradient_of_torchs(text: str) -> None:
    operation = on_cpu("transform", cpu.transform, [{"input": "float32", "op": text}])
    functional = torch.nn.functional
    names = {
        "where": torch.where,
        "tanh": torch.tanh,
        "abs": torch.abs,
        "gelu": functional.gelu,
        "silu": functional.silu,
    }
    assert_like(
        operation.torch(),
        lambda x, y: eval(text, {**names, "x": x, "y": y}),  # noqa: S307 - the test's own text
        randn(65, grad=True),
        randn(65, grad=True),
    )


def test_what_is_equally_large_shares_the_gradient() -> None:
    operation = operation_of(CASES["reduce max"])
    x = torch.tensor([1.0, 3.0, -2.0, 3.0], requires_grad=True)
    assert_like(operation.torch(), lambda x: torch.amax(x, 0, keepdim=True), x)


def test_linear_takes_any_leading_dimensions(gemm: OnCpu) -> None:
    linear = gemm.torch().linear
    for leading in ((), (4,), (2, 3), (2, 1, 3)):
        x, weight = randn(*leading, 7, grad=True), randn(5, 7, grad=True)
        assert_like(linear, torch.nn.functional.linear, x, weight)
    torch.library.opcheck(gemm.torch().linear_overload, (x, weight))


def test_a_gradient_may_be_differentiated(gemm: OnCpu) -> None:
    a, b = randn(3, 4, grad=True), randn(4, 2, grad=True)

    def slope(product: Callable[..., Any]) -> Any:
        (first,) = torch.autograd.grad((product(a, b) ** 3).sum(), a, create_graph=True)
        return torch.autograd.grad((first**2).sum(), b)[0]

    torch.testing.assert_close(slope(gemm.torch()), slope(torch.mm), rtol=1e-4, atol=1e-3)


def test_a_layout_that_is_not_there_is_refused_forwards_and_torchs_backwards() -> None:
    operation = on_cpu("gemm", cpu.gemm, [{"input": "float32", "layout": "nt"}])
    function = operation.torch()
    x, weight = randn(6, 7, grad=True), randn(5, 7, grad=True)
    assert_like(function.linear, torch.nn.functional.linear, x, weight)
    assert operation.launches == 1
    with pytest.raises(CallError, match="b is row-major, not column-major"):
        function(x, randn(7, 5))


def test_alpha_counts_in_the_gradient() -> None:
    function = operation_of(CASES["saxpy"]).torch()
    assert_like(
        lambda x, y: function(x, y, alpha=-3.0),
        lambda x, y: y - 3 * x,
        randn(9, grad=True),
        randn(9, grad=True),
    )


def test_forward_mode_is_refused_not_ignored(gemm: OnCpu) -> None:
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(randn(5, 7), randn(5, 7))
        with pytest.raises((RuntimeError, NotImplementedError), match=r"jvp|forward"):
            gemm.torch()(dual, randn(7, 3))
