"""Which winners are called: those of the evidence, by problem; for other kernels their defaults."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from scripts.harness import EVIDENCE, ROOT
from scripts.shape_notes import SHAPES, winners_of_evidence
from scripts.shape_notes import Problem as Product
from tuner.cli.options import ProblemTexts
from tuner.cli.problems import make_problems
from tuner.core.model import Configuration, Gpu, Problem
from tuner.kernel.default import default_configuration
from tuner.kernel.load import builtin_kernels, load_kernel
from tuner.kernel.plan import invalid_reason
from tuner.kernel.spec import KernelSpec

EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*/*.toml"))
TAUGHT_AT = {
    **dict.fromkeys(("vector_add", "saxpy", "transform"), ("n=2**20", "n=2**24", "n=2**28")),
    "reduce": ("n=2**16", "n=2**20", "n=2**24", "n=2**28"),
    "mean_matvec": ("groups=1024,vectors=1024,length=1024",),
}
"""Of the teaching kernels' problems: short and long ones."""
DEFAULT = "the default configuration"


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

    def valid(self, gpu: Gpu) -> bool:
        """Return whether the configuration can run there."""
        return not invalid_reason(self.kernel, self.problem, gpu, self.configuration)


def cases(gpu: Gpu) -> list[Case]:
    """Return what is called, each problem once: winners of the evidence, then defaults."""
    found: dict[tuple[str, str], Case] = {}
    for case in (*_products(gpu), *_taught()):
        found.setdefault((case.kernel.name, case.problem.key), case)
    there = {case.kernel.name for case in found.values()}
    for name in (*builtin_kernels(), *map(str, EXAMPLES)):
        kernel = load_kernel(name)
        configuration = default_configuration(kernel, kernel.problem(), gpu)
        if kernel.name not in there and configuration is not None:
            found[kernel.name, ""] = Case(kernel, kernel.problem(), configuration, DEFAULT)
    valid = [case for case in found.values() if case.valid(gpu)]
    return sorted(valid, key=lambda case: case.problem.options.get("layout") == "nt")  # every kernel first


def _products(gpu: Gpu) -> Iterator[Case]:
    """Yield the winners of ``gemm_shapes.py``; a layout that was not tuned takes what won with the other."""
    gemm, won = load_kernel("gemm"), winners_of_evidence(EVIDENCE / "gemm-shapes.json")
    for wanted in (Product(shape, "bfloat16", layout) for layout in ("nn", "nt") for shape in SHAPES):
        alike = [one for one in won if (one.shape, one.dtype) == (wanted.shape, wanted.dtype)]
        source = max(alike, key=lambda one: one.layout == wanted.layout, default=None)
        if source is None:
            continue
        search = won[source]["search"]
        problem = gemm.problem(vars(wanted.shape), {"": wanted.dtype}, {"layout": wanted.layout})
        if (configuration := of_today(gemm, search["variant"], search["parameters"])) is None:
            continue
        case = Case(gemm, problem, configuration, f"the winner of {source.key}", search["time_ns"])
        default = default_configuration(gemm, problem, gpu)
        yield case if case.valid(gpu) or default is None else Case(gemm, problem, default, DEFAULT)


def _taught() -> Iterator[Case]:
    """Yield the winners of ``teaching.py``."""
    for row in json.loads((EVIDENCE / "teaching.json").read_text()):
        if row["problem"] not in TAUGHT_AT.get(row["kernel"], ()):
            continue
        kernel = load_kernel(row["kernel"])
        text = ",".join([row["problem"], f"dtype={row['dtype']}", *row["options"]])
        (problem,) = make_problems(kernel, ProblemTexts(problem_texts=(text,)))
        values = dict(row["configuration"])
        if configuration := of_today(kernel, values.pop("variant"), values):
            yield Case(kernel, problem, configuration, "the winner of teaching.json", row["ours_ns"])


def of_today(kernel: KernelSpec, variant: str, values: dict[str, Any]) -> Configuration | None:
    """Return a configuration whose parameters still exist, with the defaults of those that did not then."""
    known = kernel.variants.get(variant)
    if known is None or not values.keys() <= known.parameters.keys():
        return None
    return Configuration.of(variant, {**known.defaults, **values})
