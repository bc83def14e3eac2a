"""The second timing of short problems: warm, back to back.

A search times with cold data. Most programs call a kernel back to back, with part of its data in the L2. Where a kernel
is short, another configuration may be best there. So the mean of a finalist's ratios to another in both modes counts.
Times of different modes are never compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from tuner.core.conditions import Mode, Regime
from tuner.core.model import Configuration, Run, Trial
from tuner.devices.base import Contestant, Device, RaceRequest
from tuner.kernel.batching import warm_differs
from tuner.kernel.plan import tensors_of
from tuner.kernel.spec import KernelSpec
from tuner.tuning.elimination import Standing

ROUNDS, SAMPLES = 3, 3
"""For choosing finalists among some 40 candidates, within about a second: the races decide."""


def warm_matters(kernel: KernelSpec, run: Run, device: Device, best_ns: float) -> bool:
    """Return whether a run chooses its winner by the mode warm as well.

    Not if the user named the mode, nor if dtypes are to be compared by one time; not for a recording, which has times
    of one mode, nor under sustained load, where samples are long.

    Args:
        kernel: what computes.
        run: what is tuned, and how.
        device: where.
        best_ns: the best time of the search.
    """
    options, conditions = run.options, run.conditions
    if device.recorded or options.one_mode or options.max_error is not None:
        return False
    if conditions.regime is not Regime.RESTED or conditions.mode is Mode.WARM:
        return False
    return warm_differs(tensors_of(kernel, run.problem, device.gpu), device.gpu, best_ns)


def time_warm(device: Device, candidates: Sequence[Trial], seed: int) -> dict[Configuration, float]:
    """Return the candidates' times in the mode warm, in nanoseconds; one that fails is left out.

    They are not precise, and only tell which candidates are worth racing.
    """
    entered = [Contestant(trial.configuration, trial.time_ns or 0.0) for trial in candidates]
    answer = device.race(RaceRequest(entered, ROUNDS, SAMPLES, seed, Mode.WARM))
    return {candidates[index].configuration: timed.time_ns for index, timed in answer.timed.items()}


def behind(standing: Standing, contestant: int) -> float:
    """Return a contestant's time over that of the fastest."""
    return standing.ratio(contestant, standing.left[0]).median
