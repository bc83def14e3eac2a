"""Times under the ceilings of a GPU: the roofline of Williams, Waterman and Patterson (2009)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from tuner.core.model import Gpu, Run
from tuner.database.records import StoredWinner
from tuner.kernel.roofline import peak_flops, pipe_of
from tuner.report.html.subjects import Figure, TunedProblem
from tuner.report.tables import duration, percent

LEAST_RATE = 1e3
"""Bytes or FLOP per second."""
PIPES = {"vector": "vector units", "matrix": "tensor cores"}


Drawn = dict[str, Any]
"""A time of a problem: name, kind (``winner`` or ``default``), time_ns, intensity in FLOP per byte, flops a second, and
share of the speed of light. Or a limit of the GPU: name, kind (``bytes`` or ``flops``), rate a second, measured."""


def roofline(problem: TunedProblem) -> Figure | None:
    """Return the roofline of one problem, with its winner and its default; None without a winner or its work."""
    if problem.winner is None:
        return None
    winner, run = problem.winner.winner, problem.run
    points = [_point(problem.winner, "the winner", "winner", winner.time_ns)]
    if winner.default_trial_id != winner.trial_id:
        points.append(_point(problem.winner, "the default", "default", winner.default_time_ns))
    ceilings = [*_data_sheet(run.gpu, [run.problem.dtype]), *_measured(run)]
    return _figure("", "Roofline", points, ceilings, wide=False)


def rooflines(winners: Sequence[StoredWinner]) -> list[Figure]:
    """Return a roofline for each GPU that has several winners."""
    by_gpu: dict[str, list[StoredWinner]] = {}
    for stored in winners:
        by_gpu.setdefault(stored.run.gpu.name, []).append(stored)
    figures = []
    for number, (name, own) in enumerate(by_gpu.items()):
        points = [_point(one, str(one.run.problem), "winner", one.winner.time_ns) for one in own]
        dtypes = list(dict.fromkeys(one.run.problem.dtype for one in own))
        if len(own) > 1:
            ceilings = list(_data_sheet(own[0].run.gpu, dtypes))
            figures.append(_figure(f"-{number}", f"Roofline of {name}", points, ceilings, wide=True))
    return [one for one in figures if one]


def _point(stored: StoredWinner, name: str, kind: str, time_ns: float | None) -> Drawn | None:
    """Return where a time of a winner's problem lies; None where the database does not know the problem's work."""
    metrics = stored.metrics
    if not (time_ns and metrics.tflops and metrics.gbytes_per_s):
        return None
    slower = time_ns / stored.winner.time_ns
    share = metrics.speed_of_light / slower if metrics.speed_of_light else None
    intensity = metrics.tflops * 1e3 / metrics.gbytes_per_s
    where = {"intensity": intensity, "flops": metrics.tflops * 1e12 / slower, "share": share}
    return {"name": name, "kind": kind, "time_ns": time_ns, **where}


def _ceiling(name: str, kind: str, rate: float, measured: bool = False) -> Drawn:
    return {"name": name, "kind": kind, "rate": rate, "measured": measured}


def _data_sheet(gpu: Gpu, dtypes: Sequence[str]) -> Iterator[Drawn]:
    yield _ceiling("memory", "bytes", gpu.memory_bytes_per_s)
    for dtype in dtypes:
        for pipe in dict.fromkeys(("vector", pipe_of(gpu, dtype, "matrix"))):
            yield _ceiling(f"{PIPES[pipe]}, {dtype}", "flops", peak_flops(gpu, dtype, pipe))


def _measured(run: Run) -> Iterator[Drawn]:
    if run.calibration is None:
        return
    yield _ceiling("read, measured", "bytes", run.calibration.read_bytes_per_s, True)
    if run.problem.dtype in ("float16", "bfloat16"):
        yield _ceiling("tensor cores, measured", "flops", run.calibration.matrix_flops, True)
    elif run.problem.dtype == "float32":
        yield _ceiling("vector units, measured", "flops", run.calibration.vector_flops, True)


def _figure(
    number: str, title: str, points: Sequence[Drawn | None], ceilings: Sequence[Drawn], *, wide: bool
) -> Figure | None:
    drawn = [one for one in points if one]
    lines = [one for one in ceilings if LEAST_RATE < one["rate"] < math.inf]
    if not drawn or not any(one["kind"] == "flops" for one in lines):
        return None
    rows = [
        (
            one["name"],
            duration(one["time_ns"]),
            f"{one['intensity']:.4g}",
            f"{one['flops'] / 1e12:.4g}",
            percent(one["share"]),
        )
        for one in drawn
    ]
    measured = any(one["measured"] for one in lines)
    return Figure(
        "roofline",
        title,
        "Rate over arithmetic intensity: the work and the bytes that a problem takes at least. Lines are what the GPU "
        "can do by its data sheet" + ("; dashed, what was measured on it." if measured else "."),
        f"{rows[0][0]}: {rows[0][3]} TFLOP/s, {rows[0][4]} of the speed of light.",
        ("what", ">time", ">FLOP per byte", ">TFLOP/s", ">of the speed of light"),
        rows,
        {"points": drawn, "ceilings": lines},
        wide,
        number,
    )
