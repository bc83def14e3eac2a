"""How well does a time come back? One cuBLAS product of 8192^3, bfloat16, again and again over some minutes.

    scripts/run python scripts/measuring/spread.py --append spread.jsonl          (once; repeat every minute or so)
    scripts/run python scripts/measuring/spread.py --summary spread.jsonl --out results/evidence/spread.json

Each call of the script is a process of its own and takes three medians: *rested* and *sustained* as the tuner times,
and *naive*: events around each of 80 calls that follow each other on a stream, whatever the card did before.
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any

from scripts.harness import run
from scripts.lab import Lab, gemm, keep, parser, time_of
from scripts.page_figures import measuring
from tuner.core.conditions import Mode, Regime
from tuner.gpu.captured import library_stream


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--append", type=Path, metavar="FILE.jsonl", help="Measure once and add a line.")
    arguments.add_argument("--summary", type=Path, metavar="FILE.jsonl", help="Say how far the lines differ.")
    given = arguments.parse_args()
    if not given.append and not given.summary:
        arguments.error("give --append or --summary")
    if given.append:
        line = _measure()
        with given.append.open("a") as stream:
            stream.write(json.dumps(line) + "\n")
        print({name: round(line[name]["us"], 1) for name in ("rested", "sustained", "naive")}, flush=True)
    if given.summary:
        summarise([json.loads(line) for line in given.summary.read_text().splitlines()], given.out)


def summarise(lines: list[dict[str, Any]], out: Path | None) -> None:
    minutes = (lines[-1]["time"] - lines[0]["time"]) / 60
    data: dict[str, Any] = {"minutes": minutes, "lines": lines}
    for name in ("rested", "sustained", "naive"):
        times = [line[name]["us"] for line in lines]
        spread = max(times) / min(times) - 1
        within = max(line[name]["slowest"] / line[name]["fastest"] - 1 for line in lines)
        data[name] = {"spread": spread, "median_us": statistics.median(times), "samples_within": within}
    keep(out, None, measuring.spread, **data)


def _measure() -> dict[str, Any]:
    kernel, problem = gemm(8192, "bfloat16")
    with Lab() as lab:
        line: dict[str, Any] = {"time": time.time(), "gpu": lab.gpu.name, "driver": lab.gpu.driver}
        with lab.session(kernel, problem) as session, lab.torch(session, kernel, problem) as call:
            line["rested"] = _said(time_of(session, call, 8))
            line["naive"] = _naive(lab)
        how = (Mode.ROTATING, Regime.SUSTAINED)
        with lab.session(kernel, problem, *how) as session, lab.torch(session, kernel, problem) as call:
            line["sustained"] = _said(time_of(session, call, 6))
    return line


def _said(samples: Any) -> dict[str, Any]:
    times = samples.times_ns
    return {
        "us": statistics.median(times) / 1e3,
        "fastest": min(times) / 1e3,
        "slowest": max(times) / 1e3,
        "samples": len(times),
        "sm_clock_ghz": samples.sm_clock_hz / 1e9,
        "capped": samples.capped,
    }


def _naive(lab: Lab) -> dict[str, Any]:
    import torch

    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    c = torch.empty_like(a)
    with library_stream(lab.context, "torch"):
        pairs = []
        for _ in range(80):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            torch.mm(a, b, out=c)
            end.record()
            pairs.append((start, end))
        torch.cuda.synchronize()
        times = [1e3 * start.elapsed_time(end) for start, end in pairs]
    return {"us": statistics.median(times), "fastest": min(times), "slowest": max(times), "samples": 80}


if __name__ == "__main__":
    run(main)
