"""The figures of a ladder: its points and lines, which :mod:`tuner.studies.ladder_plots` draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from tuner.core.conditions import Mode
from tuner.kernel.roofline import peak_flops
from tuner.report.tables import COMPUTE_BOUND_FROM
from tuner.studies.interleaved import Timing
from tuner.studies.ladder import Ladder, Level, StepComparison, sizes_text
from tuner.studies.ladder_plots import (
    Curve,
    Line,
    Trace,
    bandwidth_text,
    flops_text,
    plot_roofline,
    plot_sizes,
)
from tuner.studies.ladder_report import flavour, series_of

LAUNCH_SHOWN = 10.0
"""The figure shows the time of an almost empty kernel where the fastest step takes up to so many times as long."""


def figure_files(path: Path) -> tuple[Path, Path]:
    """Return where :func:`draw` puts the roofline and the times over sizes: beside ``path``, by its name."""
    roofline, sizes = (path.parent / f"{path.stem}-{what}{path.suffix}" for what in ("roofline", "sizes"))
    return roofline, sizes


def draw(ladder: Ladder, path: Path) -> list[Path]:
    """Draw ``NAME-roofline`` and, of several sizes, ``NAME-sizes``, beside ``path``.

    Args:
        ladder: its results.
        path: a ``.png`` or ``.svg`` file by whose name the figures are called.

    Returns:
        The files; none where nothing was timed.

    Raises:
        UsageError, TunerError: as :func:`tuner.report.plots.check_plot`.
    """
    levels = [level for level in ladder.levels if level.comparisons]
    if not levels:
        return []
    levels.sort(key=lambda level: math.prod(level.sizes.values()))
    timed = list(
        dict.fromkeys(str(comparison.conditions) for level in levels for comparison in level.comparisons)
    )
    title = f"{ladder.kernel.name} on {ladder.gpu.name}; {timed[0] if len(timed) == 1 else 'mode by size'}"
    title += " [replayed]" if ladder.replayed else ""
    roofline, sizes = figure_files(path)
    written = []
    traces = _traces(ladder, levels)
    if traces:
        written.append(roofline)
        of = sizes_text(levels[-1].sizes)
        plot_roofline(traces, *_ceilings(ladder, levels), f"{title}; named at {of}", written[-1])
    if len(levels) > 1:
        written.append(sizes)
        _draw_sizes(ladder, levels, title, written[-1])
    return written


def _traces(ladder: Ladder, levels: Sequence[Level]) -> list[Trace]:
    """Return every step at all sizes, and every baseline on the GPU at the largest."""
    traces = []
    steps = {step.name for step in ladder.steps}
    for name, timings in series_of(ladder, levels).items():
        timed = [one for one in timings if one is not None]
        if not timed or timed[-1][1].on_host:
            continue
        baseline = name not in steps or timed[-1][1].configuration is None
        points = [
            (comparison.roof.intensity, comparison.roof.flops / timing.time_ns * 1e9)
            for comparison, timing in timed
            if comparison.roof.flops > 0 and comparison.roof.bytes > 0
        ]
        if points:
            traces.append(Trace(name, points[-1:] if baseline else points, baseline))
    return traces


def _ceilings(ladder: Ladder, levels: Sequence[Level]) -> tuple[Line | None, list[Line]]:
    """Return the ceilings of the GPU: as they were measured, or by the data sheet."""
    gpu = ladder.gpu
    comparisons = [comparison for level in levels for comparison in level.comparisons]
    calibration = next((comparison.calibration for comparison in comparisons if comparison.calibration), None)
    measured = max(calibration.read_bytes_per_s, calibration.copy_bytes_per_s) if calibration else 0.0
    rate = measured or gpu.memory_bytes_per_s
    warm = all(comparison.conditions.mode is Mode.WARM for comparison in comparisons)
    cached = ", no limit to what is in the caches" if warm else ""
    memory = f"memory: {bandwidth_text(rate)}, {_source(measured)}{cached}"
    peaks = []
    vector, matrix = (calibration.vector_flops, calibration.matrix_flops) if calibration else (0.0, 0.0)
    rated = peak_flops(gpu, "float32", "vector")
    peaks.append((f"float32: {{}}, {_source(vector)}", vector or rated))
    for dtype in dict.fromkeys(comparison.problem.dtype for comparison in comparisons):
        own = peak_flops(gpu, dtype, "vector")
        if own != rated:
            peaks.append((f"{dtype}: {{}}, {_source(0.0)}", own))
    peaks.append((f"tensor cores: {{}}, {_source(matrix)}", matrix or peak_flops(gpu, "float16", "matrix")))
    lines = [
        Line(text.format(f"{flops_text(flops)}FLOP/s"), flops)
        for text, flops in peaks
        if flops and math.isfinite(flops)
    ]
    return Line(memory, rate) if rate else None, lines


def _source(measured: float) -> str:
    return "measured" if measured else "data sheet"


def _draw_sizes(ladder: Ladder, levels: Sequence[Level], title: str, path: Path) -> None:
    last = levels[-1].comparisons[0]
    arithmetic = last.roof.flops >= COMPUTE_BOUND_FROM * last.roof.bytes
    unit = "TFLOP/s" if arithmetic else "GB/s"

    def rate(comparison: StepComparison, time_ns: float) -> float:
        return comparison.roof.flops / time_ns * 1e-3 if arithmetic else comparison.roof.bytes / time_ns

    curves = []
    for name, timings in series_of(ladder, levels).items():
        series = [
            (_size(ladder, level), timing) for level, timing in zip(levels, timings, strict=True) if timing
        ]
        if series:
            taken = [(comparison, timing.time_ns) for _, (comparison, timing) in series]
            curves.append(
                Curve(
                    name,
                    [size for size, _ in series],
                    [time_ns for _, time_ns in taken],
                    [rate(*pair) for pair in taken],
                    series[-1][1][1].configuration is None,
                )
            )
    limits = [*_light(ladder, levels, rate), *_launch(ladder, levels)]
    names = list(ladder.swept)
    alike = all(len(set(level.sizes.values())) == 1 for level in levels)
    axis = " = ".join(names) if alike else f"{names[0]} (with {', '.join(names[1:])})"
    plot_sizes(curves, limits, unit, axis, title, path)


def _size(ladder: Ladder, level: Level) -> int:
    return level.sizes[ladder.swept[0]]


def _light(
    ladder: Ladder, levels: Sequence[Level], rate: Callable[[StepComparison, float], float]
) -> list[Curve]:
    """Return the speed of light of each kind of problem, where it is known."""
    kinds: dict[str, list[tuple[int, StepComparison]]] = {}
    for level in levels:
        for comparison in level.comparisons:
            if comparison.roof.speed_of_light_ns:
                kinds.setdefault(flavour(comparison, level.comparisons), []).append(
                    (_size(ladder, level), comparison)
                )
    return [
        Curve(
            f"speed of light ({kind})" if kind else "speed of light",
            [size for size, _ in points],
            [comparison.roof.speed_of_light_ns for _, comparison in points],
            [rate(comparison, comparison.roof.speed_of_light_ns) for _, comparison in points],
        )
        for kind, points in kinds.items()
    ]


def _launch(ladder: Ladder, levels: Sequence[Level]) -> list[Curve]:
    """Return the time of an almost empty kernel, at the sizes where it matters."""
    launches_ns: list[tuple[int, float]] = []
    for level in levels:
        for comparison in level.comparisons[:1]:
            launches = comparison.calibration.launch_ns if comparison.calibration else {}
            launch_ns = launches.get(str(comparison.conditions.mode), 0.0)
            first: Timing | None = comparison.fastest
            if launch_ns and first is not None and first.time_ns <= LAUNCH_SHOWN * launch_ns:
                launches_ns.append((_size(ladder, level), launch_ns))
    if not launches_ns:
        return []
    return [
        Curve("a launch and one trip to memory", [s for s, _ in launches_ns], [t for _, t in launches_ns], [])
    ]
