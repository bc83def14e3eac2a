"""``tune ladder``: what each step of a kernel's optimisation is worth, over a sweep of sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace

import click

from tuner.cli.commands.studies import LadderArguments
from tuner.cli.loader import part
from tuner.cli.options import ProblemArguments
from tuner.cli.problems import assignments, make_problem, size_of
from tuner.core import paths
from tuner.core.errors import Interrupted, UsageError, suggestion
from tuner.core.model import RunOptions
from tuner.core.signals import stopping
from tuner.database.database import Database
from tuner.devices.base import Device, say_nothing
from tuner.devices.choose import introduce, kernel_for, open_device
from tuner.devices.replay import ReplayDevice
from tuner.kernel.load import load_kernel
from tuner.kernel.spec import KernelSpec
from tuner.report.configurations import Texts
from tuner.report.plots import check_plot
from tuner.report.progress import counting
from tuner.report.tables import say, show_json
from tuner.studies.bench import DEFAULT, Against, choose_against
from tuner.studies.ladder import STOPPED, Ladder, Sweep, choose_steps
from tuner.studies.ladder_figures import draw, figure_files
from tuner.studies.ladder_report import ladder_as_json, show_level, show_steps, show_summary
from tuner.studies.ladder_run import LadderRun


def ladder(asked: LadderArguments) -> None:
    """Sweep a kernel's optimisation steps over sizes, print and draw the times; exit status 1 if something failed."""
    wanted = kernel_for(asked.device_name, asked.kernel_name)
    kernel = load_kernel(wanted)
    base = make_problem(kernel, part(asked, ProblemArguments))
    swept = make_sweep(kernel, asked.sweeps, [name for name, _ in assignments(asked.sizes, "--size")])
    sweep = part(
        asked,
        Sweep,
        kernel=kernel,
        base=base,
        sizes=tuple(swept) or (dict(base.sizes),),
        steps=choose_steps(kernel, asked.step_names),
        against=_against(kernel, asked.against),
        search=part(asked, RunOptions),
    )
    for path in asked.plots:
        for file in figure_files(path):
            check_plot(file)
    tell = say_nothing if asked.quiet else say
    with closing(open_device(asked.device_name, kernel.name, asked.jobs, paths.cubins(), tell)) as device:
        introduce(device, kernel, tell, changed=wanted != asked.kernel_name)
        if isinstance(device, ReplayDevice) and not (asked.sweeps or asked.sizes or asked.preset):
            recorded = device.recorded_instead(kernel, base)
            sweep = replace(sweep, base=recorded, sizes=(dict(recorded.sizes),))
        result = Ladder(kernel, device.gpu, device.name, sweep.steps, tuple(swept[0]) if swept else ())
        if device.recorded and sweep.against.named and sweep.against.baselines:
            say(f"{device.name} is a recording, and has no times of what --against names")
        try:
            _measure(sweep, result, device, asked)
        finally:
            _conclude(result, asked)
    if _failed(result, sweep):
        raise click.exceptions.Exit(1)


def _against(kernel: KernelSpec, names: Sequence[str]) -> Against:
    """Return what the steps are compared with: the libraries of the kernel's file, unless others are named.

    Raises:
        UsageError: there is no such baseline.
    """
    if DEFAULT in names:
        raise UsageError(
            f"--against {DEFAULT}: a ladder compares optimisation steps",
            "name libraries, or kernels of your own",
        )
    return replace(choose_against(kernel, names), default=False)


def _measure(sweep: Sweep, result: Ladder, device: Device, asked: LadderArguments) -> None:
    """Measure level after level, and print each as it is done.

    Raises:
        Interrupted: by Ctrl-C; the levels so far are in ``result``.
    """
    texts = Texts.of_kernel(sweep.kernel, full=asked.full)
    if not asked.as_json:
        show_steps(result)
    progress = counting(quiet=asked.quiet, at_once=True)
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


FACTOR = 2
"""From one value of a range to the next, if the range names no factor."""
MOST = 64
"""Levels of a sweep: each costs seconds."""
FORM = "write --sweep n=2**10..2**28, n=2**10..2**28:4, n=1000,2000,3000, or m=n=k=256..8192"


def make_sweep(kernel: KernelSpec, texts: Sequence[str], taken: Iterable[str] = ()) -> list[dict[str, int]]:
    """Return the sizes of each level by ``--sweep`` texts; several move together, value by value.

    Args:
        kernel: whose sizes they are.
        texts: each ``NAME[=NAME...]=VALUES``, where VALUES are numbers and ranges ``A..B`` or ``A..B:FACTOR``, with
            commas between them.
        taken: sizes that ``--size`` has set already.

    Raises:
        UsageError: a size that the kernel lacks or that is named twice, no numbers, or lists of different lengths.
    """
    columns: dict[str, list[int]] = {}
    for text in texts:
        *names, values = (part.strip() for part in text.split("="))
        if not names or not all(names) or not values:
            raise UsageError(f"--sweep {text!r}", FORM)
        numbers = [value for part in values.split(",") for value in _values(names[0], part.strip(), text)]
        for name in names:
            if name not in kernel.sizes:
                raise UsageError(f"{kernel.name} has no size {name!r}", suggestion(name, kernel.sizes))
            if name in columns:
                raise UsageError(f"--sweep names {name} twice", "name it once, with all of its values")
            if name in taken:
                raise UsageError(f"{name} is in --size and in --sweep", "name it in one of them")
            columns[name] = numbers
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        counts = ", ".join(f"{len(values)} of {name}" for name, values in columns.items())
        raise UsageError(f"sweeps move together, and these have different lengths: {counts}", FORM)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    rows = list({tuple(row.items()): row for row in rows}.values())
    if len(rows) > MOST:
        raise UsageError(
            f"--sweep gives {len(rows)} sizes, more than {MOST}", "use a larger factor: n=A..B:FACTOR"
        )
    return rows


def _values(name: str, text: str, whole: str) -> list[int]:
    """Return the numbers of one value or one range."""
    first, dots, rest = text.partition("..")
    if not first or (dots and not rest):
        raise UsageError(f"--sweep {whole!r}", FORM)
    low = size_of(name, first)
    if not dots:
        return [_positive(name, low)]
    last, colon, by = rest.partition(":")
    high, factor = size_of(name, last), size_of("factor", by) if colon else FACTOR
    if factor < 2:
        raise UsageError(f"--sweep {whole!r} has the factor {factor}", "a factor is a whole number from 2 up")
    if high < _positive(name, low):
        raise UsageError(
            f"--sweep {whole!r} is empty: {high} is below {low}", "write the smaller number first"
        )
    numbers = [low]
    while numbers[-1] * factor <= high:
        numbers.append(numbers[-1] * factor)
    return numbers


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise UsageError(f"size {name}={value}", "sizes start at 1")
    return value
