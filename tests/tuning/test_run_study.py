"""A run is an Optuna study: its trials, also after a resumption; samplers of a user's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from tests.commands import said_by
from tests.faults.stub_device import StubDevice, Watcher, good, stop_after, time_of
from tests.sessions import replay, run, run_stopped, sequence
from tests.small_spaces import single
from tuner.core.errors import Interrupted, UsageError
from tuner.core.model import Configuration, Measurement, Problem, RunOptions, Status, Trial
from tuner.database import cells
from tuner.database.database import Database
from tuner.kernel.spec import KernelSpec
from tuner.search.base import Expecting, Nominating, Transferring
from tuner.search.expected_improvement import GPEISampler
from tuner.search.samplers import RandomOrderSampler, make_search
from tuner.search.stopping import StoppingCriterion
from tuner.search.study import Search

Ended = tuple[dict[str, object], TrialState, float | None]


class Watching(RandomOrderSampler):
    """Remembers the ended trials of its study, each time before it proposes; has none of the optional protocols."""

    studies: list[list[Ended]] = []  # noqa: RUF012 - a run makes the sampler, so that only the class is known here

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        trials = [t for t in study.get_trials(deepcopy=False) if t.state.is_finished()]
        self.studies.append([(dict(t.params), t.state, t.value) for t in trials])
        super().before_trial(study, trial)


WATCHING = f"{__name__}:{Watching.__name__}"


@pytest.fixture
def studies() -> Iterator[list[list[Ended]]]:
    Watching.studies.clear()
    yield Watching.studies
    Watching.studies.clear()


def every_fifth_fails(configuration: Configuration) -> Measurement:
    time_ns = time_of(configuration)
    return Measurement(Status.HANG, error="oh") if int(time_ns) % 5 == 0 else good(time_ns)


def as_ended(trials: list[Trial]) -> list[Ended]:
    """Return trials of the database as a study should have them."""
    return [
        (dict(t.configuration.parameters), TrialState.COMPLETE, t.time_ns)
        if t.status.ranked
        else (dict(t.configuration.parameters), TrialState.FAIL, None)
        for t in trials
    ]


# -- the study


def test_the_study_holds_the_trials_of_this_run_alone(
    database: Database, kernel: KernelSpec, studies: list[list[Ended]]
) -> None:
    run(kernel, database, StubDevice(), trials=15, from_scratch=False)
    device = StubDevice(answer=every_fifth_fails)
    second = run(kernel, database, device, trials=15, from_scratch=False, sampler=WATCHING, seed=5)
    assert second.state.known_before > 0
    trials = as_ended(second.state.trials)
    assert studies == [trials[:count] for count in range(15)]
    assert {state for _, state, _ in trials} == {TrialState.COMPLETE, TrialState.FAIL}


def test_the_study_of_a_resumed_run_is_rebuilt(
    database: Database, kernel: KernelSpec, studies: list[list[Ended]]
) -> None:
    run(kernel, database, StubDevice(), trials=10, from_scratch=False)
    watcher = Watcher()
    options: dict[str, Any] = {"sampler": WATCHING, "from_scratch": False, "trials": 20, "seed": 5}
    with pytest.raises(Interrupted):
        device = StubDevice(answer=every_fifth_fails)
        run(kernel, database, device, watcher, stop=stop_after(watcher, 9), **options)
    before = database.trials(database.select("SELECT id FROM runs ORDER BY started_at")[-1]["id"])
    studies.clear()
    device = StubDevice(answer=every_fifth_fails)
    resumed = run(kernel, database, device, resume=True, **options)
    trials = as_ended(resumed.state.trials)
    assert len(before) >= 9
    assert device.submitted == [t.configuration for t in resumed.state.trials[len(before) :]]
    assert studies == [trials[:count] for count in range(len(before), 20)]
    assert len({t.configuration for t in resumed.state.trials}) == 20


def test_no_error_has_a_password(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    secret = "u:s3cretpw@host:1"
    for arguments in (
        (
            "run",
            "--kernel",
            "vector_add",
            "--device",
            "replay",
            "--learn-from",
            "mysql://h/x?user=u&password=s3cretpw",
        ),
        ("run", "--kernel", f"http://{secret}/gemm.toml"),
        ("query", "--db", f"postgresql://{secret}/x"),
        ("run", "--kernel", "vector_add", "--device", "replay", "--db", f"postgresql://{secret}/x"),
        ("cluster", "status", "--folder", str(tmp_path), "--scheduler", f"tls://{secret}"),
        ("cluster", "status", "--folder", str(tmp_path), "--scheduler", secret),
        ("import", f"https://{secret}/results.json"),
        ("run", "--device", f"replay:https://{secret}/results.json"),
    ):
        said = said_by(capsys, *arguments)
        assert said.code and "s3cret" not in said.out + said.err, said


# -- samplers of a user's own, and former names


@pytest.mark.parametrize("sampler", ["tests.users_samplers:Plain", "tests.users_samplers:Last"])
def test_a_users_sampler_on_the_command_line(
    recording: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    sampler: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    replayed = ("--kernel", "vector_add", "--device", f"replay:{recording}")
    arguments = (*replayed, "--preset", "small", "--trials", "12", "--sampler", sampler)
    said = said_by(capsys, *arguments, "--json")
    assert said.code == 0, said.err
    (answer,) = json.loads(said.out)
    assert answer["stats"]["trials"] == 12
    refused = said_by(capsys, *arguments, "--stop", "auto")
    assert refused.code != 0
    assert f"the sampler {sampler} does not say what it expects" in refused.err


def test_a_sampler_without_the_optional_protocols_is_used_all_the_same(
    database: Database, kernel: KernelSpec, studies: list[list[Ended]]
) -> None:
    assert not issubclass(Watching, Nominating | Transferring)
    assert not hasattr(Watching, next(iter(Expecting.__annotations__)))
    run(kernel, database, StubDevice(), trials=10, from_scratch=False)
    device = StubDevice(lookahead=6, shuffle=2)
    device.compilers = 4
    result = run(kernel, database, device, trials=12, from_scratch=False, sampler=WATCHING)
    assert len(device.submitted) == len(set(device.submitted)) == 12
    assert result.stats["nominated"] is None, "no shortlist"
    with pytest.raises(UsageError, match="nothing can stop it"):
        run(kernel, database, StubDevice(), sampler=WATCHING, stop_early=True)


def test_the_former_name_of_the_default_sampler(
    recording: Path, database: Database, kernel: KernelSpec
) -> None:
    ids = [
        replay(recording, database, sampler=name, seed=3, trials=8).state.run.id
        for name in ("kriging", "gp-ei")
    ]
    assert sequence(database, ids[0]) == sequence(database, ids[1])
    assert {database.run(run_id).options.sampler for run_id in ids} == {"gp-ei"}


def test_a_stored_run_of_the_former_name_is_resumed(database: Database, kernel: KernelSpec) -> None:
    run_stopped(kernel, database, 6, StubDevice(), sampler="gp-ei", trials=20)
    with database.transaction():
        (row,) = database.rows_where("runs")
        row["sampler"] = "kriging"
        row["digest"] = cells.row_digest("runs", row)
        database.update_run(row["id"], sampler=row["sampler"], digest=row["digest"])
    device = StubDevice()
    result = run(kernel, database, device, sampler="random", resume=True)
    assert len(result.state.trials) == len({t.configuration for t in result.state.trials}) == 20
    assert result.finish is not None


# -- what is kept of a run's options

TRUTH = Problem("scale", {"n": 1024}, {"input": "float32"}, {"order": "up"})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (RunOptions(from_scratch=True), '{"variants":[],"fixed":{},"from_scratch":true}'),
        (
            RunOptions(
                variants=("plain",),
                fixed={"items": ("1", "2")},
                stop_early=True,
                initial="kernel",
                max_error=1e-3,
                truth=TRUTH,
            ),
            '{"variants":["plain"],"fixed":{"items":["1","2"]},"from_scratch":false,"stop_early":true,'
            '"seeds":"kernel","max_error":0.001,"truth":{"kernel":"scale",'
            '"sizes":{"n":1024},"dtypes":{"input":"float32"},"options":{"order":"up"}}}',
        ),
        (RunOptions(margin=0.002), '{"variants":[],"fixed":{},"from_scratch":false,"margin":0.002}'),
        (
            RunOptions(max_error=0.25),
            '{"variants":[],"fixed":{},"from_scratch":false,"max_error":0.25,"truth":null}',
        ),
    ],
    ids=["defaults", "all", "a margin", "a bound alone"],
)
def test_options_are_stored_as_before(options: RunOptions, text: str) -> None:
    assert json.dumps(options.to_json(), separators=(",", ":")) == text
    assert RunOptions.from_json(json.loads(text)) == options


def test_options_of_a_run_are_read_back(database: Database, kernel: KernelSpec) -> None:
    result = run(kernel, database, StubDevice(), trials=5, fixed={"items": ("1", "2")})
    (row,) = database.select("SELECT narrowing FROM runs")
    assert row["narrowing"] == '{"variants":[],"fixed":{"items":["1","2"]},"from_scratch":true}'
    assert database.run(result.state.run.id).options == result.state.run.options


def test_a_users_sampler_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_samplers.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    space = single(2, 4)
    with pytest.raises(UsageError, match=r"--sampler tests.users_samplers:Wanting: .*what"):
        make_search("tests.users_samplers:Wanting", space, 1)
    with pytest.raises(UsageError, match="--sampler broken_samplers:X: division by zero"):
        make_search("broken_samplers:X", space, 1)


def test_a_trial_of_a_long_run_costs_no_more_than_one_of_a_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials that were told are not looked at again: the sampler reads the end of the study's list only."""
    read: list[int] = []

    class Trials(list[FrozenTrial]):
        def __getitem__(self, index: Any) -> Any:
            part = super().__getitem__(index)
            read.append(len(part) if isinstance(index, slice) else 1)
            return part

        def __iter__(self) -> Iterator[FrozenTrial]:
            read.append(len(self))
            return super().__iter__()

    space = single(4, 5)
    search = Search(space, RandomOrderSampler(space))
    get_trials = search.study.get_trials
    monkeypatch.setattr(search.study, "get_trials", lambda **options: Trials(get_trials(**options)))
    for _ in range(300):
        configuration = search.ask()
        assert configuration is not None
        search.tell(configuration, 1000.0)
    assert len(read) >= 300
    assert max(read) <= 2


def test_earlier_results_count_for_the_stopping_criterion() -> None:
    space = single(4, 4)
    criterion = StoppingCriterion(lambda time_ns: 0.1, patience=1)
    search = Search(space, GPEISampler(space, 1), criterion)
    for configuration in list(space.configurations())[:40]:
        search.add(configuration, 1000.0)
    search.ask()
    search.ask()
    assert search.stopped is not None
