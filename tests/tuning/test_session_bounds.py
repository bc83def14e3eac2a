"""What ends a search early, what came before it, and results that are too inaccurate."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.faults.kernels import write_kernel
from tests.faults.stub_device import StubDevice, Watcher, good, stop_after, time_of
from tests.sessions import plain, replay, run, run_stopped
from tuner.core.errors import Interrupted, TooInaccurateError, TunerError, UsageError
from tuner.core.model import Configuration, Measurement, Problem, Status, Verification
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.devices.base import DEFAULT_NOISE_FLOOR, Device
from tuner.kernel.load import read_kernel
from tuner.kernel.spec import KernelSpec
from tuner.report.result_record import result_as_json
from tuner.report.summary import summary
from tuner.report.tables import winner_record
from tuner.search.stopping import PATIENCE
from tuner.tuning.history import RETRIED
from tuner.tuning.state import Result

# -- an early stop


def smooth(configuration: Configuration) -> Measurement:
    """Let a kernel be fastest at 256 threads and 4 items, and everything be told apart by more than the noise."""
    block, items = (float(configuration.values[name]) for name in ("block_size", "items"))
    return good(1e5 * (1 + math.log2(block / 256) ** 2 + 0.3 * math.log2(items / 4) ** 2))


def early(
    kernel: KernelSpec,
    database: Database,
    device: Device | None = None,
    watcher: Watcher | None = None,
    **changes: Any,
) -> Result:
    options = {"trials": 120, "sampler": "gp-ei", "stop_early": True, **changes}
    return run(kernel, database, device or StubDevice(answer=smooth), watcher, **options)


def test_stops_when_nothing_beyond_the_noise_is_expected(database: Database, kernel: KernelSpec) -> None:
    result = early(kernel, database)
    tried, stopped = len(result.state.trials), result.state.stopped
    assert PATIENCE < tried < 110
    assert result.state.incumbent is not None
    assert result.state.incumbent.configuration == plain(256, 4)
    assert stopped is not None and result.finish is not None
    assert stopped.expected < stopped.noise_floor == DEFAULT_NOISE_FLOOR
    said = f"stopped after {tried} of 120 trials: no improvement beyond the noise floor (0.5 %) is expected"
    assert said in " ".join(summary(result, Path("x.db")).split())
    kept = {"expected": stopped.expected, "noise_floor": 0.005, "patience": PATIENCE}
    assert result_as_json(result)["stats"]["stopped"] == kept
    assert database.run_state(result.state.run.id)["stats"]["stopped"] == kept
    assert database.run_state(result.state.run.id)["state"] == "finished"
    assert early(kernel, database, trials=tried).state.stopped is None, "nothing was saved"

    class Quiet(StubDevice):
        def noise_floor(self, time_ns: float, mode: object = None) -> float:
            return 1e-6

    assert early(kernel, database, Quiet(answer=smooth), trials=tried + 1).state.stopped is None


def test_what_was_used_up_was_not_stopped(database: Database, kernel: KernelSpec) -> None:
    """Few trials, or few configurations."""
    assert early(kernel, database, trials=5).state.stopped is None
    fixed = {"block_size": ("32", "64"), "items": ("1", "2", "3")}
    result = early(kernel, database, fixed=fixed)
    assert (len(result.state.trials), result.state.stopped) == (6, None)


def test_stop_does_not_depend_on_the_order_of_the_answers(database: Database, kernel: KernelSpec) -> None:
    sequences = []
    for shuffle in (None, 1):
        device = StubDevice(lookahead=6, shuffle=shuffle, answer=smooth)
        assert early(kernel, database, device).state.stopped is not None
        sequences.append(device.submitted)
    assert sequences[0] == sequences[1]


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_sampler_that_expects_nothing_cannot_be_stopped(
    database: Database, kernel: KernelSpec, sampler: str
) -> None:
    with pytest.raises(UsageError, match=f"{sampler} .*; leave out --stop auto"):
        early(kernel, database, sampler=sampler)
    assert database.select("SELECT id FROM runs") == []


def test_resumed_run_that_was_stopped_tries_nothing_new(database: Database, kernel: KernelSpec) -> None:
    watcher = Watcher()
    with pytest.raises(Interrupted):
        early(kernel, database, watcher=watcher, stop=lambda: bool(watcher.phases))
    device = StubDevice(answer=smooth)
    result = early(kernel, database, device, resume=True, stop_early=False)
    assert device.submitted == []
    assert result.state.stopped is not None and result.finish is not None


def test_resumed_run_keeps_its_stop(database: Database, kernel: KernelSpec) -> None:
    for early_stop in (True, False):
        watcher = Watcher()
        with pytest.raises(Interrupted):
            early(kernel, database, watcher=watcher, stop_early=early_stop, stop=stop_after(watcher, 10))
        result = early(kernel, database, stop_early=not early_stop, resume=True)
        assert (result.state.stopped is not None) == early_stop


def test_tuning_again_stops_sooner(database: Database, kernel: KernelSpec) -> None:
    first = early(kernel, database, from_scratch=False)
    second = early(kernel, database, from_scratch=False, seed=1)
    assert second.state.stopped is not None
    assert len(second.state.trials) <= 1 + RETRIED + 1 + PATIENCE + 5 < len(first.state.trials)


# -- the best known before


def test_best_known_before_races_and_is_compared(database: Database, kernel: KernelSpec) -> None:
    first = run(kernel, database, StubDevice(), from_scratch=False, fixed={"items": ("1",)})
    assert first.finish is not None
    assert first.state.best_before is None
    assert "before" not in summary(first, Path("x.db"), full=True)
    second = run(kernel, database, StubDevice(), from_scratch=False, trials=100)
    assert second.finish is not None
    assert second.state.best_before == (first.finish.winner.configuration, first.finish.time_ns)
    assert second.finish.incumbent is not None
    assert second.finish.incumbent.configuration == first.finish.winner.configuration
    ratio = second.finish.versus_incumbent
    assert ratio is not None
    expected = time_of(first.finish.winner.configuration) / time_of(second.finish.winner.configuration)
    assert ratio.median == pytest.approx(expected)
    text = summary(second, Path("x.db"), full=True)
    assert "over the best known (95 %: " in text or "the best known already" in text
    stored = next(w for w in database.winners(Filters()).rows if w.id == second.winner_id)
    assert stored.winner.race["incumbent"]["ratio"] == pytest.approx(expected)
    data = result_as_json(second)
    assert data["versus_incumbent"]["ratio"] == pytest.approx(expected)


def test_what_a_recording_knows_is_not_what_was_measured(recording: Path, database: Database) -> None:
    replay(recording, database, trials=8)
    assert replay(recording, database, trials=8, from_scratch=False).state.best_before is None


@pytest.mark.parametrize(
    ("count", "said", "contents"),
    [
        (0, "verified at NO edge-case size: none is valid", "inputs not varied: no input is random"),
        (
            1,
            "right at 1 edge-case size",
            "right with 2 other contents of its inputs (negative numbers left out)",
        ),
        (
            2,
            "right at 2 edge-case sizes",
            "right with 2 other contents of its inputs (negative numbers left out)",
        ),
    ],
)
def test_summary_says_at_how_many_sizes_the_winner_was_verified(
    database: Database, kernel: KernelSpec, count: int, said: str, contents: str
) -> None:
    class Particular(StubDevice):
        def fits(self, problem: Problem, configuration: Configuration) -> bool:
            return 1 <= math.prod(problem.sizes.values()) <= count

        def verify_at(
            self, problem: Problem, configuration: Configuration, limit_s: float, *, contents: bool
        ) -> Measurement:
            varied = {"zeros": "", "negative numbers": "no answer", "equal numbers": ""}
            if not count:  # no other size suits it: its own
                varied = {"other inputs": "no input is random"}
            answer = super().verify_at(problem, configuration, limit_s, contents=contents)
            return replace(answer, contents=varied) if contents else answer

    result = run(kernel, database, Particular(), trials=5)
    assert result.finish is not None
    assert result.finish.exportable
    lines = summary(result, Path("x.db"), full=True).splitlines()
    (confirmed,) = [line for line in lines if line.startswith("  confirmed  ")]
    assert "in a fresh process" in confirmed
    assert confirmed.endswith(f", {said}")
    assert f"  inputs     {contents}" in lines
    assert len(result_as_json(result)["winner"]["contents"]) == (3 if count else 1)
    assert result_as_json(result)["winner"]["edge_sizes_verified"] == count


def test_best_of_a_run_that_could_not_confirm_is_tried_again(database: Database, kernel: KernelSpec) -> None:
    device = StubDevice()
    device.confirmed = lambda c, time_ns: Measurement(Status.UNSTABLE, error="the device is busy")
    first = run(kernel, database, device, from_scratch=False)
    assert first.finish is not None
    assert not first.finish.exportable
    assert {trial.status for trial in database.trials(first.state.run.id)} == {Status.OK}
    text = summary(first, Path("x.db"), full=True)
    assert "confirmed  NOT: in a fresh process: unstable: the device is busy" in text
    assert "rejected" not in text
    best = min(device.submitted, key=time_of)
    device = StubDevice()
    second = run(kernel, database, device, from_scratch=False, seed=1)
    assert best in device.submitted
    assert second.finish is not None
    assert second.finish.exportable


# -- a bound on the error


def with_error(configuration: Configuration) -> Measurement:
    """The faster, the less accurate: from 0.1 to 0.2."""
    error = 0.3 - time_of(configuration) * 1e-6
    return replace(good(time_of(configuration)), verification=Verification(True, true_error=error))


class Inaccurate(StubDevice):
    def __init__(self, **changes: Any) -> None:
        super().__init__(answer=with_error, **changes)
        self.confirmed = lambda c, time_ns: with_error(c)
        self.least_error = 1e-4


def test_too_inaccurate_is_a_failure_but_kept(database: Database, kernel: KernelSpec) -> None:
    truth = kernel.problem(dtypes={"input": "float32"})
    device = Inaccurate()
    result = run(kernel, database, device, max_error=0.15, truth=truth)
    assert device.truth == truth
    trials = database.trials(result.state.run.id)
    for trial in trials:
        assert trial.verification is not None
        assert trial.verification.true_error is not None
        assert trial.time_ns
        far = trial.verification.true_error > 0.15
        assert trial.status is (Status.INACCURATE if far else Status.OK)
        assert bool(trial.error) is far
    assert {trial.status for trial in trials} == {Status.OK, Status.INACCURATE}
    assert result.finish is not None
    right = [trial for trial in trials if trial.status is Status.OK]
    assert result.finish.time_ns == pytest.approx(min(t.time_ns or 0.0 for t in right), rel=0.01)
    assert result.finish.exportable


def test_unknown_error_is_not_within_a_bound(database: Database, kernel: KernelSpec) -> None:
    result = run(kernel, database, StubDevice(), trials=3, max_error=1.0)
    assert result.finish is None
    assert {trial.error for trial in result.state.trials} == {"its error is not known"}


def test_bound_that_no_kernel_can_keep(database: Database, kernel: KernelSpec) -> None:
    device = Inaccurate()
    with pytest.raises(
        TooInaccurateError, match=r"rounding alone makes an error of 0\.0001, above 5e-05; choose"
    ):
        run(kernel, database, device, max_error=5e-5)
    assert device.submitted == []
    assert database.select("SELECT * FROM runs") == []
    run(kernel, database, device, trials=2, max_error=1e-4)
    assert len(device.submitted) == 2, "a bound of just this error can be kept"


def test_resumed_run_keeps_its_bound(database: Database, kernel: KernelSpec) -> None:
    truth = kernel.problem(dtypes={"input": "float32"})
    run_stopped(kernel, database, 5, Inaccurate(), max_error=0.15, truth=truth)
    with pytest.raises(TunerError, match="had another --max-error; say the same"):
        run(kernel, database, Inaccurate(), resume=True, max_error=0.2)
    device = Inaccurate()
    result = run(kernel, database, device, resume=True)
    assert device.truth == truth
    assert "inaccurate" in result.state.failures


def test_another_bound_decides_about_earlier_trials_again(database: Database, kernel: KernelSpec) -> None:
    fixed = {"items": ("1",)}
    strict = run(kernel, database, Inaccurate(), fixed=fixed, max_error=0.15, from_scratch=False)
    free = run(kernel, database, Inaccurate(), fixed=fixed, max_error=0.3, from_scratch=False)
    assert strict.finish is not None
    assert free.finish is not None
    assert free.finish.time_ns < strict.finish.time_ns, (
        "the inaccurate of the first run are the best of the second"
    )


def test_too_inaccurate_once_is_not_tried_again(database: Database, kernel: KernelSpec) -> None:
    fixed = {"items": ("1",)}
    first = run(kernel, database, Inaccurate(), fixed=fixed, max_error=0.15, from_scratch=False)
    far = {t.configuration for t in first.state.trials if t.status is Status.INACCURATE}
    assert far
    device = Inaccurate()
    run(kernel, database, device, fixed=fixed, max_error=0.15, from_scratch=False)
    assert not far & (set(device.submitted) - {first.state.space.default})
    device = Inaccurate()
    tighter = run(kernel, database, device, fixed=fixed, max_error=0.12, from_scratch=False)
    assert not far & (set(device.submitted) - {first.state.space.default})
    assert tighter.finish is not None


def test_unknown_error_is_found_out(database: Database, kernel: KernelSpec) -> None:
    """What was tried without a bound has no error: it is new ground for a run with one."""
    fixed = {"items": ("1",), "block_size": tuple(str(32 * i) for i in range(1, 17))}
    run(kernel, database, StubDevice(), fixed=fixed, from_scratch=False)
    device = Inaccurate()
    result = run(kernel, database, device, fixed=fixed, max_error=0.15, from_scratch=False)
    assert len(device.submitted) == 16
    assert result.finish is not None


OWN_KERNEL = """[reference.cuda]
template = "scale.cu"
entry = "scale"
arguments = ["x", "y"]
grid = [1]
block = [32]
"""


@pytest.mark.parametrize(
    ("against", "table", "said"),
    [
        ("default", "[reference]\ndefault = true", "checked against the default only"),
        ("kernel", OWN_KERNEL, "checked against your own kernel, in its own precision"),
    ],
)
def test_a_winner_that_was_compared_with_rounded_results_alone_says_so_everywhere(
    database: Database, tmp_path: Path, against: str, table: str, said: str
) -> None:
    file = write_kernel(tmp_path)
    (tmp_path / "scale.cu").write_text("")
    file.write_text(file.read_text().replace('[reference]\nnumpy = "2 * x"', table))
    result = run(read_kernel(file), database, StubDevice(), trials=5)
    assert said in summary(result, Path("x.db"))
    assert result_as_json(result)["winner"]["checked_against"] == against
    (stored,) = database.winners(Filters()).rows
    assert stored.winner.checked_against == against
    assert winner_record(stored)["checked_against"] == against
