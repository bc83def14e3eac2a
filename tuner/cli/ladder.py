"""``tune ladder``: what each step of a kernel's optimisation is worth, over a sweep of sizes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.options import (
    MOST,
    Amount,
    database_option,
    device_option,
    jobs_option,
    rounds_option,
    seed_option,
    timed_mode_option,
    timed_regime_option,
)

if TYPE_CHECKING:
    from tuner.bench.targets import Against
    from tuner.devices.base import Device
    from tuner.kernel.spec import KernelSpec
    from tuner.ladder.ladder import Climb, Ladder

EPILOG = """\b
Examples:
  tune ladder vector_add --sweep n=2**10..2**28:4
  tune ladder gemm --sweep m=n=k=256..8192 --plot gemm.svg
  tune ladder gemm --size m=4096,n=4096,k=4096 --rung naive --rung tiled --against torch
"""


@click.command(epilog=EPILOG)
@click.argument("kernel_name", metavar="KERNEL")
@click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="NAME=A..B",
    help="Sizes: n=2**10..2**28, n=2**10..2**28:4, n=1000,2000 or m=n=k=256..8192; several move together.",
)
@click.option("-s", "--size", "sizes", multiple=True, metavar="NAME=N[,...]", help="Sizes that stay.")
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    metavar="[ROLE=]DTYPE",
    help="The dtype, where a rung has none of its own.",
)
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="The kernel's options.")
@click.option("--preset", help="A named problem of the kernel.")
@click.option(
    "--rung", "rung_names", multiple=True, metavar="NAME", help="Only this rung; repeat for several."
)
@click.option(
    "-n",
    "--trials",
    default=24,
    show_default=True,
    type=click.IntRange(min=1, max=MOST),
    help="Configurations to try for a rung at a size; all if there are fewer.",
)
@click.option(
    "--time",
    "time_s",
    default=5.0,
    show_default=True,
    type=Amount(min=0.1),
    metavar="SECONDS",
    help="Try nothing new for a rung at a size after this time.",
)
@click.option(
    "--against",
    multiple=True,
    metavar="WHAT",
    help="torch, cupy, numpy, none, mine.cu:add<<<grid, block>>>(a, b), module:function; repeat.",
)
@rounds_option
@timed_mode_option
@timed_regime_option
@device_option
@seed_option("Of the searches, the inputs and the order.")
@database_option
@jobs_option
@click.option("--from-scratch", is_flag=True, help="Search every rung, whatever the database knows.")
@click.option(
    "--plot",
    "plots",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw NAME-roofline and NAME-sizes, as .png or .svg; repeat for both.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print the result only.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def ladder(
    kernel_name: str,
    sweeps: tuple[str, ...],
    sizes: tuple[str, ...],
    dtypes: tuple[str, ...],
    options: tuple[str, ...],
    preset: str | None,
    rung_names: tuple[str, ...],
    trials: int,
    time_s: float,
    against: tuple[str, ...],
    rounds: int,
    mode_name: str,
    regime_name: str,
    device_name: str,
    seed: int,
    db: Path,
    jobs: int | None,
    from_scratch: bool,
    plots: tuple[Path, ...],
    quiet: bool,
    as_json: bool,
) -> None:
    """Show what each step of a kernel's optimisation is worth, over a sweep of sizes.

    Finds the best configuration of every rung of the kernel's ladder at every size, then times all of them in turn,
    beside the libraries that are installed and NumPy on the CPU. A rung that was searched before is not searched again.
    """
    from tuner import paths  # everything heavy waits until the command is used
    from tuner.cli.problems import assignments, make_problems
    from tuner.cli.sweep import make_sweep
    from tuner.devices.choose import kernel_for, open_device
    from tuner.devices.replay import ReplayDevice
    from tuner.kernel.load import load_kernel
    from tuner.ladder.figures import figure_files
    from tuner.ladder.ladder import Climb, Ladder, choose_rungs
    from tuner.model import Mode, Regime
    from tuner.report.plots import check_plot
    from tuner.report.tables import say

    wanted = kernel_for(device_name, kernel_name)
    kernel = load_kernel(wanted)
    base = make_problems(kernel, sizes, dtypes, options, [preset] if preset else [], [], None)[0]
    swept = make_sweep(kernel, sweeps, [name for name, _ in assignments(sizes, "--size")])
    asked = Climb(
        kernel,
        base,
        tuple(swept) or (dict(base.sizes),),
        choose_rungs(kernel, rung_names),
        _against(kernel, against),
        trials,
        time_s,
        rounds,
        seed,
        None if mode_name == "auto" else Mode(mode_name),
        Regime(regime_name),
        from_scratch,
    )
    for path in plots:
        for file in figure_files(path):
            check_plot(file)
    with closing(open_device(device_name, kernel.name, jobs, paths.cache() / "cubins")) as device:
        if isinstance(device, ReplayDevice):
            device.refuse_other(kernel.name)
        names = tuple(swept[0]) if swept else ()
        found = Ladder(kernel, device.gpu, device.name, asked.rungs, names)
        _introduce(device, asked, quiet=quiet)
        if wanted != kernel_name and not quiet:
            say(f"{kernel.name} has changed since: this is the kernel as it was recorded")
        try:
            _go(asked, found, device, db, quiet=quiet, as_json=as_json)
        finally:
            _conclude(found, plots, as_json=as_json)
    if _failed(found, asked):
        raise click.exceptions.Exit(1)


def _against(kernel: KernelSpec, asked: Sequence[str]) -> Against:
    """Settle what the rungs are compared with: the libraries of the kernel's file and NumPy, unless others are named.

    Raises:
        UsageError: there is no such baseline.
    """
    from tuner.bench.targets import DEFAULT, Against, choose_against
    from tuner.errors import UsageError
    from tuner.kernel.baselines import baselines_of

    if DEFAULT in asked:
        raise UsageError(
            f"--against {DEFAULT}: a ladder compares rungs", "name libraries, or kernels of your own"
        )
    chosen = choose_against(kernel, asked)
    if asked:
        return chosen
    host = [baseline for baseline in baselines_of(kernel) if baseline.on_host]
    return Against(default=False, baselines=(*chosen.baselines, *host), asked=False)


def _introduce(device: Device, asked: Climb, *, quiet: bool) -> None:
    """Say on what the ladder is climbed, and what a recording cannot answer."""
    from tuner.report.tables import say

    if device.recorded and asked.against.asked and asked.against.baselines:
        say(f"{device.name} is a recording, and has no times of what --against names")
    if quiet:
        return
    device.say = say
    if device.note:
        say(device.note)


def _go(
    asked: Climb, found: Ladder, device: Device, database_path: Path, *, quiet: bool, as_json: bool
) -> None:
    """Climb, and print each level as it is done.

    Raises:
        Interrupted: by Ctrl-C; the levels so far are in ``found``.
    """
    from tuner.cli.stopping import stopping
    from tuner.database.database import Database
    from tuner.errors import Interrupted
    from tuner.ladder.ladder import STOPPED
    from tuner.ladder.progress import make_progress
    from tuner.ladder.report import show_level, show_story
    from tuner.ladder.run import climb

    if not as_json:
        show_story(found)
    progress = make_progress(quiet=quiet)
    with stopping() as stop, Database.open(database_path) as database:
        try:
            for level in climb(asked, device, database, progress, stop):
                found.levels.append(level)
                if not as_json:
                    show_level(found, level)
        except Interrupted:
            whole = sum(STOPPED not in level.absent.values() for level in found.levels)
            raise Interrupted(
                f"stopped after {whole} of {len(asked.sizes)} sizes; everything measured is kept",
                "the same command goes on from there",
            ) from None
        finally:
            progress.rest()
    found.complete = True


def _conclude(found: Ladder, plots: Sequence[Path], *, as_json: bool) -> None:
    """Print and draw what there is, however the climb ended."""
    from tuner.ladder.figures import draw
    from tuner.ladder.report import show_summary
    from tuner.ladder.report_json import ladder_as_json
    from tuner.report.tables import say, show_json

    if as_json and found.levels:
        show_json(ladder_as_json(found))
    elif not as_json:
        show_summary(found)
    for path in plots:
        drawn = draw(found, path)
        if not drawn:
            say(f"{path} is not written: there is no time to draw")


def _failed(found: Ladder, asked: Climb) -> bool:
    """Whether something that should have a time has none, or nothing has."""
    rungs = any(absence.failed for level in found.levels for absence in level.absent.values())
    others = any(contest.failures for level in found.levels for contest in level.contests)
    nothing = not any(level.contests for level in found.levels)
    return rungs or nothing or (others and asked.against.asked)
