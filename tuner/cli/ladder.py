"""``tune ladder``: what each step of a kernel's optimisation is worth, over a sweep of sizes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import click

from tuner.cli.problems import ProblemTexts, assignments, make_problems
from tuner.cli.stopping import stopping
from tuner.cli.sweep import make_sweep
from tuner.core import paths
from tuner.core.conditions import Mode, Regime
from tuner.core.errors import Interrupted, UsageError
from tuner.database.database import Database
from tuner.devices.base import Device, say_nothing
from tuner.devices.choose import kernel_for, open_device
from tuner.devices.replay import ReplayDevice
from tuner.kernel.baselines import baselines_of
from tuner.kernel.load import load_kernel
from tuner.kernel.spec import KernelSpec
from tuner.report.configurations import Texts
from tuner.report.plots import check_plot
from tuner.report.tables import say, show_json
from tuner.studies.ladder import STOPPED, Ladder, Sweep, choose_steps
from tuner.studies.ladder_figures import draw, figure_files
from tuner.studies.ladder_report import ladder_as_json, show_level, show_steps, show_summary
from tuner.studies.ladder_run import levels_of
from tuner.studies.progress import make_progress
from tuner.studies.targets import DEFAULT, Against, choose_against


def ladder(
    kernel_name: str,
    sweeps: tuple[str, ...],
    sizes: tuple[str, ...],
    dtypes: tuple[str, ...],
    options: tuple[str, ...],
    preset: str | None,
    step_names: tuple[str, ...],
    trials: int,
    time_s: float,
    against: tuple[str, ...],
    rounds: int,
    mode_name: str,
    regime_name: str,
    device_name: str,
    seed: int,
    full: bool,
    db: Path,
    jobs: int | None,
    from_scratch: bool,
    plots: tuple[Path, ...],
    quiet: bool,
    as_json: bool,
) -> None:
    """Sweep a kernel's optimisation steps over sizes, print and draw the times; exit status 1 if something failed."""
    wanted = kernel_for(device_name, kernel_name)
    kernel = load_kernel(wanted)
    texts = Texts.of_kernel(kernel, full=full)
    base = make_problems(kernel, ProblemTexts(sizes, dtypes, options, [preset] if preset else []))[0]
    swept = make_sweep(kernel, sweeps, [name for name, _ in assignments(sizes, "--size")])
    sweep = Sweep(
        kernel,
        base,
        tuple(swept) or (dict(base.sizes),),
        choose_steps(kernel, step_names),
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
    tell = say_nothing if quiet else say
    with closing(open_device(device_name, kernel.name, jobs, paths.cubins(), tell)) as device:
        if isinstance(device, ReplayDevice):
            device.refuse_other(kernel.name)
            if not (sweeps or sizes or preset):
                recorded = device.recorded_instead(kernel, base)
                sweep = replace(sweep, base=recorded, sizes=(dict(recorded.sizes),))
        names = tuple(swept[0]) if swept else ()
        result = Ladder(kernel, device.gpu, device.name, sweep.steps, names)
        _introduce(device, sweep, quiet=quiet)
        if wanted != kernel_name and not quiet:
            say(f"{kernel.name} has changed since: this is the kernel as it was recorded")
        try:
            _measure(sweep, result, device, db, texts, quiet=quiet, as_json=as_json)
        finally:
            _conclude(result, plots, as_json=as_json)
    if _failed(result, sweep):
        raise click.exceptions.Exit(1)


def _against(kernel: KernelSpec, names: Sequence[str]) -> Against:
    """Return what the steps are compared with: the libraries of the kernel's file and NumPy, unless others are named.

    Raises:
        UsageError: there is no such baseline.
    """
    if DEFAULT in names:
        raise UsageError(
            f"--against {DEFAULT}: a ladder compares optimisation steps",
            "name libraries, or kernels of your own",
        )
    chosen = choose_against(kernel, names)
    if names:
        return chosen
    host = [baseline for baseline in baselines_of(kernel) if baseline.on_host]
    return Against(default=False, baselines=(*chosen.baselines, *host), named=False)


def _introduce(device: Device, sweep: Sweep, *, quiet: bool) -> None:
    """Say on what the steps are timed, and what a recording has no times of."""
    if device.recorded and sweep.against.named and sweep.against.baselines:
        say(f"{device.name} is a recording, and has no times of what --against names")
    if quiet:
        return
    if device.note:
        say(device.note)


def _measure(
    sweep: Sweep,
    result: Ladder,
    device: Device,
    database_path: Path,
    texts: Texts,
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    """Measure level after level, and print each as it is done.

    Raises:
        Interrupted: by Ctrl-C; the levels so far are in ``found``.
    """
    if not as_json:
        show_steps(result)
    progress = make_progress(quiet=quiet)
    with stopping() as stop, Database.open(database_path) as database:
        try:
            for level in levels_of(sweep, device, database, progress, stop):
                result.levels.append(level)
                if not as_json:
                    show_level(result, level, texts)
        except Interrupted:
            whole = sum(STOPPED not in level.absent.values() for level in result.levels)
            raise Interrupted(
                f"stopped after {whole} of {len(sweep.sizes)} sizes; everything measured is kept",
                "the same command goes on from there",
            ) from None
        finally:
            progress.close()
    result.complete = True


def _conclude(result: Ladder, plots: Sequence[Path], *, as_json: bool) -> None:
    """Print and draw the levels that there are, however the sweep ended."""
    if as_json and result.levels:
        show_json(ladder_as_json(result))
    elif not as_json:
        show_summary(result)
    for path in plots:
        if not draw(result, path):
            say(f"{path} is not written: there is no time to draw")


def _failed(result: Ladder, sweep: Sweep) -> bool:
    """Return whether a step or baseline that should have a time has none, or none has."""
    steps = any(absence.failed for level in result.levels for absence in level.absent.values())
    others = any(comparison.failures for level in result.levels for comparison in level.comparisons)
    nothing = not any(level.comparisons for level in result.levels)
    return steps or nothing or (others and sweep.against.named)
