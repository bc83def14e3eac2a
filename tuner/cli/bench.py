"""``tune bench``: stored winners beside the default configuration, libraries, and kernels of the user's own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import click

from tuner.cli.commands.studies import BenchArguments
from tuner.cli.configuration import open_gpu
from tuner.cli.filters import problem_filter, report_damage
from tuner.cli.loader import given_options
from tuner.cli.problems import make_problems
from tuner.core.conditions import Conditions, Mode
from tuner.core.errors import DatabaseError, TunerError, UsageError
from tuner.core.model import Problem
from tuner.database.database import Database
from tuner.database.records import Filters, StoredWinner
from tuner.devices.base import Device, say_nothing
from tuner.kernel.load import kernel_of_run, load_kernel
from tuner.kernel.spec import KernelSpec
from tuner.report.tables import say, show_json, show_line
from tuner.studies import bench as study
from tuner.studies import bench_report as report
from tuner.winners.portfolios import MEMBER, TIMED

OF_A_MEASUREMENT = ("checking", "against", "rounds", "device_name", "seed")
"""Options that have no meaning with --history, by parameter."""


def bench(asked: BenchArguments) -> None:
    """Time stored winners again and print the result, or print earlier results; exit status 1 if something failed."""
    kernel = load_kernel(asked.kernel_name) if asked.kernel_name else None
    problems: list[Problem] | None = None
    if asked.sizes or asked.presets or asked.problem_texts:
        if kernel is None:
            raise UsageError("a problem needs its kernel", "name it: tune bench gemm")
        problems = make_problems(kernel, asked)
    fits = problem_filter(asked.dtypes, asked.options)
    if asked.history:
        _show_history(asked, kernel, fits if problems is None else problems.__contains__)
        return
    if given_options("limit"):
        raise UsageError("--limit is about the rows of --history", "leave it out, or add --history")
    if kernel is not None:
        study.choose_against(kernel, asked.against)  # a wrong name is refused before anything is measured
    benches = _Benches(asked, kernel)
    text = "cuda" if asked.device_name == "auto" else asked.device_name
    tell = say_nothing if asked.quiet else say
    try:
        with (
            closing(open_gpu(text, kernel.name if kernel else "", None, tell)) as device,
            Database.open(asked.db) as database,
        ):
            targets = benches.targets(device, database, problems, fits)
            _refuse_unknown(targets, asked.against)
            for target in targets:
                with benches.continuing(str(target.problem), len(targets)):
                    benches.measure(device, database, target)
    finally:
        if asked.as_json and (benches.results or benches.failed):
            show_json([report.bench_as_json(result, checked) for result, checked in benches.results])
    if benches.failed:
        raise click.exceptions.Exit(1)


def _show_history(
    options: BenchArguments, kernel: KernelSpec | None, fits: Callable[[Problem], bool]
) -> None:
    if ignored := given_options(*OF_A_MEASUREMENT):
        raise UsageError("--history measures nothing", f"leave out {', '.join(ignored)}")
    if len(options.modes) > 1:
        raise UsageError("--history shows one mode, or all", "give one --mode, or none")
    mode = next((mode for mode in options.modes if mode != "auto"), "")
    filters = Filters(kernel=kernel.name if kernel else "", mode=mode, regime=options.regime or "")
    with Database.open(options.db, write=False) as database:
        benches = database.benchmarks(filters)
    report_damage(benches.damaged, options.db)
    fitting = [row for row in benches.rows if fits(row.problem) and row.contestant not in (TIMED, MEMBER)]
    rows = fitting[: options.limit] if options.limit else fitting
    if len(rows) < len(fitting):
        show_line(f"{len(rows)} of {len(fitting)} rows, the newest; --limit 0 gives all", err=True)
    if options.as_json:
        show_json([report.history_as_json(row) for row in rows])
    elif rows:
        report.show_history(rows, full=options.full)
    if not rows:
        raise DatabaseError(f"no bench in {options.db} fits", "make one with: tune bench")


def _refuse_unknown(targets: Sequence[study.Target], against: Sequence[str]) -> None:
    """Refuse a name that is a contestant of no target; one that only some kernels have is reported by the others.

    Raises:
        UsageError: there is no such contestant.
    """
    kernels = list({target.kernel.file: target.kernel for target in targets}.values())
    for text in against:
        objections = []
        for kernel in kernels:
            try:
                study.choose_against(kernel, [text])
            except UsageError as error:
                objections.append(error)
        if objections and len(objections) == len(kernels):
            raise objections[0]
    if kernels and "none" in against:
        study.choose_against(kernels[0], against)  # which refuses all beside it, whatever the kernel


@dataclass
class _Benches:
    """The benches of one command so far, and whether anything went wrong."""

    options: BenchArguments
    kernel: KernelSpec | None
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    results: list[tuple[study.Bench, study.SpeedCheck | None]] = field(default_factory=list)
    failed: bool = False

    def fail(self, text: str) -> None:
        """Print what went wrong, and note that something did."""
        self.failed = True
        say(text)

    @contextmanager
    def continuing(self, what: str, count: int) -> Iterator[None]:
        """Let one of several fail without ending the others."""
        try:
            yield
        except TunerError as error:
            if count == 1:
                raise
            self.fail(f"{what}: {error}")

    def targets(
        self,
        device: Device,
        database: Database,
        problems: Sequence[Problem] | None,
        fits: Callable[[Problem], bool],
    ) -> list[study.Target]:
        """Return what is timed; of several problems, one that cannot be timed is reported and left out.

        Args:
            device: where.
            database: has winners.
            problems: None for all that were tuned and fit.
            fits: whether a problem that was tuned is wanted.
        """
        winners = study.stored_winners(database, device.gpu, self.kernel)
        report_damage(winners.damaged, database.path)
        to_do: dict[Problem, StoredWinner | None]
        if problems is not None:
            to_do = dict.fromkeys(problems)
        else:
            to_do = {one.run.problem: one for one in winners.rows if fits(one.run.problem)}
        name, checking = self.kernel.name if self.kernel else "gemm", self.options.checking
        if not to_do:
            nothing = f"no confirmed winner on {device.gpu.name} in {database.path} fits"
            if checking:
                raise UsageError(nothing, f"there is nothing to check; find one with: tune {name}")
            raise DatabaseError(nothing, f"find one with: tune {name}, or give a --size")
        modes = [None if mode == "auto" else Mode(mode) for mode in self.options.modes or ("auto",)]
        targets: list[study.Target] = []
        for problem, stored in to_do.items():
            with self.continuing(str(problem), len(to_do)):
                kernel = self.kernel or (kernel_of_run(stored.run) if stored else None)
                assert kernel is not None, "a problem comes with its kernel or with its winner"
                timed: dict[Conditions, study.Target] = {}
                for mode in modes:
                    found = study.targets_of(device, kernel, problem, winners.rows, mode, self.options.regime)
                    timed |= {target.conditions: target for target in found}
                targets += timed.values()
        if checking and targets and not any(target.comparable for target in targets):
            raise UsageError(
                "there is nothing to check: no winner of such a problem was timed under these conditions",
                "leave out --mode and --regime, and sizes that were not tuned",
            )
        return targets

    def measure(self, device: Device, database: Database, target: study.Target) -> None:
        """Time one target, keep it, print it."""
        options = self.options
        chosen = study.choose_against(target.kernel, options.against)
        if not options.quiet:
            say(f"timing {target.problem} ({target.conditions})")
        result = study.bench(device, target, chosen, options.rounds, options.seed)
        if result.timings:
            database.record_benchmark(study.records_of(result, device, self.id))
        for failure in result.failures:
            text = f"{target.problem}: {failure.name} could not be timed: {failure.error}"
            if chosen.named or failure.configuration:
                self.fail(text)
            else:
                say(text)
        checked = study.check(device, result, options.rounds, options.seed) if options.checking else None
        if not options.as_json:
            if self.results:
                click.echo()
            report.show_bench(result, full=options.full)
            if checked is not None:
                report.show_check(checked)
        elif checked is not None and checked.slower:
            self.fail(f"{target.problem}: slower than it was: {report.check_text(checked)}")
        self.failed |= checked is not None and checked.slower
        self.results.append((result, checked))
        if options.checking and checked is None:
            say(f"not checked, {target.problem} was not tuned like this")
