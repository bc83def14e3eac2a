"""What empties the L2, and what the events cost: one addition of float32 vectors, timed in seven ways.

    scripts/run python scripts/measuring/modes.py --out results/evidence/modes.json

The kernel is the plain one: 16-byte loads, 256 threads, one load a thread. ``real rotation`` is written here anew,
apart from the tuner's own: thousands of calls on as many buffers as make five times the L2, between two events, no
flush. ``cold behind real buffers`` is an event pair around one call, behind calls on other buffers instead of a flush.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cuda.bindings import driver as cu

from scripts.harness import run, say
from scripts.lab import PLAIN, Lab, keep, parser, time_of, unfinished, vector_add
from scripts.page_figures import measuring
from tuner.core.conditions import Mode
from tuner.core.model import Configuration, Problem
from tuner.gpu.buffers import ProblemData
from tuner.gpu.candidate import Fixed, Loaded
from tuner.gpu.driver import Graph
from tuner.gpu.problem import ProblemSession
from tuner.kernel.batching import Batch
from tuner.kernel.spec import KernelSpec
from tuner.runtime.driver import check

EXPONENTS = (10, 12, 14, 16, 18, 20, 22, 24, 26, 28)
PLAIN_VARIANT = Configuration.of("vectorized", PLAIN)


def main() -> None:
    arguments = parser(__doc__).parse_args()
    with Lab() as lab, unfinished(arguments.out, lab.gpu.name) as rows:
        for exponent in EXPONENTS:
            rows.once(str(exponent), _row, lab, exponent)
        empty = _empty(lab)
        print(
            f"an empty kernel: {empty['between two events']:.3f} us between two events, {empty['in a batch']:.3f} in "
            f"a batch; two events with nothing between them: {empty['two events alone']:.3f}"
        )
        keep(arguments.out, lab.gpu, measuring.modes, rows=[*rows.data.values()], empty_us=empty)


def _row(lab: Lab, exponent: int) -> dict[str, Any]:
    say(f"2^{exponent}")
    kernel, problem = vector_add(exponent)
    times: dict[str, float] = {}
    for mode in Mode:
        with lab.session(kernel, problem, mode) as session:
            candidate = lab.candidate(session, kernel, problem, PLAIN_VARIANT)
            times[str(mode)] = statistics.median(time_of(session, candidate, 8).times_ns) / 1e3
            candidate.close()
    times |= _by_hand(lab, kernel, problem)
    return {"exponent": exponent, "us": times}


def _by_hand(lab: Lab, kernel: KernelSpec, problem: Problem) -> dict[str, float]:
    """Time it in the ways that the tuner does not."""
    bytes_each = 12 * problem.sizes["n"]
    copies = max(2, min(2000, -(-5 * lab.gpu.l2_bytes // bytes_each)))
    with lab.session(kernel, problem) as plain:
        session = _with_copies(lab, plain, copies)
        candidate = lab.candidate(session, kernel, problem, PLAIN_VARIANT)
        calls = max(copies, min(2000, int(2e6 / (bytes_each / 4000 + 1500))))
        flush = session.data.memory.allocate("memset flush", 256 << 20)

        def others(graph: Graph) -> None:
            for copy in range(1, min(copies, 200)):
                candidate.add_to(graph, copy)

        times = {
            "real rotation": _rotation(session, candidate, calls),
            "cold behind real buffers": _after(session, candidate, others, 12),
            "cold behind a memset": _after(
                session, candidate, lambda graph: graph.memset(flush, 0, 256 << 20)
            ),
            "no flush": _after(session, candidate, lambda _: None),
        }
        candidate.close()
        session.close()
    return times


def _with_copies(lab: Lab, session: ProblemSession, copies: int) -> ProblemSession:
    data = ProblemData(lab.helpers, session.data.tensors, 1, copies)
    return replace(session, data=data, batch=Batch(copies, copies))


def _elapsed_us(session: ProblemSession, graph: Graph, pairs: list[tuple[Any, Any]], calls: int = 1) -> float:
    graph.launch()
    session.data.helpers.context.synchronize()
    graph.launch()
    session.data.helpers.context.synchronize()
    times = [float(check(cu.cuEventElapsedTime(start, end))) * 1e3 / calls for start, end in pairs]
    graph.close()
    return statistics.median(times)


def _rotation(session: ProblemSession, candidate: Loaded, calls: int) -> float:
    graph = Graph(session.data.helpers.context)
    for call in range(session.data.copies):
        candidate.add_to(graph, call)
    start = graph.event()
    for call in range(calls):
        candidate.add_to(graph, call % session.data.copies)
    return _elapsed_us(session, graph, [(start, graph.event())], calls)


def _after(
    session: ProblemSession, candidate: Loaded, before: Callable[[Graph], object], count: int = 16
) -> float:
    """Time copy 0 alone, behind something else."""
    graph = Graph(session.data.helpers.context)
    pairs = []
    for _ in range(count):
        before(graph)
        start = graph.event()
        candidate.add_to(graph, 0)
        pairs.append((start, graph.event()))
    return _elapsed_us(session, graph, pairs)


def _empty(lab: Lab) -> dict[str, float]:
    """Time a kernel that does nothing."""
    kernel, problem = vector_add(10)
    empty = lab.helpers.kernel("nothing", 1, 32, [])
    with lab.session(kernel, problem) as session:
        alone, batch = Graph(lab.context), Graph(lab.context)
        pairs = []
        for _ in range(50):
            start = alone.event()
            alone.kernel(empty)
            pairs.append((start, alone.event()))
        start = batch.event()
        for _ in range(1000):
            batch.kernel(empty)
        end = batch.event()
        gaps = Graph(lab.context)
        nothing = []
        for _ in range(50):
            Fixed().add_to(gaps, 0)
            nothing.append((gaps.event(), gaps.event()))
        return {
            "between two events": _elapsed_us(session, alone, pairs),
            "in a batch": _elapsed_us(session, batch, [(start, end)], 1000),
            "two events alone": _elapsed_us(session, gaps, nothing),
        }


if __name__ == "__main__":
    run(main)
