"""The fake measuring process, which asks references on the host as the real one does."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from msgspec import structs

from tests.faults import fake_worker
from tuner.children.measuring import Failed, Setup, SetupDone
from tuner.kernel.answers import Answers
from tuner.kernel.contents import drawn


class AskingWorker(fake_worker.FakeWorker):
    def setup(self, request: Setup) -> SetupDone | Failed:
        tensors, reference = request.problem.tensors, request.problem.reference
        random = np.random.default_rng(request.seed)
        inputs = {tensor.name: drawn(tensor, random) for tensor in tensors if tensor.role != "output"}
        answers = Answers(Path(sys.argv[3]))
        _, host_s = answers.of(reference, tensors, inputs, reference.numbers, ["y"])
        done = super().setup(request)
        return structs.replace(done, host_s=host_s) if isinstance(done, SetupDone) else done


if __name__ == "__main__":
    fake_worker.FakeWorker = AskingWorker  # type: ignore[misc]
    fake_worker.main()
