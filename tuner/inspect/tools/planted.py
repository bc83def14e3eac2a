"""Kernels with one known fault each: a tool that sees nothing wrong with them cannot be relied on for others.

A compute-sanitizer that does not fit the driver can end with a clean summary without having looked at anything.
"""

from __future__ import annotations

from tuner.children.compilation import SourceRequest
from tuner.children.compile_pool import CompilePool
from tuner.children.measuring import Candidate, ProblemSetup, ReferenceData
from tuner.core.errors import CompileError
from tuner.core.model import Configuration, Gpu, Problem, Status
from tuner.inspect.tools.cases import Case, Unit
from tuner.runtime.launches import Buffer, Launch, Plan

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
