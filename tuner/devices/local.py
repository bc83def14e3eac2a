"""The GPU of this machine: compilers on all cores feed one guarded measuring process."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tuner.compile.pool import Compilation, CompilePool
from tuner.conditions import Calibration, Conditions, Mode, Regime
from tuner.devices.base import DEFAULT_NOISE_FLOOR, Compiled, Contestant, Device, Outcome, RaceRound
from tuner.devices.calibrations import CalibrationCache
from tuner.devices.guard import Guard
from tuner.devices.prefetch import CompiledAhead, Kept
from tuner.devices.requests import Requests, candidate_request, measurement_of
from tuner.errors import CompileError, DeviceError, KernelError, TunerError
from tuner.hardware.batching import choose_conditions
from tuner.hardware.occupancy import occupancy
from tuner.hardware.roofline import roof_of
from tuner.kernel.baselines import BaselineKind, launch_of, launch_spec, source_of
from tuner.kernel.launches import Plan
from tuner.kernel.plan import UnlaunchableError, make_plan
from tuner.kernel.spec import KernelSpec
from tuner.model import Configuration, Gpu, Measurement, Problem, Resources, Status, digest
from tuner.space.validity import invalid_reason

RECALIBRATE = 0.03
"""A reference kernel that is so much off what it took when the card was calibrated says that the card was changed."""


@dataclass
class _Same:
    """Configurations that render to one source with the same launches: measured once."""

    waiting: list[tuple[int, Configuration, Compilation]] = field(default_factory=list)
    answer: Measurement | None = None
    asked: set[Configuration] = field(default_factory=set)

    def waits(self, number: int) -> bool:
        """Whether a submission waits for the answer."""
        return any(item[0] == number for item in self.waiting)


@dataclass
class _Task:
    """What is prepared, and what became of all that was submitted for it.

    A run that ends before its time leaves compilations and measurements under way. Whoever ends one goes on with the
    task that it was submitted for: once another is prepared, nobody reads the answers of the one before.
    """

    kernel: KernelSpec
    problem: Problem
    outcomes: queue.SimpleQueue[Outcome | None] = field(default_factory=queue.SimpleQueue)
    """Answers; None only wakes who waits for one, because something was compiled ahead."""
    same: dict[str, _Same] = field(default_factory=dict)
    """By what is compiled and launched."""

    def answer(
        self, number: int, configuration: Configuration, compilation: Compilation, measurement: Measurement
    ) -> None:
        """Return the one answer to a submission."""
        self.outcomes.put(Outcome(number, configuration, compilation, measurement))


class LocalDevice(Device):
    """A GPU of this machine.

    Args:
        index: number of the GPU.
        jobs: compiling processes.
        cache: folder of the cubin cache; None for none.
        worker: module of the measuring process; tests put their own there.
    """

    def __init__(
        self,
        index: int = 0,
        jobs: int | None = None,
        cache: Path | None = None,
        worker: str = "tuner.gpu.worker",
    ) -> None:
        super().__init__()
        self._worker, self._arguments = worker, [str(index), str(cache) if cache else "-"]
        self._guard = Guard(worker, self._arguments)
        self._calibrations = CalibrationCache(cache.parent / "calibrations" if cache else None)
        self._pool = CompilePool(jobs, cache)
        self.name = f"cuda:{index}"
        # Candidates for every compiler, and some compiled ahead so that the GPU never waits.
        self.lookahead = self._pool.jobs + 8
        self.compilers = self._pool.jobs
        try:
            word = self._guard.hello()
            self.gpu = Gpu(**word["gpu"])
            self.notes = tuple(str(note) for note in word["notes"])
            """What a reader of any time should know about this GPU."""
            self.note = "; ".join(self.notes)
            self._others = int(word.get("others", 0))
        except BaseException:
            self.close()
            raise
        self._ahead = CompiledAhead()
        self._task: _Task
        self._task_lock = threading.Lock()
        """Over which task it is, and over what waits for the same measurement in one."""
        self._fatal = ""
        """Why nothing can be measured any more."""
        self._truth: Problem | None = None
        self._requests: Requests
        self._seed = 0
        self._released = True
        """Whether the measuring process holds no data of the problem."""

    # -- contract -------------------------------------------------------------------------------------------------

    def choose_conditions(
        self, kernel: KernelSpec, problem: Problem, mode: Mode | None, regime: Regime
    ) -> tuple[Conditions, str]:
        """Settle how a problem is timed: by its roofline."""
        return choose_conditions(roof_of(kernel, problem, self.gpu), mode, regime)

    def prepare(
        self,
        kernel: KernelSpec,
        problem: Problem,
        seed: int,
        conditions: Conditions = Conditions(),  # noqa: B008 - frozen
        truth: Problem | None = None,
    ) -> None:
        """Calibrate if card and driver are new, compile the reference, fill the tensors, compute what is expected."""
        with self._task_lock:
            self._task = _Task(kernel, problem)
        self._seed, self._truth, self.conditions = seed, truth, conditions
        self._requests = Requests(kernel, self.gpu, self._pool)
        self._ahead.clear()
        if self.calibration is None:
            self.calibration = self.known_calibration() or self._calibrated()
        reference_ns = self._set_up()
        known = self.calibration
        if known is not None and abs(reference_ns / known.reference_ns - 1.0) > RECALIBRATE:
            self.calibration = self._calibrated() or known  # clocks were locked or unlocked, perhaps
            self._set_up()
        if self.calibration is not None:
            notes = tuple(dict.fromkeys((*self.calibration.notes, *self.notes)))
            self.calibration = replace(self.calibration, notes=notes)

    def _calibrated(self) -> Calibration | None:
        """Calibrate; a GPU that cannot be is tuned all the same, with the usual noise floor."""
        try:
            return self.calibrate()
        except DeviceError as error:
            self.say(f"{error}; going on with a noise floor of {100 * DEFAULT_NOISE_FLOOR:g} %")
            return None

    def known_calibration(self) -> Calibration | None:
        """Return what was measured on this card with this driver, if it was."""
        return self._calibrations.read(self.gpu)

    def calibrate(self) -> Calibration:
        """Measure ceilings and noise anew, and keep them for this card and driver; takes some seconds.

        Raises:
            DeviceError: the GPU cannot be timed.
        """
        self._released = True
        self.say(f"calibrating this {self.gpu.name}: some seconds, once for each card and driver")
        reply = self._guard.call({"do": "calibrate"})
        if "error" in reply:
            raise DeviceError(reply["error"])
        self.calibration = Calibration.from_json(reply["calibration"])
        if not self._others:  # what they did to the noise would be believed for ever
            self._calibrations.write(self.gpu, self.calibration)
        return self.calibration

    def _set_up(self) -> float:
        """Return the problem to the measuring process; gives the time of its reference kernel."""
        self._released = False
        request = self._requests.setup(self._task.problem, self._seed, self.conditions, self._truth)
        reply = self._guard.call(request)
        if reply.get("failed") == Status.WORKER_DIED:
            reply = self._guard.call(request)  # once may be an accident, of which a long run has some
        if "error" in reply:
            raise DeviceError(f"{self._task.problem}: {reply['error']}")
        self.least_error = reply["least_error"]
        return float(reply["reference_ns"])

    def _release(self) -> None:
        """Make room on the GPU: a large problem does not fit twice."""
        if not self._released:
            self._guard.call({"do": "release"})
            self._released = True

    def submit(self, number: int, configuration: Configuration) -> None:
        """Render, compile, verify and time one configuration."""
        task = self._task
        try:
            plan = make_plan(task.kernel, task.problem, self.gpu, configuration)
        except TunerError as error:
            self._ahead.forget(configuration)
            refusal = Measurement(Status.INVALID_CONFIG, error=str(error))
            task.answer(number, configuration, Compilation(Status.OK), refusal)
            return
        done = partial(self._compiled, task, number, configuration, plan)
        if not self._ahead.submit(configuration, done):
            self._pool.submit(task.kernel.file, task.problem, self.gpu, configuration, done)

    def compile(self, configuration: Configuration) -> None:
        """Render and compile one configuration when no compiler has anything better to do."""
        task = self._task
        try:
            plan = make_plan(task.kernel, task.problem, self.gpu, configuration)
        except TunerError:
            self._ahead.refuse(configuration)
            return
        kept = self._ahead.begin(configuration)
        done, wanted = partial(self._compiled_ahead, task, kept, plan), partial(self._ahead.expects, kept)
        self._pool.submit(task.kernel.file, task.problem, self.gpu, configuration, done, ahead=wanted)

    def compiled(self, configuration: Configuration) -> Compiled | None:
        """Say what became of :meth:`compile`."""
        return self._ahead.get(configuration)

    def forget(self, configuration: Configuration) -> None:
        """Let go of a compiled configuration, or do not compile it."""
        self._ahead.forget(configuration)

    def collect(self, timeout_s: float) -> list[Outcome]:
        """Return what has been answered."""
        found: list[Outcome] = []
        outcomes = self._task.outcomes
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                wait = 0.0 if found else max(0.0, deadline - time.monotonic())
                outcome = outcomes.get(timeout=wait) if wait else outcomes.get_nowait()
                if outcome is not None:
                    found.append(outcome)
                else:
                    deadline = 0.0
            except queue.Empty:
                if self._fatal and not found:
                    raise DeviceError(self._fatal) from None
                return found

    def race(self, contestants: Sequence[Contestant], rounds: int, samples: int, seed: int) -> RaceRound:
        """Time contestants in turn, in the measuring process of the search."""
        if self._released:
            self._set_up()
        return self._race(self._guard, contestants, rounds, samples, seed)

    def confirm(self, configuration: Configuration, time_ns: float) -> Measurement:
        """Measure thoroughly in a fresh process on other inputs."""
        self._release()
        guard = Guard(self._worker, self._arguments)
        try:
            guard.hello()
            reply = guard.call(
                self._requests.setup(self._task.problem, self._seed + 1, self.conditions, self._truth)
            )
            if "error" in reply:
                return Measurement(Status(reply.get("failed", Status.UNSTABLE)), error=reply["error"])
            request, compilation = self._request(self._task.problem, configuration)
            if request is None:
                return Measurement(compilation.status, error=compilation.error)
            return measurement_of(guard.call({**request, "thorough": True, "incumbent_ns": time_ns}))
        except DeviceError as error:
            # A second process is refused: what was measured is worth keeping all the same.
            return Measurement(Status.WORKER_DIED, error=str(error))
        finally:
            guard.close()

    def verify_at(
        self, problems: Sequence[Problem], configuration: Configuration
    ) -> list[tuple[Problem, Measurement]]:
        """Check one configuration at other sizes, in a process of its own."""
        reference = self._task.kernel.reference
        if reference.golden and not reference.numpy and reference.cuda is None:
            return []  # the files are of one size
        self._release()
        found: list[tuple[Problem, Measurement]] = []
        guard = Guard(self._worker, self._arguments)
        problem = self._task.problem
        try:
            guard.hello()
            for problem in problems:
                measurement = self._verify(guard, problem, configuration)
                if measurement is not None:
                    found.append((problem, measurement))
            return found
        except DeviceError as error:
            return [*found, (problem, Measurement(Status.UNVERIFIED, error=str(error)))]
        finally:
            guard.close()

    def fits(self, problem: Problem, configuration: Configuration) -> bool:
        """Return whether the configuration claims to work at another size."""
        return not invalid_reason(self._task.kernel, problem, self.gpu, configuration)

    def _verify(self, guard: Guard, problem: Problem, configuration: Configuration) -> Measurement | None:
        """Check a configuration at another size; None where it does not claim to work."""
        if not self.fits(problem, configuration):
            return None
        try:
            request, compilation = self._request(problem, configuration)
            setup = self._requests.setup(problem, self._seed + 2, Conditions(), timed=False)
        except (UnlaunchableError, KernelError):  # a grid or a tensor of nothing, for example
            return None
        if request is None:
            return Measurement(compilation.status, error=compilation.error)
        reply = guard.call(setup)
        if "error" in reply:
            return Measurement(Status.UNVERIFIED, error=reply["error"])
        return measurement_of(guard.call({**request, "verify_only": True}))

    def close(self) -> None:
        """Kill compilers and the measuring process."""
        self._guard.close()
        self._pool.close()

    @property
    def restarts(self) -> int:
        """How often the measuring process had to be replaced."""
        return self._guard.restarts

    # -- one candidate --------------------------------------------------------------------------------------------

    def _compiled_ahead(self, task: _Task, kept: Kept, plan: Plan, compilation: Compilation) -> None:
        """Keep a compiled candidate; called from a compiling thread."""
        try:
            settled, refusal = self._settle(task, kept.configuration, plan, compilation)
            found = Resources.of(settled.resources) if settled.resources else None
            compiled = Compiled(refusal is not None, found)
        except Exception:  # noqa: BLE001 - its trial says why
            compiled = Compiled(failed=True)
        self._ahead.end(kept, compilation, compiled)
        task.outcomes.put(None)

    def _compiled(
        self, task: _Task, number: int, configuration: Configuration, plan: Plan, compilation: Compilation
    ) -> None:
        """Go on with a compiled candidate; called from a compiling thread."""
        try:
            compilation, refusal = self._settle(task, configuration, plan, compilation)
            if refusal is not None:
                task.answer(number, configuration, compilation, refusal)
                return
            # Different configurations can render to the same text: those are one candidate, measured once.
            key = digest([list(compilation.sources), plan.to_json()])
            # The next task's setup must not come in between: a candidate is not to run on another problem's data.
            with self._task_lock:
                if task is not self._task:
                    return
                same = task.same.setdefault(key, _Same())
                if configuration in same.asked:
                    same.answer = None  # whoever asks for the same configuration again wants another answer
                same.asked.add(configuration)
                known = same.answer
                if known is None:
                    same.waiting.append((number, configuration, compilation))
                if known is None and len(same.waiting) == 1:
                    request = {
                        **candidate_request(plan, compilation),
                        "do": "measure",
                        "incumbent_ns": self.incumbent_ns,
                    }
                    self._guard.submit(request, partial(self._measured, task, key))
            if known is not None:
                task.answer(number, configuration, compilation, known)
        except Exception as error:  # noqa: BLE001 - a lost answer would block the search for ever
            with self._task_lock:
                task.same = {k: v for k, v in task.same.items() if not v.waits(number)}
            task.answer(
                number, configuration, compilation, Measurement(Status.INVALID_CONFIG, error=str(error))
            )

    def _measured(self, task: _Task, key: str, reply: dict[str, Any]) -> None:
        if reply.get("fatal"):
            self._fatal = reply["error"]  # says nothing about this candidate
            return
        try:
            measurement = measurement_of(reply)
        except (KeyError, TypeError, ValueError) as error:  # a lost answer would block the search for ever
            nonsense = f"the measuring process gave nonsense: {error!r}"
            measurement = Measurement(Status.WORKER_DIED, error=nonsense)
        if reply.get("span"):
            self.occupancy.spans.append(tuple(reply["span"]))
            self.occupancy.refined_s += reply.get("refined_s", 0.0)
        with self._task_lock:
            same = task.same[key]
            waiting, same.waiting = same.waiting, []
            same.answer = replace(measurement, measure_s=0.0, drifted=False)
        for number, configuration, compilation in waiting:
            task.answer(number, configuration, compilation, measurement)

    def _settle(
        self, task: _Task, configuration: Configuration, plan: Plan, compilation: Compilation
    ) -> tuple[Compilation, Measurement | None]:
        """Complete what is known of the resources, and refuse what cannot launch."""
        if compilation.status is not Status.OK:
            return compilation, Measurement(compilation.status, error=compilation.error)
        resources = []
        refusal = None
        for launch, found in zip(plan.launches, compilation.resources, strict=True):
            shared = found.static_shared_bytes + launch.shared_bytes
            fit = occupancy(self.gpu, launch.threads, found.registers, shared, carveout=launch.carveout)
            if fit.active_blocks == 0 and refusal is None:
                refusal = Measurement(
                    Status.LAUNCH_ERROR, error=f"not one block fits on an SM: too many {fit.limiter}"
                )
            resources.append(
                replace(found, dynamic_shared_bytes=launch.shared_bytes, active_blocks=fit.active_blocks)
            )
        compilation = replace(compilation, resources=tuple(resources))
        if refusal is None:
            worst = asdict(Resources.of(resources))
            names = {**task.kernel.environment(task.problem, self.gpu), **configuration.values, **worst}
            for reason, condition in task.kernel.variants[configuration.variant].constraints_after:
                if not condition.holds(names):
                    refusal = Measurement(Status.INVALID_CONFIG, error=reason)
                    break
        return compilation, refusal

    def _request(
        self, problem: Problem, configuration: Configuration
    ) -> tuple[dict[str, Any] | None, Compilation]:
        plan = make_plan(self._task.kernel, problem, self.gpu, configuration)
        compilation = self._pool.compile(self._task.kernel.file, problem, self.gpu, configuration)
        if compilation.status is not Status.OK:
            return None, compilation
        return {**candidate_request(plan, compilation), "do": "measure"}, compilation

    def _race(
        self, guard: Guard, contestants: Sequence[Contestant], rounds: int, samples: int, seed: int
    ) -> RaceRound:
        candidates = []
        for i, contestant in enumerate(contestants):
            try:
                candidates.append({**self._contestant(contestant), "estimate_ns": contestant.time_ns})
            except TunerError as error:
                return RaceRound([], lost=i, error=str(error))
        request = {"do": "race", "candidates": candidates, "rounds": rounds, "samples": samples, "seed": seed}
        reply = guard.call(request)
        if "failed" in reply:  # nobody can say any more on whom the process ended
            reply = self._culprit(guard, request) or guard.call(request)
        if "failed" in reply and "candidate" not in reply:
            raise DeviceError(f"the measuring process ended twice in a race: {reply['error']}")
        if reply.get("fatal"):
            raise DeviceError(reply["error"])
        if "error" in reply:
            return RaceRound([], lost=reply.get("candidate", 0), error=reply["error"])
        return RaceRound(
            reply["rounds"],
            tuple(reply["tags"]),
            verified=tuple(reply["verified"]),
            sm_clock_hz=tuple(reply["sm_clock_hz"]),
        )

    def _contestant(self, contestant: Contestant) -> dict[str, Any]:
        """Describe who takes part: compiled, if there is something to compile.

        Raises:
            TunerError: it does not compile, or cannot be launched.
        """
        if contestant.configuration is not None:
            request, compilation = self._request(self._task.problem, contestant.configuration)
            if request is None:
                raise CompileError(compilation.error)
            return {**request, "insist": True}
        baseline = contestant.baseline
        assert baseline is not None
        if baseline.kind is not BaselineKind.LAUNCH:
            return {"baseline": self._requests.baseline(baseline, self._task.problem)}
        assert baseline.file is not None
        launch = launch_of(baseline, self._task.kernel, self._task.problem, self.gpu)
        if baseline.file.suffix == ".cubin":
            cubin = baseline.file.read_bytes()
            compilation = Compilation(Status.OK, cubins=(cubin,), entries=(launch_spec(baseline).entry,))
        else:
            source, entry = source_of(baseline, self._task.kernel, self._task.problem, self.gpu)
            compilation = self._pool.compile_text(source, entry, self.gpu, baseline.file.parent)
        if compilation.status is not Status.OK:
            raise CompileError(f"{baseline.name}: {compilation.error}")
        return {**candidate_request(Plan((launch,), ()), compilation), "insist": False}

    def _culprit(self, guard: Guard, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Let each contestant run alone, and give the reply of the first that fails."""
        for i, candidate in enumerate(request["candidates"]):
            reply = guard.call({**request, "candidates": [candidate], "rounds": 1})
            if "error" in reply:
                return {**reply, "candidate": i}
        return None
