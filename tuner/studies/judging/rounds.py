"""Rounds: candidates arrive as files in a folder, their verdicts go back beside them, until a deadline.

A candidate is a file, or a folder with one and what it needs. It is judged once for each content, on a copy that stays
in ``judged/``, so that the log can be repeated. The best so far is a baseline of those that follow: what is faster by
less than the noise does not take its place. In the end it is judged once more. Each judgement has a seed of its own, so
that no candidate knows from the log what the next inputs hold.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import random
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import structs

from tuner.core.errors import Interrupted, KernelError, TunerError, UsageError
from tuner.core.files import whole_file
from tuner.core.reading import read_at_most
from tuner.devices.isolated import expect_isolated
from tuner.kernel.candidates import SUFFIXES, candidate_kernel
from tuner.kernel.spec import KernelSpec
from tuner.report.terminal import printable
from tuner.studies.judging.judge import INCUMBENT, Best, Judgement, candidate_record
from tuner.studies.judging.report import headline
from tuner.studies.judging.task import COPIES
from tuner.studies.judging.verdict import CandidateRecord, Judged, Speed, Verdict

LOG, BEST, ENDING = "judge.jsonl", "best.json", ".verdict.json"
POLL_S = 0.2
MOST_BYTES, MOST_FILES, MOST_ENTRIES = 64 << 20, 256, 1024
"""Of one candidate; the last with its folders."""


@dataclass
class Rounds:
    """Judges what arrives in a folder.

    Args:
        folder: of the candidates.
        judgement: judges them.
        reopened: returns the same on a new device, after a judgement that failed.
        seeds: draws the seeds.
    """

    folder: Path
    judgement: Judgement
    reopened: Callable[[], Judgement]
    seeds: random.Random = field(default_factory=random.SystemRandom)
    bests: list[Best] = field(default_factory=list)
    """Each was faster than the one before it."""
    _seen: dict[str, str] = field(default_factory=dict)
    """What was judged or refused, by name: the state of its files."""
    _judged_contents: set[tuple[str, str]] = field(default_factory=set)
    _copied_to: dict[str, tuple[Path, str]] = field(default_factory=dict)
    """The copies, and the digests of what was copied."""

    def run(self, deadline_s: float, stop: Callable[[], bool] = lambda: False) -> Verdict | None:
        """Judge until the deadline, then the best once more; return the verdict about it, None where none was right.

        If none is right once more, it is the verdict about the best that says why.

        Args:
            deadline_s: seconds until no candidate is begun any more.
            stop: called often; once it returns true nothing is begun any more.

        Raises:
            Interrupted: it was stopped.
            UsageError: what is written has no place in the folder.
        """
        ends = time.monotonic() + deadline_s
        self._make_room()
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

    def _make_room(self) -> None:
        """Remove the best of earlier rounds, and see that verdicts and copies can be written."""
        try:
            if (best := self.folder / BEST).is_file() and not _is_verdict(best):
                raise FileExistsError(errno.EEXIST, "it is no verdict", str(best))
            best.unlink(missing_ok=True)
            os.close(self._open_log())
            (self.folder / COPIES).mkdir(exist_ok=True)
            os.close(os.open(self.folder / COPIES, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW))
        except OSError as error:
            raise UsageError(
                f"{error.filename}: {error.strerror}", "rounds write there: move it away"
            ) from None

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
            files = contents_of(path)
            content = digest_of(files)
            if (name, content) in self._judged_contents:
                return
            self._judged_contents.add((name, content))
            copy = f"{COPIES}/{content[:16]}"
            place = self._copied(path, self.folder / copy, files)
            self._copied_to[copy] = place if path.is_file() else self.folder / copy, content
            kernel = candidate_kernel(self.judgement.task.kernel, str(place))
        except (KernelError, UsageError) as error:
            refused = str(error)
        except RecursionError:  # of folders in place of its copy
            refused = f"its place in {COPIES} cannot be cleared"
        except OSError as error:
            refused = error.strerror or str(error)
        record = candidate_record(name, content)
        if refused:
            self._answer(path, self.judgement.verdict(record, "unreadable", refused))
            return
        record = structs.replace(record, copy=copy)
        while self.bests and not self._is_as_judged(self.bests[-1]):
            self.bests.pop()
        verdict = self._judged(record, kernel, self.bests[-1] if self.bests else None)
        self._answer(path, verdict)
        if verdict.judged is Judged.FAILED:  # it says nothing of the candidate, which may come again
            self._judged_contents.discard((name, content))
        if verdict.judged is Judged.RIGHT and self._is_better(verdict):
            self.bests.append(Best(kernel, verdict))

    def _judged(self, record: CandidateRecord, kernel: KernelSpec, incumbent: Best | None) -> Verdict:
        self.judgement = replace(self.judgement, seed=self.seeds.randrange(2**31))
        try:
            verdict = self.judgement.judge(kernel, record.name, incumbent)
            if record.name.endswith(".py"):  # the next may be one, too
                expect_isolated(self.judgement.device)
        except TunerError as error:
            verdict = self.judgement.verdict(record, "failed", str(error))
        if verdict.judged is Judged.FAILED:  # the next candidate has a device that nothing has touched
            self.judgement = self.reopened()
        return structs.replace(verdict, candidate=structs.replace(verdict.candidate, copy=record.copy))

    def _is_better(self, verdict: Verdict) -> bool:
        """Return whether a candidate is alone, or somewhere faster than the best so far, and slower in no mode."""
        against = [
            one.verdict
            for problem in verdict.problems
            for times in problem.modes
            for one in times.versus
            if one.baseline == INCUMBENT
        ]
        return not self.bests or (Speed.FASTER in against and Speed.SLOWER not in against)

    def _is_as_judged(self, best: Best) -> bool:
        """Return whether the copy of a best is still what it was; its author, or another's, may write to it, too."""
        record = best.verdict.candidate
        place, content = self._copied_to[record.copy]
        with contextlib.suppress(OSError):
            if content_digest(place) == content:
                return True
        self._say(f"{record.name} is not the best any more: its copy in {record.copy} has changed")
        return False

    def _copied(self, path: Path, copy: Path, files: dict[Path, bytes]) -> Path:
        """Return the candidate's file, of a copy: it may be overwritten while it is judged.

        Raises:
            UsageError: a folder has no candidate, or several.
            OSError: it cannot be copied.
        """
        if copy.is_symlink() or copy.is_file():
            copy.unlink()
        elif copy.exists():  # of earlier rounds, or what another has put there
            shutil.rmtree(copy)
        for name, content in files.items():
            target = copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:  # does not follow links
                file.write(content)
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
        self._say(headline(verdict))
        self._log(verdict)
        self._write(path.with_name(f"{path.name}{ENDING}"), verdict)

    def _last(self) -> Verdict | None:
        """Judge the best once more, on other inputs; if it is not right then, the one before it, and so on."""
        last: Verdict | None = None
        for best in reversed(self.bests):
            record = best.verdict.candidate
            if not self._is_as_judged(best):
                continue
            self._say(f"confirming {record.name}")
            verdict = self._judged(record, best.kernel, None)
            self._log(verdict)
            if verdict.judged is Judged.RIGHT:
                self._write(self.folder / BEST, verdict)
                return verdict
            last = last or verdict
        return last

    def _write(self, path: Path, verdict: Verdict) -> None:
        try:
            with whole_file(path, replace=True) as partial:
                partial.write_bytes(verdict.to_json())
        except OSError as error:  # a folder has that name
            self._say(f"the verdict is in {LOG} alone: {error.filename}: {error.strerror}")

    def _log(self, verdict: Verdict) -> None:
        with os.fdopen(self._open_log(), "ab") as log:
            log.write(verdict.to_json(None))

    def _open_log(self) -> int:
        return os.open(self.folder / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)

    def _say(self, text: str) -> None:
        """Say a line: a file's name or a message may have ends of lines, behind which a verdict could be forged."""
        self.judgement.say(printable(text))


def _is_verdict(path: Path) -> bool:
    """Return whether a file holds what rounds write of a best."""
    try:
        found = msgspec.json.decode(read_at_most(path, MOST_BYTES))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(found, dict) and {"candidate", "judged"} <= found.keys()


def files_of(path: Path) -> list[Path]:
    """Return the files of a candidate, those beside it that go with it included, in their order.

    Raises:
        OSError: they are too many, too large, or cannot be read.
    """
    whole, beside = path.is_dir() and not path.is_symlink(), path.with_name(f"{path.name}.launch")
    try:
        files = list(islice(path.rglob("*"), MOST_ENTRIES + 1)) if whole else [path, beside]
    except RecursionError:
        raise OSError(errno.ELOOP, "its folders are too deep") from None
    plain = sorted(file for file in files if file.is_file() and not file.is_symlink())
    size_bytes = sum(file.stat().st_size for file in plain)
    none, most = not plain or (not whole and path not in plain), len(files) > MOST_ENTRIES
    if none or most or len(plain) > MOST_FILES or size_bytes > MOST_BYTES:
        limits = f"{MOST_FILES} files and {MOST_BYTES >> 20} MiB are allowed"
        raise OSError(errno.EINVAL, f"it has no plain file, or too much: {limits}")
    return plain


def state_of(path: Path) -> str:
    """Return what changes when a candidate does: names, sizes and times of its files, or why it has none."""
    try:
        stats = [(file, file.stat()) for file in files_of(path)]
    except OSError as error:
        return str(error)
    return " ".join(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats)


def contents_of(path: Path) -> dict[Path, bytes]:
    """Return the content of each file of a candidate, by its name within it.

    Raises:
        OSError: they cannot be read, or have changed meanwhile.
    """
    found: dict[Path, bytes] = {}
    for file in files_of(path):
        # What was a file when it was listed may be a link to another by now, or a pipe that never ends.
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise OSError(errno.EINVAL, f"{file.name} is no plain file")
            content = opened.read(MOST_BYTES + 1)
        found[file.relative_to(path if path.is_dir() else path.parent)] = content
        if sum(map(len, found.values())) > MOST_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {MOST_BYTES >> 20} MiB")
    return found


def digest_of(files: dict[Path, bytes]) -> str:
    """Return the digest of a candidate's files with their names."""
    found = hashlib.sha256()
    for name, content in files.items():
        found.update(f"{os.fsencode(name)!r} {len(content)}\0".encode())
        found.update(content)
    return found.hexdigest()


def content_digest(path: Path) -> str:
    """Return the digest of a candidate's files; errors as of :func:`contents_of`."""
    return digest_of(contents_of(path))
