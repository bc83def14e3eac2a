"""A run tries its initial configurations after the default, and says where they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.compiling_device import CompilingDevice
from tests.faults.kernels import configuration
from tests.faults.stub_device import StubDevice, Watcher, good, stop_after, time_of
from tests.initial_tables import with_initial
from tests.sessions import request_of
from tuner.core.errors import Interrupted
from tuner.core.model import Configuration, Measurement, Status
from tuner.database.database import Database
from tuner.kernel.spec import KernelSpec
from tuner.report.summary import summary
from tuner.tuning.history import RETRIED as MOST_BEFORE
from tuner.tuning.session import tune
from tuner.tuning.state import Result


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSpec:
    return with_initial(tmp_path / "kernel", blocks=range(32, 513, 32), items=range(1, 9))


FIRST = [configuration(block_size=128, items=2), configuration(block_size=64, items=1)]


def run(kernel: KernelSpec, database: Database, device: StubDevice, **changes: Any) -> Result:
    stop, watcher = changes.pop("stop", lambda: False), changes.pop("watcher", None) or Watcher()
    request = request_of(kernel, kernel.problem(), **{"trials": 12, "from_scratch": True, **changes})
    return tune(request, device, database, watcher, stop)


@pytest.mark.parametrize(("sampler", "lookahead"), [("gp-ei", 8), ("tpe", 1), ("random", 8)])
def test_they_come_after_the_default(
    database: Database, kernel: KernelSpec, sampler: str, lookahead: int
) -> None:
    device = StubDevice(lookahead)
    result = run(kernel, database, device, sampler=sampler)
    assert device.submitted[:3] == [result.state.space.default, *FIRST]
    assert len(device.submitted) == len(set(device.submitted)) == 12
    assert result.stats["seeds"] == {"scale.toml": [1, 2]}
    assert database.run_state(result.state.run.id)["stats"]["seeds"] == {"scale.toml": [1, 2]}


def test_none_of_them(database: Database, kernel: KernelSpec) -> None:
    device = StubDevice()
    result = run(kernel, database, device, initial="none")
    assert result.stats["seeds"] == {}
    assert "seeds" not in summary(result, Path("tuning.db"), full=True)
    assert device.submitted[1:3] != FIRST


def test_the_summary_says_where_they_come_from(database: Database, kernel: KernelSpec) -> None:
    only = StubDevice(
        answer=lambda c: good(time_of(c)) if c in FIRST else Measurement(Status.WRONG_RESULT, error="no")
    )
    result = run(kernel, database, only, trials=3)
    assert "initial    2 from scale.toml; the winner is one of them" in summary(
        result, Path("tuning.db"), full=True
    )
    result = run(kernel, database, StubDevice(answer=lambda c: good(2000.0 if c in FIRST else 1000.0)))
    assert "initial    2 from scale.toml; the best of them 2 us" in summary(
        result, Path("tuning.db"), full=True
    )
    failing = StubDevice(
        answer=lambda c: Measurement(Status.WRONG_RESULT, error="no") if c in FIRST else good(1000.0)
    )
    result = run(kernel, database, failing)
    assert "initial    2 from scale.toml; none of them worked" in summary(
        result, Path("tuning.db"), full=True
    )


def test_a_narrowed_space_leaves_them_out(database: Database, kernel: KernelSpec) -> None:
    result = run(kernel, database, StubDevice(), fixed={"items": ("1",)})
    assert result.stats["seeds"] == {"scale.toml": [1]}


def test_what_earlier_runs_tried_is_not_tried_again(database: Database, kernel: KernelSpec) -> None:
    def answer(tried: Configuration) -> Measurement:
        return good(9e6) if tried in FIRST else good(time_of(tried))  # too slow to be tried again

    run(kernel, database, StubDevice(answer=answer), from_scratch=False)
    device = StubDevice(answer=answer)
    assert run(kernel, database, device, from_scratch=False, seed=3).stats["seeds"] == {"scale.toml": []}
    assert not set(FIRST) & set(device.submitted)


def test_the_best_of_earlier_runs_may_be_one_of_them(database: Database, kernel: KernelSpec) -> None:
    """Named twice, it is tried once, before anything could be compiled ahead."""

    def answer(tried: Configuration) -> Measurement:
        return good(1e5 if tried in FIRST else time_of(tried) + 1e5)

    run(kernel, database, StubDevice(answer=answer), sampler="gp-ei")
    device = CompilingDevice(answer=answer)
    result = run(kernel, database, device, sampler="gp-ei", from_scratch=False)
    assert set(FIRST) <= set(device.submitted[1:4])
    assert len(device.submitted) == len(set(device.submitted)) == len(result.state.trials) == 12


@pytest.mark.parametrize("resumed", [False, True])
def test_the_best_of_earlier_runs_come_first(database: Database, kernel: KernelSpec, resumed: bool) -> None:
    earlier = StubDevice()
    run(kernel, database, earlier, fixed={"items": ("3", "4")})  # none of the initial ones is among these
    best = set(sorted(earlier.submitted, key=time_of)[:MOST_BEFORE])
    if resumed:
        with pytest.raises(Interrupted):
            run(kernel, database, StubDevice(), from_scratch=False, stop=lambda: True)
    device = StubDevice()
    result = run(kernel, database, device, from_scratch=False, resume=resumed)
    first = device.submitted[: 1 + MOST_BEFORE + len(FIRST)]
    assert first[0] == result.state.space.default
    assert set(first[1:-2]) == best
    assert first[-2:] == FIRST


def test_resumption_tries_what_is_left_of_them(database: Database, kernel: KernelSpec) -> None:
    watcher = Watcher()
    with pytest.raises(Interrupted):
        run(kernel, database, StubDevice(), watcher=watcher, stop=stop_after(watcher, 1))
    assert len(watcher.numbers) == 2  # what was under way had an end
    device = StubDevice()
    result = run(kernel, database, device, resume=True, initial="none")
    assert device.submitted[0] == FIRST[1]
    assert FIRST[0] not in device.submitted
    assert result.stats["seeds"] == {"scale.toml": [1, 2]}
