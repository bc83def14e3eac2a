"""The tuner's own launch of a cubin, twice, in turn with a program's calls of it: in C++, and in Python."""

from __future__ import annotations

import importlib
import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

from cuda.bindings import driver as cu

from scripts.calling.bundles import CppPlan, computation_of
from scripts.calling.cases import Case
from scripts.harness import medians
from scripts.lab import Lab
from tests.fake_arrays import Exported, dense
from tuner.core.conditions import Mode, Regime
from tuner.core.errors import CompileError
from tuner.core.model import Gpu, Status
from tuner.core.stats import paired_ratio, verdict
from tuner.gpu.buffers import ProblemData
from tuner.gpu.candidate import Loaded, Timed, load
from tuner.gpu.driver import Context, Graph, described
from tuner.gpu.measure import ContestantFailed, InterleavedTiming, TimedContestant
from tuner.gpu.problem import ProblemSession
from tuner.gpu.timing import ClockMismatchError, SampleGraph
from tuner.gpu.turns import Turns
from tuner.kernel.batching import choose_conditions
from tuner.kernel.roofline import roof_of
from tuner.runtime.driver import DriverFailure, check
from tuner.runtime.kernel import Kernel
from tuner.runtime.launches import Buffer
from tuner.runtime.manifest import file_digest

EXTERNAL = 1
"""CU_EVENT_RECORD_EXTERNAL: the event is recorded by each launch of the graph, as a node of it."""
SAMPLES = 8
"""Event pairs of a group, as in a race of `tune bench`."""
LOADS = ("tuner", "tuner again", "tuner once more")
"""The tuner's own launch of one cubin, loaded so often: where its code happens to lie changes a short time."""


class StreamGraph(Graph):
    """What is called in the context's stream, captured as a program captures it: from what is appended first on."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._graph: Any = None
        self._executable: Any = None
        self._events: list[Any] = []
        self._capturing = False

    def _captured(self) -> Any:
        """Return the stream, which is captured from the first call on."""
        if not self._capturing and self._graph is None:
            mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
            check(cu.cuStreamBeginCapture(self._context.stream, mode))
            self._capturing = True
        return self._context.stream

    def append(self, add: Any, *arguments: Any) -> Any:
        """Refuse: nodes cannot be added to what is captured."""
        raise NotImplementedError

    def kernel(self, kernel: Kernel) -> None:
        """Launch it."""
        kernel.launch(int(self._captured()))

    def memset(self, address: int, byte: int, size_bytes: int) -> None:
        """Set memory to a byte."""
        check(cu.cuMemsetD8Async(address, byte, size_bytes, self._captured()))

    def copy(self, to: int, source: int, size_bytes: int) -> None:
        """Copy within the device."""
        check(cu.cuMemcpyDtoDAsync(to, source, size_bytes, self._captured()))

    def event(self) -> Any:
        """Record a new event, and give it."""
        event = check(cu.cuEventCreate(cu.CUevent_flags.CU_EVENT_DEFAULT.value))
        self._events.append(event)
        check(cu.cuEventRecordWithFlags(event, self._captured(), EXTERNAL))
        return event

    def prepare(self) -> None:
        """Bring what was captured to the GPU."""
        self.end()
        super().prepare()

    def close(self) -> None:
        """Free what the driver holds; harmless after a fault."""
        if self._capturing:
            self._capturing = False
            _, self._graph = cu.cuStreamEndCapture(self._context.stream)
        for event in self._events:
            cu.cuEventDestroy(event)
        if self._executable is not None:
            cu.cuGraphExecDestroy(self._executable)
        if self._graph is not None and int(self._graph):
            cu.cuGraphDestroy(self._graph)
        self._events, self._executable, self._graph = [], None, None

    def end(self) -> None:
        """End the capture: the stream is free for other work."""
        if self._capturing:
            self._capturing = False
            self._graph = check(cu.cuStreamEndCapture(self._context.stream))


@dataclass(frozen=True)
class StreamCall(Timed):
    """Something that is called in a stream, for a copy of the tensors."""

    trusted = True
    run: Callable[[int], object]

    def add_to(self, graph: Graph, copy: int) -> None:
        """Call it, while the graph is captured."""
        assert isinstance(graph, StreamGraph)
        self.run(copy)

    def close(self) -> None:
        """It owns nothing."""


class CallSession(ProblemSession):
    """A problem's session in which :class:`StreamCall` can be timed, too."""

    def empty_graph(self, timed: Timed) -> Graph | None:
        """Return a captured graph for a call, and the usual one for all else."""
        return StreamGraph(self.data.helpers.context) if isinstance(timed, StreamCall) else None

    def graph(self, timed: Timed, samples: int, estimate_ns: float) -> SampleGraph:
        """Build a group; that of a call is captured from the first stamp to the last."""
        if not isinstance(timed, StreamCall):
            return super().graph(timed, samples, estimate_ns)
        calls, captured = self.batch.calls_for(estimate_ns), StreamGraph(self.data.helpers.context)
        try:
            group = SampleGraph(self.data, self.stamps, timed, samples, self.conditions.mode, calls, captured)
            captured.end()
        except BaseException:
            captured.close()
            raise
        return group


def describe() -> Gpu:
    """Return the first GPU."""
    return described(Context(0).device)


def first_gpu() -> Gpu:
    """Return the first GPU, asked by a process of its own: a context of this one would stay."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(describe).result()


def _set_deadline(seconds: float) -> None:
    """Let the system end this process if a step takes so long: a hung kernel cannot be interrupted."""
    signal.alarm(int(seconds) + 2)


class Races:
    """Times cases on the first GPU, in this process.

    Args:
        bundles: a folder for each kernel.
        libraries: the C interface as each compiler built it, by its name.
        rounds: groups of each contestant.
        seed: of the inputs and the order.
    """

    def __init__(
        self, bundles: Mapping[str, Path], libraries: Mapping[str, Path], rounds: int, seed: int
    ) -> None:
        self._bundles, self._libraries, self._rounds, self._seed = bundles, libraries, rounds, seed
        self._lab = Lab(_set_deadline)
        self._context, self.gpu = self._lab.context, self._lab.gpu
        self._turns = Turns(self.gpu.uuid)

    def close(self) -> None:
        """End the compilers."""
        self._lab.pool.close()

    def rows(self, case: Case, modes: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield a row for each mode, until one has an ``error``: why it could not be timed."""
        mode = modes[0]
        try:
            with self._turns.turn(), ExitStack() as stack:
                session, contestants, names = self._open(case, stack)
                for mode in modes:
                    yield {"asked": mode, **self._raced(case, session, contestants, names, mode)}
        except Exception as error:  # noqa: BLE001 - a bundle has error classes of its own
            yield {"asked": mode, "error": f"{type(error).__name__}: {error}"}
        finally:
            signal.alarm(0)

    def _open(self, case: Case, stack: ExitStack) -> tuple[CallSession, list[TimedContestant], list[str]]:
        """Make a problem ready, and everything that is timed on it."""
        _set_deadline(600)
        requests = self._lab.requests(case.kernel)
        conditions, _ = choose_conditions(roof_of(case.kernel, case.problem, self.gpu), None, Regime.RESTED)
        compilation = requests.compile(case.problem, case.configuration)
        if compilation.status is not Status.OK:
            raise CompileError(compilation.error)
        bundle = self._bundles[case.kernel.name]
        computation, configuration = computation_of(bundle, case)
        shipped = {launch["cubin"] for launch in configuration["launches"]}
        if not {file_digest(cubin) for cubin in compilation.cubins} <= shipped:
            raise CompileError("the bundle has other cubins than the tuner compiles now", "delete it")
        where = (conditions.mode, conditions.regime, self._seed)
        opened = stack.enter_context(self._lab.session(case.kernel, case.problem, *where))
        session = CallSession(**vars(opened))
        names = list(LOADS)
        calls: list[Loaded | StreamCall] = []
        for _ in LOADS:
            calls.append(load(session.data, compilation.candidate))
            stack.callback(calls[-1].close)
        for name, library in self._libraries.items():
            names.append(f"C++ ({name})")
            calls.append(stack.enter_context(self._in_cpp(case, session.data, bundle, library)))
        names.append("Python")
        calls.append(stack.enter_context(self._in_python(case, session.data, bundle, computation)))
        return session, [TimedContestant(call, case.known_ns) for call in calls], names

    @contextmanager
    def _in_cpp(self, case: Case, data: ProblemData, bundle: Path, library: Path) -> Iterator[StreamCall]:
        """Prepare the bundle's plan for C++."""
        plan, stream = CppPlan(library, bundle, case.problem), int(self._context.stream)
        name = data.memory.unused("workspace")
        workspace = data.memory.allocate(name, plan.workspace_bytes) if plan.workspace_bytes else 0
        there = {tensor.name for tensor in data.tensors}
        addresses = [
            [data.address(tensor, copy) if tensor in there else 0 for tensor in plan.tensors]
            for copy in range(data.copies)
        ]
        plan.prepare(workspace, stream)
        self._context.synchronize()
        try:
            yield StreamCall(lambda copy: plan.run(addresses[copy], workspace, stream))
        finally:
            plan.close()
            data.memory.free(name)

    @contextmanager
    def _in_python(
        self, case: Case, data: ProblemData, bundle: Path, computation: Mapping[str, Any]
    ) -> Iterator[StreamCall]:
        """Prepare the operation of the bundle's own package."""
        sys.path.insert(0, str(bundle.parent))
        package = importlib.import_module(bundle.name)
        op = package.load(
            policy="exact", dtypes=dict(case.problem.dtypes), options=dict(case.problem.options)
        )
        op.warm([dict(case.problem.sizes)])
        stream, sizes = int(self._context.stream), dict(case.problem.sizes)
        calls = [self._python_call(op, data, computation, copy, stream, sizes) for copy in range(data.copies)]
        data.poison()
        calls[0]()  # what only the first call of a kind does is done
        self._context.synchronize()
        try:
            yield StreamCall(lambda copy: calls[copy]())
        finally:
            op.close()

    def _python_call(
        self,
        op: Any,
        data: ProblemData,
        computation: Mapping[str, Any],
        copy: int,
        stream: int,
        sizes: Mapping[str, int],
    ) -> Callable[[], object]:
        arrays = {tensor.name: array_at(data.address(tensor.name, copy), tensor) for tensor in data.tensors}
        tensors = computation["tensors"]
        given = [
            arrays.get(tensor["name"])
            for tensor in tensors
            if tensor["role"] != "output" and tensor.get("when", 1) != 0
        ]
        out = tuple(arrays[tensor["name"]] for tensor in tensors if tensor["role"] == "output")
        return lambda: op(*given, out=out or None, stream=stream, sizes=sizes)

    def _raced(
        self,
        case: Case,
        session: CallSession,
        contestants: Sequence[TimedContestant],
        names: Sequence[str],
        mode: str,
    ) -> dict[str, Any]:
        row: dict[str, Any] = {"configuration": str(case.configuration), "source": case.source}
        if mode == "warm":
            requests = self._lab.requests(case.kernel)
            conditions, _ = choose_conditions(
                roof_of(case.kernel, case.problem, self.gpu), Mode.WARM, Regime.RESTED
            )
            batch = requests.batch(case.problem, conditions)
            session = session.in_mode(Mode.WARM, batch)  # type: ignore[assignment]
        row["mode"] = str(session.conditions.mode)
        timing = InterleavedTiming(session)
        try:
            samples = timing.run(contestants, self._rounds, SAMPLES, self._seed)
        except (DriverFailure, ClockMismatchError, ContestantFailed) as failure:
            error = f"{names[timing.current]}: {failure}"
            if isinstance(failure, DriverFailure) and failure.sticky:
                raise SystemExit(error) from None  # the context is ruined
            return {**row, "error": error}
        times = medians(samples.rounds)
        row["times_ns"] = {name: median(ours) for name, ours in zip(names, times, strict=True)}
        row["tags"] = list(samples.tags)
        row["verified"] = all(samples.verified)
        return {**row, **compared(names, times)}


def compared(names: Sequence[str], times: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return the ratios to the tuner's own launch, with 95 % intervals and verdicts.

    The noise is how far from 1 the interval of a ratio of two loads of that launch reaches.

    Args:
        names: of the contestants, :data:`LOADS` first.
        times: of each, its median in each round.
    """
    own = [paired_ratio(a, b) for a, b in combinations(times[: len(LOADS)], 2)]
    noise = max(max(one.high - 1, 1 - one.low) for one in own)
    found: dict[str, Any] = {"noise": noise, "ratios": {}}
    for name, ours in list(zip(names, times, strict=True))[1:]:
        ratio = paired_ratio(ours, times[0])
        found["ratios"][name] = {**vars(ratio), "verdict": str(verdict(ratio, noise))}
    return found


def array_at(address: int, tensor: Buffer) -> Exported:
    """Return a tensor as an array that speaks DLPack, in the shape that the kernel means."""
    strides = dense(tensor.shape)
    return Exported(
        address,
        tensor.meant_shape,
        tensor.dtype,
        strides=strides[::-1] if tensor.transposed else strides,
    )
