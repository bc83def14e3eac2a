"""Inputs and expected outputs of a small problem, on the CPU."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tuner.core.errors import KernelError
from tuner.core.model import Gpu, Problem
from tuner.inspect.emulator.host import HostArray
from tuner.kernel.host_reference import expected_on_host
from tuner.kernel.plan import scalars_of, tensors_of
from tuner.kernel.reference import Expected, settle_reference
from tuner.kernel.spec import KernelSpec
from tuner.kernel.tolerance import Tolerance, tolerance
from tuner.runtime.launches import Buffer

Array = npt.NDArray[np.float64]
ALIGNMENT = 256


class HostData:
    """The tensors of a problem, filled as the measuring process fills them, with other numbers.

    Args:
        kernel: whose problem it is.
        problem: a small one.
        gpu: whose limits expressions may name.

    Raises:
        KernelError: a shape has no value.
    """

    def __init__(self, kernel: KernelSpec, problem: Problem, gpu: Gpu) -> None:
        self.kernel, self.problem, self.gpu = kernel, problem, gpu
        self.tensors = tensors_of(kernel, problem, gpu)
        rng = np.random.default_rng(0)
        self._initial = {
            tensor.name: _rounded(_drawn(tensor, rng), tensor)
            for tensor in self.tensors
            if tensor.role != "output"
        }

    @property
    def outputs(self) -> list[Buffer]:
        """The tensors that a kernel writes."""
        return [tensor for tensor in self.tensors if tensor.role != "input"]

    def memory(self) -> dict[str, HostArray]:
        """Return new arrays of all tensors: outputs hold NaNs, the others what they begin with."""
        memory = {}
        for tensor in self.tensors:
            array = memory[tensor.name] = HostArray(tensor.count, tensor.dtype, ALIGNMENT, tensor.name)
            if tensor.name in self._initial:
                array.fill(self._initial[tensor.name].ravel())
        return memory

    def reference_memory(self) -> dict[str, HostArray]:
        """Return new arrays for a CUDA reference: outputs are of float64, beside each its magnitude."""
        memory = self.memory()
        for tensor in self.outputs:
            if tensor.role == "inout":
                memory[f"{tensor.name}_initial"] = memory[tensor.name]
            memory[tensor.name] = HostArray(tensor.count, "float64", ALIGNMENT, tensor.name)
            name = f"{tensor.name}_magnitude"
            memory[name] = HostArray(tensor.count, "float32", ALIGNMENT, name)
        return memory

    def expected(self) -> dict[str, Expected]:
        """Return what the reference makes of the inputs, for the outputs that NumPy or Python say, in memory order.

        Raises:
            KernelError: it fails, has another shape than its output, or is not a number.
        """
        settled = replace(settle_reference(self.kernel, self.problem, self.gpu), golden={})
        scalars = {name: value for name, (_, value) in scalars_of(*self._of()).items()}
        inputs = {
            tensor.name: array.T if tensor.transposed else array
            for tensor in self.tensors
            if (array := self._initial.get(tensor.name)) is not None
        }
        expected = expected_on_host(settled, self.tensors, inputs, {**self.problem.sizes, **scalars})
        return {
            tensor.name: _in_memory_order(tensor, expected[tensor.name])
            for tensor in self.outputs
            if tensor.name in expected
        }

    def tolerances(self) -> dict[str, Tolerance]:
        """Return how far each output may be off."""
        settled = settle_reference(self.kernel, self.problem, self.gpu)
        return {
            tensor.name: tolerance(
                settled.reduction,
                settled.accumulate,
                tensor.dtype,
                settled.tolerance,
                settled.operand_rounding,
            )
            for tensor in self.outputs
        }

    def unchanged(self, memory: Mapping[str, HostArray]) -> str:
        """Return the name of an input that is not as it was; empty if all are."""
        for tensor in self.tensors:
            before = self._initial.get(tensor.name)
            if tensor.role == "input" and before is not None:
                after = memory[tensor.name].numbers.astype(np.float64)
                if not np.array_equal(after, before.ravel(), equal_nan=True):
                    return tensor.name
        return ""

    def _of(self) -> tuple[KernelSpec, Problem, Gpu]:
        return self.kernel, self.problem, self.gpu


UNWRITTEN = (
    "outputs hold NaN (integers -1) before a run: write each element, or give one that is added to"
    ' role = "inout" and init = "zeros"'
)
"""What to do about an output whose elements are all wrong, the first of them as it was."""


def difference(
    tensor: Buffer, array: HostArray, expected: Expected, bound: Tolerance
) -> tuple[str, str] | None:
    """Return the first element that is not what it must be, and a remedy; None if there is none."""
    got = array.numbers.astype(np.float64).reshape(tensor.shape)
    with np.errstate(all="ignore"):
        allowed = bound.coefficient * expected.magnitude + bound.unit * np.abs(expected.value) + bound.tiny
        right = (np.abs(got - expected.value) <= allowed) | (got == expected.value)
        right |= (np.isnan(got) & np.isnan(expected.value)) | np.isinf(expected.magnitude)
    if right.all():
        return None
    index = tuple(int(i) for i in np.argwhere(~right)[0])
    where = ", ".join(map(str, index[::-1] if tensor.transposed else index))
    wrong = int(right.size - right.sum())
    as_before = tensor.role == "output" and (np.isnan(got[index]) or got[index] == -1)
    return (
        f"{tensor.name}[{where}] is {got[index]:.6g}, expected {expected.value[index]:.6g}; "
        f"{wrong} of {right.size} elements are wrong",
        UNWRITTEN if as_before and not right.any() else "",
    )


def _in_memory_order(tensor: Buffer, expected: Expected) -> Expected:
    if not np.isfinite(expected.value).all():
        raise KernelError(
            f"the reference of {tensor.name} is not a number in places",
            "it must be defined for its inputs: change the expression, or the inputs' init",
        )
    if tensor.transposed:
        return Expected(expected.value.T, expected.magnitude.T)
    return expected


def _drawn(tensor: Buffer, rng: np.random.Generator) -> Array:
    match tensor.init:
        case "normal":
            return rng.standard_normal(tensor.shape)
        case "uniform":
            return rng.random(tensor.shape)
        case "zeros":
            return np.zeros(tensor.shape)
        case "ones":
            return np.ones(tensor.shape)
    return (np.arange(math.prod(tensor.shape)) % 251).reshape(tensor.shape).astype(np.float64)


def _rounded(numbers: Array, tensor: Buffer) -> Array:
    """Return numbers as the tensor's dtype has them; integers get a range worth adding up."""
    if "int" in tensor.dtype and tensor.init in ("normal", "uniform"):
        numbers = np.rint(np.clip(numbers * 15.0, 0.0, 127.0))
    if tensor.dtype == "bfloat16":
        bits: npt.NDArray[np.uint32] = numbers.astype(np.float32).view(np.uint32)
        rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
        return rounded.astype(np.uint32).view(np.float32).astype(np.float64)
    return numbers.astype(tensor.dtype).astype(np.float64)
