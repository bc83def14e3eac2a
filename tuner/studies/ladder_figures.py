"""The figures of a ladder: its points and lines, which :mod:`tuner.studies.ladder_plots` draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tuner.core.conditions import Mode
from tuner.kernel.roofline import peak_flops
from tuner.report.tables import COMPUTE_BOUND_FROM
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

    def curve(name: str, points: Sequence[tuple[Level, StepComparison, float]]) -> Curve:
        """Return the line through these times in nanoseconds."""
        roofs = [(comparison.roof, time_ns) for _, comparison, time_ns in points]
        return Curve(
            name,
            [level.sizes[ladder.swept[0]] for level, _, _ in points],
            [time_ns for _, time_ns in roofs],
            [roof.flops / ns * 1e-3 if arithmetic else roof.bytes / ns for roof, ns in roofs],
        )

    curves = []
    for name, timings in series_of(ladder, levels).items():
        timed = [(level, *one) for level, one in zip(levels, timings, strict=True) if one is not None]
        if timed:
            line = curve(name, [(level, comparison, timing.time_ns) for level, comparison, timing in timed])
            curves.append(replace(line, baseline=timed[-1][2].configuration is None))
    limits = [curve(name, points) for name, points in _lights(levels).items()]
    if launches := _launches(levels):
        limits.append(replace(curve("a launch and one trip to memory", launches), rates=[]))
    names = list(ladder.swept)
    alike = all(len(set(level.sizes.values())) == 1 for level in levels)
    axis = " = ".join(names) if alike else f"{names[0]} (with {', '.join(names[1:])})"
    plot_sizes(curves, limits, "TFLOP/s" if arithmetic else "GB/s", axis, title, path)


def _lights(levels: Sequence[Level]) -> dict[str, list[tuple[Level, StepComparison, float]]]:
    """Return the speed of light of each kind of problem, where it is known, by its name in the figure."""
    lights: dict[str, list[tuple[Level, StepComparison, float]]] = {}
    for level in levels:
        for comparison in level.comparisons:
            kind = flavour(comparison, level.comparisons)
            name = f"speed of light ({kind})" if kind else "speed of light"
            if light_ns := comparison.roof.speed_of_light_ns:
                lights.setdefault(name, []).append((level, comparison, light_ns))
    return lights


def _launches(levels: Sequence[Level]) -> list[tuple[Level, StepComparison, float]]:
    """Return the time of an almost empty kernel, at the sizes where it matters."""
    launches = []
    for level in levels:
        comparison = level.comparisons[0]
        by_mode = comparison.calibration.launch_ns if comparison.calibration else {}
        launch_ns, fastest = by_mode.get(str(comparison.conditions.mode), 0.0), comparison.fastest
        if launch_ns and fastest is not None and fastest.time_ns <= LAUNCH_SHOWN * launch_ns:
            launches.append((level, comparison, launch_ns))
    return launches
