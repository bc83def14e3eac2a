"""A device that answers with what another tool recorded: a T4 file or a Kernel Tuner cache."""

# ruff: noqa: ARG002 - the contract has more arguments than recorded answers need
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tuner.conditions import Conditions, Mode, Regime
from tuner.devices.base import Incumbent, Outcome, no_incumbent, say_nothing
from tuner.devices.replay import ReplayDevice
from tuner.errors import RecordingError, UsageError
from tuner.formats.as_kernel import ForeignResults, read_foreign
from tuner.formats.recording import Row
from tuner.kernel.spec import KernelSpec
from tuner.model import Configuration, Measurement, Problem, Status, Verification
from tuner.protocol.compilation import Compilation
from tuner.space.space import SearchSpace

NOT_RECORDED = "not recorded"


class ForeignDevice(ReplayDevice):
    """Looks up the one time that a file has of each configuration; there is no source that could have changed.

    A configuration that the space allows and the file does not have counts as a failure.
    """

    def __init__(self, results: ForeignResults, say: Callable[[str], None] = say_nothing) -> None:
        rate = f"{results.objective} is what counts: a time is that of 10^9 of them at the recorded rate"
        notes = [*results.notes, *([rate] if results.objective != "time" else [])]
        super().__init__(results.recording, say, "; ".join(notes))
        self.results = results
        rows = results.recording.problems[0].rows
        self._by_values: dict[frozenset[tuple[str, object]], Row] = {
            frozenset(configuration.parameters): row for configuration, row in rows.items()
        }

    def noise_floor(self, time_ns: float) -> float:
        """Return none: nothing is known of the noise of these times, so that the least of them is the best."""
        return 0.0

    def choose_conditions(
        self, kernel: KernelSpec, problem: Problem, mode: Mode | None, regime: Regime
    ) -> tuple[Conditions, str]:
        """Return the conditions of the file, whatever regime is asked for: its times are what they are.

        Raises:
            RecordingError: a mode is asked for in which the file was not recorded.
        """
        conditions = self.recording.conditions
        if mode not in (None, conditions.mode):
            raise RecordingError(f"{self.name} was recorded {conditions}", "leave out --mode")
        return conditions, "as it was recorded"

    def restrict(self, space: SearchSpace) -> SearchSpace:
        """Leave the space as it is, and say how it and the recording differ."""
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
        measurement = self._look_up(configuration)
        status = Status.OK if measurement.status is not Status.COMPILE_ERROR else Status.COMPILE_ERROR
        compilation = Compilation(status, measurement.error if status is not Status.OK else "")
        self._outcomes.append(Outcome(number, configuration, compilation, measurement))

    def confirm(self, configuration: Configuration, time_ns: float) -> Measurement:
        """Return what is recorded once more."""
        return self._look_up(configuration)

    def _look_up(self, configuration: Configuration) -> Measurement:
        row = self._by_values.get(frozenset(configuration.parameters))
        if row is None:
            return Measurement(Status.INVALID_CONFIG, error=NOT_RECORDED, tags=("replayed", "foreign"))
        ok = row.status.ranked
        verified = Verification(ok, checked=False, message="as the file says")
        return Measurement(row.status, row.samples_ns, row.error, verified, tags=("replayed", "foreign"))


def open_foreign(
    kernel: str | None, device: str, space: Path | None, say: Callable[[str], None] = say_nothing
) -> ForeignDevice | None:
    """Open another tool's file if that is what the command line means: it names no kernel.

    Args:
        kernel: ``--kernel``.
        device: ``--device``.
        space: ``--space``.
        say: told how the file and the space differ.

    Raises:
        UsageError: neither a kernel nor a file is named, or both are.
        RecordingError: the file cannot be read.
        ExpressionError: a condition of the space cannot be.
    """
    if kernel is not None:
        if space is not None:
            raise UsageError(
                "--space goes with another tool's recording, which has no kernel",
                "leave out --kernel, or --space",
            )
        return None
    kind, _, file = device.partition(":")
    if kind != "replay" or not file:
        raise UsageError(
            "nothing says what to tune",
            "name a kernel with --kernel (see tune list), or a T4 or cache file with --device replay:FILE",
        )
    if not Path(file).is_file():
        raise UsageError(
            f"there is no file {file!r}", "name a T4 or a Kernel Tuner cache file, or add --kernel"
        )
    return ForeignDevice(read_foreign(Path(file), space), say)
