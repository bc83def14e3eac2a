"""How near the default configurations of softmax and norm are to the fastest of many.

    scripts/run python scripts/measuring/defaults.py --work work --out results/evidence

Sizes are drawn as for a portfolio (``scripts/portfolio.py``). At each the default, the other initial configurations and
some of a grid are timed in turn: threads and vectors of a row, their width, rows of a block, and two passes. What was
timed is kept in ``--work``, by the kernels' present files; the same command goes on.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np

from scripts import harness
from scripts.harness import quantiles, study_parser
from scripts.portfolio import SUBJECTS, drawn
from tuner.cli.options import ProblemTexts
from tuner.cli.problems import make_problems
from tuner.core import paths
from tuner.core.errors import TunerError
from tuner.core.model import Configuration, Gpu, Problem
from tuner.database.database import Database
from tuner.devices.choose import open_device
from tuner.kernel.default import default_configuration
from tuner.kernel.initial import settle
from tuner.kernel.load import load_kernel
from tuner.kernel.spec import KernelSpec
from tuner.studies.portfolio_candidates import CandidateChoice
from tuner.studies.portfolio_races import PortfolioRequest, Races
from tuner.winners.portfolios import Timings

KERNELS = ("softmax", "norm")
TIMED = 56
"""Configurations at a size, at most."""
ROUNDS, SAMPLES = 3, 5
WIDEST = 8
"""Elements of 16 bits that a load moves."""
LARGEST = 4.0
"""Elements that a team has room for, of a row's."""


def sizes(kernel: KernelSpec) -> list[Problem]:
    """Return what is measured: what a portfolio is made from, and others, but none that it is judged by."""
    made, judged = drawn(40, kernel.name)
    texts = [row.format(count=46) for row in SUBJECTS[kernel.name].rows]
    others = make_problems(kernel, ProblemTexts(dtypes=["bfloat16"], problem_texts=texts))
    return [*made, *(one for one in others if one not in made and one not in judged)]


def grid(kernel: KernelSpec, columns: int) -> Iterator[tuple[float, Configuration]]:
    """Yield configurations for rows of so many elements, each with what orders them: how much of a team is idle."""
    whole = min(WIDEST, columns & -columns)
    ways = [(whole, "aligned"), *((width, "anywhere") for width in (8, 4) if whole < WIDEST)]
    for width, starts in ways:
        for threads in (8, 16, 32, 64, 128, 256, 512, 1024):
            for items in (1, 2, 3, 4, 5, 6, 8, 10):
                room = threads * items * width / columns
                for rows in {1, max(1, 128 // threads), max(1, 256 // threads)} if room <= LARGEST else ():
                    shape = {"threads_per_row": threads, "rows_per_block": rows, "items_per_thread": items}
                    own = {**kernel.variants["registers"].defaults, **shape}
                    own |= {"vector_width": width, "row_starts": starts}
                    yield room, Configuration.of("registers", own)
                    for name, value in (("columns_first", True), ("load_hint", "no_allocate")):
                        if name in own:
                            yield room + 0.5, Configuration.of("registers", {**own, name: value})
        for threads in (256, 512, 1024):
            for items in (1, 2, 4):
                own = {**kernel.variants["two_pass"].defaults, "threads_per_row": threads}
                own |= {"items_per_thread": items, "vector_width": width, "row_starts": starts}
                yield 1.5, Configuration.of("two_pass", own)


def chosen(choice: CandidateChoice, problem: Problem) -> list[Configuration]:
    """Return what is timed at a problem: the default, the initial ones, and of the grid those that fit, drawn."""
    draw = random.Random(problem.key)
    ranked = sorted(
        ((rank + 1.5 * draw.random(), number, one))
        for number, (rank, one) in enumerate(grid(choice.kernel, problem.sizes["columns"]))
    )
    initial = [
        one.configuration for one in settle(choice.kernel, problem, choice.gpu, partial(choice.runs, problem))
    ]
    first = [choice.default(problem), *initial]
    every = dict.fromkeys([*filter(None, first), *(one for *_, one in ranked)])
    return [one for one in every if choice.runs(problem, one)][:TIMED]


def rows_of(kernel: KernelSpec, gpu: Gpu, timings: Timings) -> list[dict[str, Any]]:
    """Return of each problem the best that was timed, and how much slower the default is; None if it was not timed."""
    rows = []
    for problem in timings.problems:
        timed = timings.of(problem)
        best, default = min(timed, key=timed.__getitem__), default_configuration(kernel, problem, gpu)
        slow = timed.get(default) if default is not None else None
        rows.append(
            {
                "sizes": dict(problem.sizes),
                "timed": len(timed),
                "best_ns": float(timings.best_ns[timings.problems.index(problem)]),
                "best": str(best),
                "default": str(default),
                "over_best": None if slow is None else 2**slow,
            }
        )
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return how slow the defaults are, and at what share of the sizes within 10 %, of those that were timed."""
    slow = [row["over_best"] for row in rows if row["over_best"] is not None]
    return {
        "sizes": len(rows),
        "timed": len(slow),
        **quantiles(slow),
        "within_10": float(np.mean(np.less(slow, 1.1))),
    }


def main() -> None:
    """Measure what is left, as far as the time goes, and write what there is."""
    given = study_parser(__doc__, KERNELS, "defaults").parse_args()
    study, found = harness.Study(given.work / "defaults.json", given.seconds), {}
    for name in given.steps:
        kernel = load_kernel(name)
        problems = sizes(kernel)
        opened = open_device("cuda", name, None, paths.cubins(), print)
        with closing(opened) as device, Database.open(given.work / "defaults.db") as database:
            races = Races(PortfolioRequest(kernel, tuple(problems)), device, database)
            choice = CandidateChoice(kernel, device.gpu, (), 0)
            for problem in problems:
                if not study.has_time() or races.timings(problem).of(problem):
                    continue
                ones = chosen(choice, problem)
                device.compile_ahead(kernel, problem, ones)
                try:
                    races.run(problem, ones, ROUNDS, SAMPLES, "default")
                except TunerError as error:
                    harness.say(f"{problem}: {error}")
            rows = rows_of(kernel, device.gpu, races.timings(problems[0]))
            found[name] = {"gpu": device.gpu.name, "summary": summary(rows), "rows": rows}
            print(name, found[name]["summary"], flush=True)
    harness.write(given.out, "defaults", found)


if __name__ == "__main__":
    harness.run(main)
