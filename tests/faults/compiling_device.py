"""A scripted device that compiles ahead, and takes its time with it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.faults.stub_device import StubDevice, good, time_of
from tuner.children.compilation import Compilation
from tuner.core.model import Configuration, Measurement, Resources, Status, Trial
from tuner.devices.base import Incumbent, no_incumbent
from tuner.devices.submissions import measured, trial_of

COMPILE_S = 0.5


class CompilingDevice(StubDevice):
    """Ends one compilation, or gives one answer, at each collection: which one is drawn.

    Args:
        compilers: as of any device.
        shuffle: seed of the order in which things end.
        answer: what a configuration measures to; a compile error is known before it is submitted.
        measure_s: seconds that each measurement says it took; None for those of the samples.
    """

    def __init__(
        self,
        compilers: int = 4,
        shuffle: int = 0,
        answer: Callable[[Configuration], Measurement] = lambda c: good(time_of(c)),
        measure_s: float | None = None,
    ) -> None:
        super().__init__(lookahead=compilers + 8, answer=answer)
        self.compilers = compilers
        self.measure_s = measure_s
        self.begun: list[Configuration] = []
        self.under_way: list[Configuration] = []
        self.ended: dict[Configuration, Compilation] = {}
        self.forgotten: list[Configuration] = []
        self.draw = random.Random(shuffle)

    def compile(self, configuration: Configuration) -> None:
        self.begun.append(configuration)
        self.under_way.append(configuration)

    def compiled(self, configuration: Configuration) -> Compilation | None:
        assert configuration in self.under_way or configuration in self.ended
        return self.ended.get(configuration)

    def forget(self, configuration: Configuration) -> None:
        self.forgotten.append(configuration)
        self.ended.pop(configuration, None)
        if configuration in self.under_way:
            self.under_way.remove(configuration)

    def submit(self, number: int, configuration: Configuration, incumbent: Incumbent = no_incumbent) -> None:
        super().submit(number, configuration, incumbent)
        self.ended.pop(configuration, None)

    def collect(self, timeout_s: float) -> list[Trial]:
        place = self.draw.randrange(max(1, len(self.waiting) + len(self.under_way)))
        if place < len(self.waiting):
            number, configuration = self.waiting.pop(place)
            measurement = self.answer(configuration)
            if self.measure_s is not None:
                measurement = replace(measurement, measure_s=self.measure_s)
            compilation = Compilation(Status.OK, resources=(Resources(32),), compile_s=COMPILE_S)
            return [measured(trial_of(number, configuration, compilation), measurement)]
        if self.under_way:
            configuration = self.under_way.pop(place - len(self.waiting))
            failed = self.answer(configuration).status is Status.COMPILE_ERROR
            self.ended[configuration] = (
                Compilation(Status.COMPILE_ERROR)
                if failed
                else Compilation(Status.OK, resources=(Resources(32),))
            )
        return []
