"""``tune ladder``: what each step of a kernel's optimisation is worth, over a sweep of sizes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import click

from tuner.cli.commands.studies import LadderArguments
from tuner.cli.loader import part
from tuner.cli.options import ProblemArguments
from tuner.cli.problems import assignments, make_problem
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
from tuner.studies.interleaved import make_progress
from tuner.studies.ladder import STOPPED, Ladder, Sweep, choose_steps
from tuner.studies.ladder_figures import draw, figure_files
from tuner.studies.ladder_report import ladder_as_json, show_level, show_steps, show_summary
from tuner.studies.ladder_run import LadderRun
from tuner.studies.targets import DEFAULT, Against, choose_against


def ladder(asked: LadderArguments) -> None:
    """Sweep a kernel's optimisation steps over sizes, print and draw the times; exit status 1 if something failed."""
    wanted = kernel_for(asked.device_name, asked.kernel_name)
    kernel = load_kernel(wanted)
    base = make_problem(kernel, part(asked, ProblemArguments))
    swept = make_sweep(kernel, asked.sweeps, [name for name, _ in assignments(asked.sizes, "--size")])
    sweep = Sweep(
        kernel,
        base,
        tuple(swept) or (dict(base.sizes),),
        choose_steps(kernel, asked.step_names),
        _against(kernel, asked.against),
        asked.trials,
        asked.time_s,
        asked.rounds,
        asked.seed,
        None if asked.mode_name == "auto" else Mode(asked.mode_name),
        Regime(asked.regime_name),
        asked.from_scratch,
    )
    for path in asked.plots:
        for file in figure_files(path):
            check_plot(file)
    tell = say_nothing if asked.quiet else say
    with closing(open_device(asked.device_name, kernel.name, asked.jobs, paths.cubins(), tell)) as device:
        if isinstance(device, ReplayDevice):
            device.refuse_other(kernel.name)
            if not (asked.sweeps or asked.sizes or asked.preset):
                recorded = device.recorded_instead(kernel, base)
                sweep = replace(sweep, base=recorded, sizes=(dict(recorded.sizes),))
        result = Ladder(kernel, device.gpu, device.name, sweep.steps, tuple(swept[0]) if swept else ())
        if device.recorded and sweep.against.named and sweep.against.baselines:
            say(f"{device.name} is a recording, and has no times of what --against names")
        if device.note:
            tell(device.note)
        if wanted != asked.kernel_name:
            tell(f"{kernel.name} has changed since: this is the kernel as it was recorded")
        try:
            _measure(sweep, result, device, asked)
        finally:
            _conclude(result, asked)
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


def _measure(sweep: Sweep, result: Ladder, device: Device, asked: LadderArguments) -> None:
    """Measure level after level, and print each as it is done.

    Raises:
        Interrupted: by Ctrl-C; the levels so far are in ``result``.
    """
    texts = Texts.of_kernel(sweep.kernel, full=asked.full)
    if not asked.as_json:
        show_steps(result)
    progress = make_progress(quiet=asked.quiet)
    with stopping() as stop, Database.open(asked.db) as database, closing(progress):
        try:
            for level in LadderRun(sweep, device, database, progress, stop).levels():
                result.levels.append(level)
                if not asked.as_json:
                    show_level(result, level, texts)
        except Interrupted:
            whole = sum(STOPPED not in level.absent.values() for level in result.levels)
            raise Interrupted(
                f"stopped after {whole} of {len(sweep.sizes)} sizes; everything measured is kept",
                "the same command goes on from there",
            ) from None
    result.complete = True


def _conclude(result: Ladder, asked: LadderArguments) -> None:
    """Print and draw the levels that there are, however the sweep ended."""
    if asked.as_json and result.levels:
        show_json(ladder_as_json(result))
    elif not asked.as_json:
        show_summary(result)
    for path in asked.plots:
        if not draw(result, path):
            say(f"{path} is not written: there is no time to draw")


def _failed(result: Ladder, sweep: Sweep) -> bool:
    """Return whether a step or baseline that should have a time has none, or none has."""
    steps = any(absence.failed for level in result.levels for absence in level.absent.values())
    others = any(comparison.failures for level in result.levels for comparison in level.comparisons)
    nothing = not any(level.comparisons for level in result.levels)
    return steps or nothing or (others and sweep.against.named)
