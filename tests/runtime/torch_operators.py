"""Operators of torch on the CPU, and tensors for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")


from tests import torch_on_cpu as cpu  # noqa: E402 - it needs torch
from tests.torch_cases import OperatorCase, cases, with_gradients  # noqa: E402
from tests.torch_on_cpu import OnCpu, on_cpu  # noqa: E402


@pytest.fixture(autouse=True)
def as_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The CPU poses as a GPU, in each file that imports this; what a test has compiled is forgotten."""
    cpu.pose_as_gpu(monkeypatch)
    yield
    torch._dynamo.reset()


LAYOUTS = ("nn", "nt", "tn", "tt")


def randn(*shape: int, grad: bool = False, columns: bool = False, dtype: Any = None) -> Any:
    """Return a tensor, perhaps column-major."""
    made = torch.randn(shape[::-1] if columns else shape, dtype=dtype)
    return (made.t() if columns else made).detach().requires_grad_(grad)


def assert_like(function: Callable[..., Any], expected: Callable[..., Any], *inputs: Any) -> None:
    """Compare a result and gradients with those of a function of torch, computed in float64."""
    exact = [each.detach().double().requires_grad_() for each in inputs]
    weights = torch.arange(expected(*exact).numel(), dtype=torch.float64).cos()
    wanted = with_gradients(expected, weights, *exact)
    for actual, right in zip(with_gradients(function, weights, *inputs), wanted, strict=True):
        torch.testing.assert_close(actual.double(), right, rtol=1e-4, atol=1e-4)


CASES = {case.name: case for case in cases(65, (6, 3, 7), (3, 5, 8))}


def operation_of(case: OperatorCase) -> OnCpu:
    problems = [{"input": "float32", **choices} for choices in case.choices]
    return on_cpu(case.kernel, getattr(cpu, case.kernel), problems)
