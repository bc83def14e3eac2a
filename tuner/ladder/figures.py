"""A ladder as figures: what :mod:`tuner.ladder.plots` draws of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from tuner.conditions import Mode
from tuner.hardware.roofline import peak_flops
from tuner.ladder.ladder import Contest, Ladder, Level, Place
from tuner.ladder.plots import Curve, Line, Trace, bandwidth_text, flops_text, plot_roofline, plot_sizes
from tuner.ladder.report import flavour, series_of, sizes_text
from tuner.report.tables import COMPUTE_BOUND_FROM

LAUNCH_SHOWN = 10.0
"""Times the least kernel up to which the figure says what that takes."""


def figure_files(path: Path) -> tuple[Path, Path]:
    """Return where :func:`draw` puts the roofline and the times over sizes: beside ``path``, by its name."""
    return path.with_stem(f"{path.stem}-roofline"), path.with_stem(f"{path.stem}-sizes")


def draw(ladder: Ladder, path: Path) -> list[Path]:
    """Draw what there is: ``NAME-roofline`` and, of several sizes, ``NAME-sizes``, beside ``path``.

    Args:
        ladder: what was found.
        path: a ``.png`` or ``.svg`` file by whose name the figures are called.

    Returns:
        The files; none where nothing was timed.

    Raises:
        UsageError, TunerError: as :func:`tuner.report.plots.check_plot`.
    """
    levels = [level for level in ladder.levels if level.contests]
    if not levels:
        return []
    levels.sort(key=lambda level: math.prod(level.sizes.values()))
    timed = list(dict.fromkeys(str(contest.conditions) for level in levels for contest in level.contests))
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
    """Return every rung at all sizes, and what ran beside it on the GPU at the largest."""
    traces = []
    rungs = {rung.name for rung in ladder.rungs}
    for name, places in series_of(ladder, levels).items():
        timed = [found for found in places if found is not None]
        if not timed or timed[-1][1].on_host:
            continue
        baseline = name not in rungs or timed[-1][1].tuned is None
        points = [
            (contest.roof.intensity, contest.roof.flops / place.time_ns * 1e9)
            for contest, place in timed
            if contest.roof.flops > 0 and contest.roof.bytes > 0
        ]
        if points:
            traces.append(Trace(name, points[-1:] if baseline else points, baseline))
    return traces


def _ceilings(ladder: Ladder, levels: Sequence[Level]) -> tuple[Line | None, list[Line]]:
    """Return the ceilings of the GPU: as they were measured, or by the data sheet."""
    gpu = ladder.gpu
    contests = [contest for level in levels for contest in level.contests]
    known = next((contest.calibration for contest in contests if contest.calibration), None)
    measured = max(known.read_bytes_per_s, known.copy_bytes_per_s) if known else 0.0
    rate = measured or gpu.memory_bytes_per_s
    warm = all(contest.conditions.mode is Mode.WARM for contest in contests)
    cached = ", no limit to what is in the caches" if warm else ""
    memory = f"memory: {bandwidth_text(rate)}, {_source(measured)}{cached}"
    peaks = []
    vector, matrix = (known.vector_flops, known.matrix_flops) if known else (0.0, 0.0)
    rated = peak_flops(gpu, "float32", "vector")
    peaks.append((f"float32: {{}}, {_source(vector)}", vector or rated))
    for dtype in dict.fromkeys(contest.problem.dtype for contest in contests):
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
    last = levels[-1].contests[0]
    arithmetic = last.roof.flops >= COMPUTE_BOUND_FROM * last.roof.bytes
    unit = "TFLOP/s" if arithmetic else "GB/s"

    def rate(contest: Contest, time_ns: float) -> float:
        return contest.roof.flops / time_ns * 1e-3 if arithmetic else contest.roof.bytes / time_ns

    curves = []
    for name, places in series_of(ladder, levels).items():
        found = [(_size(ladder, level), place) for level, place in zip(levels, places, strict=True) if place]
        if found:
            taken = [(contest, place.time_ns) for _, (contest, place) in found]
            curves.append(
                Curve(
                    name,
                    [size for size, _ in found],
                    [time_ns for _, time_ns in taken],
                    [rate(*pair) for pair in taken],
                    found[-1][1][1].tuned is None,
                )
            )
    limits = [*_light(ladder, levels, rate), *_launch(ladder, levels)]
    names = list(ladder.swept)
    alike = all(len(set(level.sizes.values())) == 1 for level in levels)
    axis = " = ".join(names) if alike else f"{names[0]} (with {', '.join(names[1:])})"
    plot_sizes(curves, limits, unit, axis, title, path)


def _size(ladder: Ladder, level: Level) -> int:
    return level.sizes[ladder.swept[0]]


def _light(ladder: Ladder, levels: Sequence[Level], rate: Callable[[Contest, float], float]) -> list[Curve]:
    """Return the speed of light of each kind of problem, where it is known."""
    kinds: dict[str, list[tuple[int, Contest]]] = {}
    for level in levels:
        for contest in level.contests:
            if contest.roof.speed_of_light_ns:
                kinds.setdefault(flavour(contest, level.contests), []).append((_size(ladder, level), contest))
    return [
        Curve(
            f"speed of light ({kind})" if kind else "speed of light",
            [size for size, _ in found],
            [contest.roof.speed_of_light_ns for _, contest in found],
            [rate(contest, contest.roof.speed_of_light_ns) for _, contest in found],
        )
        for kind, found in kinds.items()
    ]


def _launch(ladder: Ladder, levels: Sequence[Level]) -> list[Curve]:
    """Return what the least kernel takes, at the sizes where that matters."""
    found: list[tuple[int, float]] = []
    for level in levels:
        for contest in level.contests[:1]:
            launches = contest.calibration.launch_ns if contest.calibration else {}
            least = launches.get(str(contest.conditions.mode), 0.0)
            first: Place | None = contest.fastest
            if least and first is not None and first.time_ns <= LAUNCH_SHOWN * least:
                found.append((_size(ladder, level), least))
    if not found:
        return []
    return [Curve("a launch and one trip to memory", [s for s, _ in found], [t for _, t in found], [])]
