"""Everything that is the same for all candidates of a problem: data, reference, limits, conditions of timing."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from tuner.children.measuring import Setup
from tuner.core.conditions import Conditions, Mode
from tuner.core.model import Gpu, Verification
from tuner.gpu.buffers import Helpers, ProblemData
from tuner.gpu.candidate import Loaded, Timed
from tuner.gpu.clocks import Stamps
from tuner.gpu.graph import Graph
from tuner.gpu.sampling import SampleGraph, run_once
from tuner.gpu.timing import MOST_WAITING_S, Samples, Timer, group_size
from tuner.gpu.verify import Truth, Verifier
from tuner.kernel.workload import Batch, Limits

FIRST_LAUNCH_S = 30.0
FIRST_LAUNCH_FLOORS = 2000.0
"""Allowed for the first launch while nothing is known about the problem's time: so many seconds, and so many times what
the hardware needs at least. A naive kernel reaches some 0.2 % of a matrix unit's peak."""
KNOWN_LAUNCH_S = 10.0
"""Least that is allowed once there is an incumbent: a slow kernel is not a hang."""
CHECK_S = 60.0


@dataclass
class ProblemSession:
    """One problem, ready for candidates.

    Attributes:
        gap_ns: what a sample takes besides its calls.
        set_deadline: tells the guard how many seconds the next step may take.
        damaged: a kernel wrote where it must not; nothing in this process's GPU memory can be relied on any more.
    """

    data: ProblemData
    verifier: Verifier
    stamps: Stamps
    timer: Timer
    limits: Limits
    conditions: Conditions
    batch: Batch
    gap_ns: float
    set_deadline: Callable[[float], None]
    damaged: bool = False

    def in_mode(self, mode: Mode, batch: Batch) -> ProblemSession:
        """Return a session that times in another mode, on the same data."""
        gap_ns = self.timer.measure_gap(self.data, self.stamps, mode)
        return replace(self, conditions=replace(self.conditions, mode=mode), batch=batch, gap_ns=gap_ns)

    def heavy(self, estimate_ns: float) -> bool:
        """Return whether a kernel of this time needs rest, or under sustained load a warm-up."""
        return self.limits.heavy(estimate_ns)

    def size(self, estimate_ns: float) -> int:
        """Return the number of samples of a group."""
        return group_size(estimate_ns, self.conditions, self.batch, heavy=self.heavy(estimate_ns))

    def graph(self, timed: Timed, samples: int, estimate_ns: float) -> SampleGraph:
        """Build a group."""
        calls = self.batch.calls_for(estimate_ns)
        return SampleGraph(self.data, self.stamps, timed, samples, self.conditions.mode, calls)

    def empty_graph(self, timed: Timed) -> Graph | None:  # noqa: ARG002 - for what builds some graphs in another way
        """Return what a candidate's first run is appended to; None for a new graph of the usual kind."""
        return None

    def take(self, graph: SampleGraph, estimate_ns: float) -> Samples:
        """Take a group."""
        self.set_deadline(KNOWN_LAUNCH_S + MOST_WAITING_S + 20e-9 * graph.samples * graph.calls * estimate_ns)
        heavy = self.heavy(estimate_ns)
        regime = self.conditions.regime
        return self.timer.group(self.data, self.stamps, graph, regime, self.gap_ns, heavy=heavy)

    def first_run(self, timed: Timed, known_ns: float) -> tuple[float, Verification]:
        """Run once on poisoned outputs, and compare: the check is the warm-up, and sizes everything after it.

        Args:
            timed: what is run.
            known_ns: an earlier time of it, or of the best of its kind; 0 for none.
        """
        unknown = FIRST_LAUNCH_S + FIRST_LAUNCH_FLOORS * self.limits.floor_ns * 1e-9
        self.set_deadline(max(KNOWN_LAUNCH_S, 100 * known_ns * 1e-9) if known_ns else unknown)
        first_ns = run_once(self.data, timed, self.empty_graph(timed))
        return first_ns, self._with_scratch_check(timed, self.check())

    def check(self, copy: int = 0) -> Verification:
        """Compare the outputs as they are, and look for damage."""
        self.set_deadline(CHECK_S)
        damage = self.data.damage()
        if damage:
            self.damaged = True
            return Verification(False, message=f"the kernel {damage}")
        return self.verifier.check(copy)

    def _with_scratch_check(self, timed: Timed, verification: Verification) -> Verification:
        """Fail what leaves scratch that must stay zero otherwise, whatever its outputs are."""
        name = timed.scratch_not_zeroed() if isinstance(timed, Loaded) and not self.damaged else ""
        if not name or (verification.checked and not verification.passed):
            return verification
        message = f"scratch {name} is not zero after a run, which zeroed = 'once' promises"
        return replace(verification, passed=False, checked=True, message=message)

    def check_after(self, timed: Timed, calls: int) -> Verification:
        """Compare what the last timed run has left; of several copies the first and the last that it was called on.

        Where tensors are updated in place by more calls than there are copies, there is no expected value: the
        candidate is then run once more, on restored tensors. So it is wherever a call warms the caches for the next.
        """
        in_place = any(tensor.role == "inout" for tensor in self.data.tensors)
        if in_place and (calls > self.data.copies or self.conditions.mode is Mode.WARM):
            return self.first_run(timed, 0.0)[1]
        verification = self._with_scratch_check(timed, self.check())
        last = 0 if self.conditions.mode is Mode.WARM else min(calls, self.data.copies) - 1
        if last and (verification.passed or not verification.checked):
            other = self.check(last)
            if other.checked and not other.passed:
                return replace(other, message=f"copy {last} of the tensors: {other.message}")
        return verification

    def close(self) -> None:
        """Free the problem's memory."""
        self.data.close()


def open_session(
    setup: Setup, helpers: Helpers, gpu: Gpu, timer: Timer, set_deadline: Callable[[float], None]
) -> tuple[ProblemSession, float | None]:
    """Make a problem ready, as a setup request describes it.

    Returns:
        The session; and, where the request names a truth, the error that no kernel of this dtype can undercut.

    Raises:
        TunerError: the reference is wrong or cannot be run.
        DriverFailure: no memory, or the reference kernel failed.
        ClockMismatchError: something else keeps the GPU busy.
    """
    batch = setup.batch
    with ExitStack() as undo:
        data = ProblemData(
            helpers, setup.problem.tensors, setup.seed, gpu.l2_bytes, gpu.sm_count, batch.copies
        )
        undo.callback(data.close)
        verifier = Verifier(data, setup.problem.reference)
        least_error = None
        if setup.truth is not None:
            truth = Truth(helpers, setup.truth, setup.seed, gpu)
            data.memory.adopt(truth.memory)
            least_error = verifier.hold_against(truth.addresses)
        data.seal()
        session = assemble(
            data, verifier, gpu, timer, setup.limits, setup.conditions, batch, set_deadline, timed=setup.timed
        )
        undo.pop_all()
        return session, least_error


def assemble(
    data: ProblemData,
    verifier: Verifier,
    gpu: Gpu,
    timer: Timer,
    limits: Limits,
    conditions: Conditions,
    batch: Batch,
    set_deadline: Callable[[float], None],
    *,
    timed: bool = True,
) -> ProblemSession:
    """Put a session together, with what its timing needs."""
    stamps = Stamps(data.helpers, data.memory, gpu.sm_count)
    gap_ns = timer.measure_gap(data, stamps, conditions.mode) if timed else math.inf
    return ProblemSession(data, verifier, stamps, timer, limits, conditions, batch, gap_ns, set_deadline)
