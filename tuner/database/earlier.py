"""What a run may learn from the runs before it. Plain SQL.

A file may hold a million trials, and a run begins within two seconds: runs are gone through from the newest back, a
bounded number of trials is read, and of these a few columns. :meth:`EarlierRuns.intact` compares rows with their
digests, for those few whose times count.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tuner.core.errors import DatabaseError
from tuner.core.model import FOREIGN, SUSPECT, Run, Status
from tuner.database import cells
from tuner.database.file import DatabaseFile
from tuner.database.records import KnownTrial, Mark

NEWEST_READ = 20_000
"""Trials of a problem that are read from its newest run back: 0.2 s, and as much again from a slow disk."""
FASTEST_READ = 2_000
"""Trials of a problem that are read beside these, the fastest first."""
MAX_CONFIGURATIONS = 10_000
"""Configurations that are remembered: to find one in a space takes 45 us."""
_TIMED = (Status.OK, Status.SLOW, Status.INACCURATE)
_COLUMNS = "t.id, t.variant, t.configuration, t.status, t.time_ns, t.verification"
NOT_SUSPECT = f"instr(t.tags, '\"{SUSPECT}\"') = 0"
_COMPARABLE = "r.kernel = ? AND r.replayed = ? AND r.mode = ? AND r.regime = ?"
_RELATED = (
    f"({_COMPARABLE} AND r.computation = ? AND NOT (r.problem_key = ? AND r.gpu_name = ? AND r.kernel_digest = ?) "
    "OR r.kernel = ? AND r.replayed AND "
    f"CASE WHEN json_valid(r.versions) THEN json_extract(r.versions, '$.{FOREIGN}') IS NOT NULL END)"
)
"""Runs of another task: of what a run computes under its conditions, or another tool's results of this kernel."""
NEAREST_TASKS = 6
"""Other tasks that are read; a search learns from three of them, and may find nothing to learn in some."""
OTHER_GPU = 4.0
OTHER_DTYPE = 3.0
OTHER_OPTION = 1.0
DOUBLED_SIZE = 0.25
"""A size twice as large; each of them counts."""
FAR = 6.0
"""Octaves from which a size is too far to learn from: recorded tasks 64 and 256 times as large cost a search a third
more evaluations and 2.5 times as many."""
VENDORS = {
    "AMD": re.compile(
        r"(?<![a-z0-9])(amd|radeon|instinct|gfx\w+|mi\d{2,3}[a-z]?|w[5-7]\d00|rx ?\d{4})(?![a-z0-9])"
    ),
    "Intel": re.compile(r"(?<![a-z0-9])(intel|arc|xe)(?![a-z0-9])"),
    "NVIDIA": re.compile(
        r"(?<![a-z0-9])(nvidia|geforce|tesla|quadro|titan|[rg]tx|[abhpv]\d{3,4}[a-z]?|[al][1-6]0s?|g[bh]\d{3})(?![a-z0-9])"
    ),
}
"""Words in the name of a GPU, or of the file that its results come from, by which its vendor is known."""

Lesson = tuple[Run, list[KnownTrial]]
"""Results of another task: a run of it, and trials of it, the first one first."""
Source = Callable[[Run, int], Sequence[Lesson]]
"""Returns what a file can teach a run, of each task so many trials at most."""


class EarlierRuns(DatabaseFile):
    """An open database as what is known when a run begins.

    A mark leaves out what was added later, so that an interrupted run learns the same when it is resumed.
    """

    sources: Sequence[Source] = ()
    """Files that a run learns from beside this one, and before it."""

    def mark(self) -> Mark:
        """Return the mark of what the database holds now."""
        last = "SELECT coalesce(max(id), 0) AS last FROM"
        return Mark(*(self.select(f"{last} {table}")[0]["last"] for table in ("trials", "winners")))

    def mark_of(self, run_id: str) -> Mark | None:
        """Return what the database held when a run began, as far as that was written down."""
        mark = self.run_state(run_id)["stats"].get("mark")
        return Mark(**mark) if mark else None

    def earlier_trials(self, run: Run, mark: Mark | None = None) -> list[KnownTrial]:
        """Return the trials of other runs of this kernel text, problem, GPU and conditions, best first, failures last.

        Of each configuration there is the best trial, and of at most :data:`MAX_CONFIGURATIONS` configurations: those
        of the fastest trials, and those tried last. Suspect times are left out.
        """
        best: dict[tuple[str, str], dict[str, Any]] = {}
        for row in self._fastest_and_newest(run, mark or self.mark()):
            key = row["variant"], row["configuration"]
            if key not in best and len(best) == MAX_CONFIGURATIONS:
                break
            best[key] = min(best.get(key, row), row, key=_order)
        return _decoded(sorted(best.values(), key=_order))

    def _fastest_and_newest(self, run: Run, mark: Mark) -> Iterator[dict[str, Any]]:
        same = f"{_COMPARABLE} AND r.kernel_digest = ? AND r.problem_key = ? AND r.gpu_name = ? AND r.id != ?"
        values = (*_comparable(run), run.kernel_digest, run.problem.key, run.gpu.name, run.id)
        yield from self._fastest(run, mark, f"{same} AND {NOT_SUSPECT}", values, FASTEST_READ)
        yield from self._newest(mark, same, values, NEWEST_READ)

    def related_trials(self, run: Run, mark: Mark | None, limit: int) -> list[Lesson]:
        """Return the intact ranked trials of the nearest other tasks: first of :attr:`sources`, then of this file.

        Tasks of this file are this computation under these conditions at other problems and on other GPUs, and at this
        problem on this GPU where the kernel's text was another; and other tools' results of a kernel of this name.
        Those on a GPU of another vendor are left out, and all of this file for a run from scratch. All runs of one
        problem, GPU and text are together: their first trial, the fastest and the newest, ``limit`` in all.
        """
        lessons = [lesson for source in self.sources for lesson in source(run, limit)]
        if not run.options.from_scratch:
            same = run.problem.key, run.gpu.name, run.kernel_digest
            values = (*_comparable(run), run.computation, *same, run.problem.kernel)
            lessons += self._nearest(run, mark or self.mark(), limit, _RELATED, values)
        return lessons

    def lessons(self, run: Run, limit: int) -> list[Lesson]:
        """Return trials of the nearest tasks of a run's kernel in this file, its own among them: a :data:`Source`."""
        return list(self._nearest(run, self.mark(), limit, "r.kernel = ?", (run.problem.kernel,)))

    def _nearest(
        self, run: Run, mark: Mark, limit: int, which: str, related: tuple[Any, ...]
    ) -> Iterator[Lesson]:
        tasks: list[tuple[float, Run]] = []
        for newest in self.select(
            f"SELECT r.id, max(r.started_at) FROM runs r WHERE {which} "
            "GROUP BY r.problem_key, r.gpu_name, r.kernel_digest ORDER BY max(r.started_at) DESC",
            *related,
        ):
            with suppress(DatabaseError):  # damaged
                other = self.run(newest["id"])
                tasks.append((distance(run, other), other))
        found = 0
        for apart, other in sorted(tasks, key=lambda task: task[0]):
            if found == NEAREST_TASKS or apart == math.inf:
                return
            of_task = f"{which} AND r.problem_key = ? AND r.gpu_name = ? AND r.kernel_digest = ?"
            task = other.problem.key, other.gpu.name, other.kernel_digest
            trials = self._first_fastest_and_newest(other, mark, limit, of_task, (*related, *task))
            if intact := self.intact(_decoded(trials)):
                found += 1
                yield other, intact

    def _first_fastest_and_newest(
        self, run: Run, mark: Mark, limit: int, which: str, values: tuple[Any, ...]
    ) -> Iterable[dict[str, Any]]:
        """Return some ranked trials of a run's task; the run is its newest."""
        first = self._rows_of_run(run.id, mark, 1, "t.time_ns > 0", "t.number")
        fastest = self._fastest(run, mark, f"{which} AND {NOT_SUSPECT}", values, limit // 2)
        newest = self._newest(mark, which, values, limit - limit // 2 - 1, "t.time_ns > 0")
        return {row["id"]: row for row in (*first, *fastest, *newest)}.values()

    def _newest(
        self, mark: Mark, which: str, values: tuple[Any, ...], left: int, also: str = "1"
    ) -> Iterator[dict[str, Any]]:
        """Yield so many trials of some runs, from the newest run back."""
        for run in self.select(f"SELECT r.id FROM runs r WHERE {which} ORDER BY r.started_at DESC", *values):
            if left <= 0:
                return
            trials = self._rows_of_run(run["id"], mark, left, also)
            left -= len(trials)
            yield from trials

    def _fastest(
        self, run: Run, mark: Mark, which: str, values: Sequence[Any], limit: int
    ) -> list[dict[str, Any]]:
        """Return trials of a run's problem on its GPU, the fastest first: of some runs, among the fastest of all."""
        fastest = (
            f"SELECT {_COLUMNS}, t.run_id, t.tags FROM trials t WHERE t.kernel = ? AND t.problem_key = ? "
            "AND t.gpu_name = ? AND t.time_ns > 0 AND t.id <= ? ORDER BY t.time_ns LIMIT ?"
        )
        return self.select(
            f"SELECT {_COLUMNS} FROM ({fastest}) t JOIN runs r ON r.id = t.run_id WHERE {which} "
            "ORDER BY t.time_ns, t.id LIMIT ?",
            *(run.problem.kernel, run.problem.key, run.gpu.name, mark.trials, FASTEST_READ, *values, limit),
        )

    def _rows_of_run(
        self, run_id: str, mark: Mark, limit: int, also: str = "1", order: str = "t.number DESC"
    ) -> list[dict[str, Any]]:
        return self.select(
            f"SELECT {_COLUMNS} FROM trials t WHERE t.run_id = ? AND t.id <= ? AND {NOT_SUSPECT} AND {also} "
            f"ORDER BY {order} LIMIT ?",
            *(run_id, mark.trials, limit),
        )

    def intact(self, trials: Collection[KnownTrial]) -> list[KnownTrial]:
        """Return those trials whose rows are what was written."""
        rows = ((trial, self.rows_where("trials", "id = ?", trial.id)) for trial in trials)
        return [trial for trial, found in rows if any(cells.intact("trials", row) for row in found)]


def distance(run: Run, other: Run) -> float:
    """Return how unlike this problem the problem of another run of the same kernel is, from 0 on; infinite on a GPU of
    another vendor, and where a size is 64 times another."""
    if (vendor := vendor_of(run)) and vendor_of(other) not in ("", vendor):
        return math.inf
    a, b = run.problem, other.problem
    total = OTHER_GPU * (run.gpu.name != other.gpu.name)
    total += OTHER_DTYPE * any(a.dtypes[role] != b.dtypes[role] for role in a.dtypes.keys() & b.dtypes.keys())
    total += OTHER_OPTION * sum(a.options[n] != b.options[n] for n in a.options.keys() & b.options.keys())
    for name, size in a.sizes.items():
        octaves = abs(math.log2(max(size, 1) / max(b.sizes.get(name, size), 1)))
        total += DOUBLED_SIZE * octaves if octaves < FAR else math.inf
    return total


def vendor_of(run: Run) -> str:
    """Return the vendor of a run's GPU, one of :data:`VENDORS`; empty where no name tells it."""
    for name in (run.gpu.name, run.device):
        for vendor, words in VENDORS.items():
            if words.search(name.lower().replace("_", " ")):
                return vendor
    return ""


def _comparable(run: Run) -> tuple[Any, ...]:
    return run.problem.kernel, int(run.replayed), str(run.conditions.mode), str(run.conditions.regime)


def _order(row: Mapping[str, Any]) -> tuple[bool, float, int]:
    time_ns = row["time_ns"] if row["status"] in _TIMED else None
    return time_ns is None, time_ns or 0.0, row["id"]


def _decoded(rows: Iterable[Mapping[str, Any]]) -> list[KnownTrial]:
    """Return the trials of rows but for those that cannot be read."""
    trials = []
    for row in rows:
        try:
            status = Status(row["status"])
            verification = None
            if row["verification"] and status in _TIMED:
                verification = cells.decode_verification(row["verification"])
            error = verification.true_error if verification else None
            configuration = cells.decode_configuration(row)
            if row["time_ns"] is not None and not row["time_ns"] > 0:
                raise ValueError("a time that is none")
        except cells.UNREADABLE:
            continue
        trials.append(KnownTrial(row["id"], configuration, status, row["time_ns"], error))
    return trials
