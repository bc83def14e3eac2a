"""The GPU of this machine: compilers on all cores feed one guarded measuring process."""

from __future__ import annotations

import base64
import math
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from tuner.compile_pool import Compilation, CompilePool
from tuner.devices.base import Contestant, Device, Outcome, RaceRound
from tuner.devices.guard import Guard
from tuner.edges import ENOUGH
from tuner.errors import DeviceError, KernelError, TunerError
from tuner.kernel import KernelSpec
from tuner.model import Configuration, Gpu, Measurement, Problem, Resources, Status, Verification, digest
from tuner.plan import Plan, UnlaunchableError, make_plan, reference_launch, scalars_of, tensors_of
from tuner.roofline import occupancy, roof_of

CLOCK_TOLERANCE = 1.02
"""The highest clock that the driver names is not exceeded by more."""


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
        self._pool = CompilePool(jobs, cache)
        self.name = f"cuda:{index}"
        # Candidates for every compiler, and some compiled ahead so that the GPU never waits.
        self.lookahead = self._pool.jobs + 8
        try:
            self.gpu = Gpu(**self._guard.hello()["gpu"])
        except BaseException:
            self.close()
            raise
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._same: dict[str, list[tuple[int, Configuration, Compilation]] | Measurement] = {}
        self._same_lock = threading.Lock()
        self._fatal = ""
        """Why nothing can be measured any more."""
        self._kernel: KernelSpec
        self._problem: Problem
        self._seed = 0
        self._released = True
        """Whether the measuring process holds no data of the problem."""

    # -- contract -------------------------------------------------------------------------------------------------

    def prepare(self, kernel: KernelSpec, problem: Problem, seed: int) -> None:
        """Compile the reference, fill the tensors, compute what is expected."""
        self._kernel, self._problem, self._seed = kernel, problem, seed
        self._same = {}
        self._set_up()

    def _set_up(self) -> None:
        self._released = False
        request = self._setup_request(self._problem, self._seed)
        reply = self._guard.call(request)
        if reply.get("failed") == Status.WORKER_DIED:
            reply = self._guard.call(request)  # once may be an accident, of which a long run has some
        if "error" in reply:
            raise DeviceError(f"{self._problem}: {reply['error']}")

    def _release(self) -> None:
        """Make room on the GPU: a large problem does not fit twice."""
        if not self._released:
            self._guard.call({"do": "release"})
            self._released = True

    def submit(self, number: int, configuration: Configuration) -> None:
        """Render, compile, verify and time one configuration."""
        try:
            plan = make_plan(self._kernel, self._problem, self.gpu, configuration)
        except TunerError as error:
            self._answer(
                number,
                configuration,
                Compilation(Status.OK),
                Measurement(Status.INVALID_CONFIG, error=str(error)),
            )
            return
        done = partial(self._compiled, number, configuration, plan)
        self._pool.submit(self._kernel.file, self._problem, self.gpu, configuration, done)

    def collect(self, timeout_s: float) -> list[Outcome]:
        """Give what has been answered."""
        found: list[Outcome] = []
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                wait = 0.0 if found else max(0.0, deadline - time.monotonic())
                found.append(self._outcomes.get(timeout=wait) if wait else self._outcomes.get_nowait())
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
            reply = guard.call(self._setup_request(self._problem, self._seed + 1))
            if "error" in reply:
                return Measurement(Status(reply.get("failed", Status.UNSTABLE)), error=reply["error"])
            request, compilation = self._request(self._problem, configuration)
            if request is None:
                return Measurement(compilation.status, error=compilation.error)
            return _measurement(guard.call({**request, "thorough": True, "incumbent_ns": time_ns}))
        except DeviceError as error:
            # A second process is refused: what was measured is worth keeping all the same.
            return Measurement(Status.WORKER_DIED, error=str(error))
        finally:
            guard.close()

    def verify_at(
        self, problems: Sequence[Problem], configuration: Configuration
    ) -> list[tuple[Problem, Measurement]]:
        """Check one configuration at other sizes, in a process of its own."""
        reference = self._kernel.reference
        if reference.golden and not reference.numpy and reference.cuda is None:
            return []  # the files are of one size
        self._release()
        found: list[tuple[Problem, Measurement]] = []
        guard = Guard(self._worker, self._arguments)
        problem = self._problem
        try:
            guard.hello()
            for problem in problems:
                measurement = self._verify(guard, problem, configuration)
                if measurement is not None:
                    found.append((problem, measurement))
                if len(found) == ENOUGH:
                    break
            return found
        except DeviceError as error:
            return [*found, (problem, Measurement(Status.UNVERIFIED, error=str(error)))]
        finally:
            guard.close()

    def _verify(self, guard: Guard, problem: Problem, configuration: Configuration) -> Measurement | None:
        """Check a configuration at another size; None where it does not claim to work."""
        names = {**self._kernel.environment(problem, self.gpu), **configuration.values}
        variant = self._kernel.variants[configuration.variant]
        conditions = [condition for _, condition in variant.constraints_before]
        conditions += [variant.requires] if variant.requires is not None else []
        try:
            if not all(condition.evaluate(names) for condition in conditions):
                return None
            request, compilation = self._request(problem, configuration)
            setup = self._setup_request(problem, self._seed + 2)
        except (UnlaunchableError, KernelError):  # a grid or a tensor of nothing, for example
            return None
        if request is None:
            return Measurement(compilation.status, error=compilation.error)
        reply = guard.call(setup)
        if "error" in reply:
            return Measurement(Status.UNVERIFIED, error=reply["error"])
        return _measurement(guard.call({**request, "verify_only": True}))

    def close(self) -> None:
        """Kill compilers and the measuring process."""
        self._guard.close()
        self._pool.close()

    @property
    def restarts(self) -> int:
        """How often the measuring process had to be replaced."""
        return self._guard.restarts

    # -- one candidate --------------------------------------------------------------------------------------------

    def _compiled(
        self, number: int, configuration: Configuration, plan: Plan, compilation: Compilation
    ) -> None:
        """Go on with a compiled candidate; called from a compiling thread."""
        try:
            compilation, refusal = self._settle(configuration, plan, compilation)
            if refusal is not None:
                self._answer(number, configuration, compilation, refusal)
                return
            # Different configurations can render to the same text: those are one candidate, measured once.
            key = digest([list(compilation.sources), plan.to_json()])
            with self._same_lock:
                known = self._same.setdefault(key, [])
                if isinstance(known, list):
                    known.append((number, configuration, compilation))
                first = isinstance(known, list) and len(known) == 1
            if isinstance(known, Measurement):
                self._answer(number, configuration, compilation, known)
            elif first:
                request = {
                    **_candidate(plan, compilation),
                    "do": "measure",
                    "incumbent_ns": self.incumbent_ns,
                }
                self._guard.submit(request, partial(self._measured, key))
        except Exception as error:  # noqa: BLE001 - a lost answer would block the search for ever
            with self._same_lock:
                self._same = {k: v for k, v in self._same.items() if not _waits(v, number)}
            self._answer(
                number, configuration, compilation, Measurement(Status.INVALID_CONFIG, error=str(error))
            )

    def _measured(self, key: str, reply: dict[str, Any]) -> None:
        if reply.get("fatal"):
            self._fatal = reply["error"]  # says nothing about this candidate
            return
        measurement = _measurement(reply)
        if reply.get("span"):
            self.occupancy.spans.append(tuple(reply["span"]))
            self.occupancy.refined_s += reply.get("refined_s", 0.0)
        with self._same_lock:
            waiting = self._same[key]
            self._same[key] = replace(measurement, measure_s=0.0)
        assert isinstance(waiting, list)
        for number, configuration, compilation in waiting:
            self._answer(number, configuration, compilation, measurement)

    def _answer(
        self, number: int, configuration: Configuration, compilation: Compilation, measurement: Measurement
    ) -> None:
        self._outcomes.put(Outcome(number, configuration, compilation, measurement))

    def _settle(
        self, configuration: Configuration, plan: Plan, compilation: Compilation
    ) -> tuple[Compilation, Measurement | None]:
        """Complete what is known of the resources, and refuse what cannot launch."""
        if compilation.status is not Status.OK:
            return compilation, Measurement(compilation.status, error=compilation.error)
        resources = []
        refusal = None
        for launch, found in zip(plan.launches, compilation.resources, strict=True):
            shared = found.static_shared_bytes + launch.shared_bytes
            fit = occupancy(self.gpu, launch.threads, found.registers, shared)
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
            names = {**self._kernel.environment(self._problem, self.gpu), **configuration.values, **worst}
            for reason, condition in self._kernel.variants[configuration.variant].constraints_after:
                if not condition.evaluate(names):
                    refusal = Measurement(Status.INVALID_CONFIG, error=reason)
                    break
        return compilation, refusal

    def _request(
        self, problem: Problem, configuration: Configuration
    ) -> tuple[dict[str, Any] | None, Compilation]:
        plan = make_plan(self._kernel, problem, self.gpu, configuration)
        compilation = self._pool.compile(self._kernel.file, problem, self.gpu, configuration)
        if compilation.status is not Status.OK:
            return None, compilation
        return {**_candidate(plan, compilation), "do": "measure"}, compilation

    def _race(
        self, guard: Guard, contestants: Sequence[Contestant], rounds: int, samples: int, seed: int
    ) -> RaceRound:
        candidates = []
        for i, contestant in enumerate(contestants):
            request, compilation = self._request(self._problem, contestant.configuration)
            if request is None:
                return RaceRound([], lost=i, error=compilation.error)
            candidates.append(request)
        request = {
            "do": "race",
            "candidates": candidates,
            "estimates_ns": [contestant.time_ns for contestant in contestants],
            "rounds": rounds,
            "samples": samples,
            "seed": seed,
        }
        reply = guard.call(request)
        if "failed" in reply:  # nobody can say any more on whom the process ended
            reply = self._culprit(guard, request) or guard.call(request)
        if reply.get("fatal"):
            raise DeviceError(reply["error"])
        if "error" in reply:
            return RaceRound([], lost=reply.get("candidate", 0), error=reply["error"])
        return RaceRound(reply["rounds"], tuple(reply["tags"]))

    def _culprit(self, guard: Guard, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Let each contestant run alone, and give the reply of the first that fails."""
        for i, (candidate, estimate) in enumerate(
            zip(request["candidates"], request["estimates_ns"], strict=True)
        ):
            reply = guard.call(
                {**request, "candidates": [candidate], "estimates_ns": [estimate], "rounds": 1}
            )
            if "error" in reply:
                return {**reply, "candidate": i}
        return None

    def _setup_request(self, problem: Problem, seed: int) -> dict[str, Any]:
        kernel = self._kernel
        names = kernel.environment(problem, self.gpu)
        reference = kernel.reference
        roof = roof_of(kernel, problem, self.gpu)
        cuda = None
        launch = reference_launch(kernel, problem, self.gpu)
        if launch is not None:
            first = next(iter(kernel.variants.values()))
            compilation = self._pool.compile(
                kernel.file, problem, self.gpu, Configuration.of(first.name, first.defaults), reference=True
            )
            if compilation.status is not Status.OK:
                raise DeviceError(
                    f"the CUDA reference does not compile: {compilation.error}", f"correct {kernel.file}"
                )
            cuda = {
                "cubin": base64.b64encode(compilation.cubins[0]).decode(),
                "entry": compilation.entries[0],
                "launch": asdict(launch),
            }
        return {
            "do": "setup",
            "seed": seed,
            "tensors": [asdict(buffer) for buffer in tensors_of(kernel, problem, self.gpu)],
            "limits": {
                "floor_ns": _floor_ns(roof.flops, roof.bytes, roof.peak_flops, self.gpu),
                "flops": roof.flops,
                "peak_flops": roof.peak_flops,
            },
            "reference": {
                "numpy": {output: expression.text for output, expression in reference.numpy.items()},
                "cuda": cuda,
                "golden": {output: str(path) for output, path in reference.golden.items()},
                "sizes": dict(problem.sizes),
                "scalars": {
                    name: value for name, (_, value) in scalars_of(kernel, problem, self.gpu).items()
                },
                "reduction": int(reference.reduction.evaluate(names)) if reference.reduction else 1,
                "accumulate": problem.dtypes.get(reference.accumulate, reference.accumulate),
                "tolerance": reference.tolerance,
                "flops": roof.flops,
            },
        }


def _waits(waiting: Any, number: int) -> bool:
    return isinstance(waiting, list) and any(item[0] == number for item in waiting)


def _candidate(plan: Plan, compilation: Compilation) -> dict[str, Any]:
    return {
        "plan": plan.to_json(),
        "cubins": [base64.b64encode(cubin).decode() for cubin in compilation.cubins],
        "entries": list(compilation.entries),
    }


def _measurement(reply: Mapping[str, Any]) -> Measurement:
    if "failed" in reply:
        return Measurement(Status(reply["failed"]), error=reply["error"])
    data = dict(reply["measurement"])
    data["status"] = Status(data["status"])
    data["samples_ns"] = tuple(data["samples_ns"])
    data["tags"] = tuple(data["tags"])
    data["verification"] = Verification(**data["verification"]) if data["verification"] else None
    span = reply.get("span")
    data["measure_s"] = span[1] - span[0] if span else 0.0
    return Measurement(**data)


def _floor_ns(flops: float, size_bytes: float, peak_flops: float, gpu: Gpu) -> float:
    """Give the time that no kernel can beat: what the L2 may still hold after the flush costs nothing."""
    compute = flops / peak_flops if peak_flops else 0.0
    memory = max(0.0, size_bytes - gpu.l2_bytes) / gpu.memory_bytes_per_s if gpu.memory_bytes_per_s else 0.0
    return math.floor(max(compute, memory) * 1e9 / CLOCK_TOLERANCE)
