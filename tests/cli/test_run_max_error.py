"""``tune run --max-error``: which dtype and configuration a bound on the error chooses."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Tune, assert_refused, said_by
from tests.faults.kernels import scale_kernel
from tests.faults.stub_device import StubDevice, good, time_of
from tuner.core.conditions import Calibration, Conditions, Mode, Regime
from tuner.core.errors import DeviceError
from tuner.core.model import Configuration, Measurement, Problem, Verification
from tuner.kernel.spec import KernelSpec
from tuner.tuning.request import Request
from tuner.tuning.state import Result

pytestmark = pytest.mark.usefixtures("forked_children")


@pytest.fixture
def tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tune:
    """Run the command line in an empty folder; without a device of a test's own, on what is recorded."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: said_by(capsys, *arguments, "--device", "replay")


ERRORS = {"float32": 1e-8, "float16": 3e-4, "bfloat16": 3e-3}
FACTORS = {"float32": 4.0, "float16": 2.0, "bfloat16": 1.0}


class Rounding(StubDevice):
    """Narrow dtypes are fast, and far from the truth; a configuration with load hints is half as far."""

    def __init__(self) -> None:
        super().__init__()
        self.dtype = ""
        self.asked_for: list[tuple[str, Conditions, str]] = []
        self.short: frozenset[str] = frozenset()
        self.least: dict[str, float] = {}
        self.confirmed = lambda c, time_ns: self.timed(c)

    def choose_conditions(
        self, kernel: KernelSpec, problem: Problem, mode: Mode | None, regime: Regime
    ) -> tuple[Conditions, str]:
        auto = Mode.ROTATING if problem.dtype in self.short else Mode.COLD
        return Conditions(mode or auto, regime), "as scripted"

    def _prepare(
        self, kernel: KernelSpec, problem: Problem, seed: int, conditions: Conditions, truth: Problem | None
    ) -> None:
        self.prepared.append(problem)
        self.dtype, self.conditions = problem.dtype, conditions
        self.least_error = self.least.get(problem.dtype, 0.0) if truth else None
        self.asked_for.append((problem.dtype, conditions, truth.dtype if truth else ""))
        self.answer = self.timed

    def timed(self, configuration: Configuration) -> Measurement:
        hinted = configuration.values.get("load_hint", "none") != "none"
        error = ERRORS[self.dtype] * (0.5 if hinted else 1.0)
        found = good(time_of(configuration) * FACTORS[self.dtype])
        return replace(found, verification=Verification(True, true_error=error))

    def raced_ns(self, configuration: Configuration, mode: Mode | None) -> float:
        return time_of(configuration) * FACTORS[self.dtype]


@pytest.fixture
def rounding(monkeypatch: pytest.MonkeyPatch) -> Rounding:
    device = Rounding()
    monkeypatch.setattr("tuner.cli.run.open_device", lambda *_: device)
    return device


BOUNDED = (
    *("--kernel", "vector_add", "--size", "n=2**20", "--trials", "6", "--sampler", "random"),
    *("-q", "--max-error"),
)


def test_bound_chooses_the_dtype(tune: Tune, rounding: Rounding) -> None:
    said = tune(*BOUNDED, "1e-3", "--dtype", "float32,float16", "--dtype", "bfloat16", "--json")
    assert said.code == 0, said.err
    (found,) = json.loads(said.out)
    assert [run["problem"]["dtypes"]["input"] for run in found["runs"]] == ["float32", "float16", "bfloat16"]
    assert found["winner"]["dtype"] == "float16"
    assert found["winner"]["error"] <= 1e-3
    assert found["complete"] is True
    assert found["max_error"] == 1e-3
    assert found["front"][0]["dtype"] == "bfloat16"
    assert {point["dtype"] for point in found["front"]} == {"float32", "float16", "bfloat16"}
    assert [truth for _, _, truth in rounding.asked_for] == ["float32"] * 3
    with sqlite3.connect("results/tuning.db") as connection:
        rows = connection.execute(
            "SELECT status, count(*) FROM trials WHERE dtype = 'bfloat16' GROUP BY status"
        )
        assert rows.fetchall() == [("inaccurate", 6)]


def test_bound_as_a_table(tune: Tune, rounding: Rounding) -> None:
    said = tune(*BOUNDED, "1e-2", "--dtype", "float32,float16,bfloat16")
    assert said.code == 0, said.err
    assert said.err == ""
    table = said.out[said.out.index("time against error") :].splitlines()
    assert table[1].split()[:4] == ["dtype", "time", "confirmed", "error"]
    assert "winner: bfloat16" in table[-1]
    (marked,) = (line for line in table[2:-1] if "winner" in line)
    assert marked.startswith("bfloat16")


def test_dtype_that_is_too_inaccurate_is_skipped(tune: Tune, rounding: Rounding) -> None:
    rounding.least = {"bfloat16": 2e-3, "float16": 2e-4}
    said = tune(*BOUNDED, "1e-3", "--json")
    assert said.code == 0, said.err
    (line,) = said.err.splitlines()
    assert line.startswith("tune: vector_add n=1048576 bfloat16: ")
    (found,) = json.loads(said.out)
    assert [skipped["dtype"] for skipped in found["skipped"]] == ["bfloat16"]
    assert found["winner"]["dtype"] == "float16"
    with sqlite3.connect("results/tuning.db") as connection:
        assert connection.execute("SELECT count(*) FROM trials WHERE dtype = 'bfloat16'").fetchone() == (0,)


def test_bound_that_nothing_meets(tune: Tune, rounding: Rounding) -> None:
    said = tune(*BOUNDED, "1e-12", "--json")
    assert said.code == 1
    (found,) = json.loads(said.out)
    assert found["winner"] is None
    assert len(found["runs"]) == len(found["skipped"]) == 3
    lines = said.err.splitlines()
    assert len(lines) == 4
    assert "no configuration is accurate enough; 6 of 6 ended as inaccurate" in lines[0]
    assert lines[-1] == "tune: vector_add n=1048576: no dtype has a confirmed winner within an error of 1e-12"


def test_reason_of_each_dtype_is_said_once(tune: Tune, rounding: Rounding) -> None:
    rounding.least = {"bfloat16": 2e-3}
    said = tune(*BOUNDED, "1e-12", "--plot", "front.svg")
    assert said.code == 1
    assert "could be verified" not in said.out
    assert said.out.count("no configuration is accurate enough") == 2
    assert said.out.count("6 of 6 ended as inaccurate") == 2
    assert (said.out + said.err).count("bfloat16: ") == 1
    assert len(said.err.splitlines()) == 1


def test_json_of_a_single_dtype_that_is_too_inaccurate(tune: Tune, rounding: Rounding) -> None:
    rounding.least = {"float16": 2e-4}
    said = tune(*BOUNDED, "1e-5", "--dtype", "float16", "--json", "--plot", "front.svg")
    assert said.code == 1
    (found,) = json.loads(said.out)
    assert (found["winner"], found["complete"], found["runs"]) == (None, True, [])
    assert [skipped["dtype"] for skipped in found["skipped"]] == ["float16"]
    nothing, why = sorted(said.err.splitlines())
    assert nothing == "tune: front.svg is not written: there is no time to draw"
    assert "1e-05" in why
    assert not Path("front.svg").exists()


def test_bound_without_a_reference(tune: Tune, rounding: Rounding, tmp_path: Path) -> None:
    text = scale_kernel(tmp_path / "own").file.read_text()
    file = tmp_path / "own" / "bare.toml"
    start = text.index("[reference]")
    file.write_text(text[:start] + text[text.index("\n[", start) :])
    said = tune("--kernel", str(file), "--trials", "5", "--max-error", "1e-3")
    assert_refused(said, 2, "no reference", "[reference]", "--max-error")
    assert said.code == 2
    assert rounding.prepared == []


def test_notes_are_said_once_and_not_under_quiet(tune: Tune, rounding: Rounding) -> None:
    notes = ("another process has a context", "NVML does not answer", "clocks are free")
    rounding.notes = notes[:2]
    rounding.calibration = Calibration({"cold, rested": 0.002}, notes=notes)
    problems = ("--kernel", "vector_add", "--problem", "n=2**20", "--problem", "n=2**21", "--trials", "5")
    said = tune(*problems)
    assert said.code == 0, said.err
    assert [said.err.count(note) for note in notes] == [1, 1, 1]
    said = tune(*problems, "-q")
    assert said.err == ""


def test_resumed_comparison_says_that_it_keeps_the_mode(
    tune: Tune, rounding: Rounding, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tune(*BOUNDED, "1e-3", "--dtype", "float32").code == 0
    two = ("--dtype", "float32,float16", "--resume")
    said = tune(*BOUNDED, "1e-3", *two, "--mode", "warm", "--regime", "rested")
    assert said.code == 0, said.err
    assert said.err == "tune: timed cold, rested, as the dtypes that are done, in spite of --mode warm\n"
    with monkeypatch.context() as patched:
        stopped_in(patched, "bfloat16")
        assert tune(*BOUNDED, "1e-3", "--dtype", "float32,bfloat16", "--resume").code == 130
    said = tune(*BOUNDED, "1e-3", "--dtype", "float32,bfloat16", "--resume", "--mode", "warm")
    assert said.err == "tune: a resumed run keeps its own --trials, --sampler, --mode\n"


def test_warm_times_are_no_share_of_the_memory(tune: Tune, rounding: Rounding) -> None:
    """Bytes come from the caches then: there is a rate, but neither a speed of light nor a ceiling."""
    rounding.calibration = Calibration({"warm, rested": 0.002}, copy_bytes_per_s=4e12, read_bytes_per_s=4e12)
    small = ("--kernel", "vector_add", "--size", "n=2**20", "--trials", "5")
    (cold,) = json.loads(tune(*small, "-q", "--json").out)
    assert cold["winner"]["speed_of_light"] > 0
    assert cold["winner"]["of_ceiling"] > 0
    (warm,) = json.loads(tune(*small, "-q", "--json", "--mode", "warm").out)
    assert warm["winner"]["gbytes_per_s"] > 0
    assert [warm["winner"][name] for name in ("speed_of_light", "ceiling", "of_ceiling")] == [None] * 3
    said = tune(*small, "--mode", "warm")
    assert "GB/s" in said.out
    assert "speed of light" not in said.out + said.err
    assert "of the measured" not in said.out


def test_single_dtype_that_is_too_inaccurate(tune: Tune, rounding: Rounding) -> None:
    rounding.least = {"float16": 2e-4}
    assert_refused(tune(*BOUNDED, "1e-5", "--dtype", "float16"), 1, "float16", "1e-05")


def test_dtypes_are_timed_alike(tune: Tune, rounding: Rounding) -> None:
    """Where each would choose its own mode, the shortest kernels decide."""
    rounding.short = frozenset({"float16"})
    assert tune(*BOUNDED, "1").code == 0
    assert [dtype for dtype, _, _ in rounding.asked_for] == ["float32", "float16", "bfloat16"]
    assert {conditions for _, conditions, _ in rounding.asked_for} == {Conditions(Mode.ROTATING)}
    rounding.asked_for.clear()
    assert tune(*BOUNDED, "1", "--mode", "cold", "--regime", "sustained").code == 0
    assert {conditions for _, conditions, _ in rounding.asked_for} == {
        Conditions(Mode.COLD, Regime.SUSTAINED)
    }


def test_mode_and_regime(tune: Tune, rounding: Rounding) -> None:
    small = ("--kernel", "vector_add", "--trials", "5", "-q")
    assert tune(*small).code == 0
    assert tune(*small, "--mode", "warm", "--regime", "sustained").code == 0
    assert [(str(conditions), truth) for _, conditions, truth in rounding.asked_for] == [
        ("cold, rested", ""),
        ("warm, sustained", ""),
    ]


def test_bound_for_several_problems(tune: Tune, rounding: Rounding) -> None:
    problems = ("--problem", "n=2**20", "--problem", "n=2**21,dtype=float32")
    said = tune("--kernel", "vector_add", *problems, "--trials", "5", "-q", "--max-error", "1e-3", "--json")
    assert said.code == 0, said.err
    assert [found["winner"]["dtype"] for found in json.loads(said.out)] == ["float16", "float32"]


def test_dtype_that_fails_does_not_end_the_others(tune: Tune, rounding: Rounding) -> None:
    real = rounding._prepare

    def prepare(kernel: KernelSpec, problem: Problem, *others: Any) -> None:
        if problem.dtype == "float32":
            raise DeviceError("it does not fit")
        real(kernel, problem, *others)

    rounding._prepare = prepare  # type: ignore[method-assign]
    said = tune(*BOUNDED, "1e-2", "--json")
    assert said.code == 1
    assert said.err.splitlines() == ["tune: vector_add n=1048576 float32: it does not fit"]
    (found,) = json.loads(said.out)
    assert found["winner"]["dtype"] == "bfloat16"
    assert {"dtype": "float32", "reason": "it does not fit"} in found["skipped"]


def stopped_in(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    """Have Ctrl-C pressed as soon as this dtype is searched."""
    from tuner.tuning import session

    real = session.tune

    def stopped(request: Request, device: Any, database: Any, observer: Any, stop: Any) -> Result:
        return real(request, device, database, observer, lambda: stop() or request.problem.dtype == dtype)

    monkeypatch.setattr(session, "tune", stopped)


def test_resumed_comparison_has_the_dtypes_that_were_done(
    tune: Tune, rounding: Rounding, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounding.short = frozenset({"float16"})
    with monkeypatch.context() as patched:
        stopped_in(patched, "bfloat16")
        said = tune(*BOUNDED, "1e-3", "--json")
    assert said.code == 130, said.err
    (partly,) = json.loads(said.out)
    assert (partly["complete"], partly["winner"]) == (False, None)
    assert ["best_yet" in run for run in partly["runs"]] == [False, False, True]
    rounding.asked_for.clear()
    rounding._held = None  # in another process nothing is prepared
    said = tune(*BOUNDED, "1e-3", "--json", "--resume")
    assert said.code == 0, said.err
    assert [dtype for dtype, _, _ in rounding.asked_for] == ["bfloat16"]
    assert {conditions for _, conditions, _ in rounding.asked_for} == {Conditions(Mode.ROTATING)}
    (found,) = json.loads(said.out)
    assert found["complete"] is True
    assert found["winner"] == {**found["winner"], "dtype": "float16"}
    assert {point["dtype"] for point in found["front"]} == {"float32", "float16", "bfloat16"}
    assert len(found["runs"]) == 1


def test_plot_of_the_front(tune: Tune, rounding: Rounding, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    said = tune(*BOUNDED, "1e-3", "--plot", "front.svg")
    assert said.code == 0, said.err
    text = (tmp_path / "front.svg").read_text()
    for word in ("float16", "vector_add n=1048576", "winner", "Pareto front", "error allowed: 0.001"):
        assert word in text, word


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--dtype", "float32,float16"), ("--dtype names several: float32, float16", "--max-error")),
        (("--dtype", "float32", "--dtype", "input=float16"), ("--dtype names several", "--max-error")),
        (("--max-error", "0"), ("--max-error",)),
        (("--max-error", "-1"), ("--max-error",)),
        (("--max-error", "nan"), ("--max-error", "finite")),
        (("--max-error", "inf"), ("--max-error", "finite")),
        (("--max-error", "small"), ("--max-error",)),
        (("--max-error", "1e-3", "--dtype", "float16,float23"), ("float23", "float16")),
        (("--max-error", "1e-3", "--plot", "front.jpg"), ("front.jpg", ".png")),
        (("--max-error", "1e-3", "--plot", "nowhere/front.png"), ("nowhere",)),
        (
            ("--max-error", "1e-3", "--plot", "a.png", "--problem", "n=8", "--problem", "n=9"),
            ("one problem",),
        ),
        (("--mode", "hot"), ("--mode", "hot")),
        (("--regime", "tired"), ("--regime", "tired")),
        (("--max-error", "1e-3"), ("is a recording", "no errors to choose by", "--max-error")),
    ],
)
def test_bad_bound_is_one_clear_line(tune: Tune, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    assert_refused(tune("--kernel", "vector_add", "--trials", "5", *arguments), 2, *words)
    assert not Path("results").exists()
