"""The kernels of the teaching texts, tuned and then timed in turn with torch, Thrust and CUB:

    scripts/run python scripts/teaching.py --out results/evidence

Each problem is tuned from scratch (`tune`), then its winner races what it is compared with (`tune bench`): on the same
buffers, in the same graphs, in shuffled rounds. Needs torch, and nvcc or a built library for Thrust and CUB
(``scripts/rivals/cccl.py``).

With ``--drawn SEED`` the kernels are those of models, at shapes drawn by the seed, beside torch, torch.compile and a
copy of the same bytes; the evidence is models.txt and models.json:

    scripts/run python scripts/teaching.py --drawn 1 --shapes 8 --kernels transpose,permute,rope

With ``--products`` they are matrix products beside torch's, with epilogues, of 8 bits, in batches and in groups; the
evidence is products.txt and products.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from scripts import harness
from scripts.harness import CommandError, listed, say, today, tune
from scripts.page_figures import evidence, races
from scripts.page_figures.evidence import us
from scripts.teaching_cases import CASES, Case, drawn_cases, product_cases

HERE = Path(__file__).resolve().parent
READ_PASS = HERE / "rivals" / "read_pass.cu"
COPY_PASS = HERE / "rivals" / "copy_pass.cu"
START_S = 3.0
"""What a `tune` takes before its first trial, which its time includes."""
SEARCH_S = 2.5
"""For one problem: some hundred configurations, where one takes less than a millisecond."""
PRODUCTS = {case.kernel for case in product_cases()}


@cache
def calibrate() -> None:
    """Calibrate the GPU, which the time of the first search would include."""
    tune("doctor", "--calibrate")


def measure(case: Case, rounds: int, db: Path) -> list[dict[str, Any]]:
    """Tune and compare one case; give a row for each problem and baseline.

    Raises:
        CommandError: a problem has no winner.
    """
    what = ["--kernel", case.kernel, "--dtype", case.dtype, "--db", str(db)]
    what += [word for option in case.options for word in ("--option", option)]
    what += [word for problem in case.problems for word in ("--problem", problem)]
    calibrate()
    tune(*what, "--trials", str(case.trials), "--time", str(START_S + SEARCH_S * case.patience))
    passes = (read_passes(case.kernel) or copy_passes(case.kernel)) if case.passes else []
    against = [word for baseline in (*case.baselines, *passes) for word in ("--against", baseline)]
    modes = [word for mode in case.modes for word in ("--mode", mode)]
    said, _ = tune("bench", *what, *modes, *against, "--rounds", str(rounds), "--json")
    found = json.loads(said or "[]")
    each, rest = divmod(len(found), len(case.problems))  # one where what it was tuned in is the other mode
    if rest or not each:
        raise CommandError(f"{len(found)} comparisons of {len(case.problems)} problems were made")
    problems = [problem for problem in case.problems for _ in range(each)]
    return [
        {**row, "rounds": rounds}
        for problem, bench in zip(problems, found, strict=True)
        for row in rows(case, problem, bench)
    ]


def read_passes(kernel: str) -> list[str]:
    """Return launches that only read a kernel's large input, each in its own way; the fastest of them counts."""
    of = {
        "mean_matvec": ("x", "groups * vectors * length", "y"),
        "reduce_axis": ("x", "rows * columns", "out"),
        "cross_entropy": ("x", "rows * columns", "loss"),
        "scaled_mm": ("b", "k * n", "c"),
    }
    if kernel not in of:
        return []
    read, count, out = of[kernel]
    vectors = f"{count} * itemsize(input) // 16"
    launches = (
        f"read_tiles<8><<<ceil_div({vectors}, 512 * 8), 512>>>",
        f"read_tiles<16><<<ceil_div({vectors}, 512 * 16), 512>>>",
        "read_strided<4><<<4 * sm_count, 512>>>",
        "read_strided<8><<<4 * sm_count, 512>>>",
        "read_ring<6><<<sm_count, 32, 6 * 32768>>>",
    )
    return [f"{READ_PASS}:{launch}({read}, {out}, int64({vectors}))" for launch in launches]


def copy_passes(kernel: str) -> list[str]:
    """Return launches that copy the bytes of a kernel that moves them; the fastest counts."""
    nothing = ("x", "out", "0")
    pairs = {
        "softmax": (("x", "out", "rows * columns"), nothing),
        "norm": (("x", "out", "rows * columns"), nothing),
        "transpose": (("x", "out", "batch * rows * columns"), ("x", "out", "0")),
        "permute": (("x", "out", "a * b * c"), ("x", "out", "0")),
        "rope": (
            ("q", "q_out", "2 * tokens * q_heads * pairs"),
            ("k", "k_out", "2 * tokens * k_heads * pairs"),
        ),
    }.get(kernel, ())
    vectors = [f"({count}) * itemsize(input) // 16" for *_, count in pairs]
    named = [f"{x}, {out}, int64({count})" for (x, out, _), count in zip(pairs, vectors, strict=True)]
    return [
        f"{COPY_PASS}:copy_tiles<{items}><<<ceil_div({' + '.join(vectors)}, {256 * items}), 256>>>({', '.join(named)})"
        for items in (1, 4)
        if named
    ]


def named(function: str) -> str:
    """Return what tables call a contestant: of a function of :data:`MODELS` only whether it is compiled."""
    how = function.rpartition("_")[2]
    return f"torch, {how}" if how in ("eager", "compiled") else function


def rows(case: Case, problem: str, bench: dict[str, Any]) -> list[dict[str, Any]]:
    """Flatten one bench."""
    entries = [
        {**one, "contestant": named(one["contestant"].rpartition(":")[2].partition(" (")[0])}
        for one in bench["contestants"]
    ]
    best = next(entry for entry in entries if entry["contestant"] == "best")
    reads = [one for one in entries if one["contestant"].startswith(("read_", "copy_"))]
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
        "tflops": best.get("tflops") if case.kernel in PRODUCTS else None,
        "configuration": {"variant": best["variant"], **best["parameters"]},
        "noise_floor": bench["noise_floor"],
    }
    found = []
    for entry in entries:
        if entry is best or entry in reads[1:]:
            continue
        if entry in reads:
            entry = {**entry, "contestant": f"{entry['contestant'].split('_')[0]} pass"}
        ratios = {name: entry[name] for name in ("ratio", "ratio_low", "ratio_high", "verdict")}
        found.append({**common, "rival": entry["contestant"], "rival_ns": entry["time_ns"], **ratios})
    return found


def table(found: list[dict[str, Any]]) -> str:
    """Write the rows for people."""
    where = dict.fromkeys(f"{row['gpu']}, driver {row['driver']}" for row in found)
    head = ["kernel", "dtype", "problem", "mode", "ours, us", "TFLOP/s", "baseline", "us", "ratio", "verdict"]
    lines = [
        [
            *(row["kernel"], row["dtype"], " ".join([row["problem"], *row["options"]]), row["mode"]),
            *(us(row["ours_ns"]), f"{row['tflops']:.0f}" if row.get("tflops") else "-", row["rival"]),
            *(us(row["rival_ns"]), f"{row['ratio']:.3f}", row["verdict"]),
        ]
        for row in found
    ]
    columns = evidence.without_empty_columns([head, *lines])
    return f"{'; '.join(where)}, {today()}\n\n{evidence.table(columns)}"


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what a row is of: its case and problem."""
    return row["kernel"], row["dtype"], tuple(row["options"]), row["problem"]


class Teaching(harness.Study):
    """Cases, each measured once; rows of the evidence that are not measured stay.

    Args:
        given: of the command line.
    """

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self.name = "products" if given.products else "teaching" if given.drawn is None else "models"
        if given.out and given.out.resolve() == given.work.resolve():
            raise CommandError(f"--out and --work are {given.out}: each has a {self.name}.json of its own")
        super().__init__(given.work / f"{self.name}-work.json", given.seconds, rows=[])
        self._every = product_cases() if given.products else CASES
        if given.drawn is not None:
            self._every = drawn_cases(given.drawn, given.shapes)

    def left(self) -> Iterator[Case]:
        """Yield what is wanted and not measured."""
        given, known = self._given, {key_of(row) for row in self.data["rows"]}
        sizes = [size for size in given.problems.split(";") if size]
        for case in self._every:
            of = (case.kernel, case.dtype, case.options)
            problems = [one for one in case.problems if one in (sizes or [one]) and (*of, one) not in known]
            if problems and case.kernel in (given.kernels or [case.kernel]):
                trials, patience = round(case.trials * given.patience), case.patience * given.patience
                yield replace(
                    case, problems=tuple(problems), patience=patience, trials=given.trials or trials
                )

    def add(self, case: Case) -> None:
        """Measure a case, and write everything down."""
        rows = measure(case, self._given.rounds, self._given.work / "tuning.db")
        self.keep(rows=[*self.data["rows"], *rows])
        self.write()

    def write(self) -> None:
        """Write the evidence."""
        if self.data["rows"]:
            harness.write(self._given.out, self.name, self.rows(), self.text())

    def text(self) -> str:
        """Return the rows for people, of other kernels than the teaching texts' with their means."""
        rows = self.rows()
        if self.name == "teaching" or not self.data["rows"]:
            return table(rows)
        return f"{table(rows)}\n\n{races.means(rows, options=self.name == 'products')}"

    def rows(self) -> list[dict[str, Any]]:
        """Return what is measured, with the evidence's other rows."""
        own, file, others = self.data["rows"], self._given.out and self._given.out / f"{self.name}.json", []
        if file and file.is_file():
            known = {key_of(row) for row in own}
            others = [
                row for row in json.loads(file.read_text()) if row["rival_ns"] and key_of(row) not in known
            ]
        keys = [
            (case.kernel, case.dtype, case.options, size) for case in self._every for size in case.problems
        ]
        places = {key: place for place, key in enumerate(keys)}
        return sorted([*others, *own], key=lambda row: places.get(key_of(row), len(places)))


def main() -> int:
    """Measure what is left; return 1 if something still is."""
    options = harness.study_parser(__doc__, (), "teaching")
    add = options.add_argument
    which = options.add_mutually_exclusive_group()
    which.add_argument("--drawn", type=int, metavar="SEED", help="Kernels of models, at shapes drawn by it.")
    which.add_argument("--products", action="store_true", help="Matrix products beside torch's.")
    add("--shapes", type=int, default=8, help="Of each kernel that are drawn.")
    add("--kernels", type=listed(), default="", help="Only these, with commas between; other rows stay.")
    add("--problems", default="", help="Only these sizes, with semicolons between: n=2**24; others stay.")
    add("--patience", type=float, default=1.0, help="Times the usual length of the searches.")
    add("--trials", type=int, help="For each problem.")
    add("--rounds", type=int, default=60)
    study = Teaching(options.parse_args())
    for case in study.left():
        if study.has_time():
            say(f"{case.kernel} {case.dtype} {' '.join(case.options)}: {', '.join(case.problems)}")
            study.attempt(f"{case.kernel} {case.dtype}", partial(study.add, case))
    study.write()
    print(study.text())
    return int(any(study.left()))


if __name__ == "__main__":
    harness.run(main, gpu=True)
