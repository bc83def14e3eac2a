"""The GPU of this machine: compilers on all cores feed one guarded measuring process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from msgspec import structs

from tuner.children import measuring
from tuner.children.compilation import Compilation, RenderRequest
from tuner.core.conditions import Calibration, Conditions, Mode, Regime
from tuner.core.errors import DeviceError, KernelError
from tuner.core.model import Configuration, Measurement, Problem, Status, Trial, Verification
from tuner.devices.base import DEFAULT_NOISE_FLOOR, Device, Incumbent, RaceRequest, no_incumbent, say_nothing
from tuner.devices.calibrations import SHORT_NS, CalibrationCache
from tuner.devices.guard import Unanswered
from tuner.devices.requests import Requests, measurement_of, race, set_up
from tuner.devices.started import Processes
from tuner.devices.submissions import SourceKey, Submissions, source_key, trial_of
from tuner.kernel.batching import choose_conditions
from tuner.kernel.functions import libraries_built_with
from tuner.kernel.plan import invalid_reason
from tuner.kernel.roofline import roof_of
from tuner.kernel.spec import KernelSpec

RECALIBRATE = 0.03
"""A reference kernel that is so much off what it took when the card was calibrated says that the card was changed."""


class LocalDevice(Device):
    """A GPU of this machine.

    Args:
        processes: of the device, closed with it.
        say: told when something takes seconds that the user did not ask for.
        compiler: NVRTC's version, for the record; empty leaves it out.
    """

    def __init__(
        self, processes: Processes, say: Callable[[str], None] = say_nothing, compiler: str = ""
    ) -> None:
        super().__init__(say)
        self.processes = processes
        processes.tell(say)
        self._guard, self._pool = processes.guard, processes.pool
        self._pool.start_all()
        self._compilers = self._pool
        """Of candidates."""
        cache = None if processes.locked_in else processes.cache  # which may lie for all to come
        self._calibrations = CalibrationCache(cache.parent / "calibrations" if cache else None)
        self.name = f"cuda:{processes.index}"
        # Candidates for every compiler, and some compiled ahead so that the GPU never waits.
        self.lookahead = self._pool.jobs + 8
        self.compilers = self._pool.jobs
        try:
            with self.phases.phase("process"):
                hello = self._guard.hello()
            self.gpu, self.notes = hello.gpu, hello.notes
            self._alone = not hello.other_processes
            if compiler:
                self.versions = {"nvrtc": compiler, "driver": self.gpu.driver}
        except BaseException:
            self.close()
            raise
        self._compiling: dict[Configuration, Future[Compilation]] = {}  # What may be submitted later.
        self._submissions: Submissions
        self._prepare_lock = threading.Lock()  # Between preparing a problem and measuring for the one before.
        self._fatal = ""  # Why nothing can be measured any more.
        self._truth: Problem | None = None
        self._requests: Requests
        self._ahead: Requests | None = None  # The last of compile_ahead; a digest of the kernel takes 0.1 s.
        self._confirmed: Problem | None = None  # What the fresh process holds, on other inputs.
        self._seed = 0
        self._released = True  # Whether the measuring process holds no data of a problem.

    @property
    def working(self) -> bool:
        """Whether the measuring process works on a request."""
        return self._guard.working

    def choose_conditions(
        self, kernel: KernelSpec, problem: Problem, mode: Mode | None, regime: Regime
    ) -> tuple[Conditions, str]:
        """Return how a problem is timed: its roofline decides."""
        return choose_conditions(roof_of(kernel, problem, self.gpu), mode, regime)

    def _prepare(
        self, kernel: KernelSpec, problem: Problem, seed: int, conditions: Conditions, truth: Problem | None
    ) -> None:
        """Calibrate if card and driver are new, compile the reference, fill the tensors, compute what is expected."""
        with self._prepare_lock:
            self._submissions = Submissions(kernel, problem)
        self._seed, self._truth, self.conditions = seed, truth, conditions
        self._requests = self._ahead = Requests(kernel, self.gpu, self._pool)
        if not self.processes.locked_in:
            self._compilers = self.processes.compilers_for(
                libraries_built_with(variant.call for variant in kernel.variants.values())
            )
        for _ in range(self._compilers.jobs):  # one for each: reading gemm takes 0.4 s
            self._compilers.submit(self._requests.reading, ahead=True)
        for configuration in list(self._compiling):
            self.forget(configuration)
        self.calibration = self.calibration or self.known_calibration()
        short = roof_of(kernel, problem, self.gpu).speed_of_light_ns < SHORT_NS
        if self.calibration is None or (short and not self.calibration.short_noise_ns):
            self.calibration = self._calibrated(short=short)
        with self.phases.phase("problem"):
            reference_ns = self._set_up()
        before = self.calibration
        if before and abs(reference_ns / before.reference_ns - 1.0) > RECALIBRATE:
            # Clocks were locked or unlocked, perhaps.
            self.calibration = self._calibrated(short=short) or before
            self._set_up()
        if self.calibration is not None:
            notes = tuple(dict.fromkeys((*self.calibration.notes, *self.notes)))
            self.calibration = replace(self.calibration, notes=notes)

    def _ready(self) -> bool:
        return not self._released and self._submissions.pending == 0

    def _calibrated(self, *, short: bool) -> Calibration | None:
        """Calibrate; a GPU that cannot be is tuned all the same, with the usual noise floor."""
        try:
            return self.calibrate(short=short)
        except DeviceError as error:
            self.say(f"{error}; going on with a noise floor of {100 * DEFAULT_NOISE_FLOOR:g} %")
            return None

    def known_calibration(self) -> Calibration | None:
        """Return what was measured on this card with this driver, if it was."""
        return self._calibrations.read(self.gpu)

    def calibrate(self, *, short: bool = True) -> Calibration:
        """Measure ceilings and noise anew, and keep them for this card and driver; takes some seconds.

        Args:
            short: measure also what only short kernels need.

        Raises:
            DeviceError: the GPU cannot be timed.
        """
        self._released = True
        self.say(f"calibrating this {self.gpu.name}: some seconds, once for each GPU and driver")
        with self.phases.phase("calibration"):
            answer = self._guard.call(measuring.Calibrate(short))
        if not isinstance(answer, measuring.Calibrated):
            raise DeviceError(answer.error)
        self.calibration = answer.calibration
        self._calibrations.write(self.gpu, answer.calibration, alone=self._alone and answer.alone)
        return answer.calibration

    def _set_up(self) -> float:
        """Set the measuring process up for the problem; return the time of its reference kernel."""
        self.processes.alone()
        self._released = False
        problem = self._submissions.problem
        request = self._requests.setup(problem, self._seed, self.conditions, self._truth)
        answer = set_up(self._guard, request, problem, self.say)
        if isinstance(answer, Unanswered) and answer.status is Status.WORKER_DIED:
            answer = self._guard.call(request)  # once may be an accident, of which a long run has some
        if not isinstance(answer, measuring.SetupDone):
            raise DeviceError(f"{problem}: {answer.error}")
        self.least_error, self.host_s = answer.least_error, answer.host_s
        return answer.reference_ns

    def release(self) -> None:
        """Make room on the GPU: a large problem does not fit twice."""
        if not self._released:
            self._guard.call(measuring.Release())
            self._released = True

    def submit(self, number: int, configuration: Configuration, incumbent: Incumbent = no_incumbent) -> None:
        """Render, compile, verify and time one configuration."""
        submissions = self._submissions
        submissions.begin(number, configuration, incumbent)
        compiling = self._compiling.pop(configuration, None)
        compiling = compiling or self._compilers.submit(self._rendering(configuration))
        compiling.add_done_callback(partial(self._compiled, submissions, number))

    def compile(self, configuration: Configuration) -> None:
        """Render and compile one configuration when no compiler has anything better to do."""
        submissions = self._submissions
        compiling = self._compilers.submit(self._rendering(configuration), ahead=True)
        compiling.add_done_callback(lambda _: submissions.wake())
        self._compiling[configuration] = compiling

    def compile_ahead(
        self, kernel: KernelSpec, problem: Problem, configurations: Sequence[Configuration]
    ) -> None:
        """Fill the cubin cache when no compiler has anything better to do."""
        if self._pool.cache is None:
            return
        if self._ahead is None or self._ahead.kernel is not kernel:
            self._ahead = Requests(kernel, self.gpu, self._pool)
        for request in self._ahead.ahead(problem, configurations):
            self._pool.submit(request, ahead=True)

    def _rendering(self, configuration: Configuration) -> RenderRequest:
        return self._requests.rendering(problem=self._submissions.problem, configuration=configuration)

    def compiled(self, configuration: Configuration) -> Compilation | None:
        """Return what became of :meth:`compile`."""
        compiling = self._compiling[configuration]
        if not compiling.done():
            return None
        return self._checked(self._submissions, configuration, compiling.result())

    def forget(self, configuration: Configuration) -> None:
        """Let go of a compiled configuration, or do not compile it."""
        if (compiling := self._compiling.pop(configuration, None)) is not None:
            compiling.cancel()

    def drop(self) -> list[int]:
        """Drop the submissions that are not compiled."""
        return self._submissions.drop()

    def collect(self, timeout_s: float) -> list[Trial]:
        """Return what has been answered."""
        trials = self._submissions.collect(timeout_s)
        if self._fatal and not trials:
            raise DeviceError(self._fatal)
        return trials

    def _race(self, request: RaceRequest) -> measuring.Raced | measuring.RaceFailed:
        """Time contestants in turn, in the measuring process of the search."""
        if self._released:
            self._set_up()
        message = self._requests.race(self._submissions.problem, self.conditions, request)
        if isinstance(message, measuring.RaceFailed):
            return message
        answer = race(self._guard, message)
        self._released |= message.varies
        return answer

    def confirm(self, configuration: Configuration, time_ns: float) -> Measurement:
        """Measure thoroughly in a fresh process on other inputs."""
        self.release()
        problem, self._confirmed = self._submissions.problem, None
        try:
            guard = self.processes.fresh()
            setup = self._requests.setup(problem, self._seed + 1, self.conditions, self._truth)
            if not isinstance(answer := set_up(guard, setup, problem, self.say), measuring.SetupDone):
                return Measurement(Status.UNSTABLE, error=answer.error)
            self._confirmed = problem
            compilation = self._requests.compile(problem, configuration)
            if compilation.status is not Status.OK:
                return Measurement(compilation.status, error=compilation.error)
            measure = measuring.Measure(compilation.candidate, time_ns, thorough=True, sparse=True)
            return measurement_of(guard.call(measure))
        except DeviceError as error:
            # A second process is refused: what was measured is worth keeping all the same.
            return Measurement(Status.UNSTABLE, error=str(error))

    def verify_at(
        self, problem: Problem, configuration: Configuration, limit_s: float, *, contents: bool
    ) -> Measurement | None:
        """Check one configuration at another size, in the process that has confirmed it, if one has."""
        self.release()
        if not self.fits(problem, configuration):
            return None
        compilation = self._requests.compile(problem, configuration)
        try:
            guard = self.processes.fresh(again=True)
            setup = self._requests.setup(problem, self._seed + 2, Conditions(), timed=False)
        except KernelError:  # a tensor of nothing, for example
            return None
        except DeviceError as error:
            return Measurement(Status.UNVERIFIED, error=str(error))
        if compilation.status is Status.INVALID_CONFIG:  # a grid of nothing
            return None
        if compilation.status is not Status.OK:
            return Measurement(compilation.status, error=compilation.error)
        there, self._confirmed = contents and problem == self._confirmed, None
        answer = None if there else guard.call(setup, limit_s)  # references may be slow
        if isinstance(answer, measuring.Failed | Unanswered):
            if isinstance(answer, Unanswered) and answer.undecided:  # it may compute for long
                self.end_confirmation()
            nothing = Verification(False, checked=False) if answer.undecided else None
            return Measurement(Status.UNVERIFIED, (), answer.error, nothing)
        return measurement_of(
            guard.call(measuring.Measure(compilation.candidate, verify_only=True, contents=contents))
        )

    def expect_confirmation(self) -> None:
        """Start the process that :meth:`confirm` will need."""
        self.processes.expect_fresh()

    def end_confirmation(self) -> None:
        """End it."""
        self._confirmed = None
        self.processes.end_fresh()

    def fits(self, problem: Problem, configuration: Configuration) -> bool:
        """Return whether the configuration claims to work at another size; golden files are of one."""
        kernel = self._submissions.kernel
        if kernel.reference.golden and not kernel.reference.any_size:
            return False
        return not invalid_reason(kernel, problem, self.gpu, configuration)

    def close(self) -> None:
        """Kill compilers and the measuring processes."""
        self.processes.close()

    # -- one candidate --------------------------------------------------------------------------------------------

    def _compiled(self, submissions: Submissions, number: int, compiling: Future[Compilation]) -> None:
        """Go on with a compiled candidate; called from a compiling thread."""
        compilation = compiling.result()
        if (submitted := submissions.compiled(number)) is None:
            return
        configuration, incumbent = submitted
        if compilation.changed:
            self._fatal = f"{compilation.error}; start another run"
            submissions.wake()
            return
        compilation = self._checked(submissions, configuration, compilation)
        trial = trial_of(number, configuration, compilation)
        if compilation.status is not Status.OK:
            submissions.answer(trial)
            return
        try:
            key = source_key(compilation)
            # The next problem's setup must not come in between: a candidate is not to run on another problem's data.
            with self._prepare_lock:
                if submissions is self._submissions and submissions.join(key, trial):
                    request = measuring.Measure(compilation.candidate, incumbent())
                    self._guard.submit(request, partial(self._measured, submissions, key))
        except Exception as error:  # noqa: BLE001 - a lost answer would block the search for ever
            submissions.fail(trial, str(error))

    def _measured(
        self, submissions: Submissions, key: SourceKey, answer: measuring.Measured | Unanswered
    ) -> None:
        if isinstance(answer, Unanswered) and answer.fatal:
            self._fatal = answer.error  # says nothing about this candidate
            return
        if isinstance(answer, measuring.Measured) and answer.span is not None:
            self.busy.spans.append(answer.span)
            self.busy.refined_s += answer.refined_s
        submissions.measured(key, measurement_of(answer))

    def _checked(
        self, submissions: Submissions, configuration: Configuration, compilation: Compilation
    ) -> Compilation:
        """Return a compilation; one that violates a constraint on what the compiler said is refused."""
        if compilation.status is not Status.OK:
            return compilation
        kernel, problem = submissions.kernel, submissions.problem
        try:
            unmet = kernel.unmet_after(problem, self.gpu, configuration, compilation.resources)
        except Exception as error:  # noqa: BLE001 - a lost answer would block the search for ever
            unmet = str(error)
        if unmet is None:
            return compilation
        return structs.replace(compilation, status=Status.INVALID_CONFIG, error=unmet)
