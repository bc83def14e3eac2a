"""The result of a problem's unrounded inputs: what every dtype's result is compared with."""

from __future__ import annotations

from typing import Any

from tuner.gpu.buffers import Helpers, Memory, ProblemData
from tuner.gpu.verify import Verifier
from tuner.model import Gpu
from tuner.plan import buffer_from_json


class Truth:
    """Computes the same problem in a wider dtype, from the same seed, and keeps what is expected of it.

    Inputs are drawn as float32 and then rounded to their dtype, so that equal seeds give the same numbers in all of
    them, but for the rounding.

    Args:
        helpers: the tuner's own kernels.
        request: ``tensors`` and ``reference`` of the wider problem, as in a setup.
        seed: of the inputs.
        gpu: for its size.

    Raises:
        KernelError: its reference fails.
    """

    def __init__(self, helpers: Helpers, request: dict[str, Any], seed: int, gpu: Gpu) -> None:
        tensors = tuple(buffer_from_json(tensor) for tensor in request["tensors"])
        data = ProblemData(helpers, tensors, seed, gpu.l2_bytes, gpu.sm_count)
        self.memory = Memory()
        self.addresses: dict[str, int] = {}
        try:
            Verifier(data, request["reference"])
            for tensor in data.outputs:
                self.addresses[tensor.name] = self.memory.take(
                    data.memory, f"{tensor.name} expected", "truth "
                )
        except BaseException:
            self.memory.close()
            raise
        finally:
            data.close()
