"""A call of this tuner and one of Kernel Tuner: one kernel, the same arrays, 32 block sizes.

    pip install kernel_tuner[cuda]==1.5.0
    scripts/run python scripts/compare_kernel_tuner/compare.py --out results/evidence/kernel-tuner.json

Seconds are those of the whole call, in turn, each with an empty cache and database. Ours has a final race and a
confirmation in a fresh process in it. Without the answer, this tuner compares with the default configuration's output.
Kernel Tuner runs its cuda-python backend with its defaults. A call of each goes before, so that both find what a first
call on a machine leaves: this tuner's calibration of the GPU, and compiled Python.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tuner
from scripts import harness

SOURCE = Path(__file__).with_name("vector_add.cu")
BLOCKS = list(range(32, 1025, 32))
CASES = ((10**7, True), (10**7, False), (1 << 26, True))


def main() -> None:
    options = harness.parser(__doc__)
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    from kernel_tuner import tune_kernel  # installed for this alone

    rows = []
    for n, answer in ((1 << 16, True), *CASES):
        ours = _seconds(_ours, n, answer)
        theirs = _seconds(_theirs(tune_kernel), n, answer)
        rows.append({"n": n, "answer": answer, "ours": ours, "kernel_tuner": theirs})
        print(json.dumps(rows[-1]), flush=True)
        if given.out:
            about = {
                "date": harness.today(),
                "cores": len(os.sched_getaffinity(0)),
                "cpu": platform.processor(),
            }
            about["versions"] = harness.versions("kernel_tuner", "cuda-python", "numpy")
            harness.write_json(given.out, {**about, "rows": rows[1:]})


def _seconds(call: Callable[..., dict[str, Any]], n: int, answer: bool) -> dict[str, Any]:
    """Return how long a call takes, and what it finds."""
    a, b = np.random.default_rng(0).standard_normal((2, n), dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME", folder)
        began = time.monotonic()
        found = call(Path(folder), a, b, answer)
        return {"seconds": time.monotonic() - began, **found}


def _ours(folder: Path, a: Any, b: Any, answer: bool) -> dict[str, Any]:
    result = tuner.tune(
        SOURCE, [np.zeros_like(a), a, b, a.size], {"block_size_x": BLOCKS}, outputs=["c"], block="block_size_x",
        grid="ceil_div(n, block_size_x)", reference=(lambda a, b: a + b) if answer else "default",
        db=folder / "tuning.db", default={"block_size_x": 256},
    )  # fmt: skip
    times = [one for one in result.trials if one["status"] == "ok"]
    return {"configurations": len(times), "best": result.best, "best_us": result.time_us}


def _theirs(tune_kernel: Any) -> Callable[..., dict[str, Any]]:
    def call(_: Path, a: Any, b: Any, answer: bool) -> dict[str, Any]:
        expected = {"answer": [a + b, None, None, None]} if answer else {}
        results, _env = tune_kernel(
            "vector_add", str(SOURCE), a.size, [np.zeros_like(a), a, b, np.int32(a.size)],
            {"block_size_x": BLOCKS}, lang="nvcuda", quiet=True, **expected,
        )  # fmt: skip
        valid = [row for row in results if isinstance(row["time"], float)]
        best = min(valid, key=lambda row: row["time"])
        return {
            "configurations": len(valid),
            "best": {"block_size_x": best["block_size_x"]},
            "best_us": best["time"] * 1e3,
        }

    return call


if __name__ == "__main__":
    harness.run(main, gpu=True)
