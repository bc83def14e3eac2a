"""The products of ``gemm_shapes.py``, what is known of each, and the pages' tables of it."""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from scripts import harness
from scripts.page_figures import evidence, gemm

VECTOR = 8
"""16-bit elements of 16 bytes."""
LONGEST = 16384


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
    def problem(self) -> str:
        """As `tune` takes it."""
        return f"m={self.m},n={self.n},k={self.k}"


LAYOUTS = ("nn", "nt", "tn", "tt")
"""First A's, then B's: n for rows one after the other, t for columns."""
SHAPES = tuple(
    Shape.parse(text)
    for text in (
        *("8192", "4096", "2048", "1024", "512", "16384"),
        *("1x8192x8192", "16x8192x8192", "64x8192x8192", "128x8192x8192"),
        *("4096x11008x4096", "8192x28672x8192", "4104", "512x512x65536", "4096x4096x128"),
        "4095x4097x4093",
    )
)
CUBES = tuple(Shape.parse(text) for text in ("8192", "4096", "2048"))
"""Of layouts in which A is transposed: gradients."""

ABLATED = tuple(
    Shape.parse(text)
    for text in (
        *("8192", "4096", "2048", "1024", "4096x11008x4096", "4104", "4096x4096x128"),
        *("16x8192x8192", "512x512x65536", "4095x4097x4093"),
    )
)
"""Whose winners are taken apart: large, of two rounds and of one, uneven, short k, few rows, deep k, odd rows."""


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
    def rows(self) -> set[str]:
        """Sizes that are the length of a row in memory, of A, B or C."""
        return {"m" if self.layout[0] == "t" else "k", "k" if self.layout[1] == "t" else "n", "n"}

    @property
    def odd(self) -> bool:
        """Whether rows are no whole 16 bytes of 16-bit elements."""
        return any(getattr(self.shape, name) % VECTOR for name in self.rows)

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


def drawn(count: int, seed: int, dtypes: Sequence[str]) -> list[Problem]:
    """Draw problems, all different: the same ones for a seed.

    m, n and k are log-uniform in 16 to 16384; dtype and layout are drawn, too. Every third problem is odd as it was
    drawn; of the others the lengths of rows in memory are rounded up to whole 16 bytes, and no other size is.
    """
    draw = random.Random(seed)
    found: dict[Problem, None] = {}
    while len(found) < count:
        dtype, layout = draw.choice(dtypes), draw.choice(LAYOUTS)
        sizes = {
            name: min(LONGEST, int(math.exp(draw.uniform(math.log(16), math.log(LONGEST + 1)))))
            for name in "mnk"
        }
        problem = Problem(Shape(**sizes), dtype, layout)
        if len(found) % 3 != 2:
            whole = {name: -(-sizes[name] // VECTOR) * VECTOR for name in problem.rows}
            problem = Problem(Shape(**{**sizes, **whole}), dtype, layout)
        if problem.odd == (len(found) % 3 == 2):
            found[problem] = None
    return list(found)


class Notes(harness.Study):
    """Results by problem, in a file that is written after each."""

    def __init__(self, folder: Path, seconds: float = 0.0) -> None:
        self.folder = folder
        super().__init__(folder / "gemm-shapes.state.json", seconds, where={}, drawn={}, problems={})
        if not self.winners.is_file():  # what was found and not raced is found anew
            self.data["problems"] = {key: one for key, one in self.data["problems"].items() if "race" in one}

    @property
    def winners(self) -> Path:
        """One database with the winners of all problems."""
        return self.folder / "gemm-shapes.db"

    def problems(self) -> list[Problem]:
        """Return all of which something is known: by layout and dtype, then in the order of :data:`SHAPES`."""
        known = [Problem.parse(key) for key in self.data["problems"]]
        kinds = list(dict.fromkeys((one.layout, one.dtype) for one in known))
        places = {shape: place for place, shape in enumerate(SHAPES)}
        order = sorted(known, key=lambda one: places.get(one.shape, len(SHAPES)))
        return sorted(order, key=lambda one: kinds.index((one.layout, one.dtype)))

    def has(self, problem: Problem, step: str) -> bool:
        """Whether a step was done."""
        return step in self.data["problems"].get(problem.key, {})

    def get(self, problem: Problem, step: str) -> dict[str, Any]:
        """Return what a step found; empty for nothing."""
        found: dict[str, Any] = self.data["problems"].get(problem.key, {}).get(step, {})
        return found

    def note(self, problem: Problem, step: str, found: dict[str, Any]) -> None:
        """Write down what a step found."""
        identity = {**vars(problem.shape), "dtype": problem.dtype, "layout": problem.layout}
        self.data["problems"].setdefault(problem.key, identity)[step] = found
        self.keep()

    def draw(self, count: int, seed: int, dtypes: Sequence[str]) -> list[Problem]:
        """Return problems by :func:`drawn`, and write down how they were drawn.

        Raises:
            ValueError: this folder's problems were drawn in another way.
        """
        how = {"count": count, "seed": seed, "dtypes": list(dtypes)}
        if (before := self.data["drawn"] or how) != how:
            raise ValueError(
                f"{self.folder} has problems drawn by {before}, not by {how}: name another --work"
            )
        self.keep(drawn=how)
        return drawn(count, seed, dtypes)


def winners_of_evidence(file: Path) -> dict[Problem, dict[str, Any]]:
    """Return what won, by problem, in a file of ``gemm_shapes.py``."""
    problems = json.loads(file.read_text())["problems"]
    shapes = [Problem(Shape(one["m"], one["n"], one["k"]), one["dtype"], one["layout"]) for one in problems]
    return {of: one for of, one in zip(shapes, problems, strict=True) if one["search"].get("variant")}


LISTED = "cublaslt"
"""Contestant's name, without its file's."""
STEPS = ("search", "race", "warm", "bits")


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
        "warm": winner.get("warm"),
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


def rows_of(notes: Notes) -> list[dict[str, Any]]:
    """Return what is known of each problem that was at least searched."""
    return [
        {
            **{**vars(problem.shape), "dtype": problem.dtype, "layout": problem.layout},
            **{step: notes.get(problem, step) for step in STEPS},
        }
        for problem in notes.problems()
        if notes.has(problem, "search")
    ]


def text_of(name: str, data: dict[str, Any]) -> str:
    """Return the pages' tables of what was timed, and what went wrong."""
    timed = [one for one in data["problems"] if one["race"].get("ours")]
    kinds = dict.fromkeys((one["dtype"], one["layout"]) for one in timed)
    figures: list[Callable[[], str]] = [partial(gemm.shapes, *kind, name) for kind in kinds]
    if data.get("drawn"):
        figures = [gemm.drawn] if timed else []
    return "\n".join([evidence.shown(name, data, *figures), *_wrong(data["problems"])])


def _wrong(problems: Sequence[dict[str, Any]]) -> Iterator[str]:
    for one in problems:
        race, bits = one["race"], one["bits"]
        name = f"{one['dtype']}, layout {one['layout']}, {gemm.size(one)}"
        if not race.get("ours"):
            yield f"{name}: not timed: {one['search'].get('reason') or race.get('failed') or 'not raced'}"
        for library, error in race.get("failed", {}).items():
            yield f"{name}: {library} failed: {error}"
        if not all(step["ours"]["verified"] for step in (race, one["warm"]) if step.get("ours")):
            yield f"{name}: NOT VERIFIED"
        if bits and not bits["same"]:
            yield f"{name}: other bits: {bits['error']}"


def report(notes: Notes, out: Path | None) -> str:
    """Write the evidence, if there is a folder for it; gives the tables."""
    drawn = {"drawn": notes.data["drawn"]} if notes.data["drawn"] else {}
    name = "gemm-random" if drawn else "gemm-shapes"
    data = {**notes.data["where"], **drawn, "problems": rows_of(notes)}
    text = text_of(name, data)
    harness.write(out, name, data, text)
    if taken_apart := [notes.get(p, "ablate") for p in notes.problems() if notes.has(p, "ablate")]:
        variants = dict.fromkeys(one["variant"] for one in taken_apart)
        figures = (partial(gemm.ablation, variant) for variant in variants)
        harness.write(
            out, "gemm-ablation", taken_apart, evidence.shown("gemm-ablation", taken_apart, *figures)
        )
    return text
