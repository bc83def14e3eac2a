"""The child that evaluates references and runs plain kernels on the CPU, under limits of time and memory."""

from __future__ import annotations

import contextlib
import math
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import structs

from tuner.children.limits import memory_limit
from tuner.core.errors import KernelError, TunerError
from tuner.core.messages import Channel, Record
from tuner.core.model import Configuration, Gpu, Problem, value_text
from tuner.core.processes import ParentPipe, limit_memory
from tuner.inspect.check.host_data import UNWRITTEN, HostData, difference
from tuner.inspect.check.host_launches import HostLaunches
from tuner.inspect.emulator.accesses import Pattern
from tuner.inspect.emulator.building import NotForHost
from tuner.inspect.emulator.host import KernelFault
from tuner.kernel.contents import NAN, POISONS, REMEDY, further_contents
from tuner.kernel.default import default_configuration
from tuner.kernel.edge_sizes import MAX_VARIED_ELEMENTS, varied_problem, with_other_scalars
from tuner.kernel.golden import GoldenDiffersError, disagreement
from tuner.kernel.load import read_kernel
from tuner.kernel.plan import tensors_of
from tuner.kernel.reference import Expected, in_full
from tuner.kernel.spec import KernelSpec

CPU_S = 20
"""For each problem, and each content of its inputs: the built-in kernels take about a second."""
SLOW_S = 2.0
"""What took so long says which larger problems would take more than :data:`CPU_S`."""
LEAST_BYTES = 3 << 30
"""Address space, most of it never touched: stacks of 256 KiB for 4096 threads, and NumPy's libraries."""
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
    most: int = 0
    """Accesses of a launch that are recorded; then the configuration is run once, and nothing compared."""
    wanted: int | None = None
    """Problems with an answer behind which no other is begun; None for all."""


class HostResult(Record, frozen=True):
    """What came of one problem."""

    fault: str = ""
    """What is wrong with the kernel or the reference."""
    remedy: str = ""
    undecided: str = ""
    """Why the reference has no answer, so that the problem shows nothing."""
    unsuitable: str = ""
    """Why this cannot be run on a CPU; nothing follows."""
    left_out: Mapping[str, str] = {}
    """Contents of the inputs that were not tried, and why."""
    patterns: tuple[tuple[Pattern, ...], ...] = ()
    """Of each launch, where accesses are recorded."""


HOST_RUNS: Channel[HostRequest, HostResult] = Channel(HostRequest, HostResult)
"""A result for each problem that is begun, in order."""


class _Runner:
    """Runs what a request names, and says what is wrong."""

    def __init__(self, kernel: KernelSpec, request: HostRequest) -> None:
        self._kernel, self._request = kernel, request
        self._launches = HostLaunches(kernel, request.gpu, request.folder, request.most)
        problems = request.problems[: request.wanted] if request.configuration is not None else ()
        self._varied = varied_problem(kernel, problems, request.gpu)
        self._others = request.configuration is not None and not request.most
        """Whether the reference has an answer to other scalars, as far as that is known."""

    def result(self, problem: Problem, turn: int) -> HostResult:
        """Return what comes of one problem; of every second one with other scalars, if there is an answer."""
        varied = problem is self._varied
        if self._others and turn % 2:
            with contextlib.suppress(TunerError):  # said of the scalars that the file has, below
                passed = with_other_scalars(self._kernel, problem, self._request.gpu)
                words = [f"{name}={value_text(value)}" for name, value in passed.scalars.items()]
                if words and not (result := self._result_of(passed, varied)).undecided:
                    named = " ".join([result.fault, *words]) if result.fault else ""
                    return structs.replace(result, fault=named)
            self._others = False
        try:
            return self._result_of(problem, varied)
        except TunerError as error:
            return HostResult(error.problem, error.remedy)

    def _result_of(self, problem: Problem, varied: bool) -> HostResult:
        try:
            return self._result(problem, varied)
        except KernelFault as fault:
            return HostResult(f"{fault}, at {problem.sizes_text}")
        except NotForHost as reason:
            return HostResult(unsuitable=str(reason))

    def _result(self, problem: Problem, varied: bool) -> HostResult:
        request = self._request
        if request.reference_only:
            return self._evaluate_reference(problem)
        data = HostData(self._kernel, problem, request.gpu)
        if request.most and request.configuration is not None:
            self._launches.run(problem, request.configuration, data.memory())
            return HostResult(patterns=self._launches.patterns)
        try:
            expected = data.expected()
        except GoldenDiffersError as error:
            return HostResult(error.problem, error.remedy)
        except KernelError as error:
            return HostResult(undecided=error.problem)
        if request.configuration is None:
            return self._cross_check(data, expected)
        expected = self._with_kernels(data, expected)
        if not expected and self._kernel.reference.default:
            return HostResult(undecided="no default configuration is valid")
        wrong = self._verdict(data, expected, request.configuration)
        if wrong.fault or wrong.undecided or not varied:
            return wrong
        return self._with_further_contents(data, request.configuration)

    def _verdict(
        self,
        data: HostData,
        expected: Mapping[str, Expected],
        configuration: Configuration,
        *,
        further: bool = False,
    ) -> HostResult:
        """Run a configuration, and compare what it does; where it looks wrong, more is found out of magnitudes.

        One that reads what nothing has written is run with other numbers there, too.
        """
        for poison in POISONS:
            wrong = self._compared(data, expected, configuration, further, poison)
            if wrong.fault or wrong.undecided or self._launches.unset is None:
                break
        return wrong

    def _compared(
        self,
        data: HostData,
        expected: Mapping[str, Expected],
        configuration: Configuration,
        further: bool,
        poison: int,
    ) -> HostResult:
        memory = data.memory(poison)
        self._launches.run(data.problem, configuration, memory, poison)
        where = f"where memory holds 0x{poison:02X} before: " * (poison != NAN)
        if changed := data.unchanged(memory):
            return HostResult(
                f"the input {changed} is written to, at {data.problem.sizes_text}",
                'inputs stay as they are; one that may be overwritten has role = "destroyed"',
            )
        for tensor in data.outputs:
            if tensor.name in expected:
                array = memory[tensor.name]
                try:
                    for closer in self._expectations(data, expected, tensor.name, further):
                        expected, one = closer, closer[tensor.name]
                        if (wrong := difference(tensor, array, one, data.tolerance_of(tensor, one))) is None:
                            break
                except TunerError as error:
                    return HostResult(undecided=error.problem)
                if wrong:
                    return HostResult(
                        f"{where}{wrong[0]}, at {data.problem.sizes_text}", wrong[1] or self._cause(data)
                    )
        return HostResult()

    def _expectations(
        self, data: HostData, expected: Mapping[str, Expected], name: str, further: bool
    ) -> Iterator[Mapping[str, Expected]]:
        """Yield what is expected: as given, with magnitudes estimated for an output, and with a CUDA reference's."""
        yield expected
        while probes := expected[name].probes:
            expected = {**expected, **data.expected(further=further, probes=probes)}
            yield expected
        if self._kernel.reference.cuda is not None:
            with contextlib.suppress(NotForHost):
                yield {**expected, **self._launches.of_reference(data)}

    def _cause(self, data: HostData) -> str:
        """Return what the last run has read before anything was written there, and what to do; empty if nothing."""
        unset = self._launches.unset
        cause, name = unset.unset() if unset is not None else ("", "")
        if not (cause and name):
            return cause
        output = any(tensor.name == name and tensor.role == "output" for tensor in data.tensors)
        return f"{cause}: {UNWRITTEN if output else 'write it before'}"

    def _with_further_contents(self, data: HostData, configuration: Configuration) -> HostResult:
        """Run a configuration on other contents of the inputs, up to the first with which it is wrong."""
        if why := data.not_varied:
            return HostResult(left_out={"other inputs": why})

        def compute(numbers: Mapping[str, npt.NDArray[Any]]) -> tuple[HostData, dict[str, Expected]]:
            other = data.holding(numbers)
            return other, self._with_kernels(other, other.expected(further=True))

        left_out: dict[str, str] = {}
        for tried in further_contents(data.tensors, compute, 0, integers=data.on_host, given=data.given):
            limit_cpu()
            if tried.result is None:
                left_out[tried.content] = tried.why
                continue
            try:
                wrong = self._verdict(*tried.result, configuration, further=True)
            except KernelFault as fault:
                wrong = HostResult(f"{fault}, at {data.problem.sizes_text}")
            if wrong.undecided:
                left_out[tried.content] = wrong.undecided
            if wrong.fault:
                return HostResult(f"with {tried.content}: {wrong.fault}", REMEDY)
        return HostResult(left_out=left_out)

    def _with_kernels(self, data: HostData, expected: dict[str, Expected]) -> dict[str, Expected]:
        """Return what references expect: one that is a kernel where the others leave something out."""
        reference = self._kernel.reference
        if len(expected) == len(data.outputs):
            return expected
        if reference.cuda is not None:
            return {**self._launches.of_reference(data), **expected}
        return self._from_default(data) if reference.default else expected

    def _from_default(self, data: HostData) -> dict[str, Expected]:
        """Return what the default configuration makes of the inputs."""
        default = default_configuration(self._kernel, data.problem, data.gpu)
        if default is None:
            return {}
        memory = data.memory()
        self._launches.run(data.problem, default, memory)
        try:
            return data.results(memory)
        except KernelError as error:
            raise KernelError(error.problem, self._cause(data) or error.remedy) from None

    def _evaluate_reference(self, problem: Problem) -> HostResult:
        """Evaluate the reference at sizes of which any will do: small ones, its own scaled down, its own."""
        first: KernelError | None = None
        own = tuple(problem.sizes.values())
        scaled = [tuple(max(1, size // factor) for size in own) for factor in (64, 8)]
        for lengths in (own,) if self._kernel.of_one_size else (*LENGTHS, *scaled, own):
            sizes = {**problem.sizes, **dict(zip(problem.sizes, lengths, strict=False))}
            case = Problem(problem.kernel, sizes, problem.dtypes, problem.options)
            try:
                tensors = tensors_of(self._kernel, case, self._request.gpu)
                if sum(tensor.count for tensor in tensors) > MAX_VARIED_ELEMENTS:
                    continue
                HostData(self._kernel, case, self._request.gpu).expected(repeatable=False)
            except KernelError as error:
                first = first or error
            else:
                return HostResult()
        if first is None:
            return HostResult(undecided="its arrays are too large for that")
        return HostResult(first.problem, first.remedy)

    def _cross_check(self, data: HostData, expected: Mapping[str, Expected]) -> HostResult:
        """Compare the CUDA reference with the other one, as the measuring process does."""
        computed = self._launches.of_reference(data)
        for tensor in data.outputs:
            mine = computed[tensor.name]
            if np.isnan(mine.value).any():
                return HostResult(
                    f"the CUDA reference leaves NaN in {tensor.name}, at {data.problem.sizes_text}"
                )
            if tensor.name not in expected:
                continue
            other = expected[tensor.name]
            index = disagreement(data.tolerance_of(tensor, other), mine.value, other)
            if index is not None and other.probes:
                return self._cross_check(data, data.expected(probes=other.probes))
            if index is not None:
                return HostResult(
                    f"the references of {tensor.name} differ at {list(index)}: CUDA {in_full(mine.value[index], 9)}, "
                    f"the other {in_full(other.value[index], 9)}, at {data.problem.sizes_text}",
                    "correct one of them",
                )
        return HostResult()


def main() -> None:
    """Answer requests, each up to its first fault. Argument: the number of such children at a time."""
    pipe = ParentPipe(HOST_RUNS)
    limit_memory(max(LEAST_BYTES, memory_limit(int(sys.argv[1]))))
    kernels: dict[Path, KernelSpec] = {}
    while (request := pipe.receive()) is not None:
        if request.kernel_file not in kernels:
            kernels[request.kernel_file] = read_kernel(request.kernel_file)
        _answer(pipe, request, _Runner(kernels[request.kernel_file], request))


def limit_cpu() -> None:
    """Allow this process :data:`CPU_S` from now on."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(resource.RLIMIT_CPU, (int(usage.ru_utime + usage.ru_stime) + CPU_S, hard))


def _answer(pipe: ParentPipe[HostRequest, HostResult], request: HostRequest, runner: _Runner) -> None:
    answered, slowest_s = 0, 0.0
    for turn, problem in enumerate(request.problems):
        limit_cpu()
        elements, began = math.prod(problem.sizes.values()), time.process_time()
        if slowest_s * elements < CPU_S:
            result = runner.result(problem, turn)
            took_s = time.process_time() - began
            slowest_s = max(slowest_s, took_s / elements if took_s > SLOW_S else 0.0)
        else:
            result = HostResult(undecided=f"it would take more than {CPU_S} s on the CPU")
        pipe.send(result)
        answered += not result.undecided
        if answered == request.wanted or (not request.reference_only and (result.fault or result.unsuitable)):
            return


if __name__ == "__main__":
    main()
