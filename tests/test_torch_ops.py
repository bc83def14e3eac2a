"""Operations as operators of torch: dispatch, fakes, gradients, compilation. Launches are computed on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests import torch_on_cpu as cpu  # noqa: E402 - it needs torch
from tests.torch_on_cpu import OnCpu, on_cpu  # noqa: E402

LAYOUTS = ("nn", "nt", "tn", "tt")


@pytest.fixture(autouse=True)
def as_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu.pose_as_gpu(monkeypatch)


@pytest.fixture(scope="module")
def gemm() -> Any:
    return on_cpu(
        "gemm", cpu.gemm, [{"input": d, "layout": x} for d in ("float32", "bfloat16") for x in LAYOUTS]
    )


@pytest.fixture(autouse=True, scope="module")
def compiled() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def randn(*shape: int, grad: bool = False, columns: bool = False, dtype: Any = None) -> Any:
    """Return a tensor, perhaps column-major."""
    made = torch.randn(shape[::-1] if columns else shape, dtype=dtype)
    return (made.t() if columns else made).detach().requires_grad_(grad)


def gradients(function: Callable[..., Any], *inputs: Any) -> list[Any]:
    result = function(*inputs)
    weights = torch.arange(result.numel(), dtype=torch.float64).reshape(result.shape).cos()
    return [result, *torch.autograd.grad((result * weights).sum(), inputs)]


def assert_like(function: Callable[..., Any], expected: Callable[..., Any], *inputs: Any) -> None:
    """Compare results and gradients with those of a function of torch, computed in float64."""
    exact = [each.detach().double().requires_grad_() for each in inputs]
    for actual, wanted in zip(gradients(function, *inputs), gradients(expected, *exact), strict=True):
        torch.testing.assert_close(actual.double(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("a_columns", [False, True])
@pytest.mark.parametrize("b_columns", [False, True])
def test_products_in_all_layouts_with_gradients(gemm: OnCpu, a_columns: bool, b_columns: bool) -> None:
    a, b = randn(5, 7, grad=True, columns=a_columns), randn(7, 3, grad=True, columns=b_columns)
    before = gemm.launches
    assert_like(gemm.torch(), torch.mm, a, b)
    assert gemm.launches == before + 3  # each gradient is a product, without a copy before it
    assert torch.library.opcheck(gemm.torch().overload, (a, b))


def test_linear_takes_any_leading_dimensions(gemm: OnCpu) -> None:
    linear = gemm.torch().linear
    for leading in ((), (4,), (2, 3), (2, 1, 3)):
        x, weight = randn(*leading, 7, grad=True), randn(5, 7, grad=True)
        assert_like(linear, torch.nn.functional.linear, x, weight)
