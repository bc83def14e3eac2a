"""Configurations a second of this tuner and of Kernel Tuner, on one kernel, one size and 32 block sizes.

    pip install kernel_tuner==1.5.0
    scripts/run python scripts/compare_kernel_tuner/compare.py --out results/evidence/kernel-tuner.json

Both check each configuration's output. Kernel Tuner runs its cuda-python backend with its default of 7 repetitions;
its time is the sum of what it reports for compiling, verifying, benchmarking and its framework. Ours is the wall time
of the search, with the cubin cache off. The two run in turn, and the better of each one's rounds counts.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from scripts import harness
from tuner.core.model import RunOptions
from tuner.core.observer import Observer
from tuner.database.database import Database
from tuner.devices.choose import open_device
from tuner.kernel.load import load_kernel
from tuner.tuning.request import Request
from tuner.tuning.session import tune

HERE = Path(__file__).parent
N = 1 << 26
BLOCKS = list(range(32, 1025, 32))


def main() -> None:
    options = harness.parser(__doc__)
    add = options.add_argument
    add("--rounds", type=int, default=3)
    add("--out", type=Path)
    arguments = options.parse_args()
    rounds = []
    for _ in range(arguments.rounds):
        rounds.append({"ours": _ours(), "kernel_tuner": _kernel_tuner()})
        print(json.dumps(rounds[-1]), flush=True)
    best = {name: max(r[name]["per_second"] for r in rounds) for name in ("ours", "kernel_tuner")}
    print(
        f"ours {best['ours']:.1f}/s, Kernel Tuner {best['kernel_tuner']:.2f}/s: "
        f"{best['ours'] / best['kernel_tuner']:.1f} times"
    )
    if arguments.out:
        harness.write_json(arguments.out, {"n": N, "configurations": len(BLOCKS), "rounds": rounds})


def _ours() -> dict[str, Any]:
    kernel = load_kernel(str(HERE / "vector_add.toml"))
    with tempfile.TemporaryDirectory() as folder, Database.open(Path(folder) / "tuning.db") as database:
        device = open_device("cuda", kernel.name, None, None)
        try:
            request = Request(
                kernel, kernel.problem({"n": N}), RunOptions(trials=len(BLOCKS), sampler="random")
            )
            result = tune(request, device, database, Observer(), finish=False)
        finally:
            device.close()
    verified = [trial for trial in result.state.trials if trial.status.ranked]
    best = min(verified, key=lambda trial: trial.time_ns or 0.0)
    return {
        "configurations": len(verified),
        "search_s": result.state.elapsed_s,
        "per_second": len(verified) / result.state.elapsed_s,
        "best_block": best.configuration.values["block_size_x"],
        "best_us": (best.time_ns or 0.0) / 1e3,
    }


def _kernel_tuner() -> dict[str, Any]:
    from kernel_tuner import tune_kernel

    draw = np.random.default_rng(0)
    a, b = (draw.standard_normal(N, dtype=np.float32) for _ in range(2))
    c = np.zeros_like(a)
    began = time.monotonic()
    results, _ = tune_kernel(
        "vector_add", str(HERE / "vector_add.cu"), N, [c, a, b, np.int32(N)], {"block_size_x": BLOCKS},
        lang="nvcuda", answer=[a + b, None, None, None], quiet=True,
    )  # fmt: skip
    wall = time.monotonic() - began
    parts = ("compile_time", "verification_time", "benchmark_time", "framework_time", "strategy_time")
    spent = sum(row.get(part) or 0.0 for row in results for part in parts) / 1e3
    valid = [row for row in results if isinstance(row["time"], float)]
    best = min(valid, key=lambda row: row["time"])
    return {
        "configurations": len(valid),
        "search_s": spent,
        "wall_s": wall,
        "per_second": len(valid) / spent,
        "best_block": best["block_size_x"],
        "best_us": best["time"] * 1e3,
    }


if __name__ == "__main__":
    main()
