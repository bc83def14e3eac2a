"""What is shown while a run goes on: it fits a narrow terminal, is right after a resume, and leaves no trace."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.faults.kernels import configuration, scale_kernel
from tests.faults.stub_device import StubDevice
from tuner.core.model import Configuration, Run, RunOptions, Status, Trial
from tuner.core.stats import Ratio, Verdict
from tuner.database.records import Mark
from tuner.kernel.roofline import ARCHITECTURES, roof_of
from tuner.kernel.space import SearchSpace
from tuner.report.next_steps import next_steps
from tuner.report.progress import (
    Progress,
    RunProgress,
    counted_line,
    counting,
    left_out_lines,
    panel_lines,
    progress_line,
)
from tuner.report.summary import summary
from tuner.tuning import state as state_module
from tuner.tuning.state import Finish, Result, State, metrics

FAILED = (Status.WRONG_RESULT, Status.HANG, Status.COMPILE_ERROR, Status.MEMORY_FAULT)


class Terminal(io.StringIO):
    """Standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> State:
    """60 of 100 trials, 40 of them from before an interruption, the other 20 in ten seconds."""
    kernel, gpu = scale_kernel(tmp_path, items=range(1, 33)), ARCHITECTURES[90]
    problem = kernel.problem()
    run = Run("r", problem, gpu, "cuda:0", RunOptions(sampler="tpe", trials=100))
    device = StubDevice()
    device.recorded = True
    space = SearchSpace.from_kernel(kernel, problem, gpu)
    state = State(run, roof_of(kernel, problem, gpu), space, device, Mark(0, 0))
    best = Trial(0, configuration(), Status.OK, 190_100.0)
    failed = [Trial(1 + i, configuration(), FAILED[i % 4]) for i in range(59)]
    state.trials, state.incumbent, state.resumed_trials = [best, *failed], best, 40
    state.search_began = 100.0
    monkeypatch.setattr(state_module, "time", SimpleNamespace(monotonic=lambda: 110.0))
    return state


def test_the_panel_fits_80_columns(state: State) -> None:
    far, fast, what, failed = panel_lines(state)
    assert max(map(len, (far, fast, what))) <= 80
    assert far.startswith("trial 60 of 100  2.0/s  ETA ")
    assert fast.startswith("best 190.1 us, ")
    assert fast.endswith("of peak")
    assert what == "plain, all default"
    assert failed.startswith("failed: 15 ")
    state.incumbent = None
    assert "nothing verified yet" in panel_lines(state)


def test_a_space_with_fewer_configurations_than_trials_ends_the_bar(state: State) -> None:
    state.run = replace(state.run, options=replace(state.run.options, trials=500))
    assert "trial 60 of 128 " in progress_line(state)
    state.known_before = 20  # by earlier runs: not tried again
    assert "trial 60 of 108 " in progress_line(state)


def test_rates_leave_out_what_was_there_before(state: State) -> None:
    assert "  2.0/s  ETA 20 s  " in progress_line(state)
    state.search_ended = state.search_began + 10.0
    finish = Finish(190_100.0, None, None, Verdict.AMBIGUOUS, winner=state.trials[0])
    text = summary(Result(state, finish, 1, {}), Path("x.db"), full=True)
    assert "60 trials (40 of them before the interruption)" in text


def test_the_first_lines_say_what_most_need(state: State) -> None:
    """A trial has the number that ``tune trials`` takes; progress names none."""
    state.trials[12] = best = replace(state.trials[0], number=12, id=626)
    state.incumbent, default = best, state.trials[0]
    ratio = Ratio(1.768, 1.7598, 1.7742)
    finish = Finish(
        190_100.0,
        336_000.0,
        ratio,
        Verdict.FASTER,
        winner=best,
        default=replace(default, configuration=configuration(items=2)),
    )
    result = Result(state, finish, 1, {})
    lines = summary(result, Path("x.db")).splitlines()
    assert [line[2:13].strip() for line in lines[1:]] == ["winner", "time", "speedup", "confirmed", "search"]
    assert lines[3].endswith("  1.768x over the default (95 %: 1.760 to 1.774)")
    assert "60 trials, the best #626, 58 failed, " in lines[5] and lines[5].endswith("kept in x.db")
    full = summary(result, Path("x.db"), full=True).splitlines()
    assert len(full) > len(lines) and any("noise floor" in line for line in full)


def test_a_winner_is_to_be_explained_reported_and_once_confirmed_bundled(state: State) -> None:
    finish = Finish(190_100.0, None, None, Verdict.AMBIGUOUS, winner=state.trials[0], exportable=True)
    state.run = replace(state.run, kernel_file="/kernels/my scale.toml")
    one, several = Result(state, finish, 1, {}), [Result(state, finish, 1, {})] * 2
    assert "bundle '/kernels/my scale.toml' --db x.db" in " ".join(next_steps([one], Path("x.db")))
    unconfirmed = Result(state, replace(finish, exportable=False), 1, {})
    assert "bundle" not in " ".join(next_steps([unconfirmed], Path("x.db")))
    assert "tune best --db x.db" in next_steps(several, Path("x.db"))
    assert next_steps([Result(state, None, 1, {})], Path("x.db")) == {}


def test_closing_gives_the_cursor_back(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    observer = RunProgress()
    observer.close()  # before anything was shown
    observer.step(state)
    assert terminal.getvalue().rfind("\x1b[?25l") > terminal.getvalue().rfind("\x1b[?25h")
    observer.close()
    assert terminal.getvalue().rfind("\x1b[?25h") > terminal.getvalue().rfind("\x1b[?25l")
    observer.close()


def test_what_several_variants_need_is_said_once() -> None:
    needs = {"a": "needs m of at most 8", "b": "needs a newer GPU", "c": "needs m of at most 8"}
    assert left_out_lines(needs) == ["left out: a, c: needs m of at most 8", "left out: b: needs a newer GPU"]


def test_many_reasons_take_one_line() -> None:
    (line,) = left_out_lines(
        {"a": "needs m of at most 8", "b": "needs n of at most 8", "c": "needs a newer GPU"}
    )
    assert line.startswith("left out") and line.endswith(": a, b, c")


def test_without_a_flop_count_nothing_is_said_of_the_peak(state: State) -> None:
    finish = Finish(190_100.0, None, None, Verdict.AMBIGUOUS, winner=state.trials[0])
    result = Result(state, finish, 1, {})
    assert "-bound)" in summary(result, Path("x.db")) and "of peak" in progress_line(state)
    state.roof = replace(state.roof, flops=0.0)
    assert "-bound)" not in summary(result, Path("x.db")) and "of peak" not in progress_line(state)
    assert metrics(state.roof, 190_100.0).of_peak is None


def test_a_winner_of_another_variant_is_compared_with_the_default_of_that(state: State) -> None:
    default = replace(state.trials[1], configuration=Configuration.of("strided", {}))
    ratio = Ratio(2.8, 2.7, 2.9)
    finish = Finish(1e5, 2.8e5, ratio, Verdict.FASTER, winner=state.trials[0], default=default)
    assert "2.800x over the default of strided (95 %" in summary(Result(state, finish, 1, {}), Path("x.db"))


def test_a_phase_of_which_nothing_has_begun_counts_from_zero() -> None:
    progress: Progress[str] = Progress(counted_line)
    progress.phase("compilations", 3)
    assert counted_line(progress) == ["compilations: 0 of 3"]


def test_how_long_a_phase_may_still_take(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("tuner.report.progress.time.monotonic", lambda: now)
    progress = counting(quiet=False, every_s=10.0)
    progress.phase("runs", 12)
    for number in range(1, 4):
        now += 15.0
        progress.step("memcheck", number)
    assert capsys.readouterr().err.splitlines() == [
        "runs: 1 of 12: memcheck",
        "runs: 2 of 12, about 2 min left: memcheck",
        "runs: 3 of 12, about 2 min left: memcheck",
    ]
