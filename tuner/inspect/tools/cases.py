"""Configurations at sizes, planned and compiled for a process that a tool watches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import structs

from tuner.children.compilation import RenderRequest, SourceRequest
from tuner.children.compile_pool import CompilePool
from tuner.children.job import CaseRun
from tuner.children.measuring import Candidate, ProblemSetup, ReferenceData
from tuner.core.errors import CompileError, DeviceError, TunerError
from tuner.core.model import Configuration, Gpu, Problem, Resources, Status
from tuner.devices.requests import Requests, candidate_of
from tuner.kernel.spec import KernelSpec
from tuner.runtime.launches import Buffer, Launch, Plan


@dataclass(frozen=True)
class Case:
    """A configuration, and the problem that it is to compute."""

    problem: Problem
    configuration: Configuration

    def __str__(self) -> str:
        return f"{self.configuration} at {self.problem.sizes_text}"


@dataclass(frozen=True)
class Unit:
    """A case that can be run."""

    number: int
    case: Case
    candidate: Candidate
    setup: ProblemSetup
    resources: tuple[Resources, ...] = ()
    """Of each launch."""

    @property
    def entries(self) -> tuple[str, ...]:
        """Its kernels' names in the cubins."""
        return self.candidate.entries


LeftOut = tuple[Case, str]
"""A case that cannot be run, and why."""


def compile_cases(
    kernel: KernelSpec, gpu: Gpu, pool: CompilePool, cases: Sequence[Case], golden: Problem
) -> tuple[list[Unit], list[LeftOut]]:
    """Plan and compile cases, all of them at once.

    Args:
        kernel: whose configurations they are.
        gpu: that they are for.
        pool: compiles them.
        cases: numbered from 0 in this order.
        golden: the problem that the kernel's golden files are about, if it has any: they are of one size.

    Raises:
        DeviceError: the kernel's CUDA reference does not compile.
    """
    waits = [pool.begin(RenderRequest(kernel.file, case.problem, gpu, case.configuration)) for case in cases]
    requests = Requests(kernel, gpu, pool)
    setups: dict[str, ProblemSetup | str] = {}
    units: list[Unit] = []
    left_out: list[LeftOut] = []
    for number, (case, wait) in enumerate(zip(cases, waits, strict=True)):
        compilation = wait()
        if compilation.plan is None:
            kind = "" if compilation.status is Status.INVALID_CONFIG else f"{compilation.status}: "
            left_out.append((case, kind + compilation.error))
            continue
        key = case.problem.key
        if key not in setups:
            setups[key] = _setup(requests, case.problem, with_golden=case.problem == golden)
        setup = setups[key]
        if isinstance(setup, str):
            left_out.append((case, setup))
            continue
        units.append(Unit(number, case, candidate_of(compilation), setup, compilation.resources))
    return units, left_out


def _setup(requests: Requests, problem: Problem, *, with_golden: bool) -> ProblemSetup | str:
    """Describe tensors and reference of a problem, or say why there are none."""
    try:
        setup = requests.problem_setup(problem)
    except DeviceError:
        raise
    except TunerError as error:
        return str(error)
    if with_golden:
        return setup
    return structs.replace(setup, reference=structs.replace(setup.reference, golden={}))


def as_runs(units: Sequence[Unit]) -> tuple[tuple[ProblemSetup, ...], tuple[CaseRun, ...]]:
    """Return units as ``setups`` and ``runs`` of a job; units of one problem share its setup."""
    setups: list[ProblemSetup] = []
    indices: dict[int, int] = {}
    runs = []
    for unit in units:
        if id(unit.setup) not in indices:
            indices[id(unit.setup)] = len(setups)
            setups.append(unit.setup)
        runs.append(CaseRun(unit.number, indices[id(unit.setup)], unit.candidate))
    return tuple(setups), tuple(runs)


# -- kernels with one known fault each
#
# A compute-sanitizer that does not fit the driver can end with a clean summary without having looked at anything: one
# that sees nothing wrong with these cannot be relied on for others.

THREADS = 64
NUMBER = -1
"""Of the planted unit, where others are numbered from 0."""
FAULTS = {
    "memcheck": "writes behind the end of a tensor",
    "racecheck": "reads shared memory that another warp may not have written yet",
    "synccheck": "has a barrier that half of a warp does not reach",
    "initcheck": "reads memory that nothing has written",
}
SOURCE = """\
extern "C" __global__ void planted_memcheck(float* out) { out[threadIdx.x + 1] = threadIdx.x; }

extern "C" __global__ void planted_racecheck(float* out) {
    __shared__ float values[64];
    values[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = values[63 - threadIdx.x];
}

extern "C" __global__ void planted_synccheck(float* out) {
    __shared__ float values[64];
    values[threadIdx.x] = threadIdx.x;
    if (threadIdx.x % 2 == 0) __syncthreads();
    out[threadIdx.x] = values[63 - threadIdx.x];
}

extern "C" __global__ void planted_initcheck(float* out) { out[threadIdx.x] += 1.0f; }
"""


def planted(tool: str, gpu: Gpu, pool: CompilePool) -> Unit:
    """Compile the kernel that has what a tool looks for.

    Raises:
        CompileError: it does not compile.
    """
    entry = f"planted_{tool}"
    compilation = pool.compile(SourceRequest(SOURCE, entry, gpu, ()))
    if compilation.status is not Status.OK:
        raise CompileError(
            f"the kernel that tries {tool} does not compile: {compilation.error}", "run `tune doctor`"
        )
    out = Buffer("out", (THREADS,), "float32", "output")
    launch = Launch((1, 1, 1), (THREADS, 1, 1), 0, (("buffer", "out", 0),))
    candidate = Candidate(Plan((launch,), ()), compilation.cubins, compilation.entries)
    case = Case(Problem("planted", {"n": THREADS}, {"input": "float32"}), Configuration(tool, ()))
    return Unit(NUMBER, case, candidate, ProblemSetup((out,), ReferenceData("float32")))
