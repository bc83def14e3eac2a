"""Built-in kernels as operators of torch, and their gradients: right as they are, compiled, and as fakes."""

from __future__ import annotations

import pytest

from tests.runtime.torch_operators import CASES, as_gpu, operation_of, randn  # noqa: F401 - a fixture

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from tests import torch_on_cpu as cpu  # noqa: E402 - it needs torch
from tests.torch_cases import error_ratios  # noqa: E402
from tests.torch_on_cpu import on_cpu  # noqa: E402
from tuner.core.errors import CallError  # noqa: E402
from tuner.kernel.load import builtin_kernels  # noqa: E402

pytestmark = pytest.mark.usefixtures("forked_children")

OPCHECKED = [*CASES][::8]
"""What torch's own check of operators, which takes as long as all else, is done for."""
COMPILED = [*CASES][2::8]
"""What is compiled, which takes 0.3 s: fakes alone are made of what is neither."""


@pytest.mark.parametrize("name", CASES)
def test_built_in_kernels_and_their_gradients(name: str) -> None:
    case = CASES[name]
    operation = operation_of(case)
    operator = operation.torch()
    function, inputs = case.function(operator), case.inputs("float32", "cpu")
    assert max(error_ratios(case, function, "float32", "cpu")) <= 1
    assert operation.launches == {"gemm": 3, "rope": 2}.get(
        case.kernel, 1
    )  # gradients of products are products
    if name in COMPILED:
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=True)
        assert max(error_ratios(case, compiled, "float32", "cpu")) <= 1
    elif name in OPCHECKED:
        torch.library.opcheck(operator.linear_overload if case.method else operator.overload, inputs)
    else:
        right = case.expected(*inputs)
        with FakeTensorMode() as mode:
            fake = function(*(mode.from_tensor(each) for each in inputs))
        assert (fake.shape, fake.dtype, fake.requires_grad) == (right.shape, right.dtype, right.requires_grad)


def test_every_built_in_kernel_is_tried() -> None:
    others = {"grouped", "quantize", "scaled_mm"}  # of integers, and without gradients
    assert {case.kernel for case in CASES.values()} == {*builtin_kernels()} - others


def test_eight_bits_have_an_operator_and_no_gradient() -> None:
    a, b = (randn(rows, 32).to(torch.float8_e4m3fn) for rows in (5, 16))
    for scales, rows, columns in (("rows", 5, 16), ("tensor", 1, 1)):
        operator = on_cpu("scaled_mm", cpu.scaled_mm, [{"scales": scales}]).torch()
        scale_a, scale_b = randn(rows, 1), randn(1, columns)
        c = operator(a, b.t(), scale_a, scale_b)
        expected = (a.double() * scale_a) @ (b.double().t() * scale_b)
        assert (c.shape, c.dtype) == ((5, 16), torch.bfloat16)
        assert torch.equal(c, expected.bfloat16())
    with pytest.raises(CallError, match="scaled_mm has no gradient"):
        operator(a, b.t(), scale_a.requires_grad_(), scale_b).sum().backward()


def test_quantised_rows_have_scales_and_no_gradient() -> None:
    operation = on_cpu("quantize", cpu.quantize, [{"input": "float32", "by": "group"}])
    quantize, x = operation.torch(), randn(5, 256)
    compiled = torch.compile(quantize, fullgraph=True, backend="aot_eager", dynamic=True)
    for function in (quantize, compiled):
        out, scale = function(x)
        assert out.dtype == torch.float8_e4m3fn and scale.shape == (5, 2)
        again = out.float().unflatten(1, (2, 128)) * scale.unsqueeze(2)
        torch.testing.assert_close(again.flatten(1), x, rtol=2.0**-4, atol=1e-2)
    with pytest.raises(CallError, match="quantize has no gradient"):
        quantize(randn(5, 256, grad=True))[1].sum().backward()


def test_places_are_whole_numbers_without_a_gradient() -> None:
    operation = on_cpu(
        "reduce_axis", cpu.reduce_axis, [{"input": "float32", "op": "argmax", "over": "columns"}]
    )
    argmax, x = operation.torch(), randn(5, 9, grad=True)
    for function in (argmax, torch.compile(argmax, fullgraph=True, backend="aot_eager", dynamic=True)):
        found = function(x)
        assert torch.equal(found, x.argmax(1)) and not found.requires_grad
