"""The trials for another tool's file: those of one kernel, problem, GPU and conditions, as a flat table.

Other formats have one list of parameters. The variant becomes one of them, and a parameter that a variant does not
have is :data:`ABSENT`; of a kernel with one variant only that variant's name is lost.

The database is read twice: for what a file says about all trials, and for each of them when it is written. So a million
trials need no more than 24 bytes each.
"""

from __future__ import annotations

import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tuner.core.errors import DatabaseError
from tuner.core.model import Run, Value, digest
from tuner.database.database import Database
from tuner.database.records import Filters, StoredTrial

VARIANT = "variant"
ABSENT = "none"
"""Value of a parameter that a configuration does not have."""


@dataclass(frozen=True)
class Results:
    """The newest trial of each configuration, in the order in which they were tried.

    Args:
        database: an open one.
        run: the newest of the runs; all have kernel text, problem, GPU and conditions in common.
        runs: their ids.
        numbers: the rows of the trials, at least one.
        variants: those that were tried.
        occurring: the values of each parameter, in the order in which they were tried.
        lacking: the parameters that some of the trials do not have.
        damaged: what was left out.
    """

    database: Database
    run: Run
    runs: Collection[str]
    numbers: Sequence[int]
    variants: Sequence[str]
    occurring: Mapping[str, Sequence[Value]]
    lacking: frozenset[str]
    damaged: Sequence[str]

    @cached_property
    def parameters(self) -> dict[str, list[Value]]:
        """The names of the flat table, each with the values that occur; numbers in order."""
        return {
            name: _ordered([*values, ABSENT] if name in self.lacking and ABSENT not in values else values)
            for name, values in self.occurring.items()
        }

    def trials(self) -> Iterator[StoredTrial]:
        """Return the trials one after the other.

        Raises:
            DatabaseError: one was deleted meanwhile.
        """
        for stored in self.database.numbered_trials(self.numbers):
            if stored.run.id not in self.runs:  # a later trial was given the number of a deleted one
                raise DatabaseError(f"trial {stored.trial.id} was deleted meanwhile", "export again")
            yield stored

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
        return {name: values.get(name, ABSENT) for name in self.parameters} if pad else values


def _ordered(values: Sequence[Value]) -> list[Value]:
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
        raise DatabaseError(f"no trial in {database.path} fits", f"tune trials lists what there is{more}")
    run = newest[0].run
    if not filters.run:
        filters = replace(filters.like(run), replayed=run.replayed)
    damaged: list[str] = []
    numbers, digests = array.array("q"), bytearray()
    runs: set[str] = set()
    variants: dict[Value, None] = {}
    occurring: dict[str, dict[Value, None]] = {}
    signatures: set[frozenset[str]] = set()
    for stored in database.each_trial(damaged, filters):
        if not _alike(stored.run, run) or stored.trial.suspect:
            continue
        configuration = stored.trial.configuration
        numbers.append(stored.trial.id or 0)
        digests += bytes.fromhex(digest(configuration.key))
        runs.add(stored.run.id)
        variants[configuration.variant] = None
        signatures.add(frozenset(configuration.values))
        for name, value in configuration.parameters:
            occurring.setdefault(name, {})[value] = None
    if not numbers:
        raise DatabaseError(f"all trials of run {run.id} are suspect", "tune it again")
    lacking = frozenset(occurring) - frozenset.intersection(*signatures)
    if len(variants) > 1:
        occurring = {VARIANT: variants, **occurring}
    values = {name: list(values) for name, values in occurring.items()}
    names = [str(name) for name in variants]
    return Results(database, run, runs, _newest(numbers, digests), names, values, lacking, damaged)


def _alike(run: Run, other: Run) -> bool:
    ours = run.kernel_digest, run.gpu.name, run.foreign
    return ours == (other.kernel_digest, other.gpu.name, other.foreign)


def _newest(numbers: array.array[int], digests: bytearray) -> array.array[int]:
    """Return the last of the numbers with each digest, in the order in which the digests first appear."""
    each = np.frombuffer(digests, f"S{len(digests) // len(numbers)}")
    _, first, which = np.unique(each, return_index=True, return_inverse=True)
    last = np.zeros(len(first), np.int64)
    last[which] = numbers  # of several for one place, NumPy keeps the last
    return array.array("q", last[np.argsort(first)].tobytes())
