"""The winners of many searches in one small database, without the trials that they won against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shape_notes import Problem

from tuner.database.database import Database


def keep_winners(found: Path, winners: Path, only: Sequence[Problem] = ()) -> int:
    """Copy the winners of a database, each with its run and its trial; return how many.

    The time of the default configuration stays; its trial does not.

    Args:
        found: has them, with all that they won against.
        winners: gets them; it must not have them yet.
        only: these problems; all without them.
    """
    with Database.open(found, write=False) as source, Database.open(winners) as target:
        rows = source.winners().rows
        if only:
            wanted = {(str(vars(one.shape)), one.dtype, one.layout) for one in only}
            rows = [
                one
                for one in rows
                for problem in [one.run.problem]
                if (str(dict(problem.sizes)), problem.dtype, problem.options["layout"]) in wanted
            ]
        for stored in rows:
            run = stored.run
            target.start_run(run)
            trial = target.record(run.id, stored.trial, stored.metrics)
            target.finish_run(run.id, "finished")
            target.record_winner(run.id, replace(stored.winner, trial_id=trial, default_trial_id=None))
    return len(rows)
