"""What is shown while a run goes on: it fits a narrow terminal, is right after a resume, and leaves no trace."""

from __future__ import annotations

import io
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.kernels import configuration, scale_kernel
from tests.faults.stub_device import StubDevice
from tuner.core.model import Run, RunOptions, Status, Trial
from tuner.core.stats import Verdict
from tuner.kernel.roofline import ARCHITECTURES, roof_of
from tuner.kernel.space import SearchSpace
from tuner.report.next_steps import next_steps
from tuner.report.progress import RunProgress, left_out_lines, panel_lines, progress_line
from tuner.report.summary import summary
from tuner.tuning.state import Finish, Result, State

FAILED = (Status.WRONG_RESULT, Status.HANG, Status.COMPILE_ERROR, Status.MEMORY_FAULT)


class Terminal(io.StringIO):
    """Standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def state(tmp_path: Path) -> State:
    """60 of 100 trials, 40 of them from before an interruption, the other 20 in ten seconds."""
    kernel, gpu = scale_kernel(tmp_path), ARCHITECTURES[90]
    problem = kernel.problem()
    run = Run("r", problem, gpu, "cuda:0", RunOptions(sampler="tpe", trials=100))
    device = StubDevice()
    device.recorded = True
    state = State(run, roof_of(kernel, problem, gpu), SearchSpace.from_kernel(kernel, problem, gpu), device)
    best = Trial(0, configuration(), Status.OK, 190_100.0)
    failed = [Trial(1 + i, configuration(), FAILED[i % 4]) for i in range(59)]
    state.trials, state.incumbent, state.resumed_trials = [best, *failed], best, 40
    state.search_began = time.monotonic() - 10.0
    return state


def test_the_panel_fits_80_columns(state: State) -> None:
    far, fast, what, failed = panel_lines(state)
    assert max(map(len, (far, fast, what))) <= 80
    assert far.startswith("trial 60/100  2.0/s  ETA ")
    assert fast.startswith("best 190.1 us, ")
    assert fast.endswith("of the speed of light")
    assert what == "plain, all default"
    assert failed.startswith("failed: 15 ")
    state.incumbent = None
    assert "nothing verified yet" in panel_lines(state)


def test_rates_leave_out_what_was_there_before(state: State) -> None:
    assert "  2.0/s  ETA 20 s  " in progress_line(state)
    state.search_ended = state.search_began + 10.0
    finish = Finish(190_100.0, None, None, Verdict.AMBIGUOUS, winner=state.trials[0])
    text = summary(Result(state, finish, 1, {}), Path("x.db"))
    assert "60 trials (40 of them before the interruption), 20 in 10.0 s" in text


def test_a_winner_is_to_be_explained_reported_and_once_confirmed_bundled(state: State) -> None:
    finish = Finish(190_100.0, None, None, Verdict.AMBIGUOUS, winner=state.trials[0], exportable=True)
    state.run = replace(state.run, kernel_file="/kernels/my scale.toml")
    one, several = Result(state, finish, 1, {}), [Result(state, finish, 1, {})] * 2
    assert "bundle '/kernels/my scale.toml' --db x.db" in " ".join(next_steps([one], Path("x.db")))
    unconfirmed = Result(state, replace(finish, exportable=False), 1, {})
    assert "bundle" not in " ".join(next_steps([unconfirmed], Path("x.db")))
    assert "tune best --db x.db" in next_steps(several, Path("x.db"))[0]
    assert next_steps([Result(state, None, 1, {})], Path("x.db")) == []


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
    assert left_out_lines(needs) == [
        "left out: a, c: needs m of at most 8",
        "left out: b: needs a newer GPU",
    ]


def test_many_reasons_take_one_line() -> None:
    (line,) = left_out_lines(
        {"a": "needs m of at most 8", "b": "needs n of at most 8", "c": "needs a newer GPU"}
    )
    assert line.startswith("left out") and line.endswith(": a, b, c")
