"""``scripts/search/winners.py``: how far winners are behind, by rounds that chose nothing; on a simulated GPU."""

from __future__ import annotations

import numpy as np
import pytest

from scripts.search import winners as script


def test_the_best_is_not_chosen_by_the_rounds_that_judge_it() -> None:
    """Among equal contestants each process has a lucky one; that is no regret. A slower winner is one."""
    draw = np.random.default_rng(1)
    equal = [1.0 + draw.normal(0, 0.01, (30, 9)) + draw.normal(0, 0.003, 9) for _ in range(40)]
    assert np.mean(script.behind(equal, 0)) == pytest.approx(1.0, abs=0.002)
    naive = np.mean([np.median(own[:, [0]] / own, axis=0).max() for own in equal])
    assert naive > 1.004
    slower = [own * np.where(np.arange(9) == 0, 1.02, 1.0) for own in equal]
    assert np.mean(script.behind(slower, 0)) == pytest.approx(1.02, abs=0.003)
    assert script.behind(slower, 0, best=0) == [1.0] * 40
