"""The trials for another tool's file: those of one kernel, problem, GPU and conditions, as a flat table.

Other formats have one list of parameters. The variant becomes one of them, and a parameter that a variant does not
have is :data:`NONE`; of a kernel with one variant only that variant's name is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tuner.database.database import Database
from tuner.database.records import SUSPECT, Filters, StoredTrial
from tuner.errors import DatabaseError
from tuner.model import Run, Value

VARIANT = "variant"
NONE = "none"


@dataclass(frozen=True)
class Results:
    """The newest trial of each configuration, in the order in which they were tried.

    Args:
        run: the newest of the runs; all have kernel text, problem, GPU and conditions in common.
        trials: at least one.
        damaged: what was left out.
    """

    run: Run
    trials: Sequence[StoredTrial]
    damaged: Sequence[str] = ()

    @cached_property
    def variants(self) -> list[str]:
        """The variants that were tried."""
        return list(dict.fromkeys(stored.trial.configuration.variant for stored in self.trials))

    @cached_property
    def parameters(self) -> dict[str, list[Value]]:
        """The names of the flat table, each with the values that occur; numbers in order."""
        occurring = self.occurring()
        several = len(self.variants) > 1
        for name, values in occurring.items():
            if several and name != VARIANT and any(name not in self.flat(t, pad=False) for t in self.trials):
                values[NONE] = None
        return {name: _ordered(list(values)) for name, values in occurring.items()}

    def occurring(self) -> dict[str, dict[Value, None]]:
        """Return the values of each parameter, in the order in which they were tried."""
        occurring: dict[str, dict[Value, None]] = {}
        for stored in self.trials:
            for name, value in self.flat(stored, pad=False).items():
                occurring.setdefault(name, {})[value] = None
        return occurring

    def flat(self, stored: StoredTrial, *, pad: bool = True) -> dict[str, Value]:
        """Return a configuration as a row of the table.

        Args:
            stored: the trial.
            pad: also with the parameters that its variant does not have.
        """
        configuration = stored.trial.configuration
        values = dict(configuration.values)
        if len(self.variants) > 1:
            values = {VARIANT: configuration.variant, **values}
        return {name: values.get(name, NONE) for name in self.parameters} if pad else values


def _ordered(values: list[Value]) -> list[Value]:
    numbers = sorted((v for v in values if not isinstance(v, str)), key=float)
    return [*numbers, *(v for v in values if isinstance(v, str))]


def results_of(database: Database, filters: Filters) -> Results:
    """Return the trials of the newest run that fits, with those of the runs like it.

    If the filters name a run, its trials alone.

    Raises:
        DatabaseError: nothing fits.
    """
    newest = database.query(filters, "-id", 1).rows
    if not newest:
        more = "" if filters.replayed is None else ", or add --replayed"
        raise DatabaseError(f"no trial in {database.path} fits", f"tune query lists what there is{more}")
    run = newest[0].run
    if not filters.run:
        filters = replace(
            filters, kernel=run.problem.kernel, problem_key=run.problem.key, replayed=run.replayed,
            mode=str(run.conditions.mode), regime=str(run.conditions.regime),
        )  # fmt: skip
    selection = database.query(filters)
    same = [
        stored
        for stored in selection.rows
        if (stored.run.kernel_digest, stored.run.gpu.name, stored.run.foreign)
        == (run.kernel_digest, run.gpu.name, run.foreign)
        and SUSPECT not in stored.trial.tags
    ]
    last = {stored.trial.configuration: stored for stored in same}
    if not last:
        raise DatabaseError(f"all trials of run {run.id} are suspect", "tune it again")
    return Results(run, list(last.values()), selection.damaged)
