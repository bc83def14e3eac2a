"""``tune bench``: stored winners beside the default configuration, libraries, and kernels of the user's own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import click

from tuner.cli.history import problem_filter, show_benches
from tuner.cli.loader import given_options
from tuner.cli.problems import ProblemTexts, make_problems
from tuner.core import paths
from tuner.core.conditions import Mode, Regime
from tuner.core.errors import DatabaseError, NoGpuError, TunerError, UsageError
from tuner.core.model import Problem
from tuner.database.database import Database
from tuner.database.records import StoredWinner
from tuner.devices.base import Device, say_nothing
from tuner.devices.choose import open_device
from tuner.kernel.load import kernel_of_run, load_kernel
from tuner.kernel.spec import KernelSpec
from tuner.report.plots import check_plot
from tuner.report.tables import say, show_json
from tuner.studies.bench import Bench, SpeedCheck, check, records_of
from tuner.studies.bench import bench as time_again
from tuner.studies.bench_report import bench_as_json, check_text, draw, show_bench, show_check
from tuner.studies.targets import Target, choose_against, stored_winners, targets_of

OF_A_MEASUREMENT = {
    "checking": "--check",
    "plot": "--plot",
    "against": "--against",
    "rounds": "--rounds",
    "device_name": "--device",
    "seed": "--seed",
}
"""Options that have no meaning with --history, by parameter."""


def bench(
    kernel_name: str,
    sizes: tuple[str, ...],
    dtypes: tuple[str, ...],
    options: tuple[str, ...],
    presets: tuple[str, ...],
    problem_texts: tuple[str, ...],
    against: tuple[str, ...],
    modes: tuple[str, ...],
    regime: str | None,
    rounds: int,
    checking: bool,
    plot: Path | None,
    history: bool,
    limit: int,
    device_name: str,
    seed: int,
    db: Path,
    full: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Time stored winners again and print the result, or print earlier results; exit status 1 if something failed."""
    kernel = load_kernel(kernel_name) if kernel_name else None
    problems: list[Problem] | None = None
    if sizes or presets or problem_texts:
        if kernel is None:
            raise UsageError("a problem needs its kernel", "add --kernel")
        problems = make_problems(kernel, ProblemTexts(sizes, dtypes, options, presets, problem_texts))
    wanted = _Wanted(
        kernel,
        problems,
        problem_filter(dtypes, options),
        tuple(None if mode == "auto" else Mode(mode) for mode in modes or ("auto",)),
        Regime(regime) if regime else None,
    )
    if history:
        _show_history(db, wanted, limit, as_json=as_json, full=full)
        return
    if given_options({"limit": "--limit"}):
        raise UsageError("--limit is about the rows of --history", "leave it out, or add --history")
    if plot is not None:
        check_plot(plot)
    if kernel is not None:
        choose_against(kernel, against)  # a wrong name is refused before anything is measured

    results = _Results(quiet, as_json, full)
    try:
        with closing(_open(device_name, kernel, quiet=quiet)) as device, Database.open(db) as database:
            targets = _targets(device, database, wanted, results, checking=checking)
            _refuse_unknown(targets, against)
            for target in targets:
                with results.continuing(str(target.problem), len(targets)):
                    _measure(device, database, target, against, rounds, seed, results, checking=checking)
    finally:
        if as_json and (results.benches or results.failed):
            show_json([bench_as_json(result, checked) for result, checked in results.benches])
    if plot is not None:
        if any(result.timings for result, _ in results.benches):
            draw([result for result, _ in results.benches], plot)
        else:
            say(f"{plot} is not written: there is no time to draw")
    if results.failed:
        raise click.exceptions.Exit(1)


def _show_history(db: Path, wanted: _Wanted, limit: int, *, as_json: bool, full: bool) -> None:
    if ignored := given_options(OF_A_MEASUREMENT):
        raise UsageError("--history measures nothing", f"leave out {', '.join(ignored)}")
    if len(wanted.modes) > 1:
        raise UsageError("--history shows one mode, or all", "give one --mode, or none")
    fits = wanted.fits if wanted.problems is None else wanted.problems.__contains__
    name = wanted.kernel.name if wanted.kernel else ""
    mode, regime = wanted.modes[0] or "", wanted.regime or ""
    show_benches(db, name, mode, regime, fits, limit, as_json=as_json, full=full)


def _refuse_unknown(targets: Sequence[Target], against: Sequence[str]) -> None:
    """Refuse a name that is a contestant of no target; one that only some kernels have is reported by the others.

    Raises:
        UsageError: there is no such contestant.
    """
    kernels = list({target.kernel.file: target.kernel for target in targets}.values())
    for text in against:
        objections = []
        for kernel in kernels:
            try:
                choose_against(kernel, [text])
            except UsageError as error:
                objections.append(error)
        if objections and len(objections) == len(kernels):
            raise objections[0]
    if kernels and "none" in against:
        choose_against(kernels[0], against)  # which refuses all beside it, whatever the kernel


@dataclass(frozen=True)
class _Wanted:
    """Which problems, and how they are timed."""

    kernel: KernelSpec | None
    problems: list[Problem] | None
    """None for all that were tuned and that the filter lets through."""
    fits: Callable[[Problem], bool]
    modes: tuple[Mode | None, ...]
    """None: as it was tuned."""
    regime: Regime | None


@dataclass
class _Results:
    """The benches so far, and whether anything went wrong."""

    quiet: bool
    as_json: bool
    full: bool
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    benches: list[tuple[Bench, SpeedCheck | None]] = field(default_factory=list)
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


def _open(text: str, kernel: KernelSpec | None, *, quiet: bool) -> Device:
    if text.partition(":")[0] not in ("cuda", "auto"):
        raise UsageError(
            f"--device {text}: a recording cannot be timed again", "use cuda or cuda:N, or --history"
        )
    device, name = "cuda" if text == "auto" else text, kernel.name if kernel else ""
    try:
        return open_device(device, name, None, paths.cubins(), say_nothing if quiet else say)
    except NoGpuError:
        raise NoGpuError(
            "this machine has no NVIDIA GPU, and tune bench measures",
            "--history shows what was measured before; see `tune doctor`",
        ) from None


def _targets(
    device: Device, database: Database, wanted: _Wanted, results: _Results, *, checking: bool
) -> list[Target]:
    """Return what is timed; of several problems, one that cannot be timed is reported and left out."""
    winners = stored_winners(database, device.gpu, wanted.kernel)
    for line in winners.damaged:
        say(f"left out: {line}; run: tune db check")
    to_do: list[tuple[Problem, StoredWinner | None]]
    if wanted.problems is not None:
        to_do = [(problem, None) for problem in wanted.problems]
    else:
        fitting = [stored for stored in winners.rows if wanted.fits(stored.run.problem)]
        to_do = list({stored.run.problem.key: (stored.run.problem, stored) for stored in fitting}.values())
    name = wanted.kernel.name if wanted.kernel else "gemm"
    if not to_do:
        nothing = f"no confirmed winner on {device.gpu.name} in {database.path} fits"
        if checking:
            raise UsageError(nothing, f"there is nothing to check; find one with: tune --kernel {name}")
        raise DatabaseError(nothing, f"find one with: tune --kernel {name}, or give a --size")
    targets: list[Target] = []
    for problem, stored in to_do:
        with results.continuing(str(problem), len(to_do)):
            kernel = wanted.kernel or (kernel_of_run(stored.run) if stored else None)
            assert kernel is not None, "a problem comes with its kernel or with its winner"
            timed = [
                target
                for mode in wanted.modes
                for target in targets_of(device, kernel, problem, winners.rows, mode, wanted.regime)
            ]
            targets += {target.conditions: target for target in timed}.values()
    if checking and targets and not any(target.comparable for target in targets):
        raise UsageError(
            "there is nothing to check: no winner of such a problem was timed under these conditions",
            "leave out --mode and --regime, and sizes that were not tuned",
        )
    return targets


def _measure(
    device: Device,
    database: Database,
    target: Target,
    against: Sequence[str],
    rounds: int,
    seed: int,
    results: _Results,
    *,
    checking: bool,
) -> None:
    """Time one target, keep it, print it."""
    chosen = choose_against(target.kernel, against)
    if not results.quiet:
        say(f"timing {target.problem} ({target.conditions})")
    result = time_again(device, target, chosen, rounds, seed)
    if result.timings:
        database.record_benchmark(records_of(result, device, results.id))
    for failure in result.failures:
        text = f"{target.problem}: {failure.name} could not be timed: {failure.error}"
        if chosen.named or failure.configuration:
            results.fail(text)
        else:
            say(text)
    checked = check(device, result, rounds, seed) if checking else None
    if not results.as_json:
        if results.benches:
            click.echo()
        show_bench(result, full=results.full)
        if checked is not None:
            show_check(checked)
    elif checked is not None and checked.slower:
        results.fail(f"{target.problem}: slower than it was: {check_text(checked)}")
    results.failed |= checked is not None and checked.slower
    results.benches.append((result, checked))
    if checking and checked is None:
        say(f"not checked, {target.problem} was not tuned like this")
