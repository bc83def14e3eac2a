"""Recorded spaces: recordings of this tool, Kernel Tuner's cache files and T4 files."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from tuner.core.errors import TunerError
from tuner.core.model import Configuration, Gpu, Problem, Run
from tuner.database.earlier import distance
from tuner.formats.foreign import read_results
from tuner.formats.foreign_json import JsonResults
from tuner.formats.foreign_recording import VARIANT
from tuner.formats.recording import read_recording, recorded_kernel
from tuner.formats.t1 import read_t1
from tuner.kernel.load import load_kernel
from tuner.kernel.space import SearchSpace
from tuner.kernel.variant_space import VariantSpace

LIKE = 0.8
"""Share of the parameters of one kernel, some of which a file may leave out."""
NEAR = 1.05
"""A time within 5 % of the best recorded one counts as near."""


@dataclass(frozen=True)
class Case:
    """A recorded space, with the time of each configuration."""

    name: str
    kernel: str
    """A kernel of ours; empty for other tools' files, whose names tell little."""
    run: Run
    """Its problem and GPU."""
    space: SearchSpace
    times: tuple[np.ndarray, ...]
    """For each variant the time of each row in nanoseconds; not a number for a failure."""

    def time_ns(self, configuration: Configuration) -> float | None:
        """Return a recorded time, or None for a failure."""
        location = self.space.locate(configuration)
        assert location is not None
        time_ns = float(self.times[location[0]][location[1]])
        return None if np.isnan(time_ns) else time_ns

    def teachers(self, others: Sequence[Case], first: int) -> list[Case]:
        """Return the other cases that can teach this one, the nearest first; of equally near ones others each time."""
        like = [other for other in others if other.name != self.name and self._is_like(other)]
        turned = like[first % len(like) :] + like[: first % len(like)] if like else []
        return sorted(
            (other for other in turned if distance(self.run, other.run) < math.inf),
            key=lambda other: distance(self.run, other.run),
        )

    def _is_like(self, other: Case) -> bool:
        """Return whether both are of one kernel: by its name (files are called KERNEL-GPU), and by most parameters."""
        if self.kernel or other.kernel:
            return self.kernel == other.kernel
        (kernel, dash, _), (other_kernel, other_dash, _) = (
            case.name.partition("-") for case in (self, other)
        )
        if dash and other_dash and kernel != other_kernel:
            return False
        ours, theirs = ({p.name for p in case.space.variants[0].parameters} for case in (self, other))
        return len(ours & theirs) >= LIKE * min(len(ours), len(theirs))

    @property
    def best(self) -> float:
        """The best recorded time, in nanoseconds."""
        return float(np.nanmin(np.concatenate(self.times)))


def case_of(
    name: str, kernel: str, run: Run, space: SearchSpace, recorded: Mapping[Configuration, float | None]
) -> Case:
    times = tuple(np.full(len(variant), np.nan) for variant in space.variants)
    for configuration, time_ns in recorded.items():
        if time_ns and (location := space.locate(configuration)) is not None:
            times[location[0]][location[1]] = time_ns
    return Case(name, kernel, run, space, times)


def cases_of(path: Path) -> list[Case]:
    """Return the cases of a file.

    Raises:
        RecordingError: it is no recording, or one in a format that is not read.
    """
    if "format" in JsonResults(path).head:
        return _own_cases(path)
    foreign = read_results(path)
    defaults = {}
    for other in sorted(path.parent.glob("*.T1.json")):
        if path.name.startswith(other.name.removesuffix(".T1.json") + "-"):
            defaults = {name: parameter.default for name, parameter in read_t1(other).parameters.items()}
    specs = [replace(spec, default=defaults.get(spec.name, spec.default)) for spec in foreign.specs]
    matrix = np.array(foreign.indices(), dtype=np.int16).reshape(len(foreign.rows), len(specs))
    space = SearchSpace([VariantSpace(VARIANT, specs, matrix)], math.prod(len(s.values) for s in specs))
    times = {foreign.configuration(key): row.ranked_ns for key, row in foreign.rows.items()}
    run = Run(
        foreign.name, Problem(foreign.kernel, foreign.sizes, {}, {}),
        Gpu(foreign.gpu or foreign.name, 0, 0, 0, 0, 0, 0), f"replay:{foreign.name}",
    )  # fmt: skip
    return [case_of(foreign.name, "", run, space, times)]


def _own_cases(path: Path) -> list[Case]:
    recording = read_recording(path)
    kernel = load_kernel(recorded_kernel(path, recording.kernel))
    cases = []
    for recorded in recording.problems:
        space = SearchSpace.from_kernel(kernel, recorded.problem, recording.gpu).restricted(recorded.rows)
        times = {c: median(r.samples_ns) if r.status.ranked else None for c, r in recorded.rows.items()}
        problem = str(recorded.problem).replace(" ", ",")
        run = Run(problem, recorded.problem, recording.gpu, f"replay:{recording.name}")
        cases.append(case_of(f"{recording.name}:{problem}", kernel.name, run, space, times))
    return cases


def read_cases(paths: list[Path], only: list[str]) -> list[Case]:
    """Return the cases of files and folders whose names have one of some words, or of all.

    Raises:
        SystemExit: there is none.
    """
    cases: dict[str, Case] = {}
    for given in paths:
        for path in sorted(given.iterdir()) if given.is_dir() else [given]:
            stem = path.name.split(".json")[0]
            if path.is_dir() or path.suffix == ".md" or path.name.endswith(".T1.json"):
                continue
            if stem.endswith("_T4") and stem.removesuffix("_T4") in cases:
                continue  # the same measurements in another format
            if only and not any(word in stem for word in only):
                continue
            try:
                found = cases_of(path)
            except TunerError as error:
                print(f"left out: {path.name}: {error.problem.removeprefix(f'{path}: ')}", file=sys.stderr)
                continue
            for case in found:
                if np.isnan(np.concatenate(case.times)).all():
                    print(f"left out: {case.name}: every result is a failure", file=sys.stderr)
                else:
                    cases[case.name] = case
    if not cases:
        sys.exit("no recorded space: name folders or files with recordings, Kernel Tuner caches or T4 files")
    return list(cases.values())
