"""The kernels of the teaching texts, tuned and then timed in turn with torch, Thrust and CUB:

    scripts/run python scripts/teaching.py --out results/evidence

Each problem is tuned from scratch (`tune`), then its winner races what it is compared with (`tune bench`): on the same
buffers, in the same graphs, in shuffled rounds. Needs torch, and nvcc or a built library for Thrust and CUB
(``scripts/rivals/cccl.py``).
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scripts import harness
from scripts.harness import listed, today, tune
from scripts.page_figures import evidence
from scripts.page_figures.evidence import us

HERE = Path(__file__).resolve().parent
CCCL = HERE / "rivals" / "cccl.py"
READ_PASS = HERE / "rivals" / "read_pass.cu"
SEARCH_S = 2.5
"""For one problem: some hundred configurations, where one takes less than a millisecond."""


@dataclass(frozen=True)
class Case:
    """Problems of a kernel that are compared with the same baselines."""

    kernel: str
    dtype: str
    problems: tuple[str, ...]
    baselines: tuple[str, ...]
    options: tuple[str, ...] = ()
    trials: int = 400
    patience: float = 1.0
    """Times the usual length of the search."""


def powers(*exponents: int) -> tuple[str, ...]:
    """Return array lengths."""
    return tuple(f"n=2**{exponent}" for exponent in exponents)


CASES = [
    *(
        Case(
            kernel,
            dtype,
            powers(10, 16, 20, 24, 28),
            ("torch", "default", f"{CCCL}:thrust_{kernel}"),
        )
        for kernel in ("vector_add", "saxpy")
        for dtype in ("float32", "float16")
    ),
    Case(
        "transform",
        "float16",
        powers(24, 28),
        ("default", f"{CCCL}:thrust_transform", f"{CCCL}:cub_transform"),
        patience=4.0,
    ),
    Case(
        "reduce",
        "float32",
        powers(16, 18, 20, 22, 24, 26, 28, 30),
        ("torch", "default", f"{CCCL}:cub_sum"),
        patience=2.0,
    ),
    *(
        Case(
            "mean_matvec",
            "float32",
            ("groups=1024,vectors=1024,length=1024",),
            ("torch", "default"),
            (f"product={product}",),
            patience=6.0,
        )
        for product in ("tf32", "float32")
    ),
]


def measure(case: Case, trials: int | None, rounds: int, db: Path) -> list[dict[str, Any]]:
    """Tune and compare one case; give a row for each problem and baseline."""
    what = ["--kernel", case.kernel, "--dtype", case.dtype]
    what += [word for option in case.options for word in ("--option", option)]
    what += [word for problem in case.problems for word in ("--problem", problem)]
    seconds = str(SEARCH_S * case.patience)
    tune(*what, "--trials", str(trials or case.trials), "--time", seconds, "--db", str(db))
    passes = read_passes() if case.kernel == "mean_matvec" else []
    against = [word for baseline in (*case.baselines, *passes) for word in ("--against", baseline)]
    said, _ = tune("bench", *what, *against, "--rounds", str(rounds), "--db", str(db), "--json")
    found = json.loads(said or "[]")
    return [
        {**row, "rounds": rounds}
        for problem, bench in zip(case.problems, found, strict=True)
        for row in rows(case, problem, bench)
    ]


def read_passes() -> list[str]:
    """Return kernels that only read the input, each in its own way; the fastest of them counts."""
    vectors = "groups * vectors * length * itemsize(input) // 16"
    launches = (
        f"read_tiles<8><<<ceil_div({vectors}, 512 * 8), 512>>>",
        f"read_tiles<16><<<ceil_div({vectors}, 512 * 16), 512>>>",
        "read_strided<4><<<4 * sm_count, 512>>>",
        "read_strided<8><<<4 * sm_count, 512>>>",
        "read_ring<6><<<sm_count, 32, 6 * 32768>>>",
    )
    return [f"{READ_PASS}:{launch}(x, y, int64({vectors}))" for launch in launches]


def rows(case: Case, problem: str, bench: dict[str, Any]) -> list[dict[str, Any]]:
    """Flatten one bench."""
    entries = [
        {**one, "contestant": one["contestant"].rpartition(":")[2].partition(" (")[0]}
        for one in bench["contestants"]
    ]
    best = next(entry for entry in entries if entry["contestant"] == "best")
    reads = [one for one in entries if one["contestant"].startswith("read_")]
    reads.sort(key=lambda one: one["time_ns"])
    common = {
        "kernel": case.kernel,
        "dtype": case.dtype,
        "options": list(case.options),
        "problem": problem,
        "gpu": bench["gpu"],
        "driver": bench["driver"],
        "mode": bench["mode"],
        "ours_ns": best["time_ns"],
        "gbytes_per_s": best.get("gbytes_per_s"),
        "configuration": {"variant": best["variant"], **best["parameters"]},
        "noise_floor": bench["noise_floor"],
    }
    found = []
    for entry in entries:
        if entry is best or entry in reads[1:]:
            continue
        if entry in reads:
            entry = {**entry, "contestant": "read pass"}
        ratios = {name: entry[name] for name in ("ratio", "ratio_low", "ratio_high", "verdict")}
        found.append({**common, "rival": entry["contestant"], "rival_ns": entry["time_ns"], **ratios})
    return found


def table(found: list[dict[str, Any]]) -> str:
    """Write the rows for people."""
    where = dict.fromkeys(f"{row['gpu']}, driver {row['driver']}" for row in found)
    head = ["kernel", "dtype", "problem", "mode", "ours, us", "baseline", "us", "ratio", "verdict"]
    lines = [
        [
            *(row["kernel"], row["dtype"], " ".join([row["problem"], *row["options"]]), row["mode"]),
            *(us(row["ours_ns"]), row["rival"], us(row["rival_ns"]), f"{row['ratio']:.3f}", row["verdict"]),
        ]
        for row in found
    ]
    return f"{'; '.join(where)}, {today()}\n\n{evidence.table([head, *lines])}"


def place(row: dict[str, Any]) -> int:
    """Return where a row stands: in the order of the cases."""
    known = [
        (case.kernel, case.dtype, list(case.options), problem) for case in CASES for problem in case.problems
    ]
    return known.index((row["kernel"], row["dtype"], row["options"], row["problem"]))


def main() -> None:
    options = harness.parser(__doc__)
    add = options.add_argument
    add("--out", type=Path, help="Folder for teaching.txt and teaching.json.")
    add(
        "--kernels", type=listed(), default="", help="Only these, with commas between; the others' rows stay."
    )
    add(
        "--problems",
        default="",
        help="Only these sizes, such as n=2**24, with semicolons between; others stay.",
    )
    add("--patience", type=float, default=1.0, help="Times the usual length of the searches.")
    add("--trials", type=int, help="For each problem.")
    add("--rounds", type=int, default=60)
    add("--db", type=Path, default=Path("teaching.db"))
    given = options.parse_args()
    sizes = [size for size in given.problems.split(";") if size]
    cases = [
        replace(
            case,
            problems=tuple(problem for problem in case.problems if not sizes or problem in sizes),
            patience=case.patience * given.patience,
            trials=round(case.trials * given.patience),
        )
        for case in CASES
        if not given.kernels or case.kernel in given.kernels
    ]
    cases = [case for case in cases if case.problems]
    again = {(case.kernel, problem) for case in cases for problem in case.problems}
    found: list[dict[str, Any]] = []
    if given.out and (given.out / "teaching.json").exists():
        kept = json.loads((given.out / "teaching.json").read_text())
        found += [row for row in kept if (row["kernel"], row["problem"]) not in again]
    begun = time.monotonic()
    for case in cases:
        found += measure(case, given.trials, given.rounds, given.db)
        found.sort(key=place)
        harness.write(given.out, "teaching", found, table(found))
    print(table(found))
    print(f"\n{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
