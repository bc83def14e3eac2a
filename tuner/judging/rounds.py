"""Rounds: candidates arrive as files in a folder, their verdicts go back beside them, until a deadline.

A candidate is a file, or a folder with one and what it needs. It is judged once for each content, on a copy that stays
in ``judged/``, so that the log can be repeated. The best so far is a baseline of those that follow: what is faster by
less than the noise does not take its place. In the end it is judged once more, by a seed of its own.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from tuner.core.errors import Interrupted, KernelError, TunerError, UsageError
from tuner.core.files import whole_file
from tuner.judging.isolation import COPIES
from tuner.judging.judge import INCUMBENT, Judgement, candidate_record
from tuner.judging.report import headline
from tuner.judging.verdict import CandidateRecord, Judged, Speed, Verdict
from tuner.kernel.candidates import SUFFIXES, candidate_kernel
from tuner.kernel.spec import KernelSpec

LOG, BEST, ENDING = "judge.jsonl", "best.json", ".verdict.json"
POLL_S = 0.2
MOST_BYTES, MOST_FILES = 64 << 20, 256
"""Of one candidate."""


@dataclass
class Best:
    """The best so far."""

    kernel: KernelSpec
    record: CandidateRecord


@dataclass
class Rounds:
    """Judges what arrives in a folder.

    Args:
        folder: of the candidates.
        judgement: judges them.
        reopened: returns the same on a new device, after a judgement that failed.
    """

    folder: Path
    judgement: Judgement
    reopened: Callable[[], Judgement]
    bests: list[Best] = field(default_factory=list)
    """Each was faster than the one before it."""
    _seen: dict[str, str] = field(default_factory=dict)
    """What was judged or refused, by name: the state of its files."""
    _judged_contents: set[tuple[str, str]] = field(default_factory=set)

    def run(self, deadline_s: float, stop: Callable[[], bool] = lambda: False) -> Verdict | None:
        """Judge until the deadline, then the best once more; return the verdict about it, None where none was right.

        If none is right once more, it is the verdict about the best that says why.

        Args:
            deadline_s: seconds until no candidate is begun any more.
            stop: called often; once it returns true nothing is begun any more.

        Raises:
            Interrupted: it was stopped.
        """
        ends = time.monotonic() + deadline_s
        (self.folder / BEST).unlink(missing_ok=True)  # of earlier rounds
        waiting: dict[str, str] = {}
        while time.monotonic() < ends and not stop():
            arrived = {path.name: state_of(path) for path in self._candidates()}
            for name, state in arrived.items():
                # What is still being written differs from one look to the next.
                if state == waiting.get(name) and state != self._seen.get(name):
                    self._seen[name] = state
                    self._judge(self.folder / name)
                    if time.monotonic() >= ends or stop():
                        break
            waiting = arrived
            time.sleep(max(0.0, min(POLL_S, ends - time.monotonic())))
        if stop():
            raise Interrupted("stopped", f"all verdicts are in {self.folder / LOG}")
        return self._last()

    def _candidates(self) -> Iterator[Path]:
        """Yield files and folders that may be candidates, the oldest first, so that none waits for ever."""
        ages: list[tuple[int, str, Path]] = []
        for path in self.folder.iterdir():
            named = path.suffix in SUFFIXES or (path.is_dir() and path.name != COPIES)
            if named and not path.name.startswith("."):
                with contextlib.suppress(OSError):
                    ages.append((path.stat().st_mtime_ns, path.name, path))
        yield from (path for _, _, path in sorted(ages))

    def _judge(self, path: Path) -> None:
        """Judge one candidate; whatever it does costs its own verdict alone."""
        name, content, refused = path.name, "", ""
        try:
            content = content_digest(path)
            if (name, content) in self._judged_contents:
                return
            self._judged_contents.add((name, content))
            copy = f"{COPIES}/{content[:16]}"
            kernel = candidate_kernel(self.judgement.task.kernel, str(self._copied(path, self.folder / copy)))
        except (KernelError, UsageError) as error:
            refused = str(error)
        except OSError as error:
            refused = error.strerror or str(error)
        record = candidate_record(name, content)
        if refused:
            self._answer(path, self.judgement.refusal(record, "unreadable", refused))
            return
        record = structs.replace(record, copy=copy)
        verdict = self._judged(record, kernel, self.bests[-1].kernel if self.bests else None)
        self._answer(path, verdict)
        if verdict.judged is Judged.FAILED:  # it says nothing of the candidate, which may come again
            self._judged_contents.discard((name, content))
        if verdict.judged is Judged.RIGHT and self._is_better(verdict):
            self.bests.append(Best(kernel, record))

    def _judged(self, record: CandidateRecord, kernel: KernelSpec, incumbent: KernelSpec | None) -> Verdict:
        try:
            verdict = self.judgement.judge(kernel, record.name, incumbent)
        except TunerError as error:
            verdict = self.judgement.refusal(record, "failed", str(error))
        if verdict.judged is Judged.FAILED:  # the next candidate has a device that nothing has touched
            self.judgement = replace(self.reopened(), seed=self.judgement.seed)
        return structs.replace(verdict, candidate=structs.replace(verdict.candidate, copy=record.copy))

    def _is_better(self, verdict: Verdict) -> bool:
        """Return whether a candidate is alone, or faster than the best so far at a problem and slower at none."""
        against = [
            one.verdict
            for problem in verdict.problems
            for times in problem.modes[:1]
            for one in times.versus
            if one.baseline == INCUMBENT
        ]
        return not against or (Speed.FASTER in against and Speed.SLOWER not in against)

    def _copied(self, path: Path, copy: Path) -> Path:
        """Return the candidate's file, of a copy: it may be overwritten while it is judged.

        Raises:
            UsageError: a folder has no candidate, or several.
            OSError: it cannot be copied.
        """
        copy.mkdir(parents=True, exist_ok=True)
        for file in files_of(path):
            target = copy / (file.relative_to(path) if path.is_dir() else file.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
        if not path.is_dir():
            return copy / path.name
        found = [file for suffix in SUFFIXES for file in sorted(copy.glob(f"*{suffix}"))]
        kernels = [file for file in found if file.suffix == ".toml"] or found
        if len(kernels) != 1:
            raise UsageError(
                f"{path.name} has {len(kernels)} candidates", "put one into it, and what it needs"
            )
        return kernels[0]

    def _answer(self, path: Path, verdict: Verdict) -> None:
        """Write a verdict beside its candidate, and behind the log."""
        self.judgement.say(headline(verdict))
        self._log(verdict)
        try:
            _write(path.with_name(f"{path.name}{ENDING}"), verdict)
        except OSError as error:  # a folder has that name
            self.judgement.say(f"the verdict is in {LOG} alone: {error.filename}: {error.strerror}")

    def _last(self) -> Verdict | None:
        """Judge the best once more, on other inputs; if it is not right then, the one before it, and so on."""
        first = self.judgement
        self.judgement = replace(first, seed=first.seed + 1)
        last: Verdict | None = None
        for best in reversed(self.bests):
            first.say(f"confirming {best.record.name}")
            verdict = self._judged(best.record, best.kernel, None)
            self._log(verdict)
            if verdict.judged is Judged.RIGHT:
                _write(self.folder / BEST, verdict)
                return verdict
            last = last or verdict
        return last

    def _log(self, verdict: Verdict) -> None:
        with (self.folder / LOG).open("ab") as log:
            log.write(verdict.to_json(None))


def files_of(path: Path) -> list[Path]:
    """Return the files of a candidate, those beside it that go with it included, in their order.

    Raises:
        OSError: they are too many, too large, or cannot be read.
    """
    beside = path.with_name(f"{path.name}.launch")
    files = sorted(path.rglob("*")) if path.is_dir() else [path, *([beside] if beside.is_file() else [])]
    files = [file for file in files if file.is_file() and not file.is_symlink()]
    if not files or len(files) > MOST_FILES or sum(file.stat().st_size for file in files) > MOST_BYTES:
        limits = f"{MOST_FILES} files and {MOST_BYTES >> 20} MiB are allowed"
        raise OSError(errno.EINVAL, f"it has no plain file, or too much: {limits}")
    return files


def state_of(path: Path) -> str:
    """Return what changes when a candidate does: names, sizes and times of its files, or why it has none."""
    try:
        stats = [(file, file.stat()) for file in files_of(path)]
    except OSError as error:
        return str(error)
    return " ".join(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats)


def content_digest(path: Path) -> str:
    """Return the digest of a candidate's files with their names.

    Raises:
        OSError: they cannot be read.
    """
    found = hashlib.sha256()
    for file in files_of(path):
        name, content = file.relative_to(path if path.is_dir() else path.parent), file.read_bytes()
        found.update(f"{os.fsencode(name)!r} {len(content)}\0".encode())
        found.update(content)
    return found.hexdigest()


def _write(path: Path, verdict: Verdict) -> None:
    with whole_file(path, replace=True) as partial:
        partial.write_bytes(verdict.to_json())
