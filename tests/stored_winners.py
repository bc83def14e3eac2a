"""Databases with winners of real kernels, as if a GPU had confirmed them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import tuner
from tuner.core.conditions import Conditions
from tuner.core.errors import CompileError, TunerError
from tuner.core.model import Configuration, Gpu, Problem, Resources, Run, RunOptions, Status, Trial
from tuner.database.database import Database
from tuner.database.records import Winner
from tuner.kernel.default import default_configuration
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import load_kernel
from tuner.kernel.render import render
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec

H200 = ARCHITECTURES[90]


def store_winners(
    path: Path, kernel: KernelSpec, winners: Iterable[tuple[Problem, Configuration]], gpu: Gpu = H200
) -> None:
    """Add a finished run with a confirmed winner for each problem; one that cannot be rendered has no source."""
    identity = KernelIdentity(kernel)
    with Database.open(path) as database:
        for problem, configuration in winners:
            number = len(database.run_ids())
            run = Run(
                f"{number:032x}", problem, gpu, "cuda:0", RunOptions(trials=1),
                kernel_digest=identity.text, kernel_file=str(kernel.file), conditions=Conditions(),
                computation=identity.computation,
            )  # fmt: skip
            sources, implementation = tuple[str, ...](), ""
            with suppress(TunerError, KeyError):
                sources = tuple(source for source, _ in render(kernel, problem, gpu, configuration))
                implementation = identity.implementation(configuration.variant, sources)
            trial = Trial(
                0, configuration, Status.OK, 1000.0 + number, 999.0, 2000.0, (1000.0 + number,),
                Resources(registers=64, active_blocks=8), sources=sources,
                implementation=implementation,
            )  # fmt: skip
            database.start_run(run)
            row = database.record(run.id, trial)
            winner = Winner(
                row,
                configuration,
                1000.0 + number,
                row,
                1100.0,
                1.1,
                1.09,
                1.11,
                "faster",
                1001.0,
                True,
                True,
            )
            database.record_winner(run.id, winner)
            database.finish_run(run.id, "finished", {})


def store_defaults(path: Path, kernel: KernelSpec, problems: Iterable[Problem], gpu: Gpu = H200) -> None:
    """Add the default configuration of each problem, as if it had won."""
    defaults = [(problem, default_configuration(kernel, problem, gpu)) for problem in problems]
    store_winners(path, kernel, [(problem, default) for problem, default in defaults if default], gpu)


def results(
    gpu: Gpu, folder: Path, problem: Problem, call: Callable[[Any], Any], count: int
) -> Iterator[Any]:
    """Yield what a call of the winner returns, for some configurations of each variant."""
    kernel, rng = load_kernel(problem.kernel), random.Random(problem.key)
    for variant in kernel.usable_variants(problem, gpu)[0]:
        [space] = SearchSpace.from_kernel(kernel, problem, gpu, [variant.name]).variants
        held = 0
        for number, row in enumerate(rng.sample(range(len(space)), min(4 * count, len(space)))):
            db = folder / f"{variant.name}{number}.db"
            store_winners(db, kernel, [(problem, space.configuration(row))], gpu)
            try:
                yield call(tuner.load(problem.kernel, db=db))
            except CompileError as error:  # too many registers, which a search would have refused as well
                assert "does not hold" in str(error)
                continue
            held += 1
            if held == count:
                break
        assert held
