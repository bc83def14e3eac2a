"""What the measuring process asks of a Python candidate that has a process of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tuner.children.measuring import PythonCall
from tuner.core.conditions import Mode
from tuner.kernel.contents import Array
from tuner.runtime.launches import Buffer


class RemoteCandidate(Protocol):
    """A candidate that is captured, run and timed elsewhere; inputs and what is expected of them stay here.

    :meth:`tuner.gpu.worker.Worker._load` chooses between this and :func:`tuner.gpu.baselines.open_call`. Each method
    raises TunerError if the candidate fails, or its process ends.
    """

    def prepare(self, call: PythonCall, tensors: Sequence[Buffer]) -> None:
        """Import the function, make tensors of the problem, and capture the call on them."""

    def run(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Run it once on these contents and poisoned outputs; return the outputs, as they lie in memory."""

    def time(self, launches: int, mode: Mode) -> Sequence[float]:
        """Launch it so many times; return nanoseconds of each, by stamps on the GPU that the clock here bounds."""

    def close(self) -> None:
        """End the process."""
