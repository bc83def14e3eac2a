"""Is the output right? Every element against a reference in float64, complex128 or wide integers, on the GPU, in a
fraction of a millisecond."""

from __future__ import annotations

import math
import os
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import threadpoolctl
from cuda.bindings import driver as cu

from tuner.children.measuring import Candidate, ReferenceData
from tuner.core.errors import KernelError, TunerError
from tuner.core.model import Verification
from tuner.gpu.baselines import expected_of_kernel
from tuner.gpu.buffers import ProblemData
from tuner.gpu.candidate import copy_all, filled_from
from tuner.gpu.driver import fill_bytes
from tuner.kernel.answers import Answers
from tuner.kernel.contents import as_meant
from tuner.kernel.golden import disagreement, from_files
from tuner.kernel.reference import (
    MOST_UNKNOWN,
    Expected,
    Tolerance,
    expected_dtype,
    in_full,
    norm_allowed,
    place_of,
    relative_norm,
    wrong_text,
)
from tuner.runtime.driver import check
from tuner.runtime.dtypes import DTYPES, ITEMSIZE
from tuner.runtime.kernel import Kernel
from tuner.runtime.launches import RESTORED, Buffer

_COMPARISON = struct.Struct("<QQddd")
CROSS_CHECK_ELEMENTS = 1 << 20
CROSS_CHECK_WORK = 1 << 28
"""Up to these sizes a CUDA reference is compared with the NumPy one at every start: it takes milliseconds."""


class Verifier:
    """Holds the expected outputs of one problem.

    Args:
        data: the tensors.
        reference: how to find out what they are.
        answers: of references on the host.

    Raises:
        KernelError: the references contradict each other, one does not fit its output, or gives no numbers.
    """

    def __init__(self, data: ProblemData, reference: ReferenceData, answers: Answers | None = None) -> None:
        self._data = data
        self._context = data.helpers.context
        self._expected: set[str] = set()
        self._truth: dict[str, int] = {}
        self.reference, self.answers = reference, answers or Answers()
        self._nothing = "no reference: add [reference] to the kernel's file"
        self.host_s = 0.0
        """What references on the host took for one content at most."""
        self.kernel_s = 0.0
        """The same of one on the GPU."""
        self.rough: dict[str, int] = {}
        """Outputs whose magnitudes are to be estimated before one counts as wrong, with so many probes."""
        self._independent = True
        """Whether errors of many elements average out: not where inputs, and so errors, are all equal."""
        self._tolerances = {tensor.name: reference.tolerance_of(tensor.dtype) for tensor in data.outputs}
        self._result = data.memory.allocate("verifier result", _COMPARISON.size)
        self._outputs = outputs = {tensor.name: tensor for tensor in data.outputs}
        self._run_kernels()
        files = {name: file for name, file in reference.golden.items() if name in outputs}
        for name, expected in from_files(files, outputs).items():
            self._upload(name, expected)
        if reference.numpy or reference.python is not None:
            small = self.is_small()
            wanted = [name for name in outputs if small or name not in self._expected]
            for name, expected in self._on_host(wanted, self._inputs() if wanted else {}, few=small).items():
                if name in self._expected:
                    self._cross_check(name, expected)
                else:
                    self._upload(name, expected)
        self._require_answers()

    def expect_of(self, inputs: Mapping[str, npt.NDArray[Any]]) -> None:
        """Expect from now on what the reference makes of another content, and fill the tensors with that.

        Golden files are of one content. A CUDA reference is run where no other says all outputs, or takes long.

        Args:
            inputs: numbers of all inputs and inouts by name, as they lie in memory, where fewer are repeated.

        Raises:
            KernelError: as for a new verifier; BeyondIntegersError for integers that a kernel may wrap.
        """
        given = [t for t in self._data.tensors if t.name in inputs]
        self._expected.clear()
        self.rough.clear()
        self._independent = False
        wanted = list(self._outputs) if self.reference.kernel is None or self.is_small() else []
        meant = {t.name: as_meant(np.resize(inputs[t.name], t.shape), t) for t in given if wanted}
        computed = self._on_host(wanted, meant, few=self.is_small(), further=True) if wanted else {}
        self._data.refill(inputs)
        if len(computed) < len(self._outputs):
            self._run_kernels()
        for name, expected in computed.items():
            self._upload(name, expected)
        self._require_answers()
        self._data.seal()

    def is_small(self, factor: int = 1) -> bool:
        """Return whether a reference on the host takes milliseconds, or so many times as long."""
        most = max(tensor.count for tensor in self._data.tensors)
        return most <= factor * CROSS_CHECK_ELEMENTS and self.reference.flops <= factor * CROSS_CHECK_WORK

    @property
    def on_host(self) -> bool:
        """Whether references on the host say all outputs."""
        return self.reference.on_host(self._data.outputs)

    @property
    def asks_host(self) -> bool:
        """Whether they also say those of further contents, whatever kernel there is."""
        return self.on_host and (self.reference.kernel is None or self.is_small())

    @property
    def possible(self) -> bool:
        """Whether every output has something to be compared with."""
        return all(tensor.name in self._expected for tensor in self._data.outputs)

    def check(self, copy: int = 0) -> Verification:
        """Compare the outputs as they are now, in one copy of the tensors."""
        if not self.possible:
            return Verification(False, checked=False, message=self._nothing)
        found = {tensor.name: self._compare(tensor, copy) for tensor in self._data.outputs}
        worst = min(found.values(), key=lambda one: (one.passed, -one.worst_ratio))
        if rough := [name for name, one in found.items() if not one.passed and name in self.rough]:
            self._estimate(rough)
            return self.check(copy)
        return replace(worst, true_error=self._true_error(copy)) if self._truth else worst

    def _estimate(self, names: Sequence[str]) -> None:
        """Estimate magnitudes that were put off; if they say that there is no right answer, nothing is expected."""
        known = {name: self._expected_there(name) for name in names}
        how = {"known": known, "probes": max(map(self.rough.pop, names)), "further": not self._independent}
        try:
            for name, one in self._on_host(names, self._inputs(), few=self.is_small(), **how).items():
                self._upload(name, one)
            self._require_answers()
        except TunerError as error:
            self._expected.clear()
            self._nothing = error.problem
        self._data.seal()

    def hold_against(self, truth: Mapping[str, int]) -> float:
        """From now on give the distance from another result, too.

        Args:
            truth: device addresses of float64 results by output, as large as the outputs; owned by the caller.

        Returns:
            The distance of this problem's own exact result, which no kernel can undercut.
        """
        self._truth = dict(truth)
        own = {t.name: self._data.memory.addresses[f"{t.name} expected"] for t in self._data.outputs}
        return self._distance([(t, expected_dtype(t), own[t.name]) for t in self._data.outputs])

    def _true_error(self, copy: int) -> float:
        outputs = self._data.outputs
        return self._distance([(t, t.dtype, self._data.address(t.name, copy)) for t in outputs])

    def _distance(self, outputs: list[tuple[Buffer, str, int]]) -> float:
        """Return the norm of all differences from the truth, over the norm of the truth."""
        errors = scales = 0.0
        for tensor, dtype, address in outputs:
            expected = self._truth[tensor.name]
            weights = self._data.memory.addresses[f"{tensor.name} magnitude"]
            exact = Tolerance(0.0, 0.0, 1.0, 0.0, math.inf)  # no allowance; the weights count for nothing
            *_, squares, norm = self._launch(dtype, address, expected, weights, tensor.count, exact)
            errors, scales = errors + squares, scales + norm
        return relative_norm(errors, scales)

    def _launch(
        self, dtype: str, out: int, expected: int, weights: int, count: int, bound: Tolerance
    ) -> tuple[int, int, float, float, float]:
        """Compare on the GPU: mismatches, the first of them, the worst ratio, squares of errors and of scales."""
        return self._count(
            f"compare_{dtype}",
            count,
            ("pointer", out),
            ("pointer", expected),
            ("pointer", weights),
            ("int64", count),
            ("float64", bound.coefficient),
            ("float64", bound.unit),
            ("float64", bound.tiny),
            ("float64", bound.reduction),
        )

    def _count(
        self, kernel: str, count: int, *arguments: tuple[str, Any]
    ) -> tuple[int, int, float, float, float]:
        """Run a helper that fills in a comparison, and return what it found."""
        check(cu.cuMemcpyHtoD(self._result, _COMPARISON.pack(0, 2**64 - 1, 0.0, 0.0, 0.0), _COMPARISON.size))
        grid = min(math.ceil(count / 256), 4096)
        self._data.helpers.run(kernel, grid, 256, [*arguments, ("pointer", self._result)])
        raw = bytearray(_COMPARISON.size)
        check(cu.cuMemcpyDtoH(raw, self._result, _COMPARISON.size))
        mismatches, first, worst, errors, scales = _COMPARISON.unpack(raw)
        return mismatches, first, worst, errors, scales

    def _compare(self, tensor: Buffer, copy: int) -> Verification:
        bound = self._tolerances[tensor.name]
        addresses = self._data.memory.addresses
        mismatches, first, worst, errors, scales = self._launch(
            tensor.dtype,
            self._data.address(tensor.name, copy),
            addresses[f"{tensor.name} expected"],
            addresses[f"{tensor.name} magnitude"],
            tensor.count,
            bound,
        )
        norm_error = relative_norm(errors, scales)
        allowed = norm_allowed(bound, tensor.count, scales)
        exact = bound.norm_coefficient == 0.0 or not self._independent
        if mismatches:
            message = self._describe(tensor, first, mismatches, copy)
        elif not exact and not math.sqrt(errors) <= allowed:
            most = relative_norm(allowed**2, scales)
            message = f"{tensor.name}: relative error {norm_error:.2e} of the whole, {most:.2e} allowed"
        else:
            return Verification(True, worst_ratio=worst, norm_error=norm_error)
        ratio, error = (one if math.isfinite(one) else 1e300 for one in (worst, norm_error))
        return Verification(False, True, mismatches, ratio, error, message)

    def _describe(self, tensor: Buffer, first: int, mismatches: int, copy: int) -> str:
        got = self._data.element(tensor, first, copy)
        (expected,) = self._there(tensor, first, 1)
        return f"{tensor.name}{place_of(first, tensor.shape)} {wrong_text(got, expected, mismatches, tensor.count)}"

    def _there(self, tensor: Buffer, first: int, count: int) -> npt.NDArray[Any]:
        """Return expected values as they lie in memory."""
        dtype = expected_dtype(tensor)
        address = self._data.memory.addresses[f"{tensor.name} expected"] + first * ITEMSIZE[dtype]
        raw = bytearray(count * ITEMSIZE[dtype])
        check(cu.cuMemcpyDtoH(raw, address, len(raw)))
        return np.frombuffer(raw, dtype)

    def _allocate(self, tensor: Buffer) -> tuple[int, int]:
        size_bytes = tensor.count * ITEMSIZE[expected_dtype(tensor)]
        expected = self._data.memory.allocate(f"{tensor.name} expected", size_bytes)
        magnitude = self._data.memory.allocate(f"{tensor.name} magnitude", tensor.count * 4)
        return expected, magnitude

    def _require_answers(self) -> None:
        for tensor in self._data.outputs:
            if tensor.name in self._expected:
                self._require_numbers(tensor)

    def _require_numbers(self, tensor: Buffer) -> None:
        """Refuse a reference that says nothing: not a number, or elements whose value rounding alone decides.

        Raises:
            KernelError: it does.
        """
        addresses = self._data.memory.addresses
        expected, weights = addresses[f"{tensor.name} expected"], addresses[f"{tensor.name} magnitude"]

        def wrong(coefficient: float) -> tuple[int, int]:
            bound = Tolerance(coefficient, 0.0, 1.0, 0.0, math.inf)
            dtype = expected_dtype(tensor)
            return self._launch(dtype, expected, expected, weights, tensor.count, bound)[:2]

        count, first = wrong(1.0)
        if count:
            raise KernelError(
                f"the reference of {tensor.name} is not a number in {count} of {tensor.count} elements "
                f"({place_of(first, tensor.shape)})",
                "it must be defined for its inputs: change the expression, or the inputs' init",
            )
        count = wrong(0.0)[0]  # nothing times infinity is not a number
        if count > MOST_UNKNOWN * tensor.count:
            raise KernelError(
                f"rounding alone decides {count} of {tensor.count} elements of {tensor.name}",
                "there is no right answer to compare with: change the expression, or the inputs' init",
            )

    def _run_kernels(self) -> None:
        """Take what a kernel says that is right: in float64 with magnitudes, or in the outputs' own dtypes."""
        reference, began = self.reference, time.monotonic()
        if reference.kernel is not None and not reference.rounded:
            self._run_exact(reference.kernel)
        elif reference.kernel is not None:
            for name, one in expected_of_kernel(self._data, reference).items():
                self._upload(name, one)
        self.kernel_s = max(self.kernel_s, time.monotonic() - began)

    def _run_exact(self, reference: Candidate) -> None:
        (launch,), (cubin,), (entry,) = reference.plan.launches, reference.cubins, reference.entries
        addresses = dict(self._data.memory.addresses)
        for tensor in self._data.outputs:
            expected, magnitude = self._allocate(tensor)
            addresses[tensor.name], addresses[f"{tensor.name}_magnitude"] = expected, magnitude
            fill_bytes(expected, 0xFF, tensor.count * ITEMSIZE[expected_dtype(tensor)])
            fill_bytes(magnitude, 0xFF, tensor.count * 4)
            self._expected.add(tensor.name)
        module = check(cu.cuModuleLoadData(cubin))
        try:
            copy_all(filled_from(module, cubin, launch, addresses).values())
            with self._context.launched() as graph:
                self._data.add_restore(graph)
                graph.kernel(Kernel(module, entry, launch, addresses))
        finally:
            cu.cuModuleUnload(module)
        for tensor in self._data.outputs:
            if DTYPES[tensor.dtype].whole:
                self._make_integers(tensor)

    def _make_integers(self, tensor: Buffer) -> None:
        """Turn the doubles of a CUDA reference into integers.

        Raises:
            KernelError: some are none, or so large that a double may have rounded them.
        """
        values = ("pointer", self._data.memory.addresses[f"{tensor.name} expected"])
        count, first, *_ = self._count("to_integers", tensor.count, values, ("int64", tensor.count))
        if count:
            raise KernelError(
                f"the CUDA reference of {tensor.name} is no integer up to 2^53 in {count} of {tensor.count} elements "
                f"({place_of(first, tensor.shape)})",
                "it must be one for its inputs; of larger integers doubles do not have all: write a NumPy or Python "
                "reference",
            )

    def _inputs(self) -> dict[str, npt.NDArray[Any]]:
        """Return the content of the tensors, in the shape that the kernel means."""
        return {
            one.name: self._data.download(one, f"{one.name}_initial" if one.role in RESTORED else None)
            for one in self._data.inputs
        }

    def _on_host(
        self, wanted: Sequence[str], inputs: Mapping[str, npt.NDArray[Any]], *, few: bool, **how: Any
    ) -> dict[str, Expected]:
        """Return what references on the host expect of some outputs, without golden files; see :class:`Answers`."""
        of, tensors = self.reference, self._data.tensors
        with threadpoolctl.threadpool_limits(1 if few else len(os.sched_getaffinity(0)), "blas"):
            expected, took_s = self.answers.of(of, tensors, inputs, of.numbers, wanted, **how)
        self.host_s = max(self.host_s, took_s)
        return expected

    def _expected_there(self, name: str) -> npt.NDArray[Any]:
        """Return what is expected of an output, in the shape that the kernel means."""
        tensor = self._outputs[name]
        return as_meant(self._there(tensor, 0, tensor.count).reshape(tensor.shape), tensor)

    def _cross_check(self, name: str, expected: Expected) -> None:
        tensor, cuda = self._outputs[name], self._expected_there(name)
        index = disagreement(self.reference.tolerance_of(tensor.dtype, expected), cuda, expected)
        if index is not None and expected.probes:
            how = {"known": {name: expected.value}, "probes": expected.probes}
            self._cross_check(name, self._on_host([name], self._inputs(), few=True, **how)[name])
        elif index is not None:
            raise KernelError(
                f"the references of {name} differ at {index}: host {in_full(expected.value[index], 9)}, "
                f"cuda {in_full(cuda[index], 9)}",
                "correct [reference] in the kernel's file",
            )

    def _upload(self, name: str, expected: Expected) -> None:
        tensor = self._outputs[name]
        addresses = self._allocate(tensor)
        self._expected.add(name)
        self._tolerances[name] = self.reference.tolerance_of(tensor.dtype, expected)
        if expected.probes:
            self.rough[name] = expected.probes
        arrays = ((expected.value, expected_dtype(tensor)), (expected.magnitude, "float32"))
        with np.errstate(over="ignore"):
            for address, (array, dtype) in zip(addresses, arrays, strict=True):
                host = np.ascontiguousarray(as_meant(array, tensor), dtype)
                check(cu.cuMemcpyHtoD(address, host.ctypes.data, host.nbytes))
