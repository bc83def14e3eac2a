"""The result of a problem's unrounded inputs, from which errors are counted."""

from __future__ import annotations

from tuner.children.measuring import ProblemSetup
from tuner.core.errors import KernelError
from tuner.core.model import Gpu
from tuner.gpu.buffers import Helpers, ProblemData
from tuner.gpu.memory import Memory
from tuner.gpu.verify import Verifier
from tuner.kernel.answers import Answers


class Truth:
    """The result of a problem's unrounded inputs: what every dtype's result is compared with.

    Computes the same problem in a wider dtype, from the same seed, and keeps what is expected of it.

    Inputs are drawn as float32 and then rounded to their dtype, so that equal seeds give the same numbers in all of
    them, but for the rounding.

    Args:
        helpers: the tuner's own kernels.
        wider: the wider problem.
        seed: of the inputs.
        gpu: for its size.
        answers: of references on the host.

    Raises:
        KernelError: it has no reference, or one that fails.
    """

    def __init__(
        self, helpers: Helpers, wider: ProblemSetup, seed: int, gpu: Gpu, answers: Answers | None = None
    ) -> None:
        given = wider.given(seed)
        data = ProblemData(helpers, wider.tensors, seed, gpu.l2_bytes, gpu.sm_count, given=given)
        self.memory = Memory()
        self.addresses: dict[str, int] = {}
        try:
            _require_answers(Verifier(data, wider.reference, answers))
            for tensor in data.outputs:
                name = f"{tensor.name} expected"
                self.addresses[tensor.name] = self.memory.take(data.memory, name, "truth ")
        except BaseException:
            self.memory.close()
            raise
        finally:
            data.close()


def _require_answers(verifier: Verifier) -> None:
    if not verifier.possible:
        raise KernelError(
            "there is no reference to count errors from", "add [reference] to the kernel's file"
        )
