"""``tune bench``: stored winners beside the default configuration, libraries, and kernels of the user's own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.options import (
    as_tuned_options,
    database_option,
    gpu_option,
    presets_option,
    problems_option,
    rounds_option,
    seed_option,
)

if TYPE_CHECKING:
    from tuner.bench.bench import Bench, Check
    from tuner.bench.targets import Target
    from tuner.database.database import Database, StoredWinner
    from tuner.devices.base import Device
    from tuner.kernel.spec import KernelSpec
    from tuner.model import Mode, Problem, Regime

OF_A_MEASUREMENT = {
    "checking": "--check",
    "plot": "--plot",
    "against": "--against",
    "rounds": "--rounds",
    "device_name": "--device",
    "seed": "--seed",
}
"""What --history has no use for, by parameter."""


@click.command()
@click.option("-k", "--kernel", "kernel_name", default="", help="Built-in kernel, or a .toml file.")
@click.option("-s", "--size", "sizes", multiple=True, metavar="NAME=N[,...]", help="Problem sizes.")
@click.option("--dtype", "dtypes", multiple=True, metavar="[ROLE=]DTYPE", help="Only this dtype.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="Only this option.")
@presets_option
@problems_option
@click.option(
    "--against",
    multiple=True,
    metavar="WHAT",
    help="default, torch, cupy, numpy, none, mine.cu:add<<<grid, block>>>(a, b), module:function; repeat.",
)
@as_tuned_options
@rounds_option
@click.option(
    "--check", "checking", is_flag=True, help="Exit status 1 if a stored best is slower than it was."
)
@click.option(
    "--plot", "plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw it: a .png or .svg file."
)
@click.option("--history", is_flag=True, help="Print earlier benches; measure nothing.")
@click.option(
    "--limit",
    default=50,
    show_default=True,
    type=click.IntRange(min=0),
    help="Rows of --history at most; 0 for all.",
)
@gpu_option
@seed_option("Of the inputs and the order.")
@database_option
@click.option("-q", "--quiet", is_flag=True, help="Print the result only.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bench(
    kernel_name: str,
    sizes: tuple[str, ...],
    dtypes: tuple[str, ...],
    options: tuple[str, ...],
    presets: tuple[str, ...],
    problem_texts: tuple[str, ...],
    against: tuple[str, ...],
    mode: str | None,
    regime: str | None,
    rounds: int,
    checking: bool,
    plot: Path | None,
    history: bool,
    limit: int,
    device_name: str,
    seed: int,
    db: Path,
    quiet: bool,
    as_json: bool,
) -> None:
    """Time stored winners again, beside the default configuration and what else computes the same.

    Without sizes every problem is timed for which the database holds a confirmed winner on this GPU.

    \b
    Examples:
      tune bench --kernel gemm
      tune bench --kernel gemm --size m=1000 --against torch --against default
      tune bench --check --against none
      tune bench --kernel gemm --history
    """
    from tuner.bench.report import bench_as_json, draw
    from tuner.bench.targets import choose_against
    from tuner.cli.history import problem_filter, show_benches
    from tuner.cli.problems import make_problems
    from tuner.cli.resume import given
    from tuner.database.database import Database
    from tuner.errors import UsageError
    from tuner.kernel.load import load_kernel
    from tuner.model import Mode, Regime
    from tuner.report.plots import check_plot
    from tuner.report.tables import say, show_json

    kernel = load_kernel(kernel_name) if kernel_name else None
    problems: list[Problem] | None = None
    if sizes or presets or problem_texts:
        if kernel is None:
            raise UsageError("a problem needs its kernel", "add --kernel")
        problems = make_problems(kernel, sizes, dtypes, options, presets, problem_texts, None)
    asked = _Asked(
        kernel,
        problems,
        problem_filter(dtypes, options),
        Mode(mode) if mode else None,
        Regime(regime) if regime else None,
    )
    if history:
        if ignored := given(OF_A_MEASUREMENT):
            raise UsageError("--history measures nothing", f"leave out {', '.join(ignored)}")
        fits = asked.wanted if problems is None else problems.__contains__
        name = kernel.name if kernel else ""
        show_benches(db, name, mode or "", regime or "", fits, limit, as_json=as_json)
        return
    if given({"limit": "--limit"}):
        raise UsageError("--limit is about the rows of --history", "leave it out, or add --history")
    if plot is not None:
        check_plot(plot)
    if kernel is not None:
        choose_against(kernel, against)  # a wrong name is said before anything is measured

    done = _Done(quiet, as_json)
    try:
        with closing(_open(device_name, kernel)) as device, Database.open(db) as database:
            if not quiet:
                device.say = say
            targets = _targets(device, database, asked, done, checking=checking)
            _refuse_unknown(targets, against)
            for target in targets:
                with done.going_on(str(target.problem), len(targets)):
                    _measure(device, database, target, against, rounds, seed, done, checking=checking)
    finally:
        if as_json and (done.found or done.failed):
            show_json([bench_as_json(found, checked) for found, checked in done.found])
    if plot is not None:
        if any(found.entries for found, _ in done.found):
            draw([found for found, _ in done.found], plot)
        else:
            say(f"{plot} is not written: there is no time to draw")
    if done.failed:
        raise click.exceptions.Exit(1)


def _refuse_unknown(targets: Sequence[Target], against: Sequence[str]) -> None:
    """Refuse what is a contestant of no target; a library's call that some kernels have is said where it is missing.

    Raises:
        UsageError: there is no such contestant.
    """
    from tuner.bench.targets import choose_against
    from tuner.errors import UsageError

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
class _Asked:
    """Which problems, and how they are timed."""

    kernel: KernelSpec | None
    problems: list[Problem] | None
    """None for all that were tuned and that the filter lets through."""
    wanted: Callable[[Problem], bool]
    mode: Mode | None
    regime: Regime | None


@dataclass
class _Done:
    """What was found, and whether anything went wrong."""

    quiet: bool
    as_json: bool
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    found: list[tuple[Bench, Check | None]] = field(default_factory=list)
    failed: bool = False

    def complain(self, text: str) -> None:
        """Say what went wrong."""
        from tuner.report.tables import say

        self.failed = True
        say(text)

    @contextmanager
    def going_on(self, what: str, count: int) -> Iterator[None]:
        """Let one of several fail without ending the others."""
        from tuner.errors import TunerError

        try:
            yield
        except TunerError as error:
            if count == 1:
                raise
            self.complain(f"{what}: {error}")


def _open(text: str, kernel: KernelSpec | None) -> Device:
    from tuner import paths
    from tuner.devices.choose import open_device
    from tuner.errors import NoGpuError, UsageError

    if text.partition(":")[0] not in ("cuda", "auto"):
        raise UsageError(
            f"--device {text}: a recording cannot be timed again", "use cuda or cuda:N, or --history"
        )
    try:
        return open_device(
            "cuda" if text == "auto" else text, kernel.name if kernel else "", None, paths.cache() / "cubins"
        )
    except NoGpuError:
        raise NoGpuError(
            "this machine has no NVIDIA GPU, and tune bench measures",
            "--history shows what was measured before; see `tune doctor`",
        ) from None


def _targets(
    device: Device, database: Database, asked: _Asked, done: _Done, *, checking: bool
) -> list[Target]:
    """Settle what is timed; one of several problems that cannot be is said and left out."""
    from tuner.bench.targets import kernel_of, stored_winners, targets_of
    from tuner.errors import DatabaseError, UsageError
    from tuner.report.tables import say

    known = stored_winners(database, device.gpu, asked.kernel.name if asked.kernel else "")
    for line in known.damaged:
        say(f"left out: {line}; run: tune db check")
    if asked.problems is not None:
        to_do: list[tuple[Problem, StoredWinner | None]] = [(problem, None) for problem in asked.problems]
    else:
        fitting = [stored for stored in known.rows if asked.wanted(stored.run.problem)]
        to_do = list({stored.run.problem.key: (stored.run.problem, stored) for stored in fitting}.values())
    name = asked.kernel.name if asked.kernel else "gemm"
    if not to_do:
        nothing = f"no confirmed winner on {device.gpu.name} in {database.path} fits"
        if checking:
            raise UsageError(nothing, f"there is nothing to check; find one with: tune --kernel {name}")
        raise DatabaseError(nothing, f"find one with: tune --kernel {name}, or give a --size")
    targets: list[Target] = []
    for problem, stored in to_do:
        with done.going_on(str(problem), len(to_do)):
            kernel = asked.kernel or (kernel_of(stored.run) if stored else None)
            assert kernel is not None, "a problem comes with its kernel or with its winner"
            targets += targets_of(device, kernel, problem, known.rows, asked.mode, asked.regime)
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
    done: _Done,
    *,
    checking: bool,
) -> None:
    """Time one target, keep it, print it."""
    from tuner import __version__
    from tuner.bench.bench import bench as time_again
    from tuner.bench.bench import check, records_of
    from tuner.bench.report import check_text, show_bench, show_check
    from tuner.bench.targets import choose_against
    from tuner.report.tables import say

    chosen = choose_against(target.kernel, against)
    if not done.quiet:
        say(f"timing {target.problem} ({target.conditions})")
    found = time_again(device, target, chosen, rounds, seed)
    if found.entries:
        versions = {"kernel-tune": __version__, **device.versions}
        database.record_benchmark(records_of(found, done.id, versions))
    for failure in found.failures:
        text = f"{target.problem}: {failure.name} could not be timed: {failure.error}"
        if chosen.asked or failure.configuration:
            done.complain(text)
        else:
            say(text)
    checked = check(device, found, rounds, seed) if checking else None
    if not done.as_json:
        if done.found:
            click.echo()
        show_bench(found)
        if checked is not None:
            show_check(checked)
    elif checked is not None and checked.slower:
        done.complain(f"{target.problem}: slower than it was: {check_text(checked)}")
    done.failed |= checked is not None and checked.slower
    done.found.append((found, checked))
    if checking and checked is None:
        say(f"not checked, {target.problem} was not tuned like this")
