"""What it costs to compare fresh launches with repeated ones, and what evict_last would gain from the set-aside L2.

    scripts/run python scripts/measuring/freshness.py --out results/evidence/freshness.json

The same configurations are measured with and without the comparison, in turn, on one GPU: the seconds of the measuring
process for all of them, and every ratio of fresh to repeated times, which is 1 for honest kernels.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Collection
from contextlib import closing
from typing import Any

from cuda.bindings import driver as cu

from scripts.lab import Lab, gemm, keep, parser, vector_add
from tuner.children.compilation import RenderRequest
from tuner.children.compile_pool import CompilePool
from tuner.children.measuring import Candidate
from tuner.core import paths
from tuner.core.conditions import Mode
from tuner.core.model import Problem, Status
from tuner.gpu.buffers import Helpers
from tuner.gpu.candidate import Fixed, Timed, load
from tuner.gpu.freshness import Comparison, Freshness
from tuner.gpu.measure import CandidateMeasurement
from tuner.gpu.problem import ProblemSession
from tuner.kernel.load import load_kernel
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec

PINNED = """
extern "C" __global__ void pinned(const uint4* data, unsigned long long count, unsigned int* never) {
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    unsigned int sum = 0;
    for (unsigned long long i = blockIdx.x * 512ull + threadIdx.x; i < count; i += gridDim.x * 512ull) {
        uint4 x;
        asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(data + i), "l"(policy));
        sum += x.x ^ x.y ^ x.z ^ x.w;
    }
    if (sum == 0x9e3779b9u && count == 1) *never = sum;
}
"""


class Watched(Freshness):
    """Notes every first comparison; with ``skip`` it makes none."""

    def __init__(self, session: ProblemSession, *, skip: bool) -> None:
        super().__init__(session)
        self.skip, self.ratios = skip, list[float]()

    def compare(self, timed: Timed, estimate_ns: float, only: Collection[str] = ()) -> Comparison:
        """Compare, or say that both are equal."""
        if self.skip:
            return Comparison([1.0], [1.0])
        comparison = super().compare(timed, estimate_ns, only)
        self.ratios.append(statistics.median(comparison.fresh_ns) / statistics.median(comparison.repeated_ns))
        return comparison


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--configurations", type=int, default=200)
    options.add_argument("--pairs", type=int, default=5)
    given = options.parse_args()
    problems = [
        ("gemm 4096^3", *gemm(4096, "bfloat16"), Mode.COLD),
        ("vector_add 2^26", *vector_add(26), Mode.COLD),
        ("vector_add 2^20", *vector_add(20), Mode.ROTATING),
    ]
    with Lab() as lab:
        rows = [_cost(lab, *problem, given.configurations, given.pairs) for problem in problems]
        keep(given.out, lab.gpu, rows=rows, persisting=_persisting(lab))


def _cost(
    lab: Lab, name: str, kernel: KernelSpec, problem: Problem, mode: Mode, count: int, pairs: int
) -> dict[str, Any]:
    candidates = _candidates(lab, kernel, problem, count)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    with lab.session(kernel, problem, mode) as session:
        ways = {skip: Watched(session, skip=skip) for skip in (True, False)}
        refused = 0
        _measured(session, candidates[:10], ways[False])
        ways[False].ratios.clear()
        for pair in range(pairs):
            for skip in (True, False) if pair % 2 else (False, True):
                began = time.monotonic()
                refused += _measured(session, candidates, ways[skip])
                seconds[skip].append(time.monotonic() - began)
    shares = [new / old - 1 for old, new in zip(seconds[True], seconds[False], strict=True)]
    ratios = sorted(ways[False].ratios)
    row = {
        "problem": name,
        "configurations": len(candidates),
        "without_s": seconds[True],
        "with_s": seconds[False],
        "cost": statistics.median(shares),
        "compared": len(ratios) / pairs,
        "ratio": {"median": statistics.median(ratios), "least": ratios[0], "most": ratios[-1]},
        "refused": refused,
    }
    print(row)
    return row


def _candidates(lab: Lab, kernel: KernelSpec, problem: Problem, count: int) -> list[Candidate]:
    space = SearchSpace.from_kernel(kernel, problem, lab.gpu)
    draw, chosen = random.Random(1), {space.default: None}
    while len(chosen) < count:
        variant = draw.choice(space.variants)
        chosen[variant.configuration(draw.randrange(len(variant)))] = None
    with closing(CompilePool(12, paths.cubins())) as pool:
        waiting = [pool.submit(RenderRequest(kernel.file, problem, lab.gpu, one)) for one in chosen]
        compiled = [one.result() for one in waiting]
    return [one.candidate for one in compiled if one.status is Status.OK]


def _measured(session: ProblemSession, candidates: list[Candidate], freshness: Watched) -> int:
    """Measure all in order, as a search does; return how many were refused for leaning on earlier launches."""
    measurement = CandidateMeasurement(session, lambda: False, freshness)
    incumbent_ns, refused = 0.0, 0
    for candidate in candidates:
        with closing(load(session.data, candidate)) as loaded:
            found = measurement.measure(loaded, incumbent_ns, thorough=False, verify_only=False)
        refused += found.status is Status.REPEATS
        if found.status is Status.OK:
            time_ns = statistics.median(found.samples_ns)
            incumbent_ns = min(incumbent_ns or time_ns, time_ns)
    return refused


def _persisting(lab: Lab) -> list[dict[str, float]]:
    """Time a read with evict_last after the flush, without and with L2 set aside for it."""
    rows = []
    limit = cu.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE
    helpers = Helpers(lab.context, lab.gpu.arch, lab.cache, PINNED, "pinned")
    for mib in (4, 16, 30):
        kernel = load_kernel("vector_add")
        with lab.session(kernel, kernel.problem({"n": mib << 18}, {}, {})) as session:
            address, never = session.data.memory.addresses["a"], session.data.memory.addresses["flush"]
            arguments = [("pointer", address), ("int64", mib << 16), ("pointer", never)]
            timed = Fixed(helpers.kernel("pinned", 4 * lab.gpu.sm_count, 512, arguments))
            row = {"mib": float(mib)}
            for key, size_bytes in (("none_us", 0), ("set_aside_us", lab.gpu.l2_bytes * 3 // 5)):
                cu.cuCtxSetLimit(limit, size_bytes)
                with closing(session.graph(timed, 16, 1e4)) as graph:
                    row[key] = statistics.median(session.take(graph, 1e4).times_ns) / 1e3
            cu.cuCtxSetLimit(limit, 0)
        print(row)
        rows.append(row)
    return rows


if __name__ == "__main__":
    main()
