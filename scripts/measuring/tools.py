"""The same library calls timed by this tuner, by Triton's do_bench, and by Nsight Compute.

    scripts/run python scripts/measuring/tools.py --out results/evidence/tools.json

Needs torch, Triton and ``ncu``; what is missing is left out. Times in microseconds; medians.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scripts.harness import run, say
from scripts.lab import Lab, gemm, keep, parser, time_of, unfinished, vector_add
from scripts.page_figures import measuring
from tuner.core.conditions import Mode, Regime
from tuner.core.model import Problem
from tuner.kernel.spec import KernelSpec

CALLS = 7
"""Of each under Nsight Compute."""


def _problems() -> list[tuple[str, KernelSpec, Problem]]:
    calls = [(f"torch.add 2^{e} float32", *vector_add(e)) for e in (12, 20, 24, 28)]
    return calls + [(f"torch.mm {n}^3 bfloat16", *gemm(n, "bfloat16")) for n in (512, 1024, 4096, 8192)]


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--target", action="store_true", help="Only make the calls; for ncu to watch.")
    given = arguments.parse_args()
    if given.target:
        _make_calls()
        return
    with Lab() as lab, unfinished(given.out, lab.gpu.name) as rows:
        for name, kernel, problem in _problems():
            rows.once(name, _timed, lab, kernel, problem)
            say(name)
        for column, caches in (("ncu cold", "all"), ("ncu warm", "none")):
            for name, time_us in _ncu(caches).items():
                rows.data[name][column] = time_us
        keep(given.out, lab.gpu, measuring.tools, us=rows.data)


def _timed(lab: Lab, kernel: KernelSpec, problem: Problem) -> dict[str, float]:
    row: dict[str, float] = {}
    heading = [("cold", Mode.COLD, Regime.RESTED), ("rotating", Mode.ROTATING, Regime.RESTED)]
    heading += [("warm", Mode.WARM, Regime.RESTED), ("sustained", Mode.ROTATING, Regime.SUSTAINED)]
    for column, mode, regime in heading:
        with (
            lab.session(kernel, problem, mode, regime) as session,
            lab.torch(session, kernel, problem) as call,
        ):
            row[column] = statistics.median(time_of(session, call, 4).times_ns) / 1e3
    return row | _do_bench(problem)


def _call(problem: Problem) -> Callable[[], Any]:
    import torch

    if problem.kernel == "vector_add":
        a, b = (torch.randn(problem.sizes["n"], device="cuda") for _ in range(2))
        c = torch.empty_like(a)
        return lambda: torch.add(a, b, out=c)
    size = problem.sizes["m"]
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    c = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=c)


def _do_bench(problem: Problem) -> dict[str, float]:
    try:
        from triton.testing import do_bench, do_bench_cudagraph
    except ImportError:
        return {}
    import torch

    call = _call(problem)
    times = {"do_bench": 1e3 * do_bench(call, return_mode="median")}
    with torch.cuda.stream(torch.cuda.Stream()):
        times["do_bench_cudagraph"] = 1e3 * do_bench_cudagraph(call, return_mode="median")
    return times


def _make_calls() -> None:
    """Make each call some times, and say which kernels of the report are whose: by order."""
    import torch

    calls = [(name, _call(problem)) for name, _, problem in _problems()]
    for _, call in calls:
        call()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    for _, call in calls:
        for _ in range(CALLS):
            call()
            torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def _ncu(caches: str) -> dict[str, float]:
    """Let Nsight Compute time the calls, with its cache control on or off."""
    program = shutil.which("ncu") or shutil.which("ncu", path="/usr/local/cuda/bin")
    if program is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(program, "--csv", "--print-units", "base", "--metrics", "gpu__time_duration.sum"),
            *("--clock-control", "none", "--cache-control", caches, "--profile-from-start", "off"),
            *(sys.executable, str(Path(__file__).resolve()), "--target"),
        ]
        environment = {**os.environ, "TMPDIR": folder}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(lines))
    if done.returncode or not rows:
        print("ncu failed:", done.stdout[-400:], done.stderr[-400:], file=sys.stderr)
        return {}
    times = [float(row["Metric Value"].replace(",", "")) / 1e3 for row in rows]
    names = [name for name, _, _ in _problems()]
    # A call is one kernel or several (split-K and its sum, say); all calls of a problem have as many.
    if len(times) != CALLS * len(names):
        print(f"ncu saw {len(times)} kernels, not {CALLS * len(names)}", file=sys.stderr)
        print(json.dumps([row["Kernel Name"][:60] for row in rows]), file=sys.stderr)
        return {}
    return {name: statistics.median(times[i * CALLS : (i + 1) * CALLS]) for i, name in enumerate(names)}


if __name__ == "__main__":
    run(main)
