"""The fake measuring process as one of several cards: its number is its first argument. The environment says the rest:

- ``FAKE_CARD_SLOWER``: by which share each card is slower than the one before it;
- ``FAKE_CARD_DIES``: number of a card whose process ends with every measurement;
- ``FAKE_CARD_OTHER``: number of a card of another model.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace

from msgspec import structs

from tests.faults.fake_worker import GPU, FakeWorker, Pipe
from tuner.children.measuring import MEASURING, Answer, Hello, Measure, Measured, MeasuringRequest, SetupDone
from tuner.core.processes import ParentPipe


class FakeCard(FakeWorker):
    def __init__(self, pipe: Pipe, number: int) -> None:
        super().__init__(pipe)
        self.number = number
        self.factor = 1.0 + number * float(os.environ.get("FAKE_CARD_SLOWER", "0"))

    def answer(self, request: MeasuringRequest) -> Answer:
        dies = os.environ.get("FAKE_CARD_DIES") == str(self.number)
        if dies and isinstance(request, Measure):
            os._exit(5)
        answer = super().answer(request)
        match answer:
            case SetupDone():
                return structs.replace(answer, reference_ns=answer.reference_ns * self.factor)
            case Measured(measurement=measurement):
                samples = tuple(time_ns * self.factor for time_ns in measurement.samples_ns)
                return structs.replace(answer, measurement=replace(measurement, samples_ns=samples))
        return answer


def main() -> None:
    pipe: Pipe = ParentPipe(MEASURING)
    number = int(sys.argv[1])
    gpu = replace(GPU, uuid=f"{number:032x}")
    if os.environ.get("FAKE_CARD_OTHER") == str(number):
        gpu = replace(gpu, name="NVIDIA L4")
    pipe.send(Hello(gpu))
    FakeCard(pipe, number).serve()


if __name__ == "__main__":
    main()
