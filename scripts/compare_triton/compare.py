"""What `tune` finds beside what Triton's autotuner finds, each from nothing, timed in one interleaved comparison.

    scripts/run python scripts/compare_triton/compare.py --out results/evidence/triton.json

Needs a GPU, torch and Triton. Each problem: `tune` with an empty database and no cached cubin; Triton's first call in a
fresh process with an empty cache; then both and torch by `tune bench`, in turn, outputs verified. Triton's lists of
configurations are in kernels.py; a user would write them by hand.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOFTMAX = HERE.parents[1] / "docs" / "examples" / "softmax" / "softmax.toml"
PROBLEMS = (
    ("gemm", "product", {"m": 4096, "n": 4096, "k": 4096}, "bfloat16"),
    ("gemm", "product", {"m": 16, "n": 8192, "k": 8192}, "bfloat16"),
    ("gemm", "product", {"m": 333, "n": 6144, "k": 4096}, "bfloat16"),
    (str(SOFTMAX), "softmax", {"rows": 8192, "columns": 4096}, "bfloat16"),
    (str(SOFTMAX), "softmax", {"rows": 16384, "columns": 2048}, "float16"),
)
FIRST_CALL = """
import sys, time, torch
sys.path.insert(0, sys.argv[1])
import kernels
dtype, shapes = getattr(torch, sys.argv[3]), eval(sys.argv[4])
tensors = [torch.randn(shape, device="cuda").to(dtype) for shape in shapes]
torch.cuda.synchronize()
began = time.monotonic()
getattr(kernels, sys.argv[2])(*tensors)
torch.cuda.synchronize()
tuned = getattr(kernels, "_" + sys.argv[2])
print(time.monotonic() - began, len(tuned.configs), tuned.best_config, sep="\\t")
"""


def shapes_of(sizes: dict[str, int]) -> list[tuple[int, ...]]:
    """Return the shapes of the tensors that a Triton function takes."""
    if "rows" in sizes:
        return [(sizes["rows"], sizes["columns"])] * 2
    m, n, k = (sizes[name] for name in "mnk")
    return [(m, k), (k, n), (m, n)]


def tune(*words: str) -> Any:
    """Return what a command of the tuner prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "tuner", *words, "--json", "--quiet"],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout)


def compared(kernel: str, function: str, sizes: dict[str, int], dtype: str, trials: int) -> dict[str, Any]:
    """Return how long both took to tune a problem, and the bench of what they found."""
    size = ",".join(f"{name}={value}" for name, value in sizes.items())
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TRITON_CACHE_DIR": folder}
        words = [str(HERE), function, dtype, repr(shapes_of(sizes))]
        first = subprocess.run(
            [sys.executable, "-c", FIRST_CALL, *words],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split("\t")
        database = str(Path(folder) / "tuning.db")
        problem = ["--kernel", kernel, "--size", size, "--dtype", dtype, "--db", database]
        began = time.monotonic()
        tune("run", *problem, "--trials", str(trials), "--no-cache")
        tuned_s = time.monotonic() - began
        bench = tune(
            "bench", *problem, "--against", f"{HERE / 'kernels.py'}:{function}", "--against", "torch"
        )
    return {
        "kernel": Path(kernel).stem, "sizes": sizes, "dtype": dtype,
        "tune": {"seconds": tuned_s, "trials": trials},
        "triton": {"seconds": float(first[0]), "configurations": int(first[1]), "best": first[2].strip()},
        "bench": bench,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    results = []
    for kernel, function, sizes, dtype in PROBLEMS:
        results.append(compared(kernel, function, sizes, dtype, arguments.trials))
        print(
            json.dumps({key: results[-1][key] for key in ("kernel", "sizes", "dtype", "tune", "triton")}),
            flush=True,
        )
        if arguments.out:
            arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
