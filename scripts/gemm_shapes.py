"""Products of many shapes, each tuned from scratch, then timed in turn with cuBLAS:

    scripts/run python scripts/gemm_shapes.py --out results/evidence

For each shape and dtype: `tune --kernel gemm --trials 200 --time 20` in a new database, with the seconds that it took;
then a race of the winner with `torch.mm` and with the best of cuBLASLt's own list (``scripts/rivals/cublaslt.py``), on
the same buffers, in the same graphs, in shuffled rounds. Rested; products that are long enough for the power limit to
matter run under sustained load, too. What is asked of the figures stands beside them.

Every result is kept in ``--work`` as soon as it is there, and what is there is not measured again: the script can be
stopped, and started with ``--seconds`` for one piece after the other. ``--gpus 4`` shares the problems out to four GPUs
of the machine; what is compared is timed on one of them. Needs torch.

| step | does |
|---|---|
| search | tunes each problem from scratch |
| race | times the winners in turn with both rivals, rested |
| sustained | the same under sustained load, for the large products |
| longer | goes on for ``--longer`` trials, and times what that finds in turn with the first winner |
| ablate | `tune ablate`: what each choice of some winners is worth |
| bits | runs each winner several times on the same inputs, and compares every bit (``scripts/same_bits.py``) |
| sanitize | `tune sanitize gemm --winners` |
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RIVAL = HERE / "rivals" / "cublaslt.py"
SAME_BITS = HERE / "same_bits.py"
EACH = ("search", "race", "sustained", "longer", "ablate")
STEPS = (*EACH, "bits", "sanitize")
LISTED = "cublaslt"
"""Contestant's name, without its file's."""
FEWEST_ROUNDS = 6
BATCH = 4
"""Problems that are done together: one process races them, and loads torch once."""
COST_S, COST_S_OF_TFLOP = 25.0, 4.0
"""Roughly what a problem takes, and more for each 10^12 operations of its product: to share problems out."""

LEAST_MEAN = 1.05
"""Geometric mean of cuBLAS's time over ours, over the shapes whose rows are whole 16 bytes."""
LEAST_ODD = 3.5
"""The same where they are not: cuBLAS has no fast path for them."""
LONGEST_SEARCH_S = 90.0
WITHIN = 1.02
"""The first winner's time over that of what a longer search finds."""
SUSTAINED_FROM_FLOP = 1e11
"""Some 150 us on an H200."""
POWER_LIMITED = ("8192x8192x8192", "4096x4096x4096")
"""Shapes that are asked to be faster beyond the noise, not only as fast."""


@dataclass(frozen=True)
class Shape:
    """C is m x n, a sum of k products each."""

    m: int
    n: int
    k: int

    @classmethod
    def parse(cls, text: str) -> Shape:
        """Read ``512x512x65536``, or ``512`` for a cube."""
        lengths = [int(length) for length in text.lower().split("x")]
        if len(lengths) not in (1, 3) or min(lengths) < 1:
            raise argparse.ArgumentTypeError(f"{text!r} is no shape: write 4096 or 512x512x65536")
        return cls(*(lengths * 3)[:3])

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"

    @property
    def flop(self) -> float:
        """Operations of the product."""
        return 2.0 * self.m * self.n * self.k

    @property
    def odd(self) -> bool:
        """Whether rows are no whole 16 bytes of 16-bit elements."""
        return self.n % 8 != 0 or self.k % 8 != 0

    @property
    def problem(self) -> str:
        """As `tune` takes it."""
        return f"m={self.m},n={self.n},k={self.k}"


SHAPES = tuple(
    Shape.parse(text)
    for text in (
        *("8192", "4096", "2048", "1024", "512", "16384"),
        *("1x8192x8192", "16x8192x8192", "64x8192x8192", "128x8192x8192"),
        *("4096x11008x4096", "8192x28672x8192", "4104", "512x512x65536", "4096x4096x128"),
        "4095x4097x4093",
    )
)

ABLATED = tuple(
    Shape.parse(text)
    for text in (
        *("8192", "4096", "4104", "4096x4096x128"),
        *("16x8192x8192", "512x512x65536", "4095x4097x4093"),
    )
)
"""Whose winners are taken apart: large, uneven, short k, few rows, deep k, odd rows."""


# -- what is known so far


class Notes:
    """Results by problem, in a file that is written after each."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._path = folder / "gemm-shapes.state.json"
        self.data: dict[str, Any] = {"where": {}, "problems": {}, "sanitized": {}}
        if self._path.is_file():
            self.data |= json.loads(self._path.read_text())

    @property
    def winners(self) -> Path:
        """One database with the winners of all problems."""
        return self.folder / "gemm-shapes.db"

    def own(self, problem: Problem) -> Path:
        """Give the database of one problem's search."""
        return self.folder / f"{problem.key}.db"

    def problems(self) -> list[Problem]:
        """Give all of which something is known: by layout and dtype, then in the order of :data:`SHAPES`."""
        known = [
            Problem(Shape(one["m"], one["n"], one["k"]), one["dtype"], one["layout"])
            for one in self.data["problems"].values()
        ]
        kinds = list(dict.fromkeys((one.layout, one.dtype) for one in known))
        places = {shape: place for place, shape in enumerate(SHAPES)}
        order = sorted(known, key=lambda one: places.get(one.shape, len(SHAPES)))
        return sorted(order, key=lambda one: kinds.index((one.layout, one.dtype)))

    def has(self, problem: Problem, step: str) -> bool:
        """Whether a step was done."""
        return step in self.data["problems"].get(problem.key, {})

    def get(self, problem: Problem, step: str) -> dict[str, Any]:
        """Give what a step found; empty for nothing."""
        found: dict[str, Any] = self.data["problems"].get(problem.key, {}).get(step, {})
        return found

    def keep(self, problem: Problem, step: str, found: dict[str, Any]) -> None:
        """Write down what a step found."""
        identity = {**vars(problem.shape), "dtype": problem.dtype, "layout": problem.layout}
        entry = self.data["problems"].setdefault(problem.key, identity)
        entry[step] = found
        self.save()

    def take(self, other: Notes) -> None:
        """Add what others know: what is known here stays."""
        self.data["where"] = self.data["where"] or other.data["where"]
        for key, entry in other.data["problems"].items():
            self.data["problems"][key] = {**entry, **self.data["problems"].get(key, {})}
        self.data["sanitized"] |= other.data["sanitized"]
        self.save()

    def save(self) -> None:
        """Write everything, whole or not at all."""
        half_done = self._path.with_suffix(".new")
        half_done.write_text(json.dumps(self.data, indent=1) + "\n")
        half_done.replace(self._path)


@dataclass(frozen=True)
class Problem:
    """A shape in a dtype and a layout."""

    shape: Shape
    dtype: str
    layout: str = "nn"

    @classmethod
    def parse(cls, key: str) -> Problem:
        """Read a :attr:`key`."""
        dtype, shape, *layout = key.split("-")
        return cls(Shape.parse(shape), dtype, *layout)

    @property
    def key(self) -> str:
        """Its name in files."""
        return f"{self.dtype}-{self.shape}" + ("" if self.layout == "nn" else f"-{self.layout}")

    @property
    def words(self) -> list[str]:
        """How `tune` is told of it."""
        return [*self.kind, "--problem", self.shape.problem]

    @property
    def kind(self) -> list[str]:
        """What is the same for all shapes."""
        return ["--kernel", "gemm", "--dtype", self.dtype, "--option", f"layout={self.layout}"]


def tune(*words: str) -> tuple[str, float]:
    """Call the command; give what it prints, and how many seconds it took."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "tuner", *words], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode not in (0, 1):
        sys.exit(f"tune {' '.join(words)}: exit status {done.returncode}")
    return done.stdout, time.monotonic() - began


# -- the steps


class Study:
    """Does the steps, as far as the time goes.

    Args:
        notes: what is known, and where it is kept.
        problems: all of them.
        given: of the command line.
    """

    def __init__(self, notes: Notes, problems: Sequence[Problem], given: argparse.Namespace) -> None:
        self._notes, self._problems, self._given = notes, problems, given
        self._until = time.monotonic() + (given.seconds or math.inf)

    def run(self, steps: Iterable[str]) -> None:
        """Do the steps that each problem takes for some at a time, so that those are whole, and then the others."""
        steps = list(steps)
        for group in groups(self._problems, BATCH):
            for step in steps:
                if step in EACH:
                    getattr(self, f"_{step}")(group)
        for step in steps:
            if step not in EACH:
                getattr(self, f"_{step}")()

    @property
    def _jobs(self) -> list[str]:
        return ["--jobs", str(self._given.jobs)] if self._given.jobs else []

    def _left(self, step: str, group: Sequence[Problem]) -> Iterator[Problem]:
        """Give what is to be done of some problems, until the time is over."""
        for problem in group:
            if time.monotonic() >= self._until:
                return
            if not self._notes.has(problem, step):
                yield problem

    def _search(self, group: Sequence[Problem]) -> None:
        for problem in self._left("search", group):
            database = self._notes.own(problem)
            database.unlink(missing_ok=True)
            limit = ["--time", str(self._given.time)] if self._given.time else []
            trials = ["--trials", str(self._given.trials), *limit]
            where = ["--db", str(database), *self._jobs]
            text, seconds = tune(*problem.words, *trials, *where, "--json", "--quiet")
            found = json.loads(text or "[]")
            how = " ".join(["tune --kernel gemm", *trials])
            self._notes.keep(problem, "search", {"command": how, "seconds": seconds, **searched(found)})
            say(problem, f"searched in {seconds:.0f} s")
            if database.is_file():
                tune("db", "merge", str(database), "--db", str(self._notes.winners))

    def _race(self, group: Sequence[Problem]) -> None:
        self._raced("race", self._given.rounds, "rested", list(self._left("race", group)))

    def _sustained(self, group: Sequence[Problem]) -> None:
        large = [p for p in self._left("sustained", group) if p.shape.flop >= SUSTAINED_FROM_FLOP]
        self._raced("sustained", self._given.sustained_rounds, "sustained", large)

    def _raced(self, step: str, rounds: int, regime: str, problems: Sequence[Problem]) -> None:
        won = [p for p in problems if self._notes.get(p, "search").get("exportable")]
        for group in groups(won, BATCH):
            if time.monotonic() >= self._until:
                return
            # Rested they are timed as they were tuned, cold or rotating; a sustained load always rotates.
            how = ["--regime", "sustained"] if regime == "sustained" else []
            text, _ = tune(
                *("bench", *group[0].kind),
                *(word for problem in group for word in ("--problem", problem.shape.problem)),
                *("--against", "torch", "--against", f"{RIVAL}:{LISTED}"),
                *("--rounds", str(rounds), *how, "--db", str(self._notes.winners), "--json", "--quiet"),
            )
            for bench in json.loads(text or "[]"):
                found = [p for p in group if bench["problem"]["sizes"] == vars(p.shape)]
                for problem in found:
                    self._notes.data["where"] = {"gpu": bench["gpu"], "driver": bench["driver"], **versions()}
                    self._notes.keep(problem, step, raced(bench))
                    say(problem, f"{step}: {raced_text(self._notes.get(problem, step))}")

    def _longer(self, group: Sequence[Problem]) -> None:
        for problem in self._left("longer", group):
            if not self._notes.own(problem).is_file():
                continue
            database = self._notes.folder / f"{problem.key}.longer.db"
            shutil.copyfile(self._notes.own(problem), database)
            text, seconds = tune(
                *problem.words,
                *("--trials", str(self._given.longer), "--time", str(self._given.longer_time)),
                *("--seed", "1", "--db", str(database), *self._jobs, "--json", "--quiet"),
            )
            found = longer(json.loads(text or "[]"))
            self._notes.keep(problem, "longer", {"seconds": seconds, **found})
            say(problem, f"{self._given.longer} more trials: {found}")

    def _ablate(self, group: Sequence[Problem]) -> None:
        for problem in self._left("ablate", group):
            if not self._notes.get(problem, "search").get("exportable"):
                continue
            if not self._given.shapes and problem.shape not in ABLATED:
                continue
            size = ["--size", problem.shape.problem, *problem.kind[2:]]
            rounds = ["--rounds", str(self._given.ablation_rounds)]
            text, seconds = tune(
                *("ablate", "gemm", *size, *rounds, "--db", str(self._notes.winners), *self._jobs),
                *("--json", "--quiet"),
            )
            if text:
                self._notes.keep(problem, "ablate", {"seconds": seconds, **json.loads(text)})
                say(problem, f"taken apart in {seconds:.0f} s")

    def _bits(self) -> None:
        if not self._notes.winners.is_file() or time.monotonic() >= self._until:
            return
        command = [
            sys.executable,
            str(SAME_BITS),
            "--db",
            str(self._notes.winners),
            "--kernel",
            "gemm",
            "--json",
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        for row in json.loads(done.stdout or "[]"):
            for problem in self._problems:
                mine = {"sizes": vars(problem.shape), "dtype": problem.dtype, "layout": problem.layout}
                if all(row[name] == value for name, value in mine.items()):
                    self._notes.keep(
                        problem, "bits", {name: row[name] for name in ("calls", "same", "error")}
                    )

    def _sanitize(self) -> None:
        for dtype in dict.fromkeys(problem.dtype for problem in self._problems):
            if time.monotonic() >= self._until:
                return
            words = ["sanitize", "gemm", "--winners", "--dtype", dtype, "--edges", "2"]
            text, seconds = tune(*words, "--db", str(self._notes.winners))
            said = f"$ tune {' '.join(words)}\n{text}[{seconds:.0f} s]\n"
            self._notes.data["sanitized"][f"{self._notes.folder.name} {dtype}"] = said
            self._notes.save()


def versions() -> dict[str, str]:
    """Give those of the tuner, the compiler and the rivals' libraries."""
    found = {}
    for name, packages in (
        ("kernel-tune", ("kernel-tune",)),
        ("nvrtc", ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")),
        ("torch", ("torch",)),
        ("cublas", ("nvidia-cublas", "nvidia-cublas-cu12")),
    ):
        for package in packages:
            try:
                found[name] = version(package)
                break
            except PackageNotFoundError:
                continue
    return found


def rounds(text: str) -> int:
    """Read a number of rounds: `tune bench` takes no fewer than :data:`FEWEST_ROUNDS`."""
    number = int(text)
    if number < FEWEST_ROUNDS:
        raise argparse.ArgumentTypeError(f"a race has at least {FEWEST_ROUNDS} rounds")
    return number


def say(problem: Problem, text: str) -> None:
    print(f"{problem.key}: {text}", file=sys.stderr, flush=True)


def groups(problems: Sequence[Problem], most: int) -> Iterator[list[Problem]]:
    """Give problems that one call of the command can name: of one dtype and layout."""
    kinds: dict[tuple[str, ...], list[Problem]] = {}
    for problem in problems:
        kinds.setdefault(tuple(problem.kind), []).append(problem)
    for alike in kinds.values():
        for first in range(0, len(alike), most):
            yield alike[first : first + most]


# -- what the command's answers come to


def searched(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Sum up `tune run --json`."""
    winner = found[0]["winner"] if found else None
    if winner is None:
        return {"variant": "", "parameters": {}}
    return {
        "variant": winner["variant"],
        "parameters": winner["configuration"],
        "time_ns": winner["time_ns"],
        "edges": winner["edge_sizes_verified"],
        "exportable": winner["exportable"],
        "reason": winner["reason"],
        "stats": found[0]["stats"],
    }


def raced(bench: dict[str, Any]) -> dict[str, Any]:
    """Sum up `tune bench --json` of one problem."""
    entries = {one["contestant"].rpartition(":")[2]: one for one in bench["contestants"]}
    best = entries.get("best", {})
    names = ("time_ns", "ratio", "ratio_low", "ratio_high", "verdict", "verified", "sm_clock_hz")
    return {
        "mode": bench["mode"],
        "regime": bench["regime"],
        "noise_floor": bench["noise_floor"],
        "variant": best.get("variant"),
        "parameters": best.get("parameters"),
        "ours": {name: best[name] for name in (*names, "tflops", "gbytes_per_s", "speed_of_light") if best},
        "rivals": {
            name: {what: entries[name][what] for what in names}
            for name in ("torch", LISTED)
            if name in entries
        },
        "failed": {one["contestant"].rpartition(":")[2]: one["error"] for one in bench["failed"]},
        "tags": bench["tags"],
    }


def raced_text(race: dict[str, Any]) -> str:
    """Say a race in a line."""
    parts = [f"{one['ratio']:.3f} of {name}, {one['verdict']}" for name, one in race["rivals"].items()]
    parts += [f"{name} failed: {error}" for name, error in race["failed"].items()]
    return "; ".join(parts)


def longer(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Say how far the first winner is from what the longer search ended with, both timed in turn."""
    winner = found[0]["winner"] if found else None
    if winner is None:
        return {"ratio": None}
    before = found[0].get("versus_incumbent") or {"ratio": 1.0, "low": 1.0, "high": 1.0, "verdict": "same"}
    return {
        **before,
        "variant": winner["variant"],
        "parameters": winner["configuration"],
        "time_ns": winner["time_ns"],
        "trials": found[0]["stats"].get("trials"),
    }


@dataclass(frozen=True)
class Row:
    """One problem in the table."""

    problem: Problem
    search: dict[str, Any]
    race: dict[str, Any]
    sustained: dict[str, Any]
    longer: dict[str, Any]
    bits: dict[str, Any]

    @property
    def timed(self) -> bool:
        """Whether there are figures."""
        return bool(self.race.get("ours"))

    def asked(self) -> Iterator[tuple[str, bool]]:
        """Give what is asked of it, and whether that is met."""
        shape = self.problem.shape
        if not self.timed:
            yield "a race" if self.search.get("exportable") else "a winner", False
            return
        for name, one in self.race["rivals"].items():
            if shape.odd:
                yield f"{LEAST_ODD:g} of {name}", one["ratio"] >= LEAST_ODD
            elif str(shape) in POWER_LIMITED:
                yield f"faster than {name}", one["verdict"] == "faster"
            else:
                yield f"not slower than {name}", one["verdict"] != "slower"
        seconds = self.search.get("seconds")
        if seconds is not None:
            yield f"found in {LONGEST_SEARCH_S:g} s", seconds <= LONGEST_SEARCH_S
        if self.longer.get("ratio") is not None:
            yield f"within {100 * (WITHIN - 1):.0f} % of a longer search", self.longer["ratio"] <= WITHIN
        if self.bits:
            yield "the same bits", bool(self.bits["same"])

    def to_json(self) -> dict[str, Any]:
        """Give everything for programs."""
        return {
            **vars(self.problem.shape),
            "dtype": self.problem.dtype,
            "layout": self.problem.layout,
            "search": self.search,
            "race": self.race,
            "sustained": self.sustained,
            "longer": self.longer,
            "bits": self.bits,
            "asked": [{"what": what, "met": met} for what, met in self.asked()],
        }


def rows_of(notes: Notes, problems: Sequence[Problem]) -> list[Row]:
    """Give the rows of what was at least searched."""
    steps = ("search", "race", "sustained", "longer", "bits")
    return [Row(p, *(notes.get(p, step) for step in steps)) for p in problems if notes.has(p, "search")]


def means(rows: Sequence[Row], step: str = "race") -> dict[str, float]:
    """Give the geometric mean of each rival's ratio over the shapes with whole rows that it was timed at."""
    ratios: dict[str, list[float]] = {}
    for row in rows:
        race = getattr(row, step)
        if race and not row.problem.shape.odd:
            for name, one in race["rivals"].items():
                ratios.setdefault(name, []).append(one["ratio"])
    return {name: math.exp(sum(map(math.log, found)) / len(found)) for name, found in ratios.items()}


def table(rows: Sequence[Row], where: dict[str, Any]) -> str:
    """Write the rows for people."""
    known = [f"{name} {number}" for name, number in where.items() if name != "gpu"]
    searches = dict.fromkeys(row.search["command"] for row in rows if "command" in row.search)
    lines = [
        ", ".join([where.get("gpu", "no GPU"), *known, str(datetime.now(UTC).date())]),
        f"each search: {'; '.join(searches)}",
        "",
        "Ratios are a rival's time over ours, timed in turn on the same buffers, with the ends of a 95 % interval;",
        "sustained: without pauses, against both. search s: from the start of the command to the confirmed winner.",
        "edges: awkward sizes at which the winner was verified.",
    ]
    for kind in dict.fromkeys((row.problem.dtype, row.problem.layout) for row in rows):
        chosen = [row for row in rows if (row.problem.dtype, row.problem.layout) == kind]
        lines += ["", *_block(*kind, chosen)]
    return "\n".join(lines)


def _block(dtype: str, layout: str, rows: Sequence[Row]) -> Iterator[str]:
    yield f"{dtype}, layout {layout}"
    yield (
        f"{'m x n x k':20s} {'mode':8s} {'ours us':>9s} {'TFLOP/s':>7s}  {'torch.mm us':>11s} "
        f"{'ratio':28s} {'cuBLASLt us':>11s} {'ratio':28s} {'sustained':>15s} {'search s':>8s} {'edges':>5s}  asked"
    )
    for row in rows:
        yield _line(row)
    for step in ("race", "sustained"):
        for name, mean in means(rows, step).items():
            whole = [row for row in rows if not row.problem.shape.odd and getattr(row, step)]
            count = sum(name in getattr(row, step)["rivals"] for row in whole)
            rested = step == "race"
            asked = f"; asked {LEAST_MEAN:g}: {_met(mean >= LEAST_MEAN)}" if rested else ""
            verdicts = [
                getattr(row, step)["rivals"][name]["verdict"]
                for row in whole
                if name in getattr(row, step)["rivals"]
            ]
            said = ", ".join(
                f"{verdicts.count(one)} {one}"
                for one in ("faster", "same", "ambiguous", "slower")
                if one in verdicts
            )
            how = "rested" if rested else "sustained"
            yield f"geometric mean against {name}, {how}, {count} shapes: {mean:.3f} ({said}){asked}"


def _line(row: Row) -> str:
    shape = " x ".join(map(str, vars(row.problem.shape).values()))
    missed = [what for what, met in row.asked() if not met]
    asked = "met" if not missed else f"MISSED: {'; '.join(missed)}"
    if not row.timed:
        return f"{shape:20s} {row.search.get('reason') or row.race.get('failed') or 'not raced'}  {asked}"
    ours, rivals = row.race["ours"], row.race["rivals"]
    cells = [
        f"{rivals[name]['time_ns'] / 1e3:11.2f} {_ratio(rivals[name]):28s}"
        if name in rivals
        else f"{'-':>11s} {row.race['failed'].get(name, '')[:28]:28s}"
        for name in ("torch", LISTED)
    ]
    sustained = [
        f"{row.sustained['rivals'][name]['ratio']:.3f}"
        for name in ("torch", LISTED)
        if row.sustained and name in row.sustained["rivals"]
    ]
    wrong = "" if ours["verified"] else "  NOT VERIFIED"
    return (
        f"{shape:20s} {row.race['mode']:8s} {ours['time_ns'] / 1e3:9.2f} {ours['tflops'] or 0:7.1f}  "
        f"{cells[0]} {cells[1]} {' / '.join(sustained):>15s} "
        f"{row.search['seconds']:8.1f} {row.search['edges']:5d}  {asked}{wrong}"
    ).rstrip()


def _ratio(one: dict[str, Any]) -> str:
    return f"{one['ratio']:.3f} ({one['ratio_low']:.3f}..{one['ratio_high']:.3f}) {one['verdict']}"


def _met(met: bool) -> str:
    return "met" if met else "MISSED"


def configurations(rows: Sequence[Row]) -> str:
    """List what won."""
    lines = ["", "What won:"]
    for row in rows:
        values = " ".join(f"{name}={value}" for name, value in (row.search.get("parameters") or {}).items())
        lines.append(f"  {row.problem.key:32s} {row.search.get('variant') or 'nothing'} {values}")
    return "\n".join(lines)


def ablations(notes: Notes, problems: Sequence[Problem]) -> list[dict[str, Any]]:
    """Give what `tune ablate --json` said of each winner."""
    return [notes.get(p, "ablate") for p in problems if notes.has(p, "ablate")]


def ablation_text(found: dict[str, Any]) -> str:
    """Write one for people, the choice whose loss costs most first."""
    sizes = " x ".join(str(size) for size in found["problem"]["sizes"].values())
    values = " ".join(f"{name}={value}" for name, value in found["parameters"].items())
    lines = [
        f"{sizes} {found['problem']['dtypes']['input']}, {found['mode']}, {found['regime']}: "
        f"{(found['time_ns'] or 0) / 1e3:.2f} us, noise floor {100 * (found['noise_floor'] or 0):.2g} %",
        f"{found['variant']} {values}",
    ]
    for choice in sorted(found["choices"], key=lambda one: -(one["worth"] or 0)):
        name = f"{choice['parameter']}={choice['value']}"
        for one in choice["alternatives"]:
            said = one["error"] if one["ratio"] is None else f"{_ratio(one)}"
            besides = "".join(f", with {what}={value}" for what, value in one["besides"].items())
            lines.append(f"  {name:28s} {one['value']!s:>12s}{besides:28s}  {said}")
            name = ""
    return "\n".join(lines)


def write_ablations(found: Sequence[dict[str, Any]], folder: Path) -> None:
    """Write both files of what the choices are worth."""
    if not found:
        return
    head = (
        f"{found[0]['gpu']}, driver {found[0]['driver']}, {datetime.now(UTC).date()}\n\n"
        "One parameter at a time takes another value: the time with it over the time without, in turn, and the\n"
        "verdict of the chosen value. Without a time: why the value is not valid with the others as they are.\n\n"
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gemm-ablation.txt").write_text(head + "\n\n".join(map(ablation_text, found)) + "\n")
    (folder / "gemm-ablation.json").write_text(json.dumps(list(found), indent=1) + "\n")


def report(notes: Notes, out: Path | None) -> str:
    """Write the evidence, if there is a folder for it; gives the table."""
    rows = rows_of(notes, notes.problems())
    if out:
        write(rows, notes.data["where"], out)
        write_ablations(ablations(notes, notes.problems()), out)
        if notes.data["sanitized"]:
            (out / "gemm-sanitize.txt").write_text("\n".join(notes.data["sanitized"].values()))
    return table(rows, notes.data["where"])


def write(rows: Sequence[Row], where: dict[str, Any], folder: Path) -> None:
    """Write both files of the evidence."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gemm-shapes.txt").write_text(f"{table(rows, where)}\n{configurations(rows)}\n")
    data = {**where, "problems": [row.to_json() for row in rows]}
    (folder / "gemm-shapes.json").write_text(json.dumps(data, indent=1) + "\n")


# -- several GPUs


def shared_out(problems: Sequence[Problem], count: int) -> list[list[Problem]]:
    """Share problems out so that each GPU has about as much to do; the same every time."""
    parts: list[list[Problem]] = [[] for _ in range(count)]
    costs = [0.0] * count
    for problem in sorted(problems, key=lambda one: -one.shape.flop):
        least = costs.index(min(costs))
        parts[least].append(problem)
        costs[least] += COST_S + COST_S_OF_TFLOP * problem.shape.flop / 1e12
    return parts


def on_each(given: argparse.Namespace, problems: Sequence[Problem], notes: Notes) -> None:
    """Have a process for each GPU do its part, and gather what they found."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(given.gpus)))).split(",")
    if len(visible) < given.gpus:
        sys.exit(f"{len(visible)} GPUs are visible, not {given.gpus}")
    same = (
        "trials",
        "time",
        "rounds",
        "sustained_rounds",
        "ablation_rounds",
        "longer",
        "longer_time",
        "seconds",
    )
    words = [word for name in same for word in (f"--{name.replace('_', '-')}", str(getattr(given, name)))]
    jobs = given.jobs or max(1, (os.cpu_count() or 1) // given.gpus)
    folders = [given.work / f"gpu-{number}" for number in range(given.gpus)]
    children = []
    for gpu, folder, part in zip(visible, folders, shared_out(problems, given.gpus), strict=False):
        if part:
            keys = ",".join(problem.key for problem in part)
            command = [
                sys.executable,
                __file__,
                "--work",
                str(folder),
                "--only",
                keys,
                "--steps",
                given.steps,
            ]
            command += ["--jobs", str(jobs), "--shapes", given.shapes, *words]
            environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
            children.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment))
    try:
        failed = [child.args for child in children if child.wait()]
    finally:
        for child in children:
            child.terminate()
        for folder in folders:
            if folder.is_dir():
                notes.take(part_of := Notes(folder))
                if part_of.winners.is_file():
                    tune("db", "merge", str(part_of.winners), "--db", str(notes.winners))
    if failed:
        sys.exit(f"{len(failed)} of {len(children)} processes failed; what they found is kept")


def problems_of(given: argparse.Namespace) -> list[Problem]:
    """Settle what is to be done.

    Raises:
        ValueError, argparse.ArgumentTypeError: something is no shape.
    """
    if given.only:
        return [Problem.parse(key) for key in given.only.split(",")]
    shapes = [Shape.parse(text) for text in given.shapes.split(",") if text] or SHAPES
    return [Problem(shape, dtype, given.layout) for dtype in given.dtypes.split(",") for shape in shapes]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="Folder for gemm-shapes.txt and gemm-shapes.json.")
    parser.add_argument(
        "--work", type=Path, default=Path("gemm-shapes"), help="Databases and what is known so far."
    )
    parser.add_argument("--shapes", default="", help="Only these, with commas between: 4096,512x512x65536.")
    parser.add_argument("--dtypes", default="bfloat16,float16", help="With commas between.")
    parser.add_argument("--layout", choices=("nn", "nt"), default="nn")
    parser.add_argument("--steps", default="search,race,sustained", help=f"Of {', '.join(STEPS)}.")
    parser.add_argument(
        "--only", default="", help="Problems by name: bfloat16-4096x4096x4096,float16-512x512x512-nt."
    )
    parser.add_argument("--gpus", type=int, default=1, help="So many GPUs of this machine at once.")
    parser.add_argument("--jobs", type=int, default=0, help="Compiling processes of each; 0 for one a core.")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--time", type=float, default=20.0, help="Seconds of a search; 0 for no limit.")
    parser.add_argument("--rounds", type=rounds, default=20)
    parser.add_argument("--sustained-rounds", type=rounds, default=6, help="Each takes a second or two.")
    parser.add_argument("--ablation-rounds", type=rounds, default=12)
    parser.add_argument("--longer", type=int, default=1000, help="Further trials of the step longer.")
    parser.add_argument("--longer-time", type=float, default=60.0, help="Seconds of it.")
    parser.add_argument(
        "--seconds", type=float, default=0.0, help="Begin nothing new after so many; 0 for no limit."
    )
    parser.add_argument(
        "--quick", action="store_true", help="40 trials, 6 s and 8 rounds: to see that it works."
    )
    given = parser.parse_args()
    if given.quick:
        given.trials, given.time, given.rounds = 40, 6.0, 8
    steps = [step for step in given.steps.split(",") if step]
    if unknown := [step for step in steps if step not in STEPS]:
        parser.error(f"no step {unknown[0]!r}: choose from {', '.join(STEPS)}")
    try:
        problems = problems_of(given)
    except (ValueError, argparse.ArgumentTypeError) as error:
        parser.error(str(error))
    notes = Notes(given.work)
    try:
        if given.gpus > 1:
            on_each(given, problems, notes)
        else:
            Study(notes, problems, given).run(steps)
    finally:
        print(report(notes, given.out))


if __name__ == "__main__":
    main()
