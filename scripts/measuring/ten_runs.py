"""Are the winners' times true? Ten runs with different random seeds, then all ten winners side by side.

    scripts/run python scripts/measuring/ten_runs.py --out results/evidence/ten-runs.json

Each ``tune gemm --trials 100`` starts from scratch with a database of its own. Its winner's claimed time is
then compared with a measurement in another process, in which the ten winners run in turn.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec

from scripts.harness import machine, medians, run, tune
from scripts.lab import Lab, keep, parser, unfinished
from tuner.core.conditions import Mode, Regime
from tuner.core.model import Configuration, Problem
from tuner.gpu.measure import InterleavedTiming, TimedContestant
from tuner.kernel.load import load_kernel


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--runs", type=int, default=10)
    arguments.add_argument("--trials", type=int, default=100)
    given = arguments.parse_args()
    with unfinished(given.out, machine()["gpu"]) as runs:
        seeds = map(str, range(given.runs))
        _compare([runs.once(seed, _run, seed, given.trials) for seed in seeds], given.out)


def _run(seed: str, trials: int) -> dict[str, Any]:
    words = ["--kernel", "gemm", "--trials", str(trials), "--seed", seed]
    with tempfile.TemporaryDirectory() as folder:
        said, seconds = tune(*words, "--db", f"{folder}/run.db", "--json", "--quiet")
    (result,) = json.loads(said)
    print(f"seed {seed}: {result['winner']['time_ns'] / 1e3:.2f} us in {seconds:.1f} s", flush=True)
    return {**result, "seconds": seconds}


def _compare(results: list[dict[str, Any]], out: Path | None) -> None:
    kernel, winners = load_kernel("gemm"), [result["winner"] for result in results]
    problem = msgspec.convert(results[0]["problem"], Problem)
    how = (Mode(results[0]["mode"]), Regime(results[0]["regime"]))
    with Lab() as lab, lab.session(kernel, problem, *how) as session, ExitStack() as stack:
        contestants = []
        for winner in winners:
            configuration = Configuration.of(winner["variant"], winner["configuration"])
            loaded = stack.enter_context(closing(lab.candidate(session, kernel, problem, configuration)))
            contestants.append(TimedContestant(loaded, winner["time_ns"]))
        timed = medians(InterleavedTiming(session).run(contestants, 16, 8, 0).rounds)
    rows = []
    for seed, (result, winner, times) in enumerate(zip(results, winners, timed, strict=True)):
        now_ns = statistics.median(times)
        row = {"seed": seed, "claimed_us": winner["time_ns"] / 1e3, "again_us": now_ns / 1e3}
        row |= {"off": winner["time_ns"] / now_ns - 1, "confirmed_us": winner["confirmed_ns"] / 1e3}
        rows.append({**row, "seconds": result["seconds"], "trial": winner})
        print(rows[-1], flush=True)
    worst = max(abs(row["off"]) for row in rows)
    print(f"worst claim: {100 * worst:.2f} % from the re-measurement")
    keep(out, lab.gpu, problem=str(problem), rows=rows, worst=worst)


if __name__ == "__main__":
    run(main, gpu=True)
