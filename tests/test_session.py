"""The loop of a run: seeds, failures, interruptions, resumption, and what is in the database afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.kernels import scale_kernel, write_synthetic_recording
from tests.faults.stub_device import StubDevice, Watcher, good, stop_after, time_of
from tuner.database import Database, Filters
from tuner.devices.base import Device, Outcome
from tuner.devices.local import LocalDevice
from tuner.devices.replay import ReplayDevice
from tuner.errors import DeviceError, Interrupted, SpaceError, TunerError, UsageError
from tuner.kernel import KernelSpec
from tuner.kernel_file import content_digest, load_kernel
from tuner.model import Configuration, Measurement, Run, Status
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


@pytest.mark.parametrize("status", [Status.WRONG_RESULT, Status.UNVERIFIED, Status.UNTRUSTED, Status.HANG])
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


def test_changed_kernel_is_not_resumed(database: Database, kernel: KernelSpec) -> None:
    watcher = Watcher()
    with pytest.raises(Interrupted):
        run(kernel, database, StubDevice(), watcher, stop=stop_after(watcher, 5))
    template = kernel.variants["plain"].launches[0].template
    template.write_text(template.read_text() + "// another\n")
    with pytest.raises(TunerError, match="has changed"):
        run(kernel, database, StubDevice(), resume=True)


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
