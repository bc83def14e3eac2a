"""How far a search follows other tasks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tuner.search.gaussian_process import GaussianProcess
from tuner.search.teachers import Teacher, Teachers


@pytest.mark.parametrize(("lead", "followed"), [(1.5, False), (2.5, True)])
def test_a_task_is_followed_only_if_it_makes_results_more_probable_by_far(
    lead: float, followed: bool
) -> None:
    values = np.array([-1.0, 1.0, -1.0, 1.0])
    alike = SimpleNamespace(expected=lambda numbers, rows: np.zeros(len(rows)), doubt=values.std())
    teachers = Teachers()
    teachers.add(cast(Teacher, alike))
    evidence = iter([0.0, lead, lead - 1.0])  # of no task, of this one, and of half of it
    model = cast(Any, SimpleNamespace(evidence=lambda codes, targets: next(evidence)))
    teachers.judge(
        cast(GaussianProcess, model), np.zeros((4, 1), np.int64), values, *np.zeros((2, 4), np.int64)
    )
    assert bool(teachers) == followed
