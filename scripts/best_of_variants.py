"""The best configuration of each variant, as searches timed it: alone, not in turn with the others.

tune query --kernel reduce --limit 0 --json > reduce.json
scripts/run python scripts/best_of_variants.py reduce.json > results/evidence/teaching-search.txt
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

KERNELS = ("reduce", "mean_matvec", "transform")
HEAD = "The best configuration of each variant, as the searches timed it (alone, not in turn with the others)"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, help="What `tune query --json` printed.")
    rows = [row for file in parser.parse_args().files for row in json.loads(file.read_text())]
    problems: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        if row["time_ns"] and row["status"] in ("ok", "slow") and row["kernel"] in KERNELS:
            problems.setdefault(problem_of(row), {}).setdefault(row["variant"], []).append(row)
    print(f"{HEAD}: {', '.join(dict.fromkeys(row['gpu'] for row in rows))}, rested.\n")
    for problem, variants in problems.items():
        print(problem)
        best = {name: min(trials, key=lambda one: one["time_ns"]) for name, trials in variants.items()}
        for name, row in sorted(best.items(), key=lambda pair: pair[1]["time_ns"]):
            parameters = " ".join(f"{key}={value}" for key, value in row["parameters"].items())
            print(
                f"  {name:18s} {len(variants[name]):4d} trials  best {row['time_ns'] / 1e3:10.2f} us  "
                f"{row['gbytes_per_s']:7.0f} GB/s  {parameters}"
            )
        print()


def problem_of(row: dict[str, Any]) -> str:
    """Say which problem a trial is of, and how it was timed."""
    sizes = " ".join(f"{name}={value}" for name, value in row["sizes"].items())
    options = row["options"]
    option = options.get("op", options.get("product", ""))
    return f"{row['kernel']} {sizes} {next(iter(row['dtypes'].values()))} {option} ({row['mode']})"


if __name__ == "__main__":
    main()
