"""Several equal GPUs of this machine as one device: each measures other candidates of one problem.

Two cards of a model differ by a few percent. Each measuring process times a reference kernel of its own problem now and
then; the ratio of these times turns what one card has measured into what the first would have. That is good enough to
search by: the race and the confirmation are on the first card alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from tuner.children.compile_pool import CompilePool
from tuner.children.measuring import Failed, Measure, Measured, Release, Setup, SetupDone
from tuner.core.errors import DeviceError
from tuner.core.model import Status
from tuner.devices.base import say_nothing
from tuner.devices.guard import Guard
from tuner.devices.local import LocalDevice
from tuner.devices.pending import Unanswered

IN_FLIGHT = 4
"""Candidates for each further card, so that its process never waits for the next."""
MAX_DEATHS = 3
"""Processes of a card that may end one after the other; it is then left out."""


@dataclass(eq=False)
class _Member:
    """One of the GPUs."""

    name: str
    guard: Guard
    reference_ns: float = 0.0
    """What the reference kernel takes on it."""
    pending: int = 0
    deaths: int = 0
    """How often its process has ended since it last gave an answer."""
    failed: str = ""
    """Why it measures no more."""

    def set_up(self, request: Setup) -> None:
        """Set the card up for a problem, and note how that ended."""
        self.failed = ""
        match self.guard.call(request):
            case SetupDone(reference_ns=reference_ns):
                self.reference_ns = reference_ns
            case Failed(error=error) | Unanswered(error=error):
                self.failed = error


class SpreadDevice(LocalDevice):
    """Several equal GPUs.

    Args:
        indices: their numbers; races and confirmations are on the first.
        cache: folder of the cubin cache; None for none.
        worker: module of the measuring processes.
        say: told what takes seconds, and how far the cards differ.
        compiler: NVRTC's version, for the record.
        pool: of compilers; None for one of its own.

    Raises:
        DeviceError: one cannot be used, or is of another model.
    """

    def __init__(
        self,
        indices: Sequence[int],
        cache: Path | None = None,
        worker: str = "tuner.gpu.worker",
        say: Callable[[str], None] = say_nothing,
        compiler: str = "",
        pool: CompilePool | None = None,
    ) -> None:
        self._members: list[_Member] = []
        """All but the first."""
        self._pending_lock = threading.Lock()
        super().__init__(indices[0], None, cache, worker, say, compiler, pool)
        self._first = _Member(self.name, self._guard)
        try:
            for index in indices[1:]:
                self._members.append(
                    _Member(f"cuda:{index}", Guard(worker, [str(index), *self.processes.arguments[1:]], say))
                )
            for member in self._members:
                self._refuse_other_model(member)
        except BaseException:
            self.close()
            raise
        self.measuring = 1 + len(self._members)
        self.lookahead += IN_FLIGHT * len(self._members)

    def _refuse_other_model(self, member: _Member) -> None:
        hello = member.guard.hello()
        if hello.gpu.uuid and hello.gpu.uuid == self.gpu.uuid:
            raise DeviceError(f"{member.name} is the same GPU as {self.name}", "name each GPU once")
        if (hello.gpu.name, hello.gpu.sm_count) != (self.gpu.name, self.gpu.sm_count):
            raise DeviceError(
                f"{member.name} is an {hello.gpu.name}, and {self.name} an {self.gpu.name}",
                "spread a problem over GPUs of one model; others are tuned by themselves",
            )

    def _set_up(self) -> float:
        """Set every card up for the problem, at the same time; return the time of the first one's reference kernel."""
        request = self._requests.setup(self._submissions.problem, self._seed, self.conditions, self._truth)
        threads = [
            threading.Thread(target=member.set_up, args=(request,), daemon=True) for member in self._members
        ]
        for thread in threads:
            thread.start()
        self._first.reference_ns = super()._set_up()
        for thread in threads:
            thread.join()
        self._compare_cards()
        return self._first.reference_ns

    def _compare_cards(self) -> None:
        """Say which cards are left out, and which differ by more than the noise."""
        noise = self.noise_floor(self._first.reference_ns)
        for member in self._members:
            if member.failed:
                self.say(f"{member.name} measures nothing: {member.failed}")
            elif abs((ratio := self._ratio(member)) - 1.0) > noise:
                slower = "slower" if ratio < 1.0 else "faster"
                self.say(
                    f"{member.name} is {100 * abs(1.0 / ratio - 1.0):.1f} % {slower} than {self.name} by the reference "
                    f"kernel (noise floor {100 * noise:.2g} %): its times are compared through that"
                )

    def _ratio(self, member: _Member) -> float:
        """Return what turns a time of a card into one of the first card."""
        if not member.reference_ns or not self._first.reference_ns:
            return 1.0
        return self._first.reference_ns / member.reference_ns

    def _measure(self, request: Measure, done: Callable[[Measured | Unanswered], None]) -> None:
        """Hand a candidate to the card with the fewest, and its answer on, as the first card would have given it."""
        with self._pending_lock:
            usable = [self._first, *(member for member in self._members if not member.failed)]
            member = min(usable, key=lambda member: member.pending)
            member.pending += 1
        ratio, incumbent_ns = self._ratio(member), request.incumbent_ns
        if request.incumbent_ns is not None:
            request = structs.replace(request, incumbent_ns=request.incumbent_ns / ratio)

        def answered(answer: Measured | Unanswered) -> None:
            with self._pending_lock:
                member.pending -= 1
            if isinstance(answer, Measured):
                member.deaths = 0
                member.reference_ns = answer.reference_ns or member.reference_ns
                done(self._as_on_first(answer, member))
            elif member is self._first or answer.status is not Status.WORKER_DIED:
                done(answer)
            else:  # the card may be to blame, and the candidate innocent: the first card decides
                self._note_death(member, answer)
                self._first.guard.submit(structs.replace(request, incumbent_ns=incumbent_ns), done)

        member.guard.submit(request, answered)

    def _note_death(self, member: _Member, answer: Unanswered) -> None:
        """Leave a card out whose process cannot be started, or has ended several times in a row."""
        member.deaths += 1
        if not member.failed and (answer.fatal or member.deaths >= MAX_DEATHS):
            member.failed = answer.error
            self.say(f"{member.name} measures no more: {answer.error}")

    def _as_on_first(self, answer: Measured, member: _Member) -> Measured:
        if member is self._first:
            return answer
        ratio, measurement = self._ratio(member), answer.measurement
        samples = tuple(time_ns * ratio for time_ns in measurement.samples_ns)
        tags = (*measurement.tags, f"on {member.name}")
        return structs.replace(answer, measurement=replace(measurement, samples_ns=samples, tags=tags))

    def release(self) -> None:
        """Make room on the first card, where the race was; the others have nothing more to do."""
        if not self._released:
            for member in self._members:
                if not member.failed:
                    member.guard.call(Release())
        super().release()

    def close(self) -> None:
        """Kill compilers and the measuring processes."""
        for member in self._members:
            member.guard.close()
        super().close()
