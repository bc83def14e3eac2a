"""A device that answers with what another tool recorded: a T4 file or a Kernel Tuner cache."""

# ruff: noqa: ARG002 - the contract has more arguments than recorded answers need
from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tuner.children.compilation import Compilation
from tuner.children.measuring import Raced, RaceFailed
from tuner.core.conditions import Mode
from tuner.core.errors import RecordingError, UsageError
from tuner.core.model import Configuration, Measurement, Status, Verification
from tuner.core.stats import MIN_SAMPLES, median
from tuner.devices.base import Incumbent, RaceRequest, no_incumbent, say_nothing
from tuner.devices.replay import ReplayDevice
from tuner.devices.submissions import measured, trial_of
from tuner.formats.foreign import ForeignResults, read_foreign
from tuner.formats.foreign_recording import ForeignRow
from tuner.kernel.space import SearchSpace

NOT_RECORDED = "not recorded"
NOISE_ROWS = 1000
"""Configurations from which the noise is estimated: more cost seconds, and move it by less than it varies."""


class ForeignDevice(ReplayDevice):
    """Looks up the time by which a file ranks each configuration; there is no source that could have changed.

    A file that has several runtimes of each configuration says with them how much a time varies. A file with one time
    of each does not: nothing is compared then, and the least time is the best.

    A configuration that the space allows and the file does not have counts as a failure.
    """

    any_regime = True

    def __init__(self, results: ForeignResults, say: Callable[[str], None] = say_nothing) -> None:
        rate = f"{results.objective} is what counts: a time is that of 10^9 of them at the recorded rate"
        notes = [*results.notes, *([rate] if results.objective != "time" else [])]
        super().__init__(results.recording, say, notes)
        self.results = results
        self._by_values = {_values(configuration): row for configuration, row in results.rows.items()}
        self._noise_floor = noise_floor_of(list(results.rows.values()))

    def noise_floor(self, time_ns: float, mode: Mode | None = None) -> float:
        """Return how far halves of the same configuration's runtimes are apart; 0 where the file has no noise data."""
        return self._noise_floor

    def _race(self, request: RaceRequest) -> Raced | RaceFailed:
        """Draw each recorded runtime at most once: more rounds than runtimes would look surer than these are."""
        rows = [self._by_values[_values(one)] for one in request.configurations]
        count = min([request.rounds, *(len(row.samples_ns) for row in rows)])
        if count < MIN_SAMPLES or not self._noise_floor:
            return Raced([[[row.ranked_ns or 0.0] for row in rows]], ("replayed",))
        draw = random.Random(request.seed)
        columns = []
        for row in rows:
            drawn = draw.sample(row.samples_ns, count)
            # The file ranks by a mean or a minimum, or by a rate: the runtimes say how much that varies.
            scale = (row.ranked_ns or 0.0) / median(drawn)
            columns.append([[scale * time_ns] for time_ns in drawn])
        return Raced(list(zip(*columns, strict=True)), ("replayed",))

    def restrict(self, space: SearchSpace) -> SearchSpace:
        """Return the space as it is, and say how it and the recording differ."""
        space = space.including(self.results.rows)
        there = sum(map(space.contains, self.results.rows))
        if lacking := len(space) - there:
            self.say(
                f"{lacking} of {len(space)} valid configurations are not recorded, and count as failures"
            )
        if there == 0:
            raise RecordingError(
                f"{self.name} has no configuration of this space", "name the T1 file that it was made from"
            )
        if outside := len(self._by_values) - there:
            self.say(f"{outside} of {len(self._by_values)} recorded configurations are outside of this space")
        return space

    def submit(self, number: int, configuration: Configuration, incumbent: Incumbent = no_incumbent) -> None:
        """Look the configuration up."""
        trial = trial_of(number, configuration, Compilation(Status.OK))
        self._trials.append(measured(trial, self._look_up(configuration)))

    def _look_up(self, configuration: Configuration) -> Measurement:
        row = self._by_values.get(_values(configuration))
        if row is None:
            return Measurement(Status.INVALID_CONFIG, error=NOT_RECORDED, tags=("replayed", "foreign"))
        ok = row.status.ranked
        verified = Verification(ok, checked=False, message="as the file says")
        # The one time that the file ranks by; the median of its runtimes may differ.
        times_ns = () if row.ranked_ns is None else (row.ranked_ns,)
        return Measurement(row.status, times_ns, row.error, verified, tags=("replayed", "foreign"))


def _values(configuration: Configuration) -> frozenset[tuple[str, object]]:
    return frozenset(configuration.parameters)


def noise_floor_of(rows: Sequence[ForeignRow]) -> float:
    """Return how far the halves of a configuration's runtimes are apart, for all but 5 % of the configurations.

    The halves are every other runtime, so that drift is in both. 0 where no configuration has runtimes enough.
    """
    timed = [row.samples_ns for row in rows if len(row.samples_ns) >= MIN_SAMPLES]
    timed = timed[:: math.ceil(len(timed) / NOISE_ROWS) or 1]
    apart = [abs(median(times_ns[::2]) / median(times_ns[1::2]) - 1) for times_ns in timed]
    return float(np.quantile(apart, 0.95)) if apart else 0.0


def open_foreign(
    kernel: str, device: str, space: Path | None, say: Callable[[str], None] = say_nothing
) -> ForeignDevice | None:
    """Open another tool's file if that is what the command line means: it names no kernel.

    Args:
        kernel: as the command line names it; empty where it names none.
        device: ``--device``.
        space: ``--space``.
        say: told how the file and the space differ.

    Raises:
        UsageError: neither a kernel nor a file is named, or both are.
        RecordingError: the file cannot be read.
        ExpressionError: a condition of the space cannot be.
    """
    if kernel:
        if space is not None:
            raise UsageError(
                "--space goes with another tool's recording, which has no kernel",
                "leave out the kernel, or --space",
            )
        return None
    kind, _, file = device.partition(":")
    if kind != "replay" or not file:
        raise UsageError(
            "nothing says what to tune",
            "name a kernel (tune show lists them), or a T4 or cache file with --device replay:FILE",
        )
    if not Path(file).is_file():
        raise UsageError(
            f"there is no file {file!r}", "name a T4 or a Kernel Tuner cache file, or add a kernel"
        )
    return ForeignDevice(read_foreign(Path(file), space), say)
