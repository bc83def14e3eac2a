"""Compiling more than is tried: what is nominated, what is chosen, and that only what is tried is a trial."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.faults.compiling_device import CompilingDevice
from tests.faults.stub_device import StubDevice, Watcher, good, stop_after
from tests.sessions import TRIALS, only_run, run, run_stopped, sequence
from tests.small_spaces import single
from tuner.children.compilation import Compilation
from tuner.core.errors import DeviceError, Interrupted
from tuner.core.model import Configuration, Measurement, RunOptions, Status, Trial
from tuner.database.database import Database
from tuner.kernel.spec import KernelSpec
from tuner.report.summary import summary
from tuner.search.expected_improvement import GPEISampler
from tuner.search.study import Search
from tuner.tuning import loop
from tuner.tuning.request import Request
from tuner.tuning.session import tune
from tuner.tuning.shortlist import MOST, RESERVE, TOGETHER, Shortlist
from tuner.tuning.state import Result


def smooth(configuration: Configuration) -> Measurement:
    numbers = [float(value) for value in configuration.values.values() if not isinstance(value, str | bool)]
    return good(1e5 * (1 + sum(abs(number - 64) for number in numbers) / 64))


# -- the shortlist


class Counter:
    """Enough of a device to see what is begun."""

    def __init__(self, compilers: int) -> None:
        self.compilers, self.begun = compilers, 0

    def compile(self, configuration: Configuration) -> None:
        self.begun += 1


@pytest.mark.parametrize(
    ("compilers", "compile_s", "measure_s", "rate"),
    [
        (16, 0.5, 0.02, 1.0),  # the compilers are behind
        (16, 0.3, 0.05, 0.75 * 16 * 0.05 / 0.3),
        (16, 0.05, 0.02, 2.0),  # the head must not be what the GPU waits for
        (16, 0.01, 1.0, MOST),
        (16, 0.0, 0.02, 1.0),  # from the cache: nothing is known of compiling
    ],
)
def test_how_many_are_nominated_follows_from_what_trials_take(
    compilers: int, compile_s: float, measure_s: float, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, sampler, at_once = Counter(compilers), GPEISampler(single(6, 5), 1), list[int]()
    nominate = sampler.nominate
    monkeypatch.setattr(sampler, "nominate", lambda count: at_once.append(count) or nominate(count))  # type: ignore[func-returns-value]
    shortlist = Shortlist(sampler, device, lambda: 40)  # type: ignore[arg-type]
    shortlist.fill(10_000)
    assert device.begun == compilers + RESERVE
    for told in range(1, 9):
        shortlist.told(compile_s, measure_s)
        shortlist.fill(10_000)
        assert shortlist.rate == pytest.approx(rate)
        room = compilers + RESERVE + told * rate + 1e-9
        assert room - TOGETHER < device.begun <= room
    assert min(at_once) >= TOGETHER  # four take the head hardly longer than one


def test_what_is_not_in_the_cache_takes_the_compilers_time_although_most_is() -> None:
    shortlist = Shortlist(GPEISampler(single(6, 5), 1), Counter(16), lambda: 40)  # type: ignore[arg-type]
    for number in range(24):
        shortlist.told(0.5 if number % 5 < 2 else 0.01, 0.025)
    assert 1.0 < shortlist.rate < 2.0  # by the median it would be 2.5


def test_a_choice_waits_for_no_nominee_while_others_are_compiled() -> None:
    """One slow compilation held up the GPU for up to 2 s."""

    class Half(Counter):
        def __init__(self) -> None:
            super().__init__(64)
            self.done: dict[Configuration, Compilation | None] = {}

        def compile(self, configuration: Configuration) -> None:
            super().compile(configuration)
            self.done[configuration] = Compilation(Status.OK) if self.begun % 4 == 0 else None

        def compiled(self, configuration: Configuration) -> Compilation | None:
            return self.done[configuration]

        def forget(self, configuration: Configuration) -> None:
            self.done.pop(configuration)

    device = Half()
    sampler = GPEISampler(single(6, 5), 1)
    search, shortlist = Search(sampler.space, sampler), Shortlist(sampler, device, lambda: 40)  # type: ignore[arg-type]
    for told in range(20):
        shortlist.told(0.4, 0.025)
        shortlist.fill(10_000)
        assert shortlist.ready()
        search.tell(search.ask(shortlist.choose()) or search.space.default, 1e5 + told)
    assert device.begun > 80


def test_nothing_is_nominated_that_cannot_be_chosen_any_more() -> None:
    device = Counter(16)
    shortlist = Shortlist(GPEISampler(single(6, 5), 1), device, lambda: 40)  # type: ignore[arg-type]
    shortlist.fill(5)
    assert device.begun == 5 + 2 * TOGETHER  # some may take long to compile


# -- the session's part


def test_only_what_is_tried_or_cannot_be_is_a_trial(database: Database, kernel: KernelSpec) -> None:
    def answer(configuration: Configuration) -> Measurement:
        if configuration.values["items"] == 3:
            return Measurement(Status.COMPILE_ERROR, error="no")
        return smooth(configuration)

    device = CompilingDevice(answer=answer, measure_s=4.0)
    result = run(kernel, database, device, sampler="gp-ei", trials=40)
    tried = sequence(database, result.state.run.id)
    assert len(tried) == len(set(tried)) == 40
    assert [trial.number for trial in database.trials(result.state.run.id)] == list(range(40))
    assert len(set(device.begun)) > 60
    assert not {c for c in device.begun if c.values["items"] == 3} - set(tried) - set(device.forgotten[-40:])
    assert result.state.failures["compile_error"] == sum(c.values["items"] == 3 for c in tried)
    assert result.finish is not None
    assert result.stats["nominated"] == len(device.begun)
    assert not device.under_way
    assert not device.ended  # nothing stays behind when the search is over


def test_choosing_late_takes_fewer_trials_than_the_order_asked(
    database: Database, kernel: KernelSpec
) -> None:
    """Both keep twelve candidates under way; one of them tries them in the order asked."""

    def trials_to_the_best(device: StubDevice) -> int:
        result = run(kernel, database, device, sampler="gp-ei", seed=2, trials=60)
        times = [trial.time_ns or 1e9 for trial in database.trials(result.state.run.id)]
        return times.index(min(times)) + 1

    in_order = trials_to_the_best(StubDevice(lookahead=24, answer=smooth))
    chosen = trials_to_the_best(CompilingDevice(compilers=16, answer=smooth, measure_s=4.0))
    assert chosen < in_order


def test_without_compilers_to_spare_hardly_anything_is_passed_over(
    database: Database, kernel: KernelSpec
) -> None:
    device = CompilingDevice(compilers=16, answer=smooth, measure_s=0.01)
    result = run(kernel, database, device, sampler="gp-ei", trials=40)
    assert len(device.begun) < 40 + 2 * TOGETHER  # the default is not nominated
    assert "candidates" not in summary(result, Path("t.db"), full=True)


def test_other_tasks_count_when_nominees_are_chosen(database: Database, kernel: KernelSpec) -> None:
    (name,) = kernel.problem().sizes

    def at(size: int, device: StubDevice) -> Result:
        request = Request(kernel, kernel.problem(sizes={name: size}), RunOptions(trials=30))
        return tune(request, device, database, Watcher())

    first = at(1 << 20, StubDevice(answer=smooth))
    best = set(sorted(sequence(database, first.state.run.id), key=lambda c: smooth(c).samples_ns)[:5])
    second = at(1 << 21, CompilingDevice(answer=smooth, measure_s=4.0))
    assert second.state.taught.results == 30
    assert best & set(sequence(database, second.state.run.id)[1:6])


def test_initial_configurations_that_are_nominated_are_tried_once(
    database: Database, kernel: KernelSpec
) -> None:
    run(kernel, database, StubDevice(answer=smooth), from_scratch=False, sampler="gp-ei", trials=30)
    device = CompilingDevice(answer=smooth)
    run(kernel, database, device, from_scratch=False, sampler="gp-ei", trials=20, seed=8)
    assert len(device.submitted) == len(set(device.submitted)) == 20


def test_results_that_are_nominated_are_tried_once(database: Database, kernel: KernelSpec) -> None:
    """Resumed on another device the search asks for others than the killed run did, and may have nominated these."""

    class Killed(StubDevice):
        def collect(self, timeout_s: float) -> list[Trial]:
            if len(self.submitted) > 8:
                raise DeviceError("gone")
            return super().collect(timeout_s)

    small = {"items": ("1",), "block_size": tuple(str(32 * i) for i in range(1, 17))}
    with pytest.raises(DeviceError):
        run(kernel, database, Killed(lookahead=6), sampler="gp-ei", fixed=small)
    run_id, _ = only_run(database)
    done = sequence(database, run_id)
    device = CompilingDevice(compilers=8)
    run(kernel, database, device, sampler="gp-ei", resume=True)
    assert len(done) > 1
    assert not set(done) & set(device.submitted)
    assert len(sequence(database, run_id)) == len(set(sequence(database, run_id))) == 16


def test_interrupted_and_resumed(database: Database, kernel: KernelSpec) -> None:
    for resume in (False, True):
        watcher = Watcher()
        device = CompilingDevice(shuffle=resume)
        with pytest.raises(Interrupted):
            run(
                kernel,
                database,
                device,
                watcher,
                sampler="gp-ei",
                resume=resume,
                stop=stop_after(watcher, 9),
            )
    run(kernel, database, CompilingDevice(shuffle=7), sampler="gp-ei", resume=True)
    run_id, state = only_run(database)
    tried = sequence(database, run_id)
    assert (state, len(tried), len(set(tried))) == ("finished", TRIALS, TRIALS)


def test_interrupted_before_the_default_ended(database: Database, kernel: KernelSpec) -> None:
    class Held(CompilingDevice):
        def submit(self, number: int, configuration: Configuration, *incumbent: Any) -> None:
            if number:
                super().submit(number, configuration, *incumbent)

    run_stopped(kernel, database, 2, Held(), sampler="gp-ei")
    device = CompilingDevice()
    result = run(kernel, database, device, sampler="gp-ei", resume=True)
    assert device.submitted[0] == result.state.space.default
    assert result.state.default is not None


def test_a_compilation_that_hangs_is_passed_over(database: Database, kernel: KernelSpec) -> None:
    class Stuck(CompilingDevice):
        stuck: Configuration | None = None

        def compile(self, configuration: Configuration) -> None:
            super().compile(configuration)
            if self.stuck is None:
                self.stuck = configuration
                self.under_way.remove(configuration)

        def compiled(self, configuration: Configuration) -> object:  # type: ignore[override]
            return None if configuration == self.stuck else super().compiled(configuration)

    device = Stuck(measure_s=4.0)
    result = run(kernel, database, device, sampler="gp-ei", trials=20)
    assert device.stuck not in device.submitted
    assert len(result.state.trials) == 20


def test_a_compilation_that_ends_between_two_probes_does_not_end_the_run(
    database: Database, kernel: KernelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler may end at any moment: also when nothing is left to wait for, and the run looks whether it is over."""
    draw, ready = random.Random(0), Shortlist.ready
    monkeypatch.setattr(Shortlist, "ready", lambda self: ready(self) and draw.random() < 0.5)
    result = run(kernel, database, CompilingDevice(), sampler="gp-ei")
    assert len(result.state.trials) == TRIALS


def test_time_that_ends_while_others_are_nominated_ends_the_run(
    database: Database, kernel: KernelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nominating takes a while, and nothing of it is compiled at its end: there is nothing to choose among."""
    fill, now = Shortlist.fill, [0.0]

    def slow(self: Shortlist, left: int) -> None:
        fill(self, left)
        now[0] += 0.3

    monkeypatch.setattr(Shortlist, "fill", slow)
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: now[0]))
    result = run(kernel, database, CompilingDevice(), sampler="gp-ei", time_s=0.2)
    assert len(result.state.trials) == 1
    assert result.finish is not None
