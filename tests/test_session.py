"""The loop of a run: seeds, failures, interruptions, resumption, and what is in the database afterwards."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.faults.kernels import scale_kernel, write_synthetic_recording
from tests.faults.stub_device import StubDevice, Watcher, good, stop_after, time_of
from tuner.database import Database, Filters
from tuner.devices.base import DEFAULT_NOISE_FLOOR, Device, Outcome, RaceRound
from tuner.devices.local import LocalDevice
from tuner.devices.replay import ReplayDevice
from tuner.doubts import Doubts
from tuner.errors import DeviceError, Interrupted, SpaceError, TooInaccurateError, TunerError, UsageError
from tuner.kernel import KernelSpec
from tuner.kernel_file import content_digest, load_kernel
from tuner.model import (
    Calibration,
    Conditions,
    Configuration,
    Measurement,
    Mode,
    Problem,
    Regime,
    Run,
    Status,
    Trial,
    Verification,
)
from tuner.records import SUSPECT
from tuner.report.progress import heading
from tuner.report.summary import result_as_json, summary
from tuner.search.enough import PATIENCE
from tuner.session import SEEDS, tune
from tuner.state import Request, Result


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kernel = load_kernel("vector_add")
    folder = tmp_path_factory.mktemp("recorded")
    return write_synthetic_recording(
        folder / "vector_add-made_up.json.gz", kernel, [kernel.problem(preset="small")], 300
    )


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database.open(tmp_path / "tuning.db") as database:
        yield database


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSpec:
    return scale_kernel(tmp_path / "kernel", blocks=range(32, 1025, 32), items=range(1, 9))


def replay(recording: Path, database: Database, **changes: Any) -> Result:
    kernel = load_kernel("vector_add")
    request = Request(
        kernel, kernel.problem(preset="small"), **{"trials": 40, "from_scratch": True, **changes}
    )
    return tune(request, ReplayDevice(recording), database, Watcher())


def run(
    kernel: KernelSpec, database: Database, device: Device, watcher: Watcher | None = None, **changes: Any
) -> Result:
    stop = changes.pop("stop", lambda: False)
    request = Request(
        kernel, kernel.problem(), **{"trials": 40, "sampler": "random", "from_scratch": True, **changes}
    )
    return tune(request, device, database, watcher or Watcher(), stop)


def sequence(database: Database, run_id: str) -> list[Configuration]:
    return [trial.configuration for trial in database.trials(run_id)]


def only_run(database: Database) -> tuple[str, str]:
    ((run_id, state),) = [tuple(row.values()) for row in database.select("SELECT id, state FROM runs")]
    return run_id, state


# -- one run


@pytest.mark.parametrize("sampler", ["tpe", "random", "brute-force", "nsgaii"])
def test_same_seed_gives_the_same_sequence(recording: Path, database: Database, sampler: str) -> None:
    runs = [replay(recording, database, sampler=sampler, seed=seed).state.run.id for seed in (3, 3, 4)]
    first, second, other = (sequence(database, run_id) for run_id in runs)
    assert first == second
    assert len(set(first)) == 40
    assert (first == other) == (sampler == "brute-force")


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_order_of_the_answers_does_not_matter(database: Database, kernel: KernelSpec, sampler: str) -> None:
    found = []
    for shuffle in (None, 1, 2):
        device = StubDevice(lookahead=6, shuffle=shuffle)
        run(kernel, database, device, sampler=sampler, seed=5)
        found.append(device.asked)
    assert found[0] == found[1] == found[2]


def test_run_ends_with_a_winner(recording: Path, database: Database) -> None:
    result = replay(recording, database)
    assert result.finish is not None
    assert result.winner_id is not None
    assert database.run_state(result.state.run.id)["state"] == "finished"
    (stored,) = database.winners(Filters()).rows
    assert stored.run.replayed
    assert stored.winner.configuration == result.finish.winner.configuration
    assert not database.pending_attempts(result.state.run.id)


def test_failures_teach_and_do_not_stop(recording: Path, database: Database) -> None:
    result = replay(recording, database, trials=80)
    trials = database.trials(result.state.run.id)
    assert len(trials) == 80
    failed = [trial for trial in trials if trial.status is Status.WRONG_RESULT]
    assert failed
    assert all(trial.time_ns is None and trial.error for trial in failed)
    assert result.state.failures == {"wrong_result": len(failed)}
    assert result.finish is not None
    assert result.finish.winner.status is Status.OK


def test_every_status_is_one_trial(database: Database, kernel: KernelSpec) -> None:
    statuses = list(Status)

    def answer(configuration: Configuration) -> Measurement:
        status = statuses[int(time_of(configuration)) % len(statuses)]
        return good(time_of(configuration)) if status is Status.OK else Measurement(status, error="why")

    result = run(
        kernel, database, StubDevice(lookahead=4, shuffle=0, answer=answer), trials=120, sampler="tpe"
    )
    trials = database.trials(result.state.run.id)
    assert [trial.number for trial in trials] == list(range(120))
    assert {trial.status for trial in trials} == set(statuses)
    assert result.finish is not None


def test_first_failures_do_not_stop_the_search(database: Database, kernel: KernelSpec) -> None:
    count = iter(range(1000))

    def answer(configuration: Configuration) -> Measurement:
        return (
            good(time_of(configuration))
            if next(count) > 25
            else Measurement(Status.COMPILE_ERROR, error="no")
        )

    result = run(kernel, database, StubDevice(answer=answer), sampler="tpe")
    assert result.state.failures == {"compile_error": 26}
    assert result.finish is not None
    assert result.finish.default is not None
    assert result.finish.default_ns is None


@pytest.mark.parametrize("status", [Status.WRONG_RESULT, Status.UNVERIFIED, Status.TOO_FAST, Status.HANG])
def test_nothing_verified_means_no_winner(database: Database, kernel: KernelSpec, status: Status) -> None:
    device = StubDevice(answer=lambda c: Measurement(status, (5.0,) * 12, "why"))
    result = run(kernel, database, device, trials=10)
    assert result.finish is None
    assert result.winner_id is None
    assert device.races == []
    assert database.run_state(result.state.run.id)["state"] == "finished"
    assert database.winners(Filters()).rows == []


def test_narrowing(recording: Path, database: Database) -> None:
    fixed = {"block_size": ("128", "256"), "load_hint": ("none",)}
    result = replay(recording, database, variants=("vectorized",), fixed=fixed, trials=200)
    tried = sequence(database, result.state.run.id)
    assert {c.variant for c in tried} == {"vectorized"}
    assert {c.values["block_size"] for c in tried} == {128, 256}
    assert {c.values["load_hint"] for c in tried} == {"none"}
    assert database.run(result.state.run.id).narrowing["variants"] == ["vectorized"]


def test_space_that_ends_before_the_budget(database: Database, kernel: KernelSpec) -> None:
    for lookahead in (1, 5, 100):
        device = StubDevice(lookahead=lookahead, shuffle=1)
        result = run(
            kernel,
            database,
            device,
            fixed={"block_size": ("32", "64"), "items": ("1", "2", "3")},
            sampler="tpe",
        )
        assert len(device.asked) == len(set(device.asked)) == 6
        assert len(result.state.trials) == 6
        assert result.finish is not None


def test_one_configuration_is_a_space(database: Database, kernel: KernelSpec) -> None:
    result = run(kernel, database, StubDevice(), fixed={"block_size": ("32",), "items": ("1",)})
    assert result.finish is not None
    assert result.finish.winner is result.state.default


def test_time_budget(database: Database, kernel: KernelSpec) -> None:
    class Slow(StubDevice):
        def collect(self, timeout_s: float) -> list[Outcome]:
            time.sleep(0.02)
            return super().collect(timeout_s)

    began = time.monotonic()
    result = run(kernel, database, Slow(), trials=10_000, time_s=0.5)
    assert time.monotonic() - began < 5.0
    assert 5 <= len(result.state.trials) <= 25
    assert result.finish is not None
    assert database.run_state(result.state.run.id)["state"] == "finished"


def test_nothing_tried_is_an_error(database: Database, kernel: KernelSpec) -> None:
    with pytest.raises(SpaceError, match="nothing was tried"):
        run(kernel, database, StubDevice(), time_s=-1.0)
    assert only_run(database)[1] == "failed"


# -- several runs


def test_tuning_again_tries_new_ground(database: Database, kernel: KernelSpec) -> None:
    first = run(kernel, database, StubDevice(), from_scratch=False)
    device = StubDevice()
    second = run(kernel, database, device, from_scratch=False, seed=9)
    assert first.finish is not None
    assert second.finish is not None
    again = set(sequence(database, first.state.run.id)) & set(device.asked)
    best = sorted(sequence(database, first.state.run.id), key=time_of)[:SEEDS]
    assert again == {first.state.space.default, *best, first.finish.winner.configuration}
    assert second.finish.time_ns <= first.finish.time_ns * 1.001
    assert second.state.known_before == 40 - len(again)


def test_tuning_until_everything_is_known(database: Database, kernel: KernelSpec) -> None:
    fixed = {"block_size": ("32", "64"), "items": ("1", "2", "3")}
    for _ in range(3):
        result = run(kernel, database, StubDevice(lookahead=3), from_scratch=False, fixed=fixed)
        assert result.finish is not None
    assert len(result.state.trials) <= 2


def test_another_kernel_text_teaches_nothing(database: Database, kernel: KernelSpec, tmp_path: Path) -> None:
    run(kernel, database, StubDevice(), from_scratch=False)
    changed = tmp_path / "kernel" / "scale.cu.j2"
    changed.write_text(changed.read_text() + "// another\n")
    assert run(kernel, database, StubDevice(), from_scratch=False).state.known_before == 0


def test_other_sizes_and_gpus_are_hints(database: Database, kernel: KernelSpec) -> None:
    """They are no results of this problem: what was best there is asked for again, early."""

    def at(size: int, **changes: Any) -> Result:
        (name,) = kernel.problem().sizes
        asked = {"trials": 30, **changes}
        request = Request(kernel, kernel.problem(sizes={name: size}), **asked)  # type: ignore[arg-type]
        return tune(request, StubDevice(), database, Watcher())

    first = at(1 << 20)
    assert first.state.hints == 0
    second = at(1 << 21, trials=5)
    assert (second.state.hints, second.state.known_before) == (30, 0)
    good = set(sorted(sequence(database, first.state.run.id), key=time_of)[:10])
    assert good & set(sequence(database, second.state.run.id)[1:])
    assert at(1 << 22, trials=2).state.hints == 35
    assert at(1 << 22, from_scratch=True, trials=2).state.hints == 0


# -- interruptions


@pytest.mark.parametrize(
    ("lookahead", "sampler"), [(1, "tpe"), (8, "tpe"), (8, "random"), (3, "brute-force")]
)
def test_resume_goes_on_and_repeats_nothing(
    database: Database, kernel: KernelSpec, lookahead: int, sampler: str
) -> None:
    done = 0
    for stop_at in (7, 7, 1, 11):
        watcher = Watcher()
        with pytest.raises(Interrupted, match="--resume") as caught:
            run(
                kernel,
                database,
                StubDevice(lookahead, shuffle=done),
                watcher,
                sampler=sampler,
                resume=done > 0,
                stop=stop_after(watcher, stop_at),
            )
        assert caught.value.exit_code == 130
        run_id, state = only_run(database)
        done += len(watcher.numbers)
        assert state == "interrupted"
        assert len(database.trials(run_id)) == done
        assert f"{done} of 40" in str(caught.value)
    result = run(kernel, database, StubDevice(lookahead, shuffle=9), sampler=sampler, resume=True)
    trials = database.trials(run_id)
    assert only_run(database) == (run_id, "finished")
    assert (
        len(trials) == len({trial.number for trial in trials}) == len({t.configuration for t in trials}) == 40
    )
    assert result.finish is not None
    assert not database.pending_attempts(run_id)


def test_resumed_brute_force_is_the_unbroken_run(
    database: Database, kernel: KernelSpec, tmp_path: Path
) -> None:
    unbroken = StubDevice()
    with Database.open(tmp_path / "other.db") as other:
        run(kernel, other, unbroken, sampler="brute-force")
    watcher = Watcher()
    with pytest.raises(Interrupted):
        run(kernel, database, StubDevice(), watcher, sampler="brute-force", stop=stop_after(watcher, 13))
    run(kernel, database, StubDevice(), sampler="brute-force", resume=True)
    assert sequence(database, only_run(database)[0]) == unbroken.asked


def test_interrupted_in_the_finish(database: Database, kernel: KernelSpec) -> None:
    watcher = Watcher()
    with pytest.raises(Interrupted, match="40 of 40"):
        run(kernel, database, StubDevice(), watcher, stop=lambda: bool(watcher.phases))
    device = StubDevice()
    result = run(kernel, database, device, resume=True)
    assert device.asked == []
    assert result.finish is not None


def test_ctrl_c_twice_says_nothing_against_what_was_under_way(database: Database, kernel: KernelSpec) -> None:
    class Twice(StubDevice):
        """Answers a question, and is stopped at the next, without waiting for what is under way."""

        def collect(self, timeout_s: float) -> list[Outcome]:
            if len(self.asked) > len(self.waiting) + 1:
                raise KeyboardInterrupt
            return super().collect(timeout_s)

    for turn in range(5):
        with pytest.raises(Interrupted, match="--resume"):
            run(kernel, database, Twice(lookahead=8), resume=turn > 0)
        run_id, state = only_run(database)
        assert state == "interrupted"
        assert not database.pending_attempts(run_id)
    result = run(kernel, database, StubDevice(lookahead=8), resume=True)
    assert result.state.failures == {}
    assert len(set(sequence(database, run_id))) == 40


def unstable(database: Database) -> list[Configuration]:
    run_id, _ = only_run(database)
    return [t.configuration for t in database.trials(run_id) if t.status is Status.UNSTABLE]


def test_who_was_rejected_stays_so_when_the_finish_is_interrupted(
    database: Database, kernel: KernelSpec
) -> None:
    device, watcher = StubDevice(), Watcher()
    wrong: list[Configuration] = []

    def edges(problem: Problem, configuration: Configuration) -> Measurement:
        wrong.append(configuration)
        return Measurement(Status.WRONG_RESULT, error="no")

    device.edges = edges
    confirming = "confirming the winner in a fresh process"
    with pytest.raises(Interrupted):
        run(kernel, database, device, watcher, stop=lambda: watcher.phases.count(confirming) == 2)
    assert len(set(wrong)) == 1
    assert unstable(database) == wrong[:1]


def test_who_was_rejected_stays_so_when_the_device_is_lost(database: Database, kernel: KernelSpec) -> None:
    class Lost(StubDevice):
        def race(self, *arguments: Any) -> RaceRound:
            if self.races:
                raise DeviceError("the measuring process ended twice in a race")
            return super().race(*arguments)

    device = Lost()
    device.lose = lambda contestants: 0
    with pytest.raises(DeviceError):
        run(kernel, database, device)
    assert unstable(database) == device.races[0][:1]


def test_resume_keeps_sampler_seed_and_budget(database: Database, kernel: KernelSpec) -> None:
    watcher = Watcher()
    with pytest.raises(Interrupted):
        run(kernel, database, StubDevice(), watcher, seed=4, trials=20, stop=stop_after(watcher, 5))
    result = run(kernel, database, StubDevice(), seed=77, trials=500, sampler="tpe", resume=True)
    assert (result.state.run.seed, result.state.run.sampler, len(result.state.trials)) == (4, "random", 20)


def test_resume_keeps_the_narrowing(database: Database, kernel: KernelSpec) -> None:
    watcher = Watcher()
    with pytest.raises(Interrupted):
        run(kernel, database, StubDevice(), watcher, fixed={"items": ("1", "2")}, stop=stop_after(watcher, 5))
    device = StubDevice()
    run(kernel, database, device, resume=True)
    assert {c.values["items"] for c in device.asked} == {1, 2}


@pytest.mark.parametrize("done", [0, 2, 3, 12])
def test_resumed_run_tries_the_best_of_earlier_runs_once(
    database: Database, kernel: KernelSpec, done: int
) -> None:
    """What another day timed can be no finalist: whoever was not tried again before the interruption is afterwards."""
    first = run(kernel, database, StubDevice(), from_scratch=False)
    assert first.finish is not None
    best = sorted(sequence(database, first.state.run.id), key=time_of)[:SEEDS]
    watcher = Watcher()
    stop = stop_after(watcher, max(0, done - 1))  # what is under way when Ctrl-C is pressed comes to its end
    with pytest.raises(Interrupted, match=f"after {done} of 20"):
        run(kernel, database, StubDevice(), watcher, from_scratch=False, seed=3, trials=20, stop=stop)
    device = StubDevice()
    result = run(kernel, database, device, from_scratch=False, resume=True)
    tried = sequence(database, result.state.run.id)
    assert tried[0] == result.state.space.default
    assert set(best) <= set(tried[: 2 + SEEDS])
    assert len(tried) == len(set(tried)) == 20
    assert len(device.asked) == 20 - done
    assert result.finish is not None
    assert result.finish.incumbent is not None
    assert result.finish.incumbent.configuration == first.finish.winner.configuration
    assert result.finish.time_ns <= first.finish.time_ns * 1.001


def test_changed_kernel_is_not_resumed(database: Database, kernel: KernelSpec) -> None:
    watcher = Watcher()
    with pytest.raises(Interrupted):
        run(kernel, database, StubDevice(), watcher, stop=stop_after(watcher, 5))
    template = kernel.variants["plain"].launches[0].template
    template.write_text(template.read_text() + "// another\n")
    with pytest.raises(TunerError, match="has changed"):
        run(kernel, database, StubDevice(), resume=True)


def test_rules_of_thumb_belong_to_a_run(database: Database, kernel: KernelSpec) -> None:
    watcher = Watcher()
    with pytest.raises(Interrupted):
        run(kernel, database, StubDevice(), watcher, stop=stop_after(watcher, 5), rules=("occupancy",))
    for rules in ((), ("occupancy", "registers")):
        with pytest.raises(TunerError, match="began with --rules occupancy; say the same"):
            run(kernel, database, StubDevice(), resume=True, rules=rules)
    assert run(kernel, database, StubDevice(), resume=True, rules=("occupancy",)).finish is not None


def test_nothing_to_resume(database: Database, kernel: KernelSpec) -> None:
    with pytest.raises(TunerError, match=r"no interrupted run of scale n=1024 .*; leave out --resume"):
        run(kernel, database, StubDevice(), resume=True)
    assert database.select("SELECT * FROM runs") == []


def dead_run(
    database: Database, kernel: KernelSpec, attempts: dict[Configuration, int], sampler: str = "random"
) -> Run:
    """Leave what a killed tuner leaves: a run, and attempts without results."""
    device = StubDevice()
    run_ = Run(
        "dead",
        kernel.problem(),
        device.gpu,
        device.name,
        0,
        sampler,
        10,
        1,
        kernel_digest=content_digest(kernel),
    )
    database.start_run(run_)
    number = 0
    for configuration, count in attempts.items():
        for _ in range(count):
            database.attempt(run_.id, number, configuration)
            number += 1
    database.finish_run(run_.id, "failed")
    return run_


def plain(block: int, items: int = 1) -> Configuration:
    return Configuration.of("plain", {"fault": "ok", "block_size": block, "items": items})


def test_what_was_begun_is_tried_again_first(database: Database, kernel: KernelSpec) -> None:
    dead_run(database, kernel, {plain(64): 1, plain(96): 1, plain(128): 1})
    device = StubDevice(lookahead=4, shuffle=3)
    run(kernel, database, device, resume=True)
    assert device.asked[:3] == [plain(64), plain(96), plain(128)]
    assert len(device.asked) == len(set(device.asked)) == 10


def test_what_was_begun_is_not_asked_for_again(database: Database, kernel: KernelSpec) -> None:
    """Answers come out of order: what has been answered but not told yet must not be asked for a second time."""

    class LastFirst(StubDevice):
        collected = False

        def collect(self, timeout_s: float) -> list[Outcome]:
            self.waiting.sort(key=lambda waiting: waiting[0], reverse=not self.collected)
            self.collected = True
            return super().collect(timeout_s)

    dead_run(database, kernel, {plain(32, items): 1 for items in (2, 3, 4, 5)}, "brute-force")
    device = LastFirst(lookahead=4)
    run(kernel, database, device, resume=True)
    assert device.asked[:4] == [plain(32, items) for items in (2, 3, 4, 5)]
    assert len(device.asked) == len(set(device.asked)) == 10


def test_what_kills_the_tuner_is_given_up(database: Database, kernel: KernelSpec) -> None:
    dead_run(database, kernel, {plain(64): 5, plain(96): 1})
    device = StubDevice()
    result = run(kernel, database, device, resume=True)
    assert plain(64) not in device.asked
    (crashed,) = [trial for trial in database.trials("dead") if trial.status is Status.CRASHED]
    assert crashed.configuration == plain(64)
    assert "5 times" in crashed.error
    assert len(database.trials("dead")) == 10
    assert result.state.failures == {"crashed": 1}
    assert not database.pending_attempts("dead")


def test_suspect_is_tried_alone(database: Database, kernel: KernelSpec) -> None:
    """Begun twice without a result, it may be innocent: it gets one more chance, with nobody beside it."""
    dead_run(database, kernel, {plain(96): 1, plain(64): 2})

    class Counting(StubDevice):
        beside = -1

        def collect(self, timeout_s: float) -> list[Outcome]:
            if plain(64) in [configuration for _, configuration in self.waiting]:
                self.beside = max(self.beside, len(self.waiting) - 1)
            return super().collect(timeout_s)

    device = Counting(lookahead=6, shuffle=0)
    run(kernel, database, device, resume=True)
    assert device.beside == 0
    assert {trial.status for trial in database.trials("dead")} == {Status.OK}


def test_device_that_is_lost(database: Database, kernel: KernelSpec) -> None:
    class Lost(StubDevice):
        def collect(self, timeout_s: float) -> list[Outcome]:
            if len(self.asked) > 12:
                raise DeviceError("the measuring process cannot be started: no GPU")
            return super().collect(timeout_s)

    with pytest.raises(DeviceError):
        run(kernel, database, Lost(lookahead=3))
    run_id, state = only_run(database)
    assert state == "failed"
    known = len(database.trials(run_id))
    assert known == 10
    device = StubDevice(lookahead=3)
    run(kernel, database, device, resume=True)
    assert len(device.asked) == 40 - known
    assert len(set(sequence(database, run_id))) == 40


def test_second_tuner_does_not_take_over_a_living_run(database: Database, kernel: KernelSpec) -> None:
    first = StubDevice()
    seen: list[str] = []

    class Nosy(Watcher):
        def trial(self, state: object, trial: object) -> None:
            super().trial(state, trial)
            if len(self.numbers) == 3:
                with pytest.raises(TunerError, match="no interrupted run"):
                    run(kernel, database, StubDevice(), resume=True)
                seen.append("refused")

    run(kernel, database, first, Nosy())
    assert seen == ["refused"]


# -- bad requests


def test_unknown_names_leave_nothing_behind(database: Database, kernel: KernelSpec) -> None:
    for changes, said in [
        ({"sampler": "annealing"}, "no sampler named 'annealing'"),
        ({"variants": ("vectorised",)}, "no variant 'vectorised'"),
        ({"fixed": {"blocksize": ("1",)}}, "no parameter 'blocksize'.*block_size"),
        ({"fixed": {"block_size": ("33",)}}, "never '33'"),
    ]:
        with pytest.raises(UsageError, match=said):
            run(kernel, database, StubDevice(), **changes)
    assert database.select("SELECT * FROM runs") == []


def test_constraint_that_nobody_meets(database: Database, tmp_path: Path) -> None:
    extra = '[variants.plain.constraints]\n"blocks are large" = "block_size > 2048"\n'
    with pytest.raises(SpaceError, match="blocks are large"):
        run(scale_kernel(tmp_path / "kernel", extra=extra), database, StubDevice())


# -- on the device with the fake worker


def test_faults_do_not_disturb_a_run(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.devices.guard.GRACE_S", 0.1)
    kernel = scale_kernel(
        tmp_path / "kernel", faults=("ok", "die", "wrong", "sticky700", "hang"), blocks=(32, 64)
    )
    device = LocalDevice(0, jobs=2, cache=tmp_path / "cache", worker="tests.faults.fake_worker")
    try:
        result = run(kernel, database, device, sampler="tpe", trials=40)
        assert device.restarts >= 20
    finally:
        device.close()
    trials = database.trials(result.state.run.id)
    wanted = {"die": "worker_died", "wrong": "wrong_result", "sticky700": "memory_fault", "hang": "hang"}
    assert len(trials) == 40
    for trial in trials:
        fault = str(trial.configuration.values["fault"])
        assert trial.status == wanted.get(fault, "ok"), trial
    assert result.finish is not None
    assert result.finish.exportable, result.finish.reason
    assert result.finish.edges


# -- how times are taken


def test_conditions_are_asked_for_and_kept(database: Database, kernel: KernelSpec) -> None:
    device = StubDevice()
    result = run(kernel, database, device, mode=Mode.WARM, regime=Regime.SUSTAINED)
    warm = Conditions(Mode.WARM, Regime.SUSTAINED)
    assert device.conditions == result.state.run.conditions == warm
    assert database.run(result.state.run.id).conditions == warm
    assert result.state.conditions_why == "as asked"
    assert f"timed      {warm}; noise floor 0.5 %; race of" in summary(result, Path("x.db"))
    assert f"timed {warm}: as asked" in heading(result.state)


def test_resumed_run_keeps_its_conditions(database: Database, kernel: KernelSpec) -> None:
    watcher = Watcher()
    with pytest.raises(Interrupted):
        run(kernel, database, StubDevice(), watcher, mode=Mode.WARM, stop=stop_after(watcher, 5))
    device = StubDevice()
    result = run(kernel, database, device, mode=Mode.ROTATING, resume=True)
    assert device.conditions.mode is result.state.run.conditions.mode is Mode.WARM


def test_other_conditions_teach_nothing(database: Database, kernel: KernelSpec) -> None:
    run(kernel, database, StubDevice(), from_scratch=False, mode=Mode.WARM)
    result = run(kernel, database, StubDevice(), from_scratch=False)
    assert result.state.known_before == 0
    assert result.state.known is None


def test_calibration_is_kept_and_shown(database: Database, kernel: KernelSpec) -> None:
    class Calibrated(StubDevice):
        def prepare(self, *arguments: Any, **named: Any) -> None:
            super().prepare(*arguments, **named)
            rate = self.gpu.memory_bytes_per_s
            noise = {str(Conditions()): 0.0021}
            self.calibration = Calibration(noise, copy_bytes_per_s=0.9 * rate, notes=("clocks are locked",))

    result = run(kernel, database, Calibrated())
    stored = database.run(result.state.run.id)
    assert stored.calibration is not None
    assert stored.calibration == result.state.run.calibration
    assert result.finish is not None
    assert result.finish.noise_floor == 0.0021
    text = summary(result, Path("x.db"))
    assert "of the measured copy rate" in text
    assert "noise floor 0.21 %" in text
    assert "note: clocks are locked" in heading(result.state)
    data = result_as_json(result)
    light, ceiling = data["winner"]["speed_of_light"], data["winner"]["of_ceiling"]
    assert ceiling == pytest.approx(light / 0.9)
    assert data["race"]["noise_floor"] == 0.0021
    assert (data["mode"], data["regime"]) == ("cold", "rested")


def test_clock_and_cap_are_kept(database: Database, kernel: KernelSpec) -> None:
    device = StubDevice(answer=lambda c: replace(good(time_of(c)), sm_clock_hz=1.5e9, capped_samples=3))
    result = run(kernel, database, device)
    (trial, *_) = database.trials(result.state.run.id)
    assert (trial.sm_clock_hz, trial.capped_samples) == (1.5e9, 3)
    assert "3 of the winner's 12 samples at the power limit" in summary(result, Path("x.db"))


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
    **asked: Any,
) -> Result:
    asked = {"trials": 200, "sampler": "kriging", "stop_early": True, **asked}
    return run(kernel, database, device or StubDevice(answer=smooth), watcher, **asked)


def test_stops_when_nothing_beyond_the_noise_is_expected(database: Database, kernel: KernelSpec) -> None:
    result = early(kernel, database)
    tried, enough = len(result.state.trials), result.state.enough
    assert PATIENCE < tried < 150
    assert result.state.incumbent is not None
    assert result.state.incumbent.configuration == plain(256, 4)
    assert enough is not None and result.finish is not None
    assert enough.expected < enough.noise_floor == DEFAULT_NOISE_FLOOR
    said = f"stopped after {tried} of 200 trials: no improvement beyond the noise floor (0.5 %) is expected"
    assert said in summary(result, Path("x.db"))
    kept = {"expected": enough.expected, "noise_floor": 0.005, "patience": PATIENCE}
    assert result_as_json(result)["stats"]["stopped"] == kept
    assert database.run_state(result.state.run.id)["stats"]["stopped"] == kept
    assert database.run_state(result.state.run.id)["state"] == "finished"


def test_does_not_stop_unasked(database: Database, kernel: KernelSpec) -> None:
    result = early(kernel, database, stop_early=False, trials=120)
    assert len(result.state.trials) == 120
    assert result.stats["stopped"] is None
    assert "stopped" not in summary(result, Path("x.db"))


def test_what_was_used_up_was_not_stopped(database: Database, kernel: KernelSpec) -> None:
    """Few trials, or few configurations."""
    assert early(kernel, database, trials=5).state.enough is None
    fixed = {"block_size": ("32", "64"), "items": ("1", "2", "3")}
    result = early(kernel, database, fixed=fixed)
    assert (len(result.state.trials), result.state.enough) == (6, None)


def test_stop_does_not_depend_on_the_order_of_the_answers(database: Database, kernel: KernelSpec) -> None:
    found = []
    for shuffle in (None, 1, 2):
        device = StubDevice(lookahead=6, shuffle=shuffle, answer=smooth)
        assert early(kernel, database, device).state.enough is not None
        found.append(device.asked)
    assert found[0] == found[1] == found[2]


def test_a_quieter_device_is_stopped_later(database: Database, kernel: KernelSpec) -> None:
    class Quiet(StubDevice):
        def noise_floor(self, time_ns: float) -> float:
            return 1e-6

    assert len(early(kernel, database, Quiet(answer=smooth)).state.trials) > len(
        early(kernel, database).state.trials
    )


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
    assert device.asked == []
    assert result.state.enough is not None and result.finish is not None


def test_resumed_run_keeps_its_stop(database: Database, kernel: KernelSpec) -> None:
    for asked in (True, False):
        watcher = Watcher()
        with pytest.raises(Interrupted):
            early(kernel, database, watcher=watcher, stop_early=asked, stop=stop_after(watcher, 10))
        result = early(kernel, database, stop_early=not asked, resume=True, trials=200)
        assert (result.state.enough is not None) == asked


def test_tuning_again_stops_sooner(database: Database, kernel: KernelSpec) -> None:
    first = early(kernel, database, from_scratch=False)
    second = early(kernel, database, from_scratch=False, seed=1)
    assert second.state.enough is not None
    assert len(second.state.trials) <= 1 + SEEDS + 1 + PATIENCE + 5 < len(first.state.trials)


# -- the best known before


def test_best_known_before_races_and_is_compared(database: Database, kernel: KernelSpec) -> None:
    first = run(kernel, database, StubDevice(), from_scratch=False, fixed={"items": ("1",)})
    assert first.finish is not None
    assert first.state.known is None
    assert "before" not in summary(first, Path("x.db"))
    second = run(kernel, database, StubDevice(), from_scratch=False, trials=100)
    assert second.finish is not None
    assert second.state.known == (first.finish.winner.configuration, first.finish.time_ns)
    assert second.finish.incumbent is not None
    assert second.finish.incumbent.configuration == first.finish.winner.configuration
    ratio = second.finish.versus_incumbent
    assert ratio is not None
    expected = time_of(first.finish.winner.configuration) / time_of(second.finish.winner.configuration)
    assert ratio.median == pytest.approx(expected)
    text = summary(second, Path("x.db"))
    assert "as the best known: " in text or "the best known already" in text
    stored = next(w for w in database.winners(Filters()).rows if w.id == second.winner_id)
    assert stored.winner.race["incumbent"]["ratio"] == pytest.approx(expected)
    data = result_as_json(second)
    assert data["versus_incumbent"]["ratio"] == pytest.approx(expected)


def test_what_a_recording_knows_is_not_what_was_measured(recording: Path, database: Database) -> None:
    replay(recording, database)
    assert replay(recording, database, from_scratch=False).state.known is None


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "verified at no awkward size: none suits it"),
        (1, "right at 1 awkward size"),
        (2, "right at 2 awkward sizes"),
    ],
)
def test_summary_says_at_how_many_sizes_the_winner_was_verified(
    database: Database, kernel: KernelSpec, count: int, said: str
) -> None:
    class Particular(StubDevice):
        def verify_at(
            self, problems: Sequence[Problem], configuration: Configuration
        ) -> list[tuple[Problem, Measurement]]:
            return super().verify_at(problems[:count], configuration)

    result = run(kernel, database, Particular(), trials=5)
    assert result.finish is not None
    assert result.finish.exportable
    lines = summary(result, Path("x.db")).splitlines()
    (confirmed,) = [line for line in lines if line.startswith("  confirmed  ")]
    assert "in a fresh process" in confirmed
    assert confirmed.endswith(f", {said}")
    assert result_as_json(result)["winner"]["edge_sizes_verified"] == count


def test_best_of_a_run_that_could_not_confirm_is_tried_again(database: Database, kernel: KernelSpec) -> None:
    device = StubDevice()
    device.confirmed = lambda c, time_ns: Measurement(Status.WORKER_DIED, error="the device is busy")
    first = run(kernel, database, device, from_scratch=False)
    assert first.finish is not None
    assert not first.finish.exportable
    assert {trial.status for trial in database.trials(first.state.run.id)} == {Status.OK}
    text = summary(first, Path("x.db"))
    assert "confirmed  NOT: in a fresh process: worker_died: the device is busy" in text
    assert "rejected" not in text
    best = min(device.asked, key=time_of)
    device = StubDevice()
    second = run(kernel, database, device, from_scratch=False, seed=1)
    assert best in device.asked
    assert second.finish is not None
    assert second.finish.exportable


# -- a bound on the error


def with_error(configuration: Configuration) -> Measurement:
    """The faster, the less accurate: from 0.1 to 0.2."""
    error = 0.3 - time_of(configuration) * 1e-6
    return replace(good(time_of(configuration)), verification=Verification(True, true_error=error))


class Judging(StubDevice):
    def __init__(self, **changes: Any) -> None:
        super().__init__(answer=with_error, **changes)
        self.confirmed = lambda c, time_ns: with_error(c)
        self.least_error = 1e-4


def test_too_inaccurate_is_a_failure_but_kept(database: Database, kernel: KernelSpec) -> None:
    truth = kernel.problem(dtypes={"input": "float32"})
    device = Judging()
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
    device = Judging()
    with pytest.raises(
        TooInaccurateError, match=r"rounding alone makes an error of 0\.0001, above 5e-05; choose"
    ):
        run(kernel, database, device, max_error=5e-5)
    assert device.asked == []
    assert database.select("SELECT * FROM runs") == []


def test_resumed_run_keeps_its_bound(database: Database, kernel: KernelSpec) -> None:
    watcher = Watcher()
    truth = kernel.problem(dtypes={"input": "float32"})
    with pytest.raises(Interrupted):
        run(kernel, database, Judging(), watcher, max_error=0.15, truth=truth, stop=stop_after(watcher, 5))
    with pytest.raises(TunerError, match=r"began with --max-error 0\.15; leave out --resume"):
        run(kernel, database, Judging(), resume=True, max_error=0.2)
    device = Judging()
    result = run(kernel, database, device, resume=True)
    assert device.truth == truth
    assert "inaccurate" in result.state.failures


def test_run_without_a_bound_is_not_resumed_with_one(database: Database, kernel: KernelSpec) -> None:
    watcher = Watcher()
    with pytest.raises(Interrupted):
        run(kernel, database, StubDevice(), watcher, stop=stop_after(watcher, 5))
    with pytest.raises(TunerError, match="began without a bound"):
        run(kernel, database, Judging(), resume=True, max_error=0.2)


def test_another_bound_judges_earlier_trials_anew(database: Database, kernel: KernelSpec) -> None:
    fixed = {"items": ("1",)}
    strict = run(kernel, database, Judging(), fixed=fixed, max_error=0.15, from_scratch=False)
    free = run(kernel, database, Judging(), fixed=fixed, max_error=0.3, from_scratch=False)
    assert strict.finish is not None
    assert free.finish is not None
    assert free.finish.time_ns < strict.finish.time_ns, (
        "the inaccurate of the first run are the best of the second"
    )


def test_too_inaccurate_once_is_not_tried_again(database: Database, kernel: KernelSpec) -> None:
    fixed = {"items": ("1",)}  # 32 configurations
    first = run(kernel, database, Judging(), fixed=fixed, max_error=0.15, from_scratch=False)
    far = {t.configuration for t in first.state.trials if t.status is Status.INACCURATE}
    assert far
    device = Judging()
    run(kernel, database, device, fixed=fixed, max_error=0.15, from_scratch=False)
    assert not far & (set(device.asked) - {first.state.space.default})
    device = Judging()
    tighter = run(kernel, database, device, fixed=fixed, max_error=0.12, from_scratch=False)
    assert not far & (set(device.asked) - {first.state.space.default})
    assert tighter.finish is not None


def test_unknown_error_is_found_out(database: Database, kernel: KernelSpec) -> None:
    """What was tried without a bound has no error: it is new ground for a run with one."""
    fixed = {"items": ("1",)}
    run(kernel, database, StubDevice(), fixed=fixed, from_scratch=False)
    device = Judging()
    result = run(kernel, database, device, fixed=fixed, max_error=0.15, from_scratch=False)
    assert len(device.asked) == 32
    assert result.finish is not None


# -- drift


class Drifting(StubDevice):
    """Answers fast times from one trial to another, and says after the latter that the GPU has changed."""

    def __init__(self, since: int, until: int, factor: float = 0.97, lookahead: int = 1) -> None:
        super().__init__(lookahead)
        self.since, self.until, self.factor = since, until, factor
        self.count = 0
        self.answer = self.drifting

    def drifting(self, configuration: Configuration) -> Measurement:
        self.count += 1
        lucky = self.since <= self.count <= self.until
        time_ns = 100_000 + time_of(configuration) / 100  # all within a percent
        return replace(good(time_ns * (self.factor if lucky else 1.0)), drifted=self.count == self.until)


@pytest.mark.parametrize("lookahead", [1, 7])
def test_what_a_drifting_gpu_timed_is_timed_again(
    database: Database, kernel: KernelSpec, lookahead: int
) -> None:
    device = Drifting(11, 20, lookahead=lookahead)
    result = run(kernel, database, device)
    trials = database.trials(result.state.run.id)
    suspect = [trial for trial in trials if SUSPECT in trial.tags]
    assert {trial.number for trial in suspect} >= set(range(10, 20))
    assert len(suspect) <= 16, "no more than can have been since the look before"
    again = [
        trial
        for trial in trials
        if trial.number >= 20 and trial.configuration in {s.configuration for s in suspect}
    ]
    assert {trial.configuration for trial in again} == {trial.configuration for trial in suspect}
    assert len(again) == len(suspect) == result.state.retimed == result.stats["retimed"]
    assert len(trials) == 40 + len(again) == len(device.asked), "beyond the budget"
    assert result.finish is not None
    assert SUSPECT not in result.finish.winner.tags
    assert SUSPECT not in (result.state.incumbent or result.finish.winner).tags
    assert (result.state.incumbent or suspect[0]).time_ns > 100_000
    assert device.incumbent_ns == (result.state.incumbent or suspect[0]).time_ns
    assert f"{len(again)} timed again after the GPU had drifted" in summary(result, Path("x.db"))
    assert not database.pending_attempts(result.state.run.id)


def test_drift_at_the_very_end_is_mended(database: Database, kernel: KernelSpec) -> None:
    """Also when the time is over: who is suspect could not be the winner otherwise."""
    device = Drifting(1, 40)
    result = run(kernel, database, device)
    assert len(device.asked) == 56
    assert result.finish is not None
    small = run(
        kernel, database, Drifting(1, 3), fixed={"block_size": ("32",), "items": ("1", "2", "3")}, trials=3
    )
    assert small.finish is not None
    assert small.state.retimed == 3


def test_far_and_failed_are_not_timed_again(database: Database, kernel: KernelSpec) -> None:
    device = Drifting(1, 12)
    slow = device.drifting

    def answer(configuration: Configuration) -> Measurement:
        found = slow(configuration)
        if device.count == 3:
            return good(200_000)
        return Measurement(Status.HANG, error="oh") if device.count == 5 else found

    device.answer = answer
    result = run(kernel, database, device)
    suspect = [t.number for t in result.state.trials if SUSPECT in t.tags]
    assert suspect == [0, 1, 3, *range(5, 12)]


def test_gpu_that_drifts_all_the_time_comes_to_an_end(database: Database, kernel: KernelSpec) -> None:
    device = StubDevice(answer=lambda c: replace(good(100_000 + time_of(c) / 100), drifted=True))
    result = run(kernel, database, device)
    assert len(device.asked) == 120, "each at most twice again"
    assert result.finish is not None


def test_answer_that_was_not_timed_says_nothing_about_drift(database: Database, kernel: KernelSpec) -> None:
    """A configuration with the source of another gets its answer, whatever the GPU did since."""
    device = StubDevice(answer=lambda c: replace(good(100_000), drifted=True, measure_s=0.0))
    assert run(kernel, database, device).state.retimed == 0


def test_failures_do_not_push_the_doubtful_out(database: Database, kernel: KernelSpec) -> None:
    """After a kernel that could not be launched there is no look: any number of them can come between two."""
    device = Drifting(1, 10)
    timed = device.drifting
    turn = iter(range(10_000))

    def answer(configuration: Configuration) -> Measurement:
        now = next(turn)
        if now < 60 and now % 4:
            return Measurement(Status.LAUNCH_ERROR, error="no", measure_s=1e-3)
        return timed(configuration)

    device.answer = answer
    result = run(kernel, database, device, trials=60)
    lucky = [t for t in result.state.trials if SUSPECT in t.tags]
    assert len(lucky) == 10
    assert result.finish is not None
    assert (result.state.incumbent or lucky[0]).time_ns > 100_000


@pytest.mark.parametrize("when", ["before", "after"])
def test_answer_of_a_doubtful_equal_is_doubtful(database: Database, kernel: KernelSpec, when: str) -> None:
    """Who got the answer of an equal source is timed again like that one, if the GPU had drifted about it."""
    place = 5 if when == "before" else 9
    count = iter(range(1, 1000))
    lucky = good(90_000)

    def answer(configuration: Configuration) -> Measurement:
        now = next(count)
        if now == 4:
            return lucky
        if now == place:
            return replace(lucky, measure_s=0.0)
        return replace(good(100_000 + now), drifted=now == 8)

    result = run(kernel, database, StubDevice(lookahead=4, answer=answer))
    suspect = {t.number: t.configuration for t in result.state.trials if SUSPECT in t.tags}
    assert {3, place - 1} <= set(suspect)
    assert place == 5 or 10 not in suspect
    assert result.finish is not None
    assert (result.state.incumbent or result.finish.winner).time_ns == pytest.approx(100_001, rel=1e-3)
    believed = {t.configuration for t in result.state.trials if SUSPECT not in t.tags}
    assert set(suspect.values()) <= believed


def test_answer_of_a_steady_equal_is_believed() -> None:
    """Between the equal source's timing and now there was a look at which all was well."""
    doubts = Doubts()

    def ended(number: int, time_ns: float, *, timed: bool = True, drifted: bool = False) -> list[int]:
        trial = Trial(
            number, plain(32 * (number + 1)), Status.OK, time_ns, samples_ns=(time_ns,) * 6, measure_s=1e-3
        )
        return [t.number for t in doubts.add(trial, timed=timed, drifted=drifted, best_ns=100.0)]

    for number in range(17):
        assert ended(number, 100.0 + number / 10) == []
    assert ended(17, 100.0, timed=False) == []  # of number 0, which is not in doubt any more
    assert ended(18, 101.6, timed=False) == []  # of number 16
    assert ended(19, 102.0, timed=False, drifted=True) == [], "the drift of another"
    assert ended(20, 103.0, drifted=True) == [*range(2, 17), 18, 20]


@pytest.mark.parametrize("stop_at", [20, 21, 24])
def test_resumed_run_times_again_what_was_suspect(
    database: Database, kernel: KernelSpec, stop_at: int
) -> None:
    watcher = Watcher()
    with pytest.raises(Interrupted):
        run(kernel, database, Drifting(11, 20), watcher, stop=stop_after(watcher, stop_at))
    device = StubDevice(answer=lambda c: good(100_000 + time_of(c) / 100))
    result = run(kernel, database, device, resume=True)
    trials = database.trials(result.state.run.id)
    suspect = {trial.configuration for trial in trials if SUSPECT in trial.tags}
    believed = [trial.configuration for trial in trials if SUSPECT not in trial.tags]
    assert len(suspect) == 16
    assert suspect < set(believed)
    assert len(believed) == len(set(believed)) == 40
    assert len(trials) == 56
    assert result.state.retimed == 16


def killed_while_timing_again(kernel: KernelSpec, database: Database) -> str:
    """Leave a run that ended while it timed a suspect trial once more; give its id."""

    class Dying(Drifting):
        def collect(self, timeout_s: float) -> list[Outcome]:
            if self.count > 22:
                raise DeviceError("killed")
            return super().collect(timeout_s)

    with pytest.raises(DeviceError):
        run(kernel, database, Dying(11, 20))
    return str(only_run(database)[0])


def test_killed_while_timing_again(database: Database, kernel: KernelSpec) -> None:
    """The attempt that is left is of a configuration that the run has tried already."""
    run_id = killed_while_timing_again(kernel, database)
    assert len(database.pending_attempts(run_id)) == 1
    device = StubDevice(answer=lambda c: good(100_000 + time_of(c) / 100))
    result = run(kernel, database, device, resume=True)
    trials = database.trials(run_id)
    assert len(trials) == len({trial.number for trial in trials}) == 56
    assert result.state.retimed == 16
    assert not database.pending_attempts(run_id)


def test_what_kills_the_tuner_while_timed_again_costs_no_other_trial(
    database: Database, kernel: KernelSpec
) -> None:
    run_id = killed_while_timing_again(kernel, database)
    ((number, killer, _),) = database.pending_attempts(run_id)
    for later in (number + 1, number + 2):
        database.attempt(run_id, later, killer)
    device = StubDevice(answer=lambda c: good(100_000 + time_of(c) / 100))
    result = run(kernel, database, device, resume=True)
    trials = database.trials(run_id)
    assert [trial.configuration for trial in trials if trial.status is Status.CRASHED] == [killer]
    assert len({trial.configuration for trial in trials}) == 40
    assert result.state.retimed == 16
