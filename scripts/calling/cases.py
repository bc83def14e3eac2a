"""Which winners are called: those of the evidence, by problem, with today's names; for other kernels their defaults."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shape_notes import SHAPES
from shape_notes import Problem as Product
from version_matches import in_terms_of, nearest, translated, tuned

from tuner.core.errors import TunerError
from tuner.core.model import Configuration, Gpu, Problem
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.kernel.default import default_configuration
from tuner.kernel.edge_sizes import edge_case_problems
from tuner.kernel.load import builtin_kernels, load_kernel
from tuner.kernel.spec import KernelSpec
from tuner.kernel.validity import invalid_reason

ROOT = Path(__file__).resolve().parents[2]
EVIDENCE = ROOT / "results" / "evidence"
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*/*.toml"))
TAUGHT_AT = {
    **dict.fromkeys(("vector_add", "saxpy", "transform"), ("n=2**20", "n=2**24", "n=2**28")),
    "reduce": ("n=2**16", "n=2**20", "n=2**24", "n=2**28"),
    "mean_matvec": ("groups=1024,vectors=1024,length=1024",),
}
"""Of the teaching kernels' problems: short and long ones."""

SMALL = 1 << 18
"""Product of the sizes of a problem for Compute Sanitizer, roughly."""


@dataclass(frozen=True)
class Case:
    """A configuration that is called for a problem."""

    kernel: KernelSpec
    problem: Problem
    configuration: Configuration
    source: str
    """Where the configuration comes from."""
    known_ns: float = 0.0
    """What it took where it won; 0 if nothing is known."""

    @property
    def key(self) -> str:
        """Its name in files."""
        sizes = "x".join(map(str, self.problem.sizes.values()))
        choices = [*dict.fromkeys(self.problem.dtypes.values()), *map(str, self.problem.options.values())]
        return " ".join([self.kernel.name, sizes, *choices])


def cases(gpu: Gpu, databases: Iterable[Path] = ()) -> list[Case]:
    """Return what is called, each problem once: winners of databases, then of the evidence, then defaults.

    Raises:
        TunerError: a database cannot be read.
    """
    found: dict[tuple[str, str], Case] = {}
    for path in databases:
        for case in _stored(path, gpu):
            found.setdefault((case.kernel.name, case.problem.key), case)
    for case in (*_products(gpu), *_taught(gpu)):
        found.setdefault((case.kernel.name, case.problem.key), case)
    there = {case.kernel.name for case in found.values()}
    for name in (*builtin_kernels(), *map(str, EXAMPLES)):
        kernel = load_kernel(name)
        configuration = default_configuration(kernel, kernel.problem(), gpu)
        if kernel.name not in there and configuration is not None:
            case = Case(kernel, kernel.problem(), configuration, "the default configuration")
            found[kernel.name, case.problem.key] = case
    valid = [
        case
        for case in found.values()
        if not invalid_reason(case.kernel, case.problem, gpu, case.configuration)
    ]
    return sorted(valid, key=lambda case: case.problem.options.get("layout") == "nt")  # every kernel first


def _stored(path: Path, gpu: Gpu) -> Iterator[Case]:
    with Database.open(path, write=False) as database:
        rows = database.winners(Filters(gpu=gpu.name, exportable=True, replayed=False)).rows
    for stored in rows:
        run = stored.run
        kernel = load_kernel(run.kernel_file or run.problem.kernel)
        yield Case(kernel, run.problem, stored.winner.configuration, path.name, stored.winner.time_ns)


def _products(gpu: Gpu) -> Iterator[Case]:
    """Yield the winners of ``gemm_shapes.py``; a layout that was not tuned takes what won with the other."""
    gemm = load_kernel("gemm")
    won = tuned([EVIDENCE / "gemm-shapes.json"])
    for layout in ("nn", "nt"):
        for shape in SHAPES:
            wanted = Product(shape, "bfloat16", layout)
            source = nearest(wanted, won)
            if source is None or source.dtype != wanted.dtype:
                continue
            search: Mapping[str, Any] = won[source]["search"]
            try:
                configuration = translated(gemm, search["variant"], search["parameters"])
            except TunerError:  # a parameter that is no more
                continue
            problem = in_terms_of(gemm, wanted)
            if invalid_reason(gemm, problem, gpu, configuration):
                configuration = default_configuration(gemm, problem, gpu) or configuration
                yield Case(gemm, problem, configuration, "the default configuration")
            else:
                yield Case(gemm, problem, configuration, f"the winner of {source.key}", search["time_ns"])


def _taught(gpu: Gpu) -> Iterator[Case]:
    """Yield the winners of ``teaching.py``."""
    kernels = {name: load_kernel(name) for name in TAUGHT_AT}
    for row in json.loads((EVIDENCE / "teaching.json").read_text()):
        kernel = kernels.get(row["kernel"])
        if kernel is None or row["problem"] not in TAUGHT_AT[kernel.name]:
            continue
        sizes = dict(part.split("=") for part in row["problem"].split(","))
        problem = kernel.problem(
            {name: _number(text) for name, text in sizes.items()},
            {"": row["dtype"]},
            dict(option.split("=") for option in row["options"]),
        )
        values = dict(row["configuration"])
        configuration = _of_today(kernel, values.pop("variant"), values)
        if configuration is not None and not invalid_reason(kernel, problem, gpu, configuration):
            yield Case(kernel, problem, configuration, "the winner of teaching.json", row["ours_ns"])


def _number(text: str) -> int:
    base, _, exponent = text.partition("**")
    return int(pow(int(base), int(exponent or 1)))


def _of_today(kernel: KernelSpec, variant: str, values: Mapping[str, Any]) -> Configuration | None:
    """Return a configuration whose parameters still exist, with the defaults of those that did not then."""
    known = kernel.variants.get(variant)
    if known is None or not values.keys() <= known.parameters.keys():
        return None
    return Configuration.of(variant, {**known.defaults, **values})


def small(every: Iterable[Case], gpu: Gpu) -> list[Case]:
    """Return each configuration once, at a small problem of its own: Compute Sanitizer makes them slow."""
    chosen: dict[str, Case] = {}
    taken: set[tuple[str, str]] = set()
    for case in every:
        problems = edge_case_problems(case.problem, case.configuration, _fits(case.kernel, gpu))
        key = " ".join([case.kernel.name, *map(str, case.problem.options.values()), case.configuration.key])
        for problem in sorted(problems, key=lambda one: abs(_elements(one) - SMALL)):
            if key not in chosen and (case.kernel.name, problem.key) not in taken:
                taken.add((case.kernel.name, problem.key))
                chosen[key] = Case(case.kernel, problem, case.configuration, case.source)
    return list(chosen.values())


def _fits(kernel: KernelSpec, gpu: Gpu) -> Callable[[Problem, Configuration], bool]:
    return lambda problem, configuration: not invalid_reason(kernel, problem, gpu, configuration)


def _elements(problem: Problem) -> int:
    return math.prod(problem.sizes.values())
