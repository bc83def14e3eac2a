"""What this GPU reaches, and how well it can be timed: measured once for each card and driver, in some seconds."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from itertools import combinations

import numpy as np

from tuner.children.measuring import ReferenceData
from tuner.core.conditions import Calibration, Conditions, Mode, Regime
from tuner.core.stats import paired_ratio
from tuner.gpu.buffers import Helpers, ProblemData
from tuner.gpu.candidate import Fixed, Timed
from tuner.gpu.drift import VECTOR_ROUNDS, ReferenceKernel, arithmetic
from tuner.gpu.driver import Graph
from tuner.gpu.measure import InterleavedTiming, TimedContestant
from tuner.gpu.problem import ProblemSession, assemble
from tuner.gpu.timing import Timer
from tuner.gpu.verify import Verifier
from tuner.kernel.batching import Batch, Limits
from tuner.kernel.render import render_ceilings
from tuner.runtime.launches import Buffer

MEMORY_FLOATS = 1 << 27
"""512 MiB: several times the L2 of any GPU, and long enough for the events not to matter."""
SHORT_FLOATS = 1 << 20
"""4 MiB: a kernel of a few microseconds."""
LEAST_VECTORS = 32
"""Vectors of 16 bytes that the least kernel copies: one for each thread of its only warp."""
LEAST_STRIDE = 1 << 16
"""Bytes from one call's to the next one's in a tensor: they share no page of the memory."""
LEAST_NS = 2e3
"""What it takes, roughly: so many calls share a pair of events that these cost it a few hundredths of a microsecond."""
CEILING = "copy_sweep"
"""One of the kernels that measure ceilings."""
MATRIX_ROUNDS = 320
"""Some 200 us on an H200."""
LOADS = 8
"""Of one kernel, each compared with each: their 28 ratios say nearly as much of the noise as 12 comparisons of two, and
on an H100 take a third of the time."""
ROUNDS, SAMPLES = 24, 4
"""Of a comparison; fewer than the end of a race has, so that the floor errs to the careful side."""
LEAST_NOISE = 0.002
"""The least noise that is credible. Two loads of one kernel differ by 0.04 to 0.07 % (standard deviation) on an H200,
and with a floor of three such deviations more than 2 % of equal pairs would be called different."""
NOISE_QUANTILE = 0.95
SETTING_SHARE = 0.97
"""Share of the highest clock below which a GPU that nothing slows must have been slowed on purpose."""


class Calibrator:
    """Takes the measurements; some seconds.

    Args:
        helpers: the tuner's own kernels.
        timer: of the measuring process.
        set_deadline: tells the guard how long the next step may take.

    Raises:
        CompileError: the kernels that measure ceilings do not compile.
    """

    def __init__(self, helpers: Helpers, timer: Timer, set_deadline: Callable[[float], None]) -> None:
        self._gpu, self._helpers, self._timer, self._set_deadline = helpers.gpu, helpers, timer, set_deadline
        self._ceilings = helpers.others(render_ceilings(self._gpu.cc), CEILING)

    def measure(self, *, short: bool = True) -> Calibration:
        """Measure everything; what only short kernels need, too, or not."""
        with ExitStack() as stack:
            stack.callback(self._ceilings.close)
            floats = min(MEMORY_FLOATS, self._gpu.memory_bytes // 64)  # a small slice of a card has less room
            large = stack.enter_context(closing(self._session(floats, Mode.COLD)))
            heavy = replace(large, limits=Limits(0.0, 1.0, 1e-30))  # under which every kernel needs rest
            copy, read = self._copy(large, self._ceilings), self._read(large)
            matrix, vector = self._matrix(large, self._ceilings), arithmetic(large.data)
            size_bytes = 4.0 * floats
            times = {
                "copy": self._time(large, copy),
                "read": self._time(large, read),
                "matrix": self._time(heavy, matrix),
                "vector": self._time(heavy, vector),
                "nothing": self._time(large, Fixed(self._helpers.kernel("nothing", 1, 32, []))),
            }
            clock = self._clock(large, vector)
            noise = self._noise(large, self._copy) + self._noise(heavy, self._matrix)
            short_noise_ns, launch_ns = {}, {}
            for mode in Mode if short else ():
                with closing(self._session(SHORT_FLOATS, mode)) as session:
                    launch_ns[str(mode)] = self._time(session, self._least(session), LEAST_NS)
                    if mode is Mode.WARM:
                        continue
                    short_ns = self._time(session, self._copy(session, self._ceilings))
                    alone = self._noise(session, self._copy)
                short_noise_ns[str(mode)] = short_ns * float(np.quantile(alone, NOISE_QUANTILE))
            if short:
                short_noise_ns[str(Mode.WARM)] = short_noise_ns[str(Mode.ROTATING)]
            reference_ns = ReferenceKernel(large).time_ns()
        share = _noise_floor(noise)
        return Calibration(
            noise={str(Conditions(mode, Regime.RESTED)): share for mode in Mode},
            short_noise_ns=short_noise_ns,
            reference_ns=reference_ns,
            read_bytes_per_s=size_bytes / times["read"] * 1e9,
            copy_bytes_per_s=2 * size_bytes / times["copy"] * 1e9,
            # Their tensor cores answer to tcgen05 alone; mma.sync would say far too little.
            matrix_flops=0.0 if self._gpu.cc in (100, 103) else self._matrix_work() / times["matrix"] * 1e9,
            vector_flops=2.0 * 64 * VECTOR_ROUNDS * 2048 * self._gpu.sm_count / times["vector"] * 1e9,
            event_ns=times["nothing"],
            launch_ns=launch_ns,
            sm_clock_hz=clock,
            measured=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            notes=self._clock_note(clock),
        )

    # -- the sessions and the kernels -------------------------------------------------------------------------------

    def _session(self, floats: int, mode: Mode) -> ProblemSession:
        tensors = (
            Buffer("x", (floats,), "float32", "input", "normal"),
            Buffer("y", (floats,), "float32", "output"),
        )
        batch = Batch(1, 1) if mode is Mode.COLD else Batch(60, 30)
        with ExitStack() as undo:
            data = ProblemData(self._helpers, tensors, 0, batch.copies)
            undo.callback(data.close)
            verifier = Verifier(data, ReferenceData("float32"))
            data.seal()
            conditions, limits = Conditions(mode, Regime.RESTED), Limits(0.0, 0.0, 0.0)
            session = assemble(data, verifier, self._timer, limits, conditions, batch, self._set_deadline)
            undo.pop_all()
            return session

    def _copy(self, session: ProblemSession, helpers: Helpers) -> Timed:
        count = session.data.tensors[0].size_bytes // 16
        grid, data = -(-count // 2048), session.data
        ends = [[("pointer", data.address(name, i)) for name in ("x", "y")] for i in range(data.copies)]
        return Fixed(*(helpers.kernel("copy_sweep", grid, 512, [*two, ("int64", count)]) for two in ends))

    def _least(self, session: ProblemSession) -> Timed:
        """Return the least kernel that moves anything; in rotation each call of a batch moves bytes of its own."""
        data = session.data
        calls = session.batch.calls if session.conditions.mode is Mode.ROTATING else 1
        kernels = []
        for call in range(calls):
            turn, copy = divmod(call, data.copies)
            ends = [data.address(name, copy) + turn * LEAST_STRIDE for name in ("x", "y")]
            pointers = [("pointer", end) for end in ends]
            arguments = [*pointers, ("int64", LEAST_VECTORS)]
            kernels.append(self._ceilings.kernel("copy_sweep", 1, LEAST_VECTORS, arguments))
        return _Turns(*kernels)

    def _read(self, session: ProblemSession) -> Timed:
        tensor = session.data.tensors[0]
        arguments = [
            ("pointer", session.data.address("x")),
            ("int64", tensor.size_bytes // 16),
            ("pointer", session.data.memory.allocate("never", 16)),
        ]
        return Fixed(self._helpers.kernel("read_sweep", 16 * self._gpu.sm_count, 512, arguments))

    def _matrix(self, session: ProblemSession, helpers: Helpers) -> Timed:
        arguments = [("int32", MATRIX_ROUNDS), ("pointer", session.data.memory.allocate("never", 16))]
        return Fixed(helpers.kernel("matrix_rate", self._gpu.sm_count * self._matrix_blocks, 256, arguments))

    @property
    def _matrix_blocks(self) -> int:
        """Blocks of an SM: wgmma takes half of its registers for one."""
        return 1 if self._gpu.cc == 90 else 2

    def _matrix_work(self) -> float:
        """FLOP of one launch of ``matrix_rate``."""
        if self._gpu.cc == 90:
            a_round = 2 * 4 * (2 * 64 * 256 * 16)
        else:
            a_round = 8 * 8 * (2 * 16 * 8 * (16 if self._gpu.cc >= 80 else 8))
        return float(a_round * MATRIX_ROUNDS * self._matrix_blocks * self._gpu.sm_count)

    # -- the measurements -------------------------------------------------------------------------------------------

    def _time(self, session: ProblemSession, timed: Timed, estimate_ns: float = 2e5) -> float:
        with closing(session.graph(timed, 12, estimate_ns)) as graph:
            session.take(graph, estimate_ns)
            return statistics.median(session.take(graph, estimate_ns).times_ns)

    def _clock(self, session: ProblemSession, timed: Timed) -> float:
        with closing(session.graph(timed, 4, 2e5)) as graph:
            return session.take(graph, 2e5).sm_clock_hz

    def _noise(
        self, session: ProblemSession, build: Callable[[ProblemSession, Helpers], Timed]
    ) -> list[float]:
        """Compare a kernel, loaded several times, with itself: how far from 1 each ratio is."""
        with ExitStack() as loaded:
            loads = [loaded.enter_context(closing(self._ceilings.again())) for _ in range(LOADS)]
            contestants = [TimedContestant(build(session, load), 2e5) for load in loads]
            rounds = InterleavedTiming(session).run(contestants, ROUNDS, SAMPLES, 0).rounds
        times = [[statistics.median(groups[i]) for groups in rounds] for i in range(LOADS)]
        return [abs(paired_ratio(a, b).median - 1.0) for a, b in combinations(times, 2)]

    def _clock_note(self, clock_hz: float) -> tuple[str, ...]:
        if not clock_hz or not self._gpu.clock_hz or clock_hz > SETTING_SHARE * self._gpu.clock_hz:
            return ()
        held = f"{clock_hz / 1e9:.2f} of {self._gpu.clock_hz / 1e9:.2f} GHz under light load"
        return (f"the SM clock is held at {held}: locked or limited by the GPU's owner",)


class _Turns(Fixed):
    """Kernels of which each call takes the next, whatever copy of the tensors it is for."""

    turn = 0

    def add_to(self, graph: Graph, copy: int) -> None:  # noqa: ARG002 - each knows its tensors
        super().add_to(graph, self.turn)
        self.turn += 1


def _noise_floor(deviations: list[float]) -> float:
    return max(LEAST_NOISE, float(np.quantile(deviations, NOISE_QUANTILE)))
