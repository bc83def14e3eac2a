"""Everything that is the same for all candidates of a problem: data, reference, limits, conditions of timing."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from tuner.children.measuring import ProblemSetup, Setup
from tuner.core.conditions import Conditions, Mode
from tuner.core.errors import KernelError
from tuner.core.model import Verification
from tuner.gpu.beside import Load
from tuner.gpu.buffers import Helpers, ProblemData
from tuner.gpu.candidate import Loaded, Timed
from tuner.gpu.clocks import Stamps
from tuner.gpu.driver import Graph
from tuner.gpu.outside import Ask, Outside
from tuner.gpu.timing import MOST_WAITING_S, SampleGraph, Samples, Timer, group_size, run_once
from tuner.gpu.verify import Verifier
from tuner.kernel.answers import Answers
from tuner.kernel.batching import Batch, Limits
from tuner.kernel.contents import NAN, OTHER_POISONS
from tuner.kernel.reference import expected_dtype
from tuner.runtime.launches import OUTPUTS, RESTORED

FIRST_LAUNCH_S = 30.0
FIRST_LAUNCH_FLOORS = 2000.0
"""Allowed for the first launch while nothing is known about the problem's time: so many seconds, and so many times what
the hardware needs at least. A naive kernel reaches some 0.2 % of a matrix unit's peak."""
KNOWN_LAUNCH_S = 10.0
"""Least that is allowed once there is an incumbent: a slow kernel is not a hang."""
_DRAW = random.SystemRandom()
CHECK_S = 60.0
ESTIMATE_S = 300.0
"""More for a check before which a Python reference may be asked again: its calls have a limit of their own."""


@dataclass
class ProblemSession:
    """One problem, ready for candidates.

    Attributes:
        gap_ns: what a sample takes besides its calls.
        set_deadline: tells the guard how many seconds the next step may take.
        damaged: a kernel wrote where it must not; nothing in this process's GPU memory can be relied on any more.
    """

    data: ProblemData
    verifier: Verifier | Outside
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

    def cold_graph(self, timed: Timed, samples: int, before: Callable[[Graph, int], int]) -> SampleGraph:
        """Build a group of cold samples of one call each, whatever the mode; ``before`` comes before each."""
        return SampleGraph(self.data, self.stamps, timed, samples, Mode.COLD, 1, before=before)

    def empty_graph(self, timed: Timed) -> Graph | None:  # noqa: ARG002 - for what builds some graphs in another way
        """Return what a candidate's first run is appended to; None for a new graph of the usual kind."""
        return None

    def take(self, graph: SampleGraph, estimate_ns: float) -> Samples:
        """Take a group."""
        self.set_deadline(KNOWN_LAUNCH_S + MOST_WAITING_S + 20e-9 * graph.samples * graph.calls * estimate_ns)
        heavy = self.heavy(estimate_ns)
        return self.timer.group(graph, self.conditions.regime, self.gap_ns, heavy=heavy)

    def first_run(
        self, timed: Timed, known_ns: float, poison: int = NAN, load: Load | None = None
    ) -> tuple[float, Verification]:
        """Run once on poisoned memory, and compare: the check is the warm-up, and sizes everything after it.

        Args:
            timed: what is run.
            known_ns: an earlier time of it, or of the best of its kind; 0 for none.
            poison: one of :data:`tuner.kernel.contents.POISONS`.
            load: other work beside it.
        """
        unknown = FIRST_LAUNCH_S + FIRST_LAUNCH_FLOORS * self.limits.floor_ns * 1e-9
        self.set_deadline(max(KNOWN_LAUNCH_S, 100 * known_ns * 1e-9) if known_ns else unknown)
        if isinstance(timed, Loaded):
            timed.fill()
        beside = self.data.helpers.other_work.during(load, known_ns) if load else None
        first_ns = run_once(self.data, timed, self.empty_graph(timed), poison, beside)
        if self.data.strays(poison):
            return first_ns, Verification(False, message="it wrote to another copy of the tensors")
        return first_ns, _with_unfilled(timed, self._with_scratch_check(timed, self.check()))

    def with_other_poisons(self, timed: Timed, known_ns: float) -> Verification:
        """Compare what a run makes of each other poison, the first two beside other work.

        Nothing that is right may hang on what was in memory before, or on having the GPU for itself.
        """
        for poison, load in zip(OTHER_POISONS, (*Load, None), strict=True):
            _, verification = self.first_run(timed, known_ns, poison, load)
            if not verification.wrong:
                continue
            if load and not self.damaged and self.first_run(timed, known_ns, poison)[1].passed:
                where = f"while {load.value} (alone it is right: a race)"
            else:
                where = f"where memory holds 0x{poison:02X} before"
            return replace(verification, message=f"{where}: {verification.message}")
        return verification

    def check(self, copy: int = 0) -> Verification:
        """Compare the outputs as they are, and look for damage."""
        self.set_deadline(CHECK_S + (ESTIMATE_S if self.verifier.rough else 0.0))
        damage = self.data.damage()
        if damage:
            self.damaged = True
            return Verification(False, message=f"the kernel {damage}")
        return self.verifier.check(copy)

    def _with_scratch_check(self, timed: Timed, verification: Verification) -> Verification:
        """Fail what leaves scratch that must stay zero otherwise, whatever its outputs are."""
        name = timed.scratch_not_zeroed() if isinstance(timed, Loaded) and not self.damaged else ""
        if not name or verification.wrong:
            return verification
        message = f"scratch {name} is not zero after a run, which zeroed = 'once' promises"
        return replace(verification, passed=False, checked=True, message=message)

    def check_after(self, timed: Timed, calls: int) -> Verification:
        """Compare what the last timed run has left; of several copies the first and the last that it was called on, and
        one between, which nothing tells a kernel beforehand.

        Where tensors are updated in place by more calls than there are copies, there is no expected value: the
        candidate is then run once more, on restored tensors. So it is wherever a call warms the caches for the next.
        """
        in_place = any(tensor.role in RESTORED for tensor in self.data.tensors)
        if in_place and (calls > self.data.copies or self.conditions.mode is Mode.WARM):
            return self.first_run(timed, 0.0)[1]
        timed.deliver(0)
        verification = self._with_scratch_check(timed, self.check())
        last = 0 if self.conditions.mode is Mode.WARM else min(calls, self.data.copies) - 1
        for copy in sorted({last, _DRAW.randint(min(1, last), last)} - {0}):
            if verification.wrong:
                break
            timed.deliver(copy)
            other = self.check(copy)
            if other.wrong:
                return replace(other, message=f"copy {copy} of the tensors: {other.message}")
        return verification

    def close(self) -> None:
        """Free the problem's memory."""
        self.data.close()


def _with_unfilled(timed: Timed, verification: Verification) -> Verification:
    """Return a comparison that names, where it failed, constants that are zero because nothing fills them."""
    if not (verification.wrong and isinstance(timed, Loaded) and timed.unfilled):
        return verification
    names = ", ".join(dict.fromkeys(timed.unfilled))
    remedy = f"__constant__ {names} is zero: no launch fills it, see constants in docs/kernel-files.md"
    return replace(verification, message=f"{verification.message}; {remedy}")


def open_session(
    setup: Setup,
    helpers: Helpers,
    timer: Timer,
    set_deadline: Callable[[float], None],
    answers: Answers | None = None,
    ask: Ask | None = None,
) -> tuple[ProblemSession, float | None]:
    """Make a problem ready, as a setup request describes it; where this process asks, another has the reference.

    Returns:
        The session; and, where the request names a truth, the error that no kernel of this dtype can undercut.

    Raises:
        TunerError: the reference is wrong or cannot be run.
        DriverFailure: no memory, or the reference kernel failed.
        ClockMismatchError: something else keeps the GPU busy.
    """
    batch = setup.batch
    with ExitStack() as undo:
        tensors, given = setup.problem.tensors, setup.problem.given(setup.seed)
        helpers.add(
            [
                *(one.dtype for one in tensors),
                *(expected_dtype(one) for one in tensors if one.role in OUTPUTS),
            ]
        )
        data = ProblemData(helpers, tensors, setup.seed, batch.copies, given=given)
        undo.callback(data.close)
        verifier: Verifier | Outside
        least_error = None
        if setup.exchange is not None and ask is not None:
            verifier = Outside(data, setup.exchange, ask)
        else:
            verifier = Verifier(data, setup.problem.reference, answers)
        if setup.truth is not None and isinstance(verifier, Verifier):
            least_error = verifier.hold_against(_truth_of(setup.truth, setup.seed, data, answers))
        data.seal()
        session = assemble(
            data, verifier, timer, setup.limits, setup.conditions, batch, set_deadline, timed=setup.timed
        )
        undo.pop_all()
        return session, least_error


def _truth_of(wider: ProblemSetup, seed: int, beside: ProblemData, answers: Answers | None) -> dict[str, int]:
    """Return where the results of a problem's unrounded inputs lie, by output, from which errors are counted.

    The same problem is computed in a wider dtype. Inputs are drawn as float32 and then rounded to their dtype, so that
    equal seeds give the same numbers in all of them, but for the rounding.

    Args:
        wider: the wider problem.
        seed: of the inputs.
        beside: the data of the problem itself, whose memory takes the results over.
        answers: of references on the host.

    Raises:
        KernelError: it has no reference, or one that fails.
    """
    with closing(ProblemData(beside.helpers, wider.tensors, seed, given=wider.given(seed))) as data:
        if not Verifier(data, wider.reference, answers).possible:
            remedy = "add [reference] to the kernel's file"
            raise KernelError("there is no reference to count errors from", remedy)
        names = [tensor.name for tensor in data.outputs]
        return {name: beside.memory.take(data.memory, f"{name} expected", "truth ") for name in names}


def assemble(
    data: ProblemData,
    verifier: Verifier | Outside,
    timer: Timer,
    limits: Limits,
    conditions: Conditions,
    batch: Batch,
    set_deadline: Callable[[float], None],
    *,
    timed: bool = True,
) -> ProblemSession:
    """Put a session together, with what its timing needs."""
    stamps = Stamps(data.helpers, data.memory)
    gap_ns = timer.measure_gap(data, stamps, conditions.mode) if timed else math.inf
    return ProblemSession(data, verifier, stamps, timer, limits, conditions, batch, gap_ns, set_deadline)
