"""What a run may learn from the runs before it. Plain SQL.

A file may hold a million trials, and a run begins within two seconds: runs are gone through from the newest back, a
bounded number of trials is read, and of these a few columns. :meth:`EarlierRuns.intact` compares rows with their
digests, for those few whose times count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from tuner.core.errors import DatabaseError
from tuner.core.model import SUSPECT, Run, Status
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
_NOT_SUSPECT = f"instr(t.tags, '\"{SUSPECT}\"') = 0"
_COMPARABLE = "r.kernel = ? AND r.replayed = ? AND r.mode = ? AND r.regime = ?"


class EarlierRuns(DatabaseFile):
    """An open database as what is known when a run begins.

    A mark leaves out what was added later, so that an interrupted run learns the same when it is resumed.
    """

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
        fastest = (
            f"SELECT {_COLUMNS}, t.run_id, t.tags FROM trials t WHERE t.kernel = ? AND t.problem_key = ? "
            "AND t.gpu_name = ? AND t.time_ns > 0 AND t.id <= ? ORDER BY t.time_ns LIMIT ?"
        )
        yield from self.select(
            f"SELECT {_COLUMNS} FROM ({fastest}) t JOIN runs r ON r.id = t.run_id WHERE {same} AND {_NOT_SUSPECT}",
            *(run.problem.kernel, run.problem.key, run.gpu.name, mark.trials, FASTEST_READ, *values),
        )
        left = NEWEST_READ
        for other in self.select(f"SELECT r.id FROM runs r WHERE {same} ORDER BY r.started_at DESC", *values):
            if left <= 0:
                return
            trials = self._newest_trials(other["id"], mark, left)
            left -= len(trials)
            yield from trials

    def related_trials(self, run: Run, mark: Mark | None, limit: int) -> list[tuple[Run, list[KnownTrial]]]:
        """Return the intact ranked trials of this computation and these conditions at other problems and on other GPUs.

        Those of this problem on this GPU are among them where the kernel's text was another. All runs of one problem,
        GPU and text are together; the newest runs come first, up to ``limit`` trials.
        """
        mark = mark or self.mark()
        related: dict[tuple[str, str, str], tuple[Run, list[KnownTrial]]] = {}
        for other in self.select(
            f"SELECT r.id FROM runs r WHERE {_COMPARABLE} AND r.computation = ? "
            "AND NOT (r.problem_key = ? AND r.gpu_name = ? AND r.kernel_digest = ?) ORDER BY r.started_at DESC",
            *(*_comparable(run), run.computation, run.problem.key, run.gpu.name, run.kernel_digest),
        ):
            if limit <= 0:
                break
            trials = self._newest_trials(other["id"], mark, limit, "t.time_ns > 0")
            limit -= len(trials)
            try:
                other_run = self.run(other["id"])
            except DatabaseError:  # damaged
                continue
            key = other_run.problem.key, other_run.gpu.name, other_run.kernel_digest
            if trials:
                related.setdefault(key, (other_run, []))[1].extend(self.intact(_decoded(trials)))
        return list(related.values())

    def _newest_trials(self, run_id: str, mark: Mark, limit: int, also: str = "1") -> list[dict[str, Any]]:
        return self.select(
            f"SELECT {_COLUMNS} FROM trials t WHERE t.run_id = ? AND t.id <= ? AND {_NOT_SUSPECT} AND {also} "
            "ORDER BY t.number DESC LIMIT ?",
            *(run_id, mark.trials, limit),
        )

    def intact(self, trials: Collection[KnownTrial]) -> list[KnownTrial]:
        """Return those trials whose rows are what was written."""
        sound = self.intact_rows(trial.id for trial in trials)
        return [trial for trial in trials if trial.id in sound]

    def intact_rows(self, numbers: Iterable[int]) -> set[int]:
        """Return the numbers of those rows of trials that are what was written."""
        return {
            number
            for number in numbers
            if any(cells.intact("trials", row) for row in self.rows_where("trials", "id = ?", number))
        }


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
