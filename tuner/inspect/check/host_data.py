"""The tensors of a small problem on the host: what they hold, what is expected of them, and what is wrong."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import structs

from tuner.core.errors import KernelError
from tuner.core.model import Gpu, Problem
from tuner.inspect.check.subjects import problems
from tuner.inspect.emulator.host import HostArray
from tuner.kernel.contents import NAN, drawn, is_given, is_random, not_varied
from tuner.kernel.given import Given
from tuner.kernel.plan import numbers_of, tensors_of
from tuner.kernel.python_reference import Asked, expected_on_host
from tuner.kernel.reference import (
    MOST_UNKNOWN,
    OVERFLOW,
    SATURATED,
    UNIT_ROUNDOFF,
    Expected,
    Tolerance,
    as_output,
    as_results,
    expected_dtype,
    settle_reference,
    written_dtype,
    wrong_text,
)
from tuner.kernel.spec import KernelSpec
from tuner.runtime.launches import OUTPUTS, RESTORED, Buffer

ALIGNMENT = 256
GIVEN_S = 5.0
"""For a function that says what a tensor holds, of few numbers; the child has 20 s for all of a problem."""


class HostData:
    """The tensors of a problem, filled as the measuring process fills them, with other numbers.

    Args:
        kernel: whose problem it is.
        problem: a small one.
        gpu: whose limits expressions may name.

    Raises:
        TunerError: a shape has no value, or values that the kernel's file gives cannot be had.
    """

    def __init__(self, kernel: KernelSpec, problem: Problem, gpu: Gpu) -> None:
        self.kernel, self.problem, self.gpu = kernel, problem, gpu
        self.tensors = tensors_of(kernel, problem, gpu)
        self._settled = settle_reference(kernel, problem, gpu)
        self._terms: dict[str, int] = {}
        self._numbers = numbers_of(kernel, problem, gpu)
        rng = np.random.default_rng(0)
        numbers = {
            tensor.name: drawn(tensor, rng)
            for tensor in self.tensors
            if tensor.role != "output" and not is_given(tensor)
        }
        self._given = Given(self.tensors, self._numbers, 0, GIVEN_S)
        self._initial: Mapping[str, npt.NDArray[Any]] = {**numbers, **self._given.again(numbers, {})}
        self._fixed = {name: self._initial[name] for name in self._given.fixed}
        own = any(problem.sizes == one.sizes for one in problems(kernel).values())
        self._golden = self._settled.golden if own and not any(map(is_random, self.tensors)) else {}
        """Files with what is expected: they are of one problem, and of inputs that are known."""

    def given(self, numbers: Mapping[str, npt.NDArray[Any]]) -> Mapping[str, npt.NDArray[Any]]:
        """Return what the kernel's file gives where drawn tensors hold such numbers, as it lies in memory."""
        return self._given.again(numbers, self._fixed)

    def holding(self, numbers: Mapping[str, npt.NDArray[Any]]) -> HostData:
        """Return the same tensors with other numbers in the inputs, by name and as they lie in memory."""
        other = copy.copy(self)
        other._initial = numbers
        return other

    @property
    def not_varied(self) -> str:
        """Why the inputs cannot hold other numbers; empty if they can."""
        return not_varied(self.tensors, self._settled.golden)

    @property
    def on_host(self) -> bool:
        """Whether NumPy or Python say all outputs."""
        return self._settled.on_host(self.outputs)

    @property
    def outputs(self) -> list[Buffer]:
        """The tensors that a kernel writes."""
        return [tensor for tensor in self.tensors if tensor.role in OUTPUTS]

    def memory(self, poison: int = NAN) -> dict[str, HostArray]:
        """Return new arrays of all tensors: outputs hold a poison, the others what they begin with."""
        memory = {}
        for tensor in self.tensors:
            array = memory[tensor.name] = HostArray(
                tensor.count, tensor.dtype, ALIGNMENT, tensor.name, poison
            )
            if tensor.name in self._initial:
                array.fill(self._initial[tensor.name].ravel())
        return memory

    def reference_memory(self) -> dict[str, HostArray]:
        """Return new arrays for a CUDA reference: outputs are of float64 or complex128, beside each its magnitude.

        One that writes the outputs' own dtypes finds in them what any kernel finds.
        """
        memory = self.memory()
        if self._settled.rounded:
            return memory | {f"{name}_initial": array for name, array in self.memory().items()}
        memory |= {f"{one.name}_initial": memory[one.name] for one in self.tensors if one.role in RESTORED}
        for tensor in self.outputs:
            memory[tensor.name] = HostArray(tensor.count, written_dtype(tensor), ALIGNMENT, tensor.name)
            name = f"{tensor.name}_magnitude"
            memory[name] = HostArray(tensor.count, "float32", ALIGNMENT, name)
        return memory

    def expected(
        self, *, further: bool = False, repeatable: bool = True, probes: int = 0
    ) -> dict[str, Expected]:
        """Return what the reference makes of the inputs, for outputs that NumPy, Python or files say, in memory order.

        Args:
            further: whether they hold a further content, and the following: see ``Asked``.
            repeatable: whether a function is known to give the same for the same inputs.
            probes: with which missing magnitudes are estimated, however long that takes.

        Raises:
            KernelError: it fails, has another shape than its output, or is not a number.
        """
        inputs = {
            tensor.name: array.T if tensor.transposed else array
            for tensor in self.tensors
            if (array := self._initial.get(tensor.name)) is not None
        }
        settled = structs.replace(self._settled, golden={} if further else self._golden)
        how = Asked(further, repeatable, probes, terms=self._terms)
        expected = expected_on_host(settled, self.tensors, inputs, self._numbers, asked=how)
        if not further:  # of another content a sum of zeros may have no terms
            self._terms.update({name: one.terms for name, one in expected.items() if one.probes != 1})
        return {
            tensor.name: _in_memory_order(tensor, expected[tensor.name])
            for tensor in self.outputs
            if tensor.name in expected
        }

    def results(self, memory: Mapping[str, HostArray]) -> dict[str, Expected]:
        """Return outputs as what is expected of others, in memory order.

        Raises:
            KernelError: one is not written.
        """
        return {
            tensor.name: as_results(
                tensor.name,
                tensor.dtype,
                memory[tensor.name].numbers.astype(expected_dtype(tensor)).reshape(tensor.shape),
                self._settled,
            )
            for tensor in self.outputs
        }

    def reference_results(self, memory: Mapping[str, HostArray]) -> dict[str, Expected]:
        """Return what a CUDA reference wrote, in memory order; errors as of ``as_output`` and :meth:`results`."""
        if self._settled.rounded:
            return self.results(memory)
        return {
            tensor.name: as_output(
                tensor.name,
                tensor.dtype,
                memory[tensor.name].numbers.reshape(tensor.shape),
                memory[f"{tensor.name}_magnitude"].numbers.astype(np.float64).reshape(tensor.shape),
                "the CUDA reference",
            )
            for tensor in self.outputs
        }

    def tolerance_of(self, tensor: Buffer, expected: Expected) -> Tolerance:
        """Return how far an output may be off from what is expected."""
        return self._settled.tolerance_of(tensor.dtype, expected)

    def unchanged(self, memory: Mapping[str, HostArray]) -> str:
        """Return the name of an input that is not as it was; empty if all are."""
        for tensor in self.tensors:
            before = self._initial.get(tensor.name)
            if tensor.role == "input" and before is not None:
                after = memory[tensor.name].numbers.astype(before.dtype)
                if not np.array_equal(after, before.ravel(), equal_nan=True):
                    return tensor.name
        return ""


UNWRITTEN = (
    "outputs hold NaN (integers -1) before a run: write each element, or give one that is added to"
    ' role = "inout" and init = "zeros"'
)
"""What to do about an output whose elements are all wrong, the first of them as it was."""


def difference(
    tensor: Buffer, array: HostArray, expected: Expected, bound: Tolerance
) -> tuple[str, str] | None:
    """Return the first element that is not what it must be, and a remedy; None if there is none."""
    got = array.numbers.astype(expected.value.dtype).reshape(tensor.shape)
    right = got == expected.value
    if tensor.dtype in UNIT_ROUNDOFF:
        with np.errstate(all="ignore"):
            near = np.abs(got - expected.value) <= bound.allowed(expected)
            right |= np.isfinite(expected.value) & near
            right |= np.isinf(expected.magnitude)
            large = np.abs(expected.value) + bound.coefficient * expected.magnitude
            beyond = np.abs(got) >= SATURATED.get(tensor.dtype, np.inf)
            same_sign = np.signbit(got.real) == np.signbit(expected.value.real)
            right |= beyond & same_sign & (large >= OVERFLOW.get(tensor.dtype, np.inf))
    elif expected.magnitude.any():
        right |= np.abs(np.subtract(got, expected.value, dtype=np.float64)) <= expected.magnitude
    right &= array.written.reshape(tensor.shape)  # what is left as it was may be right by chance
    if right.all():
        return None
    index = tuple(int(i) for i in np.argwhere(~right)[0])
    where = ", ".join(map(str, index[::-1] if tensor.transposed else index))
    wrong = int(right.size - right.sum())
    written = array.is_set(int(np.ravel_multi_index(index, tensor.shape)) if index else 0)
    found = got[index] if written else "written in part" if written is None else "not written"
    return (
        f"{tensor.name}[{where}] {wrong_text(found, expected.value[index], wrong, right.size)}",
        UNWRITTEN if written is False and not right.any() else "",
    )


def _in_memory_order(tensor: Buffer, expected: Expected) -> Expected:
    remedy = "it must be defined for its inputs: change the expression, or the inputs' init"
    if np.isnan(expected.value).any():
        raise KernelError(f"the reference of {tensor.name} is not a number in places", remedy)
    if np.isinf(expected.magnitude).mean() > MOST_UNKNOWN:
        raise KernelError(f"rounding alone decides most elements of {tensor.name}", remedy)
    if tensor.transposed:
        return replace(expected, value=expected.value.T, magnitude=expected.magnitude.T)
    return expected
