"""Makes the requests to a measuring process, from a kernel and a problem."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from msgspec import structs

from tuner.children import measuring
from tuner.children.compilation import Compilation, ReadRequest, RenderRequest, SourceRequest
from tuner.children.compile_pool import CompilePool
from tuner.children.cubin import require_variables
from tuner.core.conditions import Conditions, Mode
from tuner.core.errors import CompileError, DeviceError, KernelError, TunerError
from tuner.core.model import Configuration, Gpu, Measurement, Problem, Status
from tuner.devices.base import Contestant, RaceRequest, said_late
from tuner.devices.guard import Guard, Unanswered
from tuner.kernel.baselines import Baseline, launch_of, launch_spec, settle_baseline, source_of
from tuner.kernel.batching import Batch, Limits, batch_of
from tuner.kernel.default import default_configuration
from tuner.kernel.functions import BaselineKind
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.plan import numbers_of, reference_configuration, reference_launch, tensors_of
from tuner.kernel.reference import settle_reference
from tuner.kernel.roofline import Roof, roof_of
from tuner.kernel.spec import KernelSpec
from tuner.runtime.launches import Plan

CLOCK_TOLERANCE = 1.02
"""The highest clock that the driver names is not exceeded by more."""


class RaceDiedError(DeviceError):
    """The measuring process ends in a race of contestants that are well alone."""


class Requests:
    """Makes requests about one kernel on one GPU.

    Args:
        kernel: the kernel.
        gpu: the GPU.
        pool: compiles the references.
    """

    def __init__(self, kernel: KernelSpec, gpu: Gpu, pool: CompilePool) -> None:
        self.kernel, self._gpu, self._pool = kernel, gpu, pool
        self._task = kernel.task or kernel
        code = KernelIdentity(kernel).code
        self.rendering = partial(
            RenderRequest, self._task.file, gpu=gpu, code=code, candidate=kernel.candidate
        )
        """Makes the request to render and compile a configuration from the text that the kernel has now."""
        self.reading = ReadRequest(self._task.file, code, kernel.candidate)

    def setup(
        self,
        problem: Problem,
        seed: int,
        conditions: Conditions,
        truth: Problem | None = None,
        *,
        timed: bool = True,
    ) -> measuring.Setup:
        """Return the request for a problem's data, reference and limits.

        Args:
            problem: what is computed.
            seed: of the inputs.
            conditions: how it will be timed.
            truth: the same in a wider dtype, for the errors.
            timed: whether anything will be timed; verifying alone needs a quieter GPU less.

        Raises:
            DeviceError: the CUDA reference does not compile.
        """
        kernel, gpu = self.kernel, self._gpu
        roof = roof_of(kernel, problem, gpu)
        return measuring.Setup(
            self.problem_setup(problem),
            self.problem_setup(truth) if truth is not None else None,
            seed,
            conditions,
            self.batch(problem, conditions),
            _limits(replace(roof, bytes=self._needed_bytes(problem, roof)), gpu, conditions),
            timed,
        )

    def _needed_bytes(self, problem: Problem, roof: Roof) -> float:
        """Return the bytes without which no kernel can do its work: those of outputs, unless the file says more."""
        if not self.kernel.work.assumed:
            return roof.bytes
        tensors = tensors_of(self.kernel, problem, self._gpu)
        return float(sum(tensor.size_bytes for tensor in tensors if tensor.role == "output"))

    def batch(self, problem: Problem, conditions: Conditions) -> Batch:
        """Return the calls between two events, and the copies of the tensors."""
        tensors = tensors_of(self.kernel, problem, self._gpu)
        return batch_of(roof_of(self.kernel, problem, self._gpu), tensors, self._gpu, conditions)

    def problem_setup(self, problem: Problem) -> measuring.ProblemSetup:
        """Return the tensors of a problem, and how to find out what its outputs must be.

        Raises:
            DeviceError: the CUDA reference does not compile.
        """
        kernel, gpu = self.kernel, self._gpu
        reference = measuring.ReferenceData(
            **structs.asdict(settle_reference(kernel, problem, gpu)),
            kernel=self._default(problem) if kernel.reference.default else self._cuda(problem),
            numbers=numbers_of(kernel, problem, gpu),
            flops=roof_of(kernel, problem, gpu).flops,
        )
        return measuring.ProblemSetup(tensors_of(kernel, problem, gpu), reference)

    def compile(self, problem: Problem, configuration: Configuration) -> Compilation:
        """Compile a configuration for a problem."""
        return self._pool.compile(self.rendering(problem=problem, configuration=configuration))

    def ahead(self, problem: Problem, configurations: Sequence[Configuration]) -> Iterator[RenderRequest]:
        """Yield what is to be compiled of a problem for some configurations, the CUDA reference included."""
        if self.kernel.reference.cuda is not None:
            yield self._reference(problem)
        for configuration in configurations:
            yield self.rendering(problem=problem, configuration=configuration)

    def _reference(self, problem: Problem) -> RenderRequest:
        configuration = reference_configuration(self._task)
        return RenderRequest(self._task.file, problem, self._gpu, configuration, reference=True)

    def race(
        self, problem: Problem, conditions: Conditions, request: RaceRequest
    ) -> measuring.Race | measuring.RaceFailed:
        """Return the request for a race in a process that is set up for the problem; or why a contestant cannot run."""
        compiling = [self._compiling(contestant, problem) for contestant in request.contestants]
        described: list[measuring.RaceContestant] = []
        try:
            for contestant, compiled in zip(request.contestants, compiling, strict=True):
                described.append(self._described(contestant, compiled, problem))
        except TunerError as error:
            return measuring.RaceFailed(str(error), len(described))
        mode, batch = request.mode, None
        if mode is not None:
            batch = self.batch(problem, replace(conditions, mode=mode))
        return measuring.Race(tuple(described), request.rounds, request.samples, request.seed, mode, batch)

    def _compiling(self, contestant: Contestant, problem: Problem) -> Future[Compilation] | None:
        """Begin to compile a configuration, of another kernel if there is one."""
        if contestant.configuration is None:
            return None
        other = contestant.kernel
        requests = Requests(other, self._gpu, self._pool) if other is not None else self
        return self._pool.submit(requests.rendering(problem=problem, configuration=contestant.configuration))

    def _described(
        self, contestant: Contestant, compiled: Future[Compilation] | None, problem: Problem
    ) -> measuring.RaceContestant:
        """Return a contestant of a race, described.

        Raises:
            TunerError: it does not compile, or cannot be launched.
        """
        baseline, time_ns = contestant.baseline, contestant.time_ns
        if compiled is not None:
            if (compilation := compiled.result()).status is not Status.OK:
                raise CompileError(compilation.error)
            return measuring.CandidateContestant(compilation.candidate, time_ns, required=True)
        assert baseline is not None
        if baseline.kind is BaselineKind.LAUNCH:
            return measuring.CandidateContestant(
                self._launched_baseline(baseline, problem), time_ns, required=False
            )
        settled = settle_baseline(baseline, self.kernel, problem)
        numbers = numbers_of(self.kernel, problem, self._gpu)
        return measuring.BaselineContestant(settled.kind, settled.text, settled.file, numbers, time_ns)

    def _launched_baseline(self, baseline: Baseline, problem: Problem) -> measuring.Candidate:
        """Return a user's own kernel, compiled unless it is a cubin already."""
        assert baseline.file is not None
        launch = launch_of(baseline, self.kernel, problem, self._gpu)
        if baseline.file.suffix == ".cubin":
            cubin = baseline.file.read_bytes()
            compilation = Compilation(Status.OK, cubins=(cubin,), entries=(launch_spec(baseline).entry,))
        else:
            source, entry = source_of(baseline, self.kernel, problem, self._gpu)
            compilation = self._pool.compile(SourceRequest(source, entry, self._gpu, (baseline.file.parent,)))
        if compilation.status is not Status.OK:
            raise CompileError(f"{baseline.name}: {compilation.error}")
        return structs.replace(compilation, plan=Plan((launch,), ())).candidate

    def _default(self, problem: Problem) -> measuring.Candidate:
        """Return the default configuration, compiled, whose results others are compared with.

        Raises:
            KernelError: there is none, or it does not compile.
        """
        remedy = "it is the reference: correct it, or say in [reference] what is right"
        if self._task is not self.kernel:
            return Requests(self._task, self._gpu, self._pool)._default(problem)
        default = default_configuration(self.kernel, problem, self._gpu)
        if default is None:
            raise KernelError(f"no configuration is valid for {problem}", remedy)
        compilation = self.compile(problem, default)
        if compilation.status is not Status.OK:
            raise KernelError(
                f"the default configuration, {default}, does not run for {problem}: {compilation.status}: "
                f"{compilation.error}",
                remedy,
            )
        return compilation.candidate

    def _cuda(self, problem: Problem) -> measuring.Candidate | None:
        kernel = self._task
        launch = reference_launch(kernel, problem, self._gpu)
        if launch is None:
            return None
        compilation = self._pool.compile(self._reference(problem))
        if compilation.status is not Status.OK:
            raise DeviceError(
                f"the CUDA reference does not compile: {compilation.error}", f"correct {kernel.file}"
            )
        require_variables(compilation.cubins[0], launch)
        return structs.replace(compilation, plan=Plan((launch,), ())).candidate


def _limits(roof: Roof, gpu: Gpu, conditions: Conditions) -> Limits:
    """Return the limits of a problem: what the L2 may still hold after the flush costs nothing."""
    # What the calls before have left in the L2 costs a warm kernel nothing.
    size_bytes = 0.0 if conditions.mode is Mode.WARM else roof.bytes
    compute = roof.flops / roof.peak_flops if roof.peak_flops else 0.0
    memory = max(0.0, size_bytes - gpu.l2_bytes) / gpu.memory_bytes_per_s if gpu.memory_bytes_per_s else 0.0
    floor_ns = math.floor(max(compute, memory) * 1e9 / CLOCK_TOLERANCE)
    return Limits(floor_ns, roof.flops, roof.peak_flops)


def measurement_of(answer: measuring.Measured | Unanswered) -> Measurement:
    """Return what became of a candidate, and what that took beside samples for which nothing waited."""
    if isinstance(answer, Unanswered):  # where no process starts any more, that is not the candidate's doing
        return Measurement(Status.UNVERIFIED if answer.fatal else answer.status, error=answer.error)
    began, ended = answer.span or (0.0, 0.0)
    return replace(answer.measurement, measure_s=ended - began - answer.refined_s)


def set_up(
    guard: Guard, setup: measuring.Setup, problem: Problem, say: Callable[[str], None]
) -> measuring.SetupDone | measuring.Failed | Unanswered:
    """Return the answer to a setup; say what it waits for where that takes long."""
    text = f"still waiting for the reference of {problem}, which is computed on the host"
    on_host = setup.problem.reference.numpy or setup.problem.reference.python is not None
    with said_late(say, text) if on_host else nullcontext():
        return guard.call(setup)


def race(guard: Guard, message: measuring.Race) -> measuring.Raced | measuring.RaceFailed:
    """Have contestants timed in turn; if the process ends, find out which of them is at fault.

    Raises:
        RaceDiedError: the process ends again and again.
        DeviceError: there can be no process any more, or nothing says what is right.
    """
    answer = guard.call(message)
    if isinstance(answer, Unanswered) and answer.status is Status.UNVERIFIED:  # no process has ended
        raise DeviceError(answer.error)
    if isinstance(answer, Unanswered):  # it does not say at which contestant the process ended
        culprit = _culprit(guard, message)
        answer = guard.call(message) if culprit is None else culprit
    if not isinstance(answer, Unanswered):
        return answer
    if answer.fatal:
        raise DeviceError(answer.error)
    raise RaceDiedError(f"the measuring process ended twice in a race: {answer.error}")


def _culprit(guard: Guard, message: measuring.Race) -> measuring.RaceFailed | Unanswered | None:
    """Let each contestant run alone, and return the answer of the first that fails, under its index."""
    for i, contestant in enumerate(message.contestants):
        match guard.call(structs.replace(message, contestants=(contestant,), rounds=1)):
            case measuring.RaceFailed() as answer:
                return structs.replace(answer, contestant=i)
            case Unanswered(fatal=True) as answer:
                return answer
            case Unanswered(error=error):
                return measuring.RaceFailed(error, i)
    return None
