"""Recorded spaces: recordings of this tool, Kernel Tuner's cache files and T4 files."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from tuner.core.errors import TunerError
from tuner.core.model import Configuration
from tuner.formats.foreign import read_results
from tuner.formats.foreign_json import JsonResults
from tuner.formats.foreign_recording import VARIANT
from tuner.formats.recording import read_recording, recorded_kernel
from tuner.formats.t1 import read_t1
from tuner.kernel.load import load_kernel
from tuner.kernel.space import SearchSpace
from tuner.kernel.variant_space import VariantSpace

NEAR = 1.05
"""A time within 5 % of the best recorded one counts as near."""


@dataclass(frozen=True)
class Case:
    """A recorded space, with the time of each configuration."""

    name: str
    space: SearchSpace
    times: tuple[np.ndarray, ...]
    """For each variant the time of each row in nanoseconds; not a number for a failure."""

    def time_ns(self, configuration: Configuration) -> float | None:
        """Return a recorded time, or None for a failure."""
        location = self.space.locate(configuration)
        assert location is not None
        time_ns = float(self.times[location[0]][location[1]])
        return None if np.isnan(time_ns) else time_ns

    @property
    def kernel(self) -> str:
        """The kernel, dtype and options: a case can teach others with the same."""
        name, _, problem = self.name.partition(":")
        return name.split("-")[0] + ",".join(
            part for part in problem.split(",") if not part[-1:].isdigit() or "=" not in part
        )

    @property
    def best(self) -> float:
        """The best recorded time, in nanoseconds."""
        return float(min(np.nanmin(times) for times in self.times if not np.isnan(times).all()))


def case_of(name: str, space: SearchSpace, recorded: Mapping[Configuration, float | None]) -> Case:
    times = tuple(np.full(len(variant), np.nan) for variant in space.variants)
    for configuration, time_ns in recorded.items():
        if time_ns and (location := space.locate(configuration)) is not None:
            times[location[0]][location[1]] = time_ns
    return Case(name, space, times)


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
    return [case_of(foreign.name, space, times)]


def _own_cases(path: Path) -> list[Case]:
    recording = read_recording(path)
    kernel = load_kernel(recorded_kernel(path, recording.kernel))
    cases = []
    for recorded in recording.problems:
        space = SearchSpace.from_kernel(kernel, recorded.problem, recording.gpu).restricted(recorded.rows)
        times = {c: median(r.samples_ns) if r.status.ranked else None for c, r in recorded.rows.items()}
        problem = str(recorded.problem).replace(" ", ",")
        cases.append(case_of(f"{recording.name}:{problem}", space, times))
    return cases


def read_cases(paths: list[Path], only: list[str]) -> list[Case]:
    """Return the cases of files and folders whose names have one of some words, or of all."""
    cases: dict[str, Case] = {}
    for given in paths:
        for path in sorted(given.iterdir()) if given.is_dir() else [given]:
            if path.suffix not in (".json", ".gz") or path.name.endswith(".T1.json"):
                continue
            stem = path.name.split(".json")[0]
            if stem.endswith("_T4") and stem.removesuffix("_T4") in cases:
                continue  # the same measurements in another format
            if only and not any(word in stem for word in only):
                continue
            try:
                cases |= {case.name: case for case in cases_of(path)}
            except TunerError as error:
                print(f"left out: {error.problem}", file=sys.stderr)
    return list(cases.values())
