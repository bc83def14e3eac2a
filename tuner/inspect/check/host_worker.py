"""The child that evaluates references and runs plain kernels on the CPU, under limits of time and memory."""

from __future__ import annotations

import math
import resource
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.children.limits import memory_limit
from tuner.core.errors import KernelError, TunerError
from tuner.core.messages import Channel, Record
from tuner.core.model import Configuration, Gpu, Problem
from tuner.core.processes import ParentPipe, limit_memory
from tuner.inspect.emulator.host import (
    HostArray,
    HostKernel,
    KernelFault,
    NotForHost,
    Schedule,
    from_bfloat16,
    launch_arguments,
    to_bfloat16,
)
from tuner.kernel.load import read_kernel
from tuner.kernel.plan import make_plan, reference_launch, scalars_of, tensors_of
from tuner.kernel.python_reference import expected_on_host
from tuner.kernel.reference import (
    UNIT_ROUNDOFF,
    Expected,
    Tolerance,
    as_output,
    cross_check_allowance,
    in_full,
    settle_reference,
)
from tuner.kernel.render import render_launch
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import LaunchSpec
from tuner.runtime.launches import Buffer, Launch

Array = npt.NDArray[Any]
ALIGNMENT = 256
CPU_S = 20
"""For each problem: the built-in kernels take about a second."""
LEAST_BYTES = 3 << 30
"""Address space, most of it never touched: stacks of 256 KiB for four blocks of 1024 threads, and NumPy's libraries."""
RESIDENT = 4
"""Blocks at once, of launches whose blocks do not wait for each other."""
LENGTHS = (
    (7, 11, 13, 17, 19, 23, 29, 31),
    (64, 128, 192, 256, 320, 384, 448, 512),
    (1024, 768, 512, 1536, 256, 640, 384, 896),
)
"""Sizes at which a reference is tried, different ones for each: at primes it may have no value for a good reason."""


class HostRequest(Record, frozen=True):
    """Run something at each of some problems, up to the first fault."""

    kernel_file: Path
    gpu: Gpu
    problems: tuple[Problem, ...]
    folder: Path
    """Of this child, for what it compiles."""
    reference_only: bool = False
    """Whether the NumPy or Python reference is evaluated, and nothing else."""
    configuration: Configuration | None = None
    """None for the CUDA reference, which is compared with the other one."""


class HostResult(Record, frozen=True):
    """What came of one problem."""

    fault: str = ""
    """What is wrong with the kernel or the reference."""
    remedy: str = ""
    unsuitable: str = ""
    """Why this cannot be run on a CPU; nothing follows."""


HOST_RUNS: Channel[HostRequest, HostResult] = Channel(HostRequest, HostResult)
"""A result for each problem, in order."""


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
        self._settled = settle_reference(kernel, problem, gpu)
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
        scalars = scalars_of(self.kernel, self.problem, self.gpu)
        names = {**self.problem.sizes, **{name: value for name, (_, value) in scalars.items()}}
        inputs = {
            tensor.name: array.T if tensor.transposed else array
            for tensor in self.tensors
            if (array := self._initial.get(tensor.name)) is not None
        }
        expected = expected_on_host(replace(self._settled, golden={}), self.tensors, inputs, names)
        return {
            tensor.name: _in_memory_order(tensor, expected[tensor.name])
            for tensor in self.outputs
            if tensor.name in expected
        }

    def tolerances(self) -> dict[str, Tolerance]:
        """Return how far each output may be off."""
        return {tensor.name: self._settled.tolerance_of(tensor.dtype) for tensor in self.outputs}

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
            allowed = (
                bound.coefficient * expected.magnitude + bound.unit * np.abs(expected.value) + bound.tiny
            )
            right |= np.abs(got - expected.value) <= allowed
            right |= (np.isnan(got) & np.isnan(expected.value)) | np.isinf(expected.magnitude)
    if right.all():
        return None
    index = tuple(int(i) for i in np.argwhere(~right)[0])
    where = ", ".join(map(str, index[::-1] if tensor.transposed else index))
    wrong = int(right.size - right.sum())
    first = array.elements.reshape(tensor.shape)[index].tobytes()
    as_before = tensor.role == "output" and first == b"\xff" * len(first)
    return (
        f"{tensor.name}[{where}] is {in_full(got[index])}, expected {in_full(expected.value[index])}; "
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
    draws: dict[str, Callable[..., Array]] = {
        "normal": rng.standard_normal, "uniform": rng.random, "zeros": np.zeros, "ones": np.ones
    }  # fmt: skip
    if tensor.init in draws:
        return draws[tensor.init](tensor.shape)
    return (np.arange(math.prod(tensor.shape)) % 251).reshape(tensor.shape).astype(np.float64)


def _rounded(numbers: Array, tensor: Buffer) -> Array:
    """Return numbers as the tensor's dtype has them; integers get a range worth adding up."""
    if "int" in tensor.dtype and tensor.init in ("normal", "uniform"):
        numbers = np.rint(np.clip(numbers * 15.0, 0.0, 127.0))
    if tensor.dtype == "bfloat16":
        return from_bfloat16(to_bfloat16(numbers)).astype(np.float64)
    return numbers.astype(tensor.dtype).astype(np.float64 if tensor.dtype in UNIT_ROUNDOFF else np.int64)


class _Runner:
    """Runs what a request names; kernels are compiled once for each source."""

    def __init__(self, kernel: KernelSpec, request: HostRequest) -> None:
        self._kernel, self._request = kernel, request
        self._compiled: dict[tuple[str, str], HostKernel] = {}

    def result(self, problem: Problem) -> HostResult:
        """Return what comes of one problem."""
        try:
            return self._result(problem)
        except TunerError as error:
            return HostResult(error.problem, error.remedy)
        except KernelFault as fault:
            return HostResult(f"{fault}, at {problem.sizes_text}")
        except NotForHost as reason:
            return HostResult(unsuitable=str(reason))

    def _result(self, problem: Problem) -> HostResult:
        request = self._request
        if request.reference_only:
            return self._evaluate_reference(problem)
        data = HostData(self._kernel, problem, request.gpu)
        expected = data.expected()
        if request.configuration is None:
            return self._cross_check(data, expected)
        if self._kernel.reference.cuda is not None and len(expected) < len(data.outputs):
            expected = {**self._from_cuda(data), **expected}
        memory = data.memory()
        self._run_configuration(problem, request.configuration, memory)
        if changed := data.unchanged(memory):
            return HostResult(
                f"the input {changed} is written to, at {problem.sizes_text}", "inputs stay as they are"
            )
        bounds = data.tolerances()
        for tensor in data.outputs:
            if tensor.name in expected:
                wrong = difference(tensor, memory[tensor.name], expected[tensor.name], bounds[tensor.name])
                if wrong:
                    return HostResult(f"{wrong[0]}, at {problem.sizes_text}", wrong[1])
        return HostResult()

    def _evaluate_reference(self, problem: Problem) -> HostResult:
        """Evaluate the reference at small sizes, of which any will do."""
        first: TunerError | None = None
        for lengths in LENGTHS:
            sizes = {**problem.sizes, **dict(zip(problem.sizes, lengths, strict=False))}
            small = Problem(problem.kernel, sizes, problem.dtypes, problem.options)
            try:
                data = HostData(self._kernel, small, self._request.gpu)
                data.expected()
            except TunerError as error:
                first = first or error
            else:
                return HostResult()
        assert first is not None
        return HostResult(first.problem, first.remedy)

    def _run_configuration(
        self, problem: Problem, configuration: Configuration, memory: dict[str, HostArray]
    ) -> None:
        plan = make_plan(self._kernel, problem, self._request.gpu, configuration)
        specs = self._kernel.launches(problem, self._request.gpu, configuration)
        for buffer in plan.scratch:
            memory[buffer.name] = HostArray(buffer.count, buffer.dtype, 256, buffer.name)
            if buffer.zeroed or buffer.zeroed_once:
                memory[buffer.name].elements[:] = 0
        for spec, launch in zip(specs, plan.launches, strict=True):
            self._run(spec, launch, problem, configuration, memory)
        for buffer in plan.scratch:
            if buffer.zeroed_once and memory[buffer.name].elements.any():
                raise KernelFault(f"{buffer.name} is not left as zeros, as the next run needs it")

    def _from_cuda(self, data: HostData) -> dict[str, Expected]:
        """Return what the CUDA reference makes of the inputs."""
        spec, launch = self._kernel.reference.cuda, reference_launch(self._kernel, data.problem, data.gpu)
        assert spec is not None and launch is not None
        memory = data.reference_memory()
        self._run(spec, launch, data.problem, Configuration("", ()), memory)
        return {
            tensor.name: as_output(
                tensor.name,
                tensor.dtype,
                memory[tensor.name].numbers.reshape(tensor.shape),
                memory[f"{tensor.name}_magnitude"].numbers.astype(np.float64).reshape(tensor.shape),
                "the CUDA reference",
            )
            for tensor in data.outputs
        }

    def _cross_check(self, data: HostData, expected: Mapping[str, Expected]) -> HostResult:
        """Compare the CUDA reference with the other one, as the measuring process does."""
        bounds, computed = data.tolerances(), self._from_cuda(data)
        for tensor in data.outputs:
            mine = computed[tensor.name]
            if np.isnan(mine.value).any():
                return HostResult(
                    f"the CUDA reference leaves NaN in {tensor.name}, at {data.problem.sizes_text}"
                )
            if tensor.name not in expected:
                continue
            other, bound = expected[tensor.name], bounds[tensor.name]
            allowed = cross_check_allowance(bound, other.value, other.magnitude)
            off = ~(np.abs(mine.value - other.value) <= allowed)
            if off.any():
                index = tuple(int(i) for i in np.argwhere(off)[0])
                return HostResult(
                    f"the references of {tensor.name} differ at {list(index)}: CUDA {in_full(mine.value[index], 9)}, "
                    f"the other {in_full(other.value[index], 9)}, at {data.problem.sizes_text}",
                    "correct one of them",
                )
        return HostResult()

    def _run(
        self,
        spec: LaunchSpec,
        launch: Launch,
        problem: Problem,
        configuration: Configuration,
        memory: Mapping[str, HostArray],
    ) -> None:
        if launch.cluster is not None or launch.cooperative or launch.needs_cluster_order:
            raise NotForHost("it launches clusters, or synchronises its grid")
        if any(kind == "map" for kind, _, _ in launch.arguments):
            raise NotForHost("it takes tensor maps")
        compiled = self._compile(spec, problem, configuration)
        schedule = Schedule(resident=1 << 20) if launch.resident else Schedule(0, RESIDENT, shuffled=True)
        compiled(launch.grid, launch.block, launch.shared_bytes, schedule, *launch_arguments(launch, memory))

    def _compile(self, spec: LaunchSpec, problem: Problem, configuration: Configuration) -> HostKernel:
        source, entry = render_launch(self._kernel, spec, problem, self._request.gpu, configuration)
        if (source, entry) not in self._compiled:
            folder = self._request.folder / str(len(self._compiled))
            include = (spec.template.parent, *self._kernel.include)
            self._compiled[source, entry] = HostKernel(source, entry, folder, include)
        return self._compiled[source, entry]


def main() -> None:
    """Answer requests, each up to its first fault. Argument: the number of such children at a time."""
    pipe = ParentPipe(HOST_RUNS)
    limit_memory(max(LEAST_BYTES, memory_limit(int(sys.argv[1]))))
    kernels: dict[Path, KernelSpec] = {}
    while (request := pipe.receive()) is not None:
        if request.kernel_file not in kernels:
            kernels[request.kernel_file] = read_kernel(request.kernel_file)
        _answer(pipe, request, _Runner(kernels[request.kernel_file], request))


def _answer(pipe: ParentPipe[HostRequest, HostResult], request: HostRequest, runner: _Runner) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    for problem in request.problems:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        resource.setrlimit(resource.RLIMIT_CPU, (int(usage.ru_utime + usage.ru_stime) + CPU_S, hard))
        result = runner.result(problem)
        pipe.send(result)
        if not request.reference_only and (result.fault or result.unsuitable):
            return


if __name__ == "__main__":
    main()
