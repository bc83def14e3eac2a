"""Kernel Tuner's strategies on recorded spaces, by its own simulation mode.

    python -m venv kt && kt/bin/pip install kernel_tuner==1.5.0
    kt/bin/python scripts/compare_kernel_tuner/simulate.py FOLDER --out kernel-tuner-runs.json
    scripts/run python scripts/search/benchmark.py FOLDER --others kernel-tuner-runs.json

The recordings are Kernel Tuner's cache files (.json or .json.gz); what was recorded is the valid set. One evaluation is
one configuration that a strategy tries for the first time. This file needs nothing but Kernel Tuner.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

STRATEGIES = (
    "hybrid_vndx,adaptive_tabu_greywolf,genetic_algorithm,simulated_annealing,bayes_opt,pso,random_sample"
)


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("paths", nargs="+", type=Path, help="folders of cache files, or files")
    options.add_argument("--strategies", default=STRATEGIES)
    options.add_argument("--seeds", type=int, default=20)
    options.add_argument("--trials", type=int, default=200)
    options.add_argument("--out", type=Path, required=True)
    given = options.parse_args()
    files = [f for path in given.paths for f in (sorted(path.iterdir()) if path.is_dir() else [path])]
    runs: list[dict[str, Any]] = []
    for file in files:
        cache = read_cache(file)
        if cache is None:
            print(f"left out: {file.name}: no cache file of Kernel Tuner")
            continue
        for strategy in given.strategies.split(","):
            for seed in range(given.seeds):
                began = time.process_time()
                trajectory = simulate(cache, strategy, seed, given.trials)
                spent_s = time.process_time() - began
                runs.append(
                    {
                        "space": file.name.split(".json")[0], "sampler": f"Kernel Tuner: {strategy}", "seed": seed,
                        "trajectory": trajectory, "ms": 1000 * spent_s / max(len(trajectory), 1),
                    }
                )  # fmt: skip
            print(f"{file.name} {strategy}", flush=True)
            given.out.write_text(json.dumps(runs))


def read_cache(file: Path) -> dict[str, Any] | None:
    """Return a cache file's content, closed where its writer was killed; None where it is none."""
    if not file.name.endswith((".json", ".json.gz")):
        return None
    data = file.read_bytes()
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    for end in ("", "}}"):
        with contextlib.suppress(ValueError):
            cache: dict[str, Any] = json.loads(text.rstrip().rstrip(",") + end)
            return cache if cache.get("tune_params_keys") and cache.get("cache") else None
    return None


def simulate(cache: dict[str, Any], strategy: str, seed: int, trials: int) -> list[float]:
    """Return the best time after each evaluation, in nanoseconds; infinite before the first that works."""
    from constraint import FunctionConstraint  # a dependency of Kernel Tuner's
    from kernel_tuner import tune_kernel

    names, known = cache["tune_params_keys"], cache["cache"]
    random.seed(seed)
    np.random.seed(seed)  # Kernel Tuner draws from it
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        path = Path(folder) / "cache.json"
        path.write_text(json.dumps(cache))
        tried, _ = tune_kernel(
            cache["kernel_name"], f"__global__ void {cache['kernel_name']}() {{}}", cache["problem_size"], [],
            {name: cache["tune_params"][name] for name in names},
            restrictions=[FunctionConstraint(lambda *values: ",".join(map(str, values)) in known)],
            strategy=strategy, strategy_options={"max_fevals": trials}, simulation_mode=True, cache=str(path),
            objective=cache.get("objective", "time"), quiet=True, verbose=False,
        )  # fmt: skip
    best, trajectory, seen = float("inf"), [], set()
    for one in tried:
        key = ",".join(str(one[name]) for name in names)
        if key in seen:
            continue
        seen.add(key)
        time_ms = known[key]["time"]
        if isinstance(time_ms, int | float):
            best = min(best, 1e6 * time_ms)
        trajectory.append(best)
    return trajectory[:trials]


if __name__ == "__main__":
    main()
