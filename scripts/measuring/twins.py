"""Does the race tell equal kernels from different ones?

    scripts/run python scripts/measuring/twins.py --out results/evidence/twins.json [--times 200]

Each comparison lets the race's own procedure decide (``tuner.tuning.elimination``, with the noise floor that this GPU
was calibrated to), which loads the two kernels anew for each heat. *Equal*: one kernel under two names. *Slower*: one
of the two does a known share more of the same work, so that its time is longer by that share, but for the microsecond
or two of a launch:

- ``arithmetic``: 400 rounds of tensor core instructions, or 404, or 402; no memory. Heavy: it needs rest.
- ``copy``: a copy of 600000 KiB, or of 1 % or 0.5 % more.
- ``addition``, ``short addition``, ``product``: kernels of the tuner's library, equal only: 2^26 and 2^20 floats (in
  rotating batches), and a float16 product of 4096^3.

    scripts/run python scripts/measuring/twins.py --judged 60 --out results/evidence/judged-twins.json

Does `tune judge` call a winner between equal kernels? An addition is judged beside itself, at sizes in turn, and a
thousand judgements more are drawn from the rounds of these. Exit status 1 if any has a winner.

What was measured is kept beside ``--out``: what was cut off goes on.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from scripts.harness import run
from scripts.lab import PLAIN, Lab, gemm, keep, no_deadline, parser, unfinished, vector_add
from tuner.core import paths
from tuner.core.conditions import Calibration, Mode
from tuner.core.model import Configuration, Problem
from tuner.core.stats import Verdict
from tuner.devices.base import Device, say_nothing
from tuner.devices.calibrations import CalibrationCache
from tuner.devices.local import LocalDevice
from tuner.devices.started import Processes
from tuner.gpu.buffers import Helpers
from tuner.gpu.calibration import CEILING, Calibrator
from tuner.gpu.candidate import Fixed, Timed
from tuner.gpu.driver import Graph
from tuner.gpu.measure import InterleavedTiming, TimedContestant
from tuner.gpu.problem import ProblemSession
from tuner.kernel.batching import Limits
from tuner.kernel.candidates import candidate_kernel
from tuner.kernel.load import load_kernel
from tuner.kernel.render import render_ceilings
from tuner.kernel.spec import KernelSpec
from tuner.studies import interleaved
from tuner.studies.interleaved import Comparison
from tuner.studies.judging.judge import Judgement
from tuner.studies.judging.speed import versus
from tuner.studies.judging.task import task_of
from tuner.studies.judging.verdict import Speed
from tuner.tuning.elimination import Groups, eliminate
from tuner.tuning.race import SAMPLES

VECTORS = 38_400_000
"""16-byte vectors of the copy: 600000 KiB, some 290 us on an H200."""
ROUNDS = 400
SIZES = (1 << 16, 1 << 20, 1 << 24)
LAUNCH = "add<<<ceil_div(n, 256), 256>>>(a, b, c, int64(n))"
ADDITION = f"""// tune: {LAUNCH}
extern "C" __global__ void add(const float* a, const float* b, float* c, long long n) {{
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}}
"""
DRAWN = 1000
KINDS = "judged", "drawn"


@dataclass
class Case:
    """A pair of kernels to be compared again and again."""

    name: str
    share: float
    """By which the second does more."""
    session: ProblemSession
    build: Callable[[float], Timed]
    """Load it anew; the argument is the share."""
    estimate_ns: float
    bare: bool = False
    """Whether the kernels belong to no problem, so that there is no output to be right."""


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--times", type=int, default=200, help="Comparisons of each case.")
    arguments.add_argument("--judged", type=int, default=0, help="So many judgements instead.")
    given = arguments.parse_args()
    if given.judged:
        sys.exit(int(judged(LocalDevice(Processes(0, None, None)), given.judged, given.out) > 0))
    with Lab() as lab, unfinished(given.out, lab.gpu.name) as rows:
        calibration = _calibration(lab)
        for case in _cases(lab):
            key = f"{case.name} {case.share}"
            if key not in rows.data:
                rows.keep(**{key: _run(case, calibration, given.times)})
                print({name: value for name, value in rows.data[key].items() if name != "ratios"}, flush=True)
        keep(given.out, lab.gpu, rows=[*rows.data.values()])


def judged(device: Device, times: int, out: Path | None) -> int:
    """Judge an addition beside itself; return how many judgements, drawn ones included, have a winner."""
    with closing(device), unfinished(out, device.gpu.name) as rows:
        drawn = -(-DRAWN // times)
        found = [rows.once(str(number), _judgement, device, number, drawn) for number in range(times)]
        counts = {kind: dict(sum((Counter(row[kind]) for row in found), Counter())) for kind in KINDS}
        data = {**counts, "seconds": statistics.median(row["seconds"] for row in found)}
        print(data)
        keep(out, device.gpu, None, **data)
    return sum(counts[kind].get(str(one), 0) for kind in KINDS for one in (Speed.FASTER, Speed.SLOWER))


def _judgement(device: Device, number: int, draws: int) -> dict[str, Any]:
    """Return the speed of an addition beside itself, and of so many judgements that are drawn from its rounds."""
    kernel, races, compare = load_kernel("vector_add"), list[Comparison](), interleaved.compare

    def kept(*what: Any, **named: Any) -> Comparison:
        races.append(compare(*what, **named))
        return races[-1]

    problem = kernel.problem({"n": SIZES[number % len(SIZES)]})
    with tempfile.TemporaryDirectory() as folder, patch.object(interleaved, "compare", kept):
        file = Path(folder) / "add.cu"
        file.write_text(ADDITION)
        task = task_of(kernel, [problem], [f"{file}:{LAUNCH}"], None)
        verdict = Judgement(device, task, number, say_nothing).judge(
            candidate_kernel(kernel, str(file)), "add"
        )
    drawn, draw = Counter[str](), random.Random(number)
    for race in draw.choices(races, k=draws) if races else ():
        pair = draw.sample(race.timings[:2], 2)
        rounds = draw.choices(range(len(pair[0].groups_ns)), k=len(pair[0].groups_ns))
        own, other = (replace(one, groups_ns=[one.groups_ns[place] for place in rounds]) for one in pair)
        drawn[str(versus(replace(race, timings=(own, other)), own, other).verdict)] += 1
    said, seconds = str(verdict.speed or verdict.reason), sum(one.seconds for one in verdict.problems)
    print(f"{problem}: {verdict.speed or verdict.message} {seconds:.1f} s", flush=True)
    return {"judged": {said: 1}, "drawn": dict(drawn), "seconds": seconds}


def _calibration(lab: Lab) -> Calibration:
    cache = CalibrationCache(paths.cache() / "calibrations")
    calibration = cache.read(lab.gpu)
    if calibration is None or not calibration.short_noise_ns:
        calibration = Calibrator(lab.helpers, lab.timer, no_deadline).measure()
        cache.write(lab.gpu, calibration)
    return calibration


def _run(case: Case, calibration: Calibration, times: int) -> dict[str, Any]:
    verdicts: Counter[str] = Counter()
    ratios, seconds, rounds = [], [], []
    floor = calibration.noise_floor(case.session.conditions, case.estimate_ns)
    for number in range(times):
        shares = (case.share, 0.0) if number % 2 else (0.0, case.share)
        measure = partial(_measure, case, shares, number)
        began = time.monotonic()
        standing = eliminate(2, measure, floor)
        seconds.append(time.monotonic() - began)
        first, second = (1, 0) if number % 2 else (0, 1)
        verdicts[str(standing.compare(second, first))] += 1
        ratios.append(standing.ratio(second, first).median)
        rounds.append(standing.rounds)
    ordered = sorted(ratios)
    return {
        "case": case.name,
        "share": case.share,
        "times": times,
        "verdicts": {str(verdict): verdicts[str(verdict)] for verdict in Verdict},
        "ratio": {
            "median": statistics.median(ratios),
            "low": ordered[int(0.025 * times)],
            "high": ordered[min(times - 1, int(0.975 * times))],
        },
        "ratios": ratios,
        "seconds": statistics.median(seconds),
        "rounds": statistics.median(rounds),
        "noise_floor": floor,
    }


def _measure(
    case: Case, shares: tuple[float, float], number: int, left: Sequence[int], count: int, heat: int
) -> dict[int, Groups]:
    loaded = [case.build(shares[i]) for i in left]
    contestants = [TimedContestant(timed, case.estimate_ns, required=not case.bare) for timed in loaded]
    answer = InterleavedTiming(case.session).run(contestants, count, SAMPLES, 1000 * number + heat).rounds
    for timed in loaded:
        timed.close()
    return {i: [groups[column] for groups in answer] for column, i in enumerate(left)}


def _cases(lab: Lab) -> Iterator[Case]:
    for share in (0.0, 0.01, 0.005):
        with _bare(lab) as session:
            heavy = replace(session, limits=Limits(0.0, 1.0, 1e-30))
            yield Case("arithmetic", share, heavy, _arithmetic(lab, session), 2.5e5, bare=True)
            yield Case("copy", share, session, _copy(lab, session), 3e5, bare=True)
    plain = Configuration.of("vectorized", PLAIN)
    for name, exponent, mode, estimate in (
        ("addition", 26, Mode.COLD, 2e5),
        ("short addition", 20, Mode.ROTATING, 4.7e3),
    ):
        yield from _library(lab, name, *vector_add(exponent), plain, mode, estimate)
    kernel, problem = gemm(4096, "float16")
    product = Configuration.of("mma_sync", kernel.variants["mma_sync"].defaults)
    yield from _library(lab, "product", kernel, problem, product, Mode.COLD, 5e5)


def _library(
    lab: Lab, name: str, kernel: KernelSpec, problem: Problem, configuration: Configuration, mode: Mode, estimate: float
) -> Iterator[Case]:  # fmt: skip
    with lab.session(kernel, problem, mode) as session:

        def build(share: float) -> Timed:
            assert share == 0.0
            return lab.candidate(session, kernel, problem, configuration)

        yield Case(name, 0.0, session, build, estimate)


@contextmanager
def _bare(lab: Lab) -> Iterator[ProblemSession]:
    """Return a session for kernels that belong to no problem."""
    kernel, problem = vector_add(20)
    with lab.session(kernel, problem) as session:
        for name in ("from", "to"):
            session.data.memory.allocate(name, int(16 * VECTORS * 1.02))
        session.data.memory.allocate("never", 16)
        yield session


class _Own(Timed):
    """A kernel with a module of its own."""

    def __init__(
        self, helpers: Helpers, entry: str, grid: int, block: int, arguments: list[tuple[str, Any]]
    ) -> None:
        self._helpers = helpers.again()
        self._single = Fixed(self._helpers.kernel(entry, grid, block, arguments))

    def add_to(self, graph: Graph, copy: int) -> None:
        self._single.add_to(graph, copy)

    def close(self) -> None:
        self._helpers.close()


def _ceilings(lab: Lab) -> Helpers:
    return lab.helpers.others(render_ceilings(lab.gpu.cc), CEILING)


def _arithmetic(lab: Lab, session: ProblemSession) -> Callable[[float], Timed]:
    helpers, never = _ceilings(lab), session.data.memory.addresses["never"]

    def build(share: float) -> Timed:
        rounds = round(ROUNDS * (1 + share))
        return _Own(helpers, "matrix_rate", lab.gpu.sm_count, 256, [("int32", rounds), ("pointer", never)])

    return build


def _copy(lab: Lab, session: ProblemSession) -> Callable[[float], Timed]:
    helpers, addresses = _ceilings(lab), session.data.memory.addresses

    def build(share: float) -> Timed:
        count = round(VECTORS * (1 + share))
        arguments = [("pointer", addresses["from"]), ("pointer", addresses["to"]), ("int64", count)]
        return _Own(helpers, "copy_sweep", -(-count // 2048), 512, arguments)

    return build


if __name__ == "__main__":
    run(main)
