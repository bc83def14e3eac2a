"""A judgement: a candidate is verified, timed in turn with baselines, confirmed, and verified at other sizes.

It takes the ways of a run's winner: its trial (guard zones, poisoned outputs, the roofline), the race (fresh launches
beside repeated ones, shuffled rounds), the fresh process with other inputs, edge-case sizes and further contents.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from msgspec import structs

from tuner.children.measuring import NOT_ISOLATED, RaceFailed
from tuner.core.conditions import Conditions, Mode, Regime
from tuner.core.errors import TunerError
from tuner.core.model import Configuration, Problem, Status, Trial, digest
from tuner.core.phases import Phases
from tuner.core.version import __version__
from tuner.devices.base import Contestant, Device
from tuner.devices.isolated import isolated
from tuner.devices.requests import RaceDiedError
from tuner.kernel.batching import WARM_DIFFERS_NS
from tuner.kernel.contents import Content, is_random
from tuner.kernel.default import default_configuration
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.plan import tensors_of
from tuner.kernel.spec import KernelSpec
from tuner.studies import interleaved
from tuner.studies.judging.speed import CONFIDENCE, slowed_baseline, through, versus
from tuner.studies.judging.task import Task, no_configuration, readable_for
from tuner.studies.judging.verdict import (
    FORMAT,
    CandidateRecord,
    Judged,
    ModeTimes,
    ProblemVerdict,
    SizeChecked,
    Speed,
    Verdict,
    Versus,
    judged_for,
    overall,
)
from tuner.tuning.confirmation import MOVED, Confirmation, confirm, is_wrong

ROUNDS, FEWEST_ROUNDS = 30, 11
ROUNDS_NS = 3e9
"""For a candidate's calls in all rounds; for slow ones these are fewer."""
KNOWN_SHARE = 20.0
"""A call may take so many times as long as a first one that is taken for a hang after 10 s."""
COLLECT_S = 1.0
MAY_READ = "a candidate in Python may read its own file and libraries, and use no network: docs/judging.md"
NAME, INCUMBENT = "candidate", "best so far"


class CandidateRefused(Exception):  # noqa: N818 - a verdict
    """Ends a judgement at a problem.

    Args:
        reason: a status, or one of ``OTHER_REASONS``.
        message: what happened.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = str(reason), message


@dataclass(frozen=True)
class Best:
    """The best so far."""

    kernel: KernelSpec
    verdict: Verdict


@dataclass(frozen=True)
class Judgement:
    """Judges candidates for a task on a device, which others may use in between."""

    device: Device
    task: Task
    seed: int
    say: Callable[[str], None]

    def judge(self, candidate: KernelSpec, name: str, incumbent: Best | None = None) -> Verdict:
        """Return the verdict about a candidate; its first fault is the last that is looked for.

        Args:
            candidate: the task, computed by it.
            name: in the verdict.
            incumbent: another candidate, to compare it with.
        """
        try:
            verdict = self._judge_alone(candidate, name, incumbent)
        finally:
            phases, self.device.phases = self.device.phases, Phases()
        return structs.replace(verdict, phases=tuple(phases.spans()))

    def _judge_alone(self, candidate: KernelSpec, name: str, incumbent: Best | None) -> Verdict:
        if not _is_called(candidate):
            return self._judge_problems(candidate, name, incumbent)
        readable = readable_for(self.task.kernel, candidate, self.task.against.baselines)
        with isolated(self.device, readable) as device:
            verdict = replace(self, device=device)._judge_problems(candidate, name, incumbent)
            missing = [one.removeprefix(NOT_ISOLATED) for one in device.notes if one.startswith(NOT_ISOLATED)]
        verdict = structs.replace(verdict, not_isolated=tuple(missing))
        if verdict.judged is not Judged.RIGHT:
            return verdict
        reason = str(Status.TAMPERS)
        try:
            with self.device.phases.phase("baselines alone"):
                error = slowed_baseline(self.device, self.task, verdict)
        except TunerError as failure:
            error, reason = f"its baselines outside of its process: {failure}", "failed"
        if not error:
            return verdict
        return structs.replace(verdict, judged=judged_for(reason), speed=None, reason=reason, message=error)

    def _judge_problems(self, candidate: KernelSpec, name: str, incumbent: Best | None) -> Verdict:
        problems: list[ProblemVerdict] = []
        for problem in self.task.problems:
            problems.append(self._judge_at(problem, candidate, incumbent))
            if problems[-1].judged is not Judged.RIGHT:
                break
        last = problems[-1]
        speeds = [one.speed for one in problems if one.speed is not None]
        speed = overall(speeds) if last.judged is Judged.RIGHT else None
        return self.verdict(self._candidate(candidate, name), last.reason, last.message, problems, speed)

    def _candidate(self, candidate: KernelSpec, name: str) -> CandidateRecord:
        first = default_configuration(candidate, self.task.problems[0], self.device.gpu)
        kind, values = candidate.file.suffix.removeprefix("."), first.values if first is not None else {}
        return CandidateRecord(name, kind, KernelIdentity(candidate).code, values)

    def verdict(
        self,
        record: CandidateRecord,
        reason: str,
        message: str,
        problems: Sequence[ProblemVerdict] = (),
        speed: Speed | None = None,
    ) -> Verdict:
        """Return the verdict about a candidate; without problems, of what could not even be read, or was not judged."""
        device = self.device
        versions = {"kernel-tune": __version__, "driver": device.gpu.driver, **device.versions}
        at = datetime.now(UTC).isoformat(timespec="seconds")
        return Verdict(
            FORMAT, judged_for(reason), speed, reason, message, self.task.record, record, tuple(problems), CONFIDENCE,
            self.seed, device.gpu.name, versions, at,
        )  # fmt: skip

    def _judge_at(self, problem: Problem, candidate: KernelSpec, incumbent: Best | None) -> ProblemVerdict:
        began = time.monotonic()
        work = _AtProblem(self, problem, candidate, incumbent)
        try:
            work.run()
        except CandidateRefused as refused:
            work.note(judged=judged_for(refused.reason), reason=refused.reason, message=refused.message)
        except RaceDiedError as died:  # among baselines, which others have raced with
            work.note(judged=Judged.REFUSED, reason=str(Status.WORKER_DIED), message=str(died))
        except TunerError as error:
            work.note(judged=Judged.FAILED, reason="failed", message=str(error))
        return structs.replace(work.verdict, seconds=round(time.monotonic() - began, 3))


class _AtProblem:
    """A candidate at one problem."""

    def __init__(
        self, judgement: Judgement, problem: Problem, candidate: KernelSpec, incumbent: Best | None
    ) -> None:
        self._judgement, self._device, self._task = judgement, judgement.device, judgement.task
        self._problem, self._candidate, self._incumbent = problem, candidate, incumbent
        self.verdict = ProblemVerdict(problem.to_json(), Judged.RIGHT)

    def note(self, **changes: object) -> None:
        """Write into the verdict."""
        self.verdict = structs.replace(self.verdict, **changes)

    def run(self) -> None:
        """Go through all steps.

        Raises:
            CandidateRefused: it does not pass one.
            TunerError: nothing can be said.
        """
        device, kernel, problem = self._device, self._candidate, self._problem
        configuration = default_configuration(kernel, problem, device.gpu)
        if configuration is None:
            raise CandidateRefused(Status.INVALID_CONFIG, no_configuration(kernel, problem, device.gpu))
        conditions, _ = device.choose_conditions(kernel, problem, self._task.mode, Regime.RESTED)
        device.prepare(kernel, problem, self._judgement.seed, conditions)
        self._judgement.say(f"judging at {problem}")
        with device.phases.phase("candidate"):
            trial = self._first(configuration)
        for span in device.busy.spans[-1:]:  # without its import, first calls and capture
            device.phases.note("timed", *span)
        device.expect_confirmation()
        time_ns = self._race(configuration, trial.time_ns or 0.0, conditions)
        self._confirm(configuration, time_ns)

    def _first(self, configuration: Configuration) -> Trial:
        """Compile, verify, time and verify again."""
        device, trials = self._device, list[Trial]()
        limit_ns = 1e9 * self._task.kernel.judge.limit_s
        device.submit(0, configuration, lambda: limit_ns / KNOWN_SHARE)
        while not trials:
            trials = device.collect(COLLECT_S)
        (trial,) = trials
        if (verification := trial.verification) is not None:
            worst = verification.worst_ratio
            known = verification.checked and math.isfinite(worst)
            self.note(mismatches=verification.mismatches, worst_error=worst if known else None)
        if not trial.status.ranked:
            raise CandidateRefused(trial.status, trial.error + self._hint(trial.error))
        if (trial.time_ns or 0.0) > limit_ns:
            text = f"a call takes {(trial.time_ns or 0.0) / 1e9:.1f} s, and the limit is {limit_ns / 1e9:g} s"
            raise CandidateRefused("too_slow", text)
        return trial

    def _hint(self, error: str) -> str:
        """Return what to do about an error that the lock around a Python candidate causes; empty for others."""
        locked_out = _is_called(self._candidate) and PermissionError.__name__ in error
        return f" ({MAY_READ})" if locked_out else ""

    def _race(self, configuration: Configuration, time_ns: float, conditions: Conditions) -> float:
        """Time it in turn with the others, in each mode that counts; return its time in the first."""
        warm = self._task.mode is None and conditions.mode is not Mode.WARM
        warm = warm and time_ns < WARM_DIFFERS_NS
        times = []
        for mode in (None, *([Mode.WARM] if warm else [])):
            with self._device.phases.phase(f"race{f', {mode}' if mode else ''}"):
                times.append(self._raced(configuration, time_ns, mode))
        self.note(modes=tuple(times))
        return times[0].time_ns

    def _raced(self, configuration: Configuration, time_ns: float, mode: Mode | None) -> ModeTimes:
        def failing(index: int, answer: RaceFailed) -> None:
            if index == 0:
                raise CandidateRefused(answer.status, answer.error)

        first = Contestant(configuration, time_ns if mode is None else 0.0, name=NAME)
        judgement = self._judgement
        compared = interleaved.compare(
            self._device,
            [first, *self._others()],
            max(FEWEST_ROUNDS, min(ROUNDS, int(ROUNDS_NS / time_ns))),
            judgement.seed,
            mode=mode,
            failing=failing,
        )
        own, *others = compared.timings
        found = [versus(compared, own, other) for other in others]
        named = self._task.against.named
        found += [
            Versus(failure.name, failure.contestant.text, verified=False, error=failure.error)
            for failure in compared.failures
            if named or not failure.not_installed
        ]
        times = ModeTimes(
            compared.conditions.mode,
            compared.conditions.regime,
            own.time_ns,
            *own.interval_ns,
            compared.noise_floor(own),
            compared.metrics(own).speed_of_light,
            tuple(found),
        )
        return structs.replace(times, versus=(*times.versus, *self._beside(times)))

    def _beside(self, times: ModeTimes) -> Iterator[Versus]:
        """Yield how the candidate does beside a function that is the best so far, which ran in another process."""
        best = self._incumbent
        if best is None or not _is_called(best.kernel):
            return
        same = (self._problem.to_json(), times.mode, times.regime)
        for at in best.verdict.problems:
            for known in at.modes:
                if (at.problem, known.mode, known.regime) == same:
                    yield through(times, known, INCUMBENT, best.verdict.candidate.name)

    def _others(self) -> list[Contestant]:
        others, best = self._task.contestants(self._problem, self._device.gpu), self._incumbent
        if best is not None and not _is_called(best.kernel):
            own = default_configuration(best.kernel, self._problem, self._device.gpu)
            others += [Contestant(own, kernel=best.kernel, name=INCUMBENT)] if own is not None else []
        return others

    def _confirm(self, configuration: Configuration, time_ns: float) -> None:
        """Measure it in a fresh process, and verify it at other sizes and with other inputs."""
        task = self._task
        found = confirm(
            self._device, self._candidate, self._problem, configuration, time_ns, self._judgement.say,
            any_size=task.kernel.judge.any_size, moved=MOVED,
        )  # fmt: skip
        varied, samples = found.varied, found.confirmed.samples_ns if found.confirmed else ()
        self.note(
            sizes=tuple(SizeChecked(at.sizes, one.status, one.error) for at, one in found.edge_cases),
            sizes_note=found.edge_note,
            contents=dict(varied.contents) if varied is not None else {},
            fresh_ns=sorted(samples)[len(samples) // 2] if samples else None,
        )
        if found.reason:
            raise CandidateRefused(self._reason(found), found.reason)
        if why := self._unseen(found):
            raise CandidateRefused(str(Status.UNVERIFIED), why)

    def _unseen(self, found: Confirmation) -> str:
        """Say why no further contents were seen; empty if they were, or cannot be had of these inputs.

        It may be the candidate that takes so long, at sizes that are not timed or on the reference's processors.
        """
        if found.varied is not None:
            # Drawn last, and the reference has an answer to it.
            late = found.varied.contents.get(Content.LATER)
            return f"with other inputs: {late}" if late else ""
        kernel, gpu = self._candidate, self._device.gpu
        if kernel.reference.golden or not any(map(is_random, tensors_of(kernel, self._problem, gpu))):
            return ""
        return f"at other sizes: {found.edge_note or 'none suits it at which references are fast'}"

    def _reason(self, found: Confirmation) -> str:
        """Return why a candidate was not confirmed, as a word."""
        if found.no_process:
            return "failed"
        if any(one.status is Status.TAMPERS for _, one in found.edge_cases):
            return str(Status.TAMPERS)
        if found.wrong_at is not None:
            wrong = next((one for _, one in found.edge_cases if is_wrong(one)), None)
            with_others = wrong is None or wrong.error.startswith("with ")
            return "wrong_with_other_inputs" if with_others else "wrong_at_other_size"
        fresh = found.confirmed.status if found.confirmed else Status.OK
        return str(Status.UNSTABLE if fresh is Status.OK else fresh)


def _is_called(kernel: KernelSpec) -> bool:
    """Return whether a candidate is Python code, which shares no process with another one."""
    return any(variant.call for variant in kernel.variants.values())


def candidate_record(name: str, content: str) -> CandidateRecord:
    """Return a candidate of which no more is known, not even whether it can be read."""
    return CandidateRecord(name, name.rpartition(".")[2], digest(content))
