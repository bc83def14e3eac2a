"""The kernels of the teaching texts, tuned and then timed in turn with torch, Thrust and CUB:

    scripts/run python scripts/teaching.py --out results/evidence

Each problem is tuned from scratch (`tune`), then its winner races what it is compared with (`tune bench`): on the same
buffers, in the same graphs, in shuffled rounds. Needs torch, and nvcc or a built library for Thrust and CUB
(``scripts/rivals/cccl.py``).

With ``--drawn SEED`` the kernels are those of models, at shapes drawn by the seed, beside torch, torch.compile and a
copy of the same bytes; the evidence is models.txt and models.json:

    scripts/run python scripts/teaching.py --drawn 1 --shapes 8 --kernels transpose,permute,rope
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import random
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from scripts import harness
from scripts.harness import CommandError, listed, say, today, tune
from scripts.page_figures import evidence
from scripts.page_figures.evidence import us

HERE = Path(__file__).resolve().parent
CCCL = HERE / "rivals" / "cccl.py"
READ_PASS = HERE / "rivals" / "read_pass.cu"
COPY_PASS = HERE / "rivals" / "copy_pass.cu"
MODELS = HERE / "rivals" / "models.py"
HELION = HERE / "compare_triton" / "helion_rows.py"
START_S = 2.5
"""What a `tune` takes before its first trial, which its time includes."""
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


Drawn = tuple[str, str, tuple[str, ...]]
"""Sizes, the name of torch's function in :data:`MODELS`, and options."""


def extent(rng: random.Random, least: int, most: int, multiple: int = 8) -> int:
    """Return a size, of which each order of magnitude is as likely; one of four is no multiple."""
    size = round(math.exp(rng.uniform(math.log(least), math.log(most))))
    return size if rng.random() < 0.25 else max(size // multiple, 1) * multiple


def drawn_transpose(rng: random.Random, _number: int) -> Drawn:
    rows, columns = extent(rng, 256, 16384), extent(rng, 128, 16384)
    batch = max(1, min(rng.choice((1, 1, 8, 64)), 2**28 // (rows * columns)))
    return f"batch={batch},rows={rows},columns={columns}", "transpose", ()


def drawn_permute(rng: random.Random, number: int) -> Drawn:
    axes = ("bac", "cba", "acb", "cab", "bca")[number % 5]
    a, b, c = extent(rng, 256, 8192), extent(rng, 16, 128), extent(rng, 32, 1024)
    return f"a={a},b={b},c={c}", f"permute_{axes}", (f"axes={axes}",)


def drawn_rope(rng: random.Random, number: int) -> Drawn:
    style = ("half", "interleaved")[number % 2]
    q_heads, k_heads = rng.choice(((32, 8), (32, 32), (64, 8), (16, 16)))
    sizes = f"tokens={extent(rng, 256, 32768)},q_heads={q_heads},k_heads={k_heads},pairs={rng.choice((32, 48, 64))}"
    return sizes, f"rope_{style}", (f"style={style}",)


def drawn_reduce_axis(rng: random.Random, number: int) -> Drawn:
    op, over = ("sum", "max", "mean")[number % 3], ("columns", "rows")[number % 2]
    rows, columns = extent(rng, 64, 2**17), extent(rng, 64, 2**17)
    while rows * columns > 2**29:
        rows = max(rows // 4, 1)
    return f"rows={rows},columns={columns}", f"reduce_axis_{op}_{over}", (f"op={op},over={over}",)


OF_2048 = (48, 96, 127, 768, 1023, 1024, 1536, 2047, 2048, 3072, 4096, 5120, 6144, 8192, 16384, 32768)
HELION_SHAPES = {
    "softmax": [*((4096, 128 * i) for i in range(2, 100)), (4096, 16384), (2048, 32768)],
    "rms_norm": [
        *((2048, columns) for columns in OF_2048),
        *((4096, columns) for columns in (3584, 4096, 5120, 7168, 8192, 12288)),
        *[(8192, 4096), (8192, 8192), (16384, 4096), (16384, 8192)],
        *[(145956, 384), (380668, 512), (589824, 256), (1179648, 256)],
    ],
    "layer_norm": [
        *((4096, 512 * i) for i in range(2, 32)),
        *[(2048, 3584), (8192, 4096), (8192, 5120), (8192, 7168), (2048, 8192), (4096, 16384)],
        *[(1024, 36864), (1152, 36864)],
    ],
    "cross_entropy": [
        *[(2048, 32000), (4096, 32000), (8192, 32000), (8192, 128000), (16384, 128000), (1024, 256000)],
        *((rows, columns) for columns in (128256, 129280, 151936, 152064) for rows in (2048, 4096, 8192)),
    ],
    "silu_mul": [(2**i, columns) for i in range(14) for columns in (2048, 4096, 5632, 8192, 11008, 14336)],
}
"""Rows and columns at which Helion publishes results; of silu_mul our own."""


def drawn_rows(*choices: tuple[str, ...]) -> Callable[[random.Random, int], Drawn]:
    """Return what draws of Helion's shapes: of functions with their options in turn."""

    def drawn(rng: random.Random, number: int) -> Drawn:
        function, *options = choices[number % len(choices)]
        rows, columns = rng.choice(HELION_SHAPES[function])
        return f"rows={rows},columns={columns}", function, tuple(options)

    return drawn


def drawn_quantize(rng: random.Random, number: int) -> Drawn:
    function, *options = (
        ("quantise_rows",),
        ("quantise_groups", "by=group"),
        ("silu_mul_quantised", "by=group", "before=silu(gate) * up"),
        ("rms_norm_quantised", "by=group", "norm=rms_norm"),
    )[number % 4]
    rows, groups = 2 ** rng.randrange(14), rng.choice((16, 32, 40, 56, 64, 86, 112))
    return f"rows={rows},groups={groups}", function, tuple(options)


DRAWN: dict[str, Callable[[random.Random, int], Drawn]] = {
    "transpose": drawn_transpose,
    "permute": drawn_permute,
    "rope": drawn_rope,
    "reduce_axis": drawn_reduce_axis,
    "softmax": drawn_rows(("softmax",)),
    "norm": drawn_rows(("rms_norm",), ("layer_norm", "op=layer_norm", "after=n * weight + bias")),
    "gated": drawn_rows(("silu_mul",)),
    "cross_entropy": drawn_rows(("cross_entropy", "gradient=none")),
    "quantize": drawn_quantize,
}


def drawn_cases(seed: int, count: int) -> list[Case]:
    """Return a case for each shape that a seed draws of each kernel of models, in two dtypes in turn."""
    cases = []
    for kernel, draw in DRAWN.items():
        rng = random.Random(f"{seed} {kernel}")
        for number in range(count):
            sizes, function, options = draw(rng, number)
            against = tuple(f"{MODELS}:{function}_{how}" for how in ("eager", "compiled"))
            if function in HELION_SHAPES and importlib.util.find_spec("helion"):
                against += (f"{HELION}:{function}",)
            dtype = ("bfloat16", "float32")[number // 2 % 2]
            cases.append(Case(kernel, dtype, (sizes,), ("default", *against), options, trials=100))
    return cases


def measure(case: Case, rounds: int, db: Path) -> list[dict[str, Any]]:
    """Tune and compare one case; give a row for each problem and baseline.

    Raises:
        CommandError: a problem has no winner.
    """
    what = ["--kernel", case.kernel, "--dtype", case.dtype, "--db", str(db)]
    what += [word for option in case.options for word in ("--option", option)]
    what += [word for problem in case.problems for word in ("--problem", problem)]
    tune(*what, "--trials", str(case.trials), "--time", str(START_S + SEARCH_S * case.patience))
    passes = read_passes(case.kernel) or copy_passes(case.kernel)
    against = [word for baseline in (*case.baselines, *passes) for word in ("--against", baseline)]
    said, _ = tune("bench", *what, *against, "--rounds", str(rounds), "--json")
    found = json.loads(said or "[]")
    if len(found) != len(case.problems):
        raise CommandError(f"{len(found)} of {len(case.problems)} problems have a winner")
    return [
        {**row, "rounds": rounds}
        for problem, bench in zip(case.problems, found, strict=True)
        for row in rows(case, problem, bench)
    ]


def read_passes(kernel: str) -> list[str]:
    """Return launches that only read a kernel's input, each in its own way; the fastest of them counts."""
    of = {"mean_matvec": ("groups * vectors * length", "y"), "reduce_axis": ("rows * columns", "out")}
    of |= {"cross_entropy": ("rows * columns", "loss")}
    if kernel not in of:
        return []
    count, out = of[kernel]
    vectors = f"{count} * itemsize(input) // 16"
    launches = (
        f"read_tiles<8><<<ceil_div({vectors}, 512 * 8), 512>>>",
        f"read_tiles<16><<<ceil_div({vectors}, 512 * 16), 512>>>",
        "read_strided<4><<<4 * sm_count, 512>>>",
        "read_strided<8><<<4 * sm_count, 512>>>",
        "read_ring<6><<<sm_count, 32, 6 * 32768>>>",
    )
    return [f"{READ_PASS}:{launch}(x, {out}, int64({vectors}))" for launch in launches]


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
    head = ["kernel", "dtype", "problem", "mode", "ours, us", "baseline", "us", "ratio", "verdict"]
    lines = [
        [
            *(row["kernel"], row["dtype"], " ".join([row["problem"], *row["options"]]), row["mode"]),
            *(us(row["ours_ns"]), row["rival"], us(row["rival_ns"]), f"{row['ratio']:.3f}", row["verdict"]),
        ]
        for row in found
    ]
    return f"{'; '.join(where)}, {today()}\n\n{evidence.table([head, *lines])}"


def means(found: list[dict[str, Any]]) -> str:
    """Return the geometric mean over each baseline of each kernel, with the least."""
    lines = [["kernel", "baseline", "shapes", "mean", "least"]]
    for kernel, rival in dict.fromkeys((row["kernel"], row["rival"]) for row in found):
        ratios = [row["ratio"] for row in found if (row["kernel"], row["rival"]) == (kernel, rival)]
        mean = statistics.geometric_mean(ratios)
        lines.append([kernel, rival, str(len(ratios)), f"{mean:.3f}", f"{min(ratios):.3f}"])
    return evidence.table(lines)


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what a row is of: its case and problem."""
    return row["kernel"], row["dtype"], tuple(row["options"]), row["problem"]


class Teaching(harness.Study):
    """Cases, each measured once; rows of the evidence that are not measured stay.

    Args:
        given: of the command line.
    """

    def __init__(self, given: argparse.Namespace) -> None:
        self._given, self.name = given, "teaching" if given.drawn is None else "models"
        super().__init__(given.work / f"{self.name}.json", given.seconds, rows=[])
        self._every = CASES if given.drawn is None else drawn_cases(given.drawn, given.shapes)

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
        harness.write(self._given.out, self.name, self.rows(), table(self.rows()))

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
    options = harness.parser(__doc__)
    add = options.add_argument
    add("--out", type=Path, help="Folder for teaching.txt and teaching.json.")
    add(
        "--work",
        type=Path,
        default=Path("teaching"),
        help="Folder of what is known: it is not measured again.",
    )
    add("--seconds", type=float, default=0.0, help="Begin nothing new after so many; 0 for no limit.")
    add("--drawn", type=int, metavar="SEED", help="Kernels of models, at shapes drawn by this seed.")
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
    print(table(study.rows()))
    if study.name == "models" and study.data["rows"]:
        print(f"\n{means(study.rows())}")
    return int(any(study.left()))


if __name__ == "__main__":
    harness.run(main, gpu=True)
