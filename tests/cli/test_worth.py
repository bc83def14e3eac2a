"""``tune --problems`` with what each problem is worth: the heaviest first, and a time that is shared by that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import Said, Tune, said_by
from tests.faults.kernels import write_synthetic_recording
from tuner.cli import worth
from tuner.cli.worth import Budget
from tuner.kernel.load import load_kernel


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kernel = load_kernel("vector_add")
    path = tmp_path_factory.mktemp("recorded") / "vector_add-made_up.json.gz"
    return write_synthetic_recording(path, kernel, [kernel.problem({"n": n}) for n in (1000, 2000, 4000)], 20)


@pytest.fixture
def tune(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Tune:
    """Tune the problems of a text, by the recording."""
    monkeypatch.chdir(tmp_path)

    def run(text: str, *arguments: str) -> Said:
        Path("problems.csv").write_text(text)
        where = ("--problems", "problems.csv", "--trials", "3", "--device", f"replay:{recording}")
        return said_by(capsys, "--kernel", "vector_add", *where, *arguments)

    return run


def order(said: Said) -> list[int]:
    return [run["problem"]["sizes"]["n"] for run in json.loads(said.out)]


@pytest.mark.parametrize(
    ("text", "expected", "lines"),
    [
        ("n,calls\n1000,2\n2000,3\n4000,1\n", [2000, 4000, 1000], ["50.0 % of the operations, 3 calls"]),
        (
            "n,calls,time_us\n1000,2,9\n2000,3,1\n4000,1,4\n",
            [1000, 4000, 2000],
            ["72.0 % of the time, 2 calls"],
        ),
        (
            "n,calls,time_us,time_s\n1000,2,9,\n2000,3,,1e-6\n4000,1,4,\n",
            [1000, 4000, 2000],
            ["72.0 % of the time, 2 calls"],
        ),
        (
            "n,calls,time_ns,time_µs\n1000,2,9e3,\n2000,3,,1\n4000,1,4e3,\n",
            [1000, 4000, 2000],
            ["72.0 % of the time, 2 calls"],
        ),
        ("n,calls,time_us\n1000,1,9\n2000,3,\n4000,1,4\n", [2000, 4000, 1000], ["54.5 % of the operations"]),
        ("n\n1000\n4000\n2000\n", [1000, 4000, 2000], []),
    ],
)
def test_the_heaviest_is_tuned_first(tune: Tune, text: str, expected: list[int], lines: list[str]) -> None:
    said = tune(text, "--json")
    assert said.code == 0, said.err
    assert order(said) == expected
    assert [
        line for line in lines if f"1 of 3: vector_add n={expected[0]} " in said.err and line in said.err
    ] == lines
    assert "of the" in said.err or not lines


def test_one_that_fails_does_not_end_the_others(tune: Tune) -> None:
    said = tune("n,calls\n1000,1\n77,900\n4000,1\n", "--json")  # 77 was not recorded
    assert said.code == 1
    assert order(said) == [77, 4000, 1000]
    assert "n=77" in said.err


def test_a_file_that_may_be_cut_off_is_said_once(tune: Tune) -> None:
    said = tune("n,calls\n1000,1\n4000,1", "--json")
    assert order(said) == [4000, 1000]
    assert (
        said.err.count("problems.csv does not end its last row with a line end: see that it was not cut off")
        == 1
    )


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("n,calls\n1000,none\n", "problems.csv line 2: calls=none; give a number above 0"),
        ("n,calls\n1000,-1\n", "calls=-1"),
        ("n,calls,time_us\n1000,1,inf\n", "time_us=inf"),
        ("n,calls,time_us\n1000,1e308,1e308\n", "calls=1e308"),
        ("n,time_us,time_ms\n1000,1,1\n", "time_ms beside another time; give one of them"),
        ("n,time_min\n1000,1\n", "'time_min'; did you mean time_"),
    ],
)
def test_a_wrong_worth_is_named(tune: Tune, text: str, word: str) -> None:
    said = tune(text)
    assert (said.code, said.out) == (2, "")
    assert word in said.err and len(said.err.splitlines()) == 1


def test_time_is_shared_by_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(worth, "monotonic", lambda: now)
    budget = Budget(60.0, [0.5, 0.25, 0.25])
    assert budget.of(0, ()) == 30.0
    now += 10  # it needed less than its share: the rest is for the others
    assert budget.of(1, {0}) == 25.0
    assert budget.of(1, {0}, devices=2) == 50.0
    now += 60
    assert (budget.of(2, {0, 1}) or 0) <= 0
    assert Budget(None, [1.0]).of(0, ()) is None


def test_what_the_time_does_not_suffice_for_is_left_out(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(0, 100_000, 40))
    monkeypatch.setattr(worth, "monotonic", lambda: next(ticks))
    said = tune("n,calls\n1000,1\n2000,1\n4000,1\n", "--total-time", "90", "--json")
    assert said.code == 0
    assert order(said) == [4000, 2000]
    assert "n=1000 float32: left out, the time is over; go on with --resume" in said.err
    said = tune("n,calls\n1000,1\n2000,1\n4000,1\n", "--json", "--resume")
    assert order(said) == [1000]
    assert "3 of 3: vector_add n=1000 float32: 14.3 % of the operations" in said.err
    assert "1 of 3: " not in said.err
