"""``tune portfolio``: few configurations that together run all sizes."""

from __future__ import annotations

from contextlib import closing

from tuner.cli.commands.studies import PortfolioArguments
from tuner.cli.configuration import open_gpu, refuse_without_gpu
from tuner.cli.loader import part
from tuner.cli.problems import make_problems
from tuner.core.errors import UsageError
from tuner.core.signals import stopping
from tuner.database.database import Database
from tuner.devices.base import say_nothing
from tuner.kernel.load import load_kernel
from tuner.report.progress import counting
from tuner.report.tables import say, show_json
from tuner.runtime.manifest import MAX_POINTS
from tuner.studies.portfolio import Building
from tuner.studies.portfolio_races import PortfolioRequest
from tuner.studies.portfolio_report import built_as_json, show_built

FEWEST = 2
"""Sizes of a computation, below which there is nothing to choose for."""


def portfolio(asked: PortfolioArguments) -> None:
    """Measure, choose, record and print a portfolio.

    Raises:
        UsageError: the problems are no sizes to choose for.
        TunerError: there is no GPU, or no problem can be measured.
    """
    kernel = load_kernel(asked.kernel_name)
    problems = make_problems(kernel, asked)
    refuse_without_gpu(asked.device_name)
    kinds = [problem.kind for problem in problems]
    few = [problem for problem, kind in zip(problems, kinds, strict=True) if kinds.count(kind) < FEWEST]
    if few:
        raise UsageError(
            f"{few[0]}: a portfolio is for several sizes of a computation, at least {FEWEST}",
            'give them with --problems FILE.csv, or draw some: --problem "m=16..8192,n=1024|4096,k=4096,samples=40"',
        )
    if len(problems) > MAX_POINTS // 2:  # as many between them are measured, too
        raise UsageError(f"{len(problems)} problems are too many", f"give at most {MAX_POINTS // 2}")
    request = part(asked, PortfolioRequest, kernel=kernel, problems=tuple(problems))
    tell = say_nothing if asked.quiet else say
    with (
        closing(open_gpu(asked.device_name, kernel.name, asked.jobs, tell)) as device,
        Database.open(asked.db) as database,
        stopping() as stop,
        closing(counting(quiet=asked.quiet)) as progress,
    ):
        built = Building(request, device, database, progress, stop).run()
    if asked.as_json:
        show_json(built_as_json(built))
    else:
        show_built(built)
