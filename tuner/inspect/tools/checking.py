"""Compute Sanitizer over many configurations: few processes, and every finding with the configuration that causes it.

Starting the tool costs seconds, so many configurations share one process. Its log comes from another process than the
one that launches kernels, and says which kernel is at fault, but not which configuration: equal names are common. So
the log's length after each configuration only tells which to suspect; each suspect then runs again alone, and what is
found then is certainly its own. A process that ends early (memcheck stops the context at the first bad access) or
hangs is replaced, and goes on behind the configuration that ended it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tuner.children.job import Began, CaseOutcome, Ended, Placed, ToolJob
from tuner.inspect.tools import sanitizer
from tuner.inspect.tools.cases import FAULTS, Unit, as_runs
from tuner.inspect.tools.nvidia import SANITIZER, ToolMissingError, Watched, watch

BATCH = 48
"""Configurations that one process runs at most: what a crash makes us repeat is little then."""
ATTEMPTS = 2
"""How often a process may end before its first configuration."""


@dataclass
class ToolVerdict:
    """What a tool says about one configuration at one size, which had its turn in a process."""

    unit: Unit
    tool: str
    outcome: CaseOutcome = CaseOutcome.FAULT
    error: str = "the process ended"
    findings: tuple[sanitizer.Finding, ...] = ()
    log: Path = Path()
    alone: bool = True
    """Whether the findings were made with nothing else in the process. If not, they did not come again when it ran
    alone: a race may show itself now and then, or the finding is its neighbour's."""
    late: bool = False
    """Whether it had to be killed."""
    tensors: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    log_bytes: int | None = None
    """Length of the log behind it; None if it did not come to its end."""
    records: tuple[sanitizer.ToolMessage, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether anything is wrong; a configuration that cannot be launched here is only left out."""
        wrong = self.outcome in (CaseOutcome.WRONG, CaseOutcome.FAULT, CaseOutcome.UNPREPARED)
        return bool(self.findings) or wrong or self.late

    @property
    def ran(self) -> bool:
        """Whether the tool has seen its kernels at all."""
        return self.outcome not in (
            CaseOutcome.UNLAUNCHABLE,
            CaseOutcome.OUT_OF_MEMORY,
            CaseOutcome.UNPREPARED,
        )


@dataclass
class _Session:
    """What one process did."""

    turns: list[ToolVerdict]
    seen: Watched
    log_file: Path
    log: sanitizer.Log
    strays: tuple[sanitizer.ToolMessage, ...] = ()
    """Records that came outside of all turns."""

    @property
    def fault(self) -> bool:
        """Whether a configuration ended the process."""
        return any(turn.outcome is CaseOutcome.FAULT for turn in self.turns)

    @property
    def reliable(self) -> bool:
        """Whether the log can be believed: a tool that loses its process says nothing more, and sums nothing up."""
        return bool(self.turns) and (self.log.complete or self.fault or self.seen.late)


@dataclass
class Checker:
    """Runs one of the sanitizer's tools after the other.

    Attributes:
        sanitizer: the executable.
        folder: for the logs; it exists.
        gpu: its number.
        cache: folder of the cubin cache; empty for none.
        seed: of the inputs.
        step_s: seconds allowed for one configuration at one size.
        report: called with a verdict whenever there is one; the last on a configuration counts.
    """

    sanitizer: Path
    folder: Path
    gpu: int
    cache: str
    seed: int
    step_s: float
    report: Callable[[ToolVerdict], None] = lambda _: None
    _numbers: Counter[str] = field(default_factory=Counter)

    def try_out(self, tool: str, planted: Unit) -> None:
        """Require that a tool finds what is wrong with a kernel that has what it looks for.

        Raises:
            ToolMissingError: it does not work here.
        """
        session = self._session(tool, [planted], "self-check")
        if not session.turns:
            raise self._useless(tool, session)
        if not session.log.records:
            what = "hangs on" if session.seen.late else "sees nothing wrong with"
            raise ToolMissingError(
                f"{tool} {what} a kernel that {FAULTS[tool]}, so it cannot be relied on here (log: {session.log_file})",
                "use the Compute Sanitizer of the driver's own CUDA version, or leave the check out with "
                "--no-self-check",
            )

    def check(self, tool: str, units: Sequence[Unit]) -> list[ToolVerdict]:
        """Run a tool over all units; return a verdict on each, in their order.

        Raises:
            ToolMissingError: the tool does not work here.
        """
        verdicts: dict[int, ToolVerdict] = {}
        suspects: dict[int, Unit] = {}
        queue, failures = deque(units), 0
        while queue:
            batch = [queue.popleft() for _ in range(min(BATCH, len(queue)))]
            session = self._session(tool, batch)
            failures = 0 if session.reliable else failures + 1
            if failures == ATTEMPTS:
                raise self._useless(tool, session)
            done = self._settled(session) if session.reliable else []
            queue.extendleft(reversed(batch[len(done) :]))
            single = len(session.turns) == 1
            for turn in done:
                verdicts[turn.unit.number] = self._verdict(session, turn, alone=single)
                if turn.records and not single:
                    suspects[turn.unit.number] = turn.unit
                else:
                    self.report(verdicts[turn.unit.number])
            suspects |= {unit.number: unit for unit in _suspected(session.strays, done)} if not single else {}
        for unit in suspects.values():
            verdicts[unit.number] = self._alone(tool, unit, verdicts[unit.number])
            self.report(verdicts[unit.number])
        return [verdicts[unit.number] for unit in units]

    def _alone(self, tool: str, unit: Unit, before: ToolVerdict) -> ToolVerdict:
        """Run a suspect alone; if that finds nothing, keep what was found, marked."""
        session = self._session(tool, [unit])
        if not session.turns:
            return before
        verdict = self._verdict(session, session.turns[0], alone=True)
        return before if before.findings and not verdict.findings else verdict

    def _settled(self, session: _Session) -> list[ToolVerdict]:
        """Return the turns whose records are all in the log: behind the last that was printed there could be more."""
        if not session.log.full or len(session.turns) <= 1:
            return session.turns
        last = max(
            (i for i, turn in enumerate(session.turns) if turn.records), default=len(session.turns) - 1
        )
        return session.turns[: last + 1]

    def _verdict(self, session: _Session, turn: ToolVerdict, *, alone: bool) -> ToolVerdict:
        records = turn.records
        if alone:
            records = session.log.records or session.strays
        findings = sanitizer.findings_of(records, turn.tool, turn.tensors, turn.unit.entries)
        late = session.seen.late and turn.log_bytes is None
        error = f"not done after {self.step_s:g} s" if late else turn.error
        return replace(
            turn,
            error=error,
            findings=tuple(findings),
            log=session.log_file,
            alone=alone or not findings,
            late=late,
        )

    def _session(self, tool: str, units: Sequence[Unit], name: str = "") -> _Session:
        """Let one process run some units, and read its log."""
        if not name:
            self._numbers[tool] += 1
            name = f"{self._numbers[tool]:03d}"
        log_file = self.folder / f"{tool}-{name}.log"
        setups, runs = as_runs(units)
        # What a kernel leaves in its scratch memory may matter to the next call of it, so that is called twice. A
        # poisoned output counts as written, so initcheck gets none.
        scratch = any(unit.candidate.plan.scratch for unit in units)
        job = ToolJob(
            self.gpu,
            self.cache,
            setups,
            runs,
            calls=2 if scratch and tool != "initcheck" else 1,
            seed=self.seed,
            guarded=False,
            poisoned=tool != "initcheck",
        )
        names = [name for unit in units for name in unit.entries]
        command = sanitizer.sanitizer_command(self.sanitizer, tool, log_file, names)
        try:
            seen = watch(command, job, self.folder, f"{tool}-{name}", self.step_s, log_file)
        except OSError as error:
            raise ToolMissingError(
                f"{self.sanitizer} cannot be started: {error.strerror}", SANITIZER.source
            ) from None
        return _session_of(tool, seen, units, log_file)

    def _useless(self, tool: str, session: _Session) -> ToolMissingError:
        """Say why nothing could be run under a tool."""
        if session.seen.locked_out:
            return ToolMissingError("another tuner keeps the GPU to itself", "wait for it, or end it")
        seen, ended = session.seen, "its log ends without a summary" if session.turns else ""
        last = seen.last_line or ("it hangs" if seen.status is None else f"exit status {seen.status}")
        reason = session.log.trouble or seen.complaint or ended or last
        return ToolMissingError(
            f"{tool} does not work here: {reason.rstrip('.')} (log: {session.log_file})",
            "try the Compute Sanitizer of the driver's own CUDA version, with --compute-sanitizer PATH",
        )


def _session_of(tool: str, seen: Watched, units: Sequence[Unit], log_file: Path) -> _Session:
    """Return what a process did; each turn has the part of the log that was written in it."""
    by_number = {unit.number: unit for unit in units}
    turns: list[ToolVerdict] = []
    for entry in seen.entries:
        match entry:
            case Began():
                turns.append(ToolVerdict(by_number[entry.number], tool))
            case Placed():
                turns[-1].tensors = entry.tensors
            case Ended():
                turns[-1].outcome, turns[-1].error = entry.outcome, entry.error
                turns[-1].log_bytes = entry.log_bytes
    text = log_file.read_bytes() if log_file.is_file() else b""
    session = _Session(turns, seen, log_file, sanitizer.parse_log(text.decode(errors="replace")))
    lengths = [turn.log_bytes for turn in turns if turn.log_bytes is not None]
    parts = [
        sanitizer.parse_log(part, line).records for part, line in sanitizer.split_by_length(text, lengths)
    ]
    for turn, records in zip(turns, parts, strict=False):
        turn.records = records
    if len(parts) > len(turns):
        session.strays = parts[-1]
    if session.log.counted and not session.log.records and not session.fault:
        session.strays = (sanitizer.ToolMessage(f"{session.log.counted} errors by the log's own summary"),)
    return session


def _suspected(strays: Sequence[sanitizer.ToolMessage], turns: Sequence[ToolVerdict]) -> list[Unit]:
    """Return the units that may have caused records that came too late: those with a kernel of that name, else all."""
    named = {record.kernel for record in strays}
    fitting = [turn.unit for turn in turns if named & set(turn.unit.entries)]
    return (fitting or [turn.unit for turn in turns]) if strays else []
