"""What a run reads and learns where the database holds very many trials of earlier runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.faults.stub_device import StubDevice, time_of
from tests.sessions import TRIALS, run, sequence
from tuner.core.model import Configuration
from tuner.database import earlier
from tuner.database.database import Database
from tuner.kernel.spec import KernelSpec
from tuner.search.base import SpaceSampler
from tuner.tuning import history
from tuner.tuning.history import RETRIED


def test_of_very_many_results_some_are_taught_and_none_is_tried_again(
    database: Database, kernel: KernelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(kernel, database, StubDevice(), from_scratch=False)
    known = {trial.configuration for trial in first.state.trials}
    taught: list[Configuration] = []
    add = SpaceSampler.add

    def noted(sampler: SpaceSampler, configuration: Configuration, time_ns: float | None) -> None:
        taught.append(configuration)
        add(sampler, configuration, time_ns)

    monkeypatch.setattr(SpaceSampler, "add", noted)
    monkeypatch.setattr(history, "MAX_TAUGHT", 10)
    device = StubDevice()
    second = run(kernel, database, device, from_scratch=False, trials=20, seed=1)
    again = known & set(device.submitted)
    assert len(again) <= 1 + RETRIED + 1
    assert second.state.known_before == len(known - again)
    assert taught[:5] == sorted(known - again, key=time_of)[:5]
    assert 5 < len(taught) <= 10


@pytest.mark.parametrize(("limits", "most"), [((12, 6, 100), 18), ((12, 6, 4), 4), ((0, 6, 100), 6)])
def test_a_bounded_number_of_earlier_trials_is_read(
    database: Database,
    kernel: KernelSpec,
    monkeypatch: pytest.MonkeyPatch,
    limits: tuple[int, int, int],
    most: int,
) -> None:
    state = run(kernel, database, StubDevice(), from_scratch=False).state
    later = replace(state.run, id="later")
    known = [trial.configuration for trial in database.earlier_trials(later)]
    assert known == sorted(sequence(database, state.run.id), key=time_of)
    for name, limit in zip(("NEWEST_READ", "FASTEST_READ", "MAX_CONFIGURATIONS"), limits, strict=True):
        monkeypatch.setattr(earlier, name, limit)
    some = [trial.configuration for trial in database.earlier_trials(later)]
    assert 4 <= len(some) <= most
    assert some[:4] == known[:4], "the fastest are always among them"


def test_what_was_added_later_is_not_known(database: Database, kernel: KernelSpec) -> None:
    """A resumed run learns what it learnt at its beginning."""
    mark = database.mark()
    first = run(kernel, database, StubDevice()).state.run
    later = replace(first, id="later", options=replace(first.options, from_scratch=False))
    assert database.earlier_trials(later, mark) == []
    assert database.best_known(first, mark) is None
    assert database.related_trials(replace(later, kernel_digest="another"), mark, 100) == []
    assert len(database.earlier_trials(later)) == TRIALS
    assert database.best_known(first) is not None
    assert database.related_trials(replace(later, kernel_digest="another"), None, 100) != []
