"""Each finding of Compute Sanitizer belongs to the configuration that causes it, also where many share a process."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.fake_tools import fake_sanitizer
from tests.faults.kernels import configuration
from tuner.children.compile_pool import CompilePool
from tuner.children.job import CaseOutcome, Complaint
from tuner.children.measuring import Candidate, ProblemSetup, ReferenceData
from tuner.core.model import Problem
from tuner.inspect.tools.cases import Case, Unit, planted
from tuner.inspect.tools.checking import Checker, ToolVerdict
from tuner.inspect.tools.nvidia import ToolMissingError, Watched
from tuner.inspect.tools.sanitizer import TOOLS, ToolMessage
from tuner.kernel.roofline import ARCHITECTURES
from tuner.runtime.launches import Plan

pytestmark = pytest.mark.usefixtures("forked_children")

GPU = ARCHITECTURES[90]


@pytest.fixture
def units() -> list[Unit]:
    candidate = Candidate(Plan((), ()), (), ("scale__ok",))
    setup = ProblemSetup((), ReferenceData("float32"))
    problem = Problem("scale", {"n": 64}, {"input": "float32"})
    return [Unit(i, Case(problem, configuration("ok", 32, i)), candidate, setup) for i in range(6)]


Check = Callable[..., list[ToolVerdict]]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, units: list[Unit]) -> Check:
    """Run a tool's stand-in over six configurations."""
    calls = tmp_path / "calls"
    monkeypatch.setenv("FAKE_CALLS", str(calls))
    settings = (fake_sanitizer(tmp_path / "tools"), tmp_path, 0, "", 0)

    def run(tool: str = "racecheck", **word: object) -> list[ToolVerdict]:
        monkeypatch.setenv("FAKE_TOOL", text := json.dumps(word))
        calls.unlink(missing_ok=True)
        return Checker(*settings, 3.0 if "hang" in text else 100.0).check(tool, units)

    return run


def processes(tmp_path: Path) -> int:
    return len((tmp_path / "calls").read_text().splitlines())


def failing(verdicts: list[ToolVerdict]) -> list[int]:
    return [verdict.unit.number for verdict in verdicts if verdict.failed]


@pytest.mark.parametrize("tool", TOOLS)
def test_clean_ones_share_one_process(check: Check, tmp_path: Path, tool: str) -> None:
    verdicts = check(tool)
    assert not failing(verdicts) and all(verdict.ran for verdict in verdicts)
    assert [verdict.unit.number for verdict in verdicts] == list(range(6)) and processes(tmp_path) == 1
    assert not [*tmp_path.glob("*.job"), *tmp_path.glob("*.jsonl")]


@pytest.mark.parametrize("tool", ["racecheck", "synccheck", "initcheck"])
def test_a_finding_is_confirmed_alone(check: Check, tmp_path: Path, tool: str) -> None:
    verdicts = check(tool, **{tool: {"1": "finding", "4": "finding"}})
    assert failing(verdicts) == [1, 4] and processes(tmp_path) == 3
    assert all(verdict.alone for verdict in verdicts)
    assert verdicts[1].findings[0].kernel and verdicts[1].log.read_text().count("Error") <= 1


def test_a_finding_that_does_not_come_again_is_kept_and_marked(check: Check) -> None:
    verdicts = check(racecheck={"2": "shy"})
    assert failing(verdicts) == [2] and not verdicts[2].alone and verdicts[2].findings


def test_memcheck_goes_on_behind_a_crash(check: Check, tmp_path: Path) -> None:
    verdicts = check("memcheck", memcheck={"0": "finding", "3": "finding", "5": "finding"})
    assert failing(verdicts) == [0, 3, 5]
    assert all("tensor y" in verdicts[i].findings[0].text for i in (0, 3, 5))
    assert [verdicts[i].outcome for i in range(6)] == ["fault", "ok", "ok", "fault", "ok", "fault"]


@pytest.mark.parametrize(
    ("word", "outcome", "words"),
    [
        ("vanish", CaseOutcome.FAULT, "the process ended"),
        ("fault", CaseOutcome.FAULT, "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("wrong", CaseOutcome.WRONG, "y[3] is 0"),
    ],
)
def test_what_the_process_says_counts_too(check: Check, word: str, outcome: CaseOutcome, words: str) -> None:
    verdicts = check(racecheck={"2": word})
    assert failing(verdicts) == [2] and verdicts[2].outcome is outcome and words in verdicts[2].error
    assert all(verdict.outcome is CaseOutcome.OK for verdict in verdicts if verdict.unit.number != 2)


def test_one_that_hangs_is_ended_and_the_others_run(check: Check, tmp_path: Path) -> None:
    """And nothing outlives the tool."""
    verdicts = check(racecheck={"1": "hang"})
    assert failing(verdicts) == [1] and verdicts[1].late and "not done after 3 s" in verdicts[1].error
    here = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in _words(path)]
    assert not here


def test_one_that_cannot_be_launched_is_no_finding(check: Check) -> None:
    verdicts = check(racecheck={"1": "unlaunchable"})
    assert not failing(verdicts) and [verdict.ran for verdict in verdicts].count(False) == 1


def test_late_findings_are_attributed_correctly(check: Check, tmp_path: Path) -> None:
    """The log grows behind the last configuration only: each that has such a kernel runs alone."""
    verdicts = check(racecheck={"3": "finding"}, late_log=True)
    assert failing(verdicts) == [3] and verdicts[3].alone and processes(tmp_path) == 7


def test_a_full_log_hides_no_finding(check: Check) -> None:
    verdicts = check(racecheck={"1": "finding", "3": "finding", "4": "finding"}, full=True)
    assert failing(verdicts) == [1, 3, 4] and all(verdict.alone for verdict in verdicts)


def test_findings_in_unknown_words_are_findings(check: Check) -> None:
    verdicts = check(unknown_format=["2", "5"])
    assert failing(verdicts) == [2, 5]
    assert "3 errors by the log's own summary" in verdicts[2].findings[0].text


@pytest.mark.parametrize(
    ("word", "words"),
    [
        (
            {"refuses": "Error: Target application terminated before first instrumented API call"},
            "before first",
        ),
        ({"no_context": "no CUDA GPU can be used"}, "no CUDA GPU can be used"),
        ({"scribbles": True}, r"diary is malformed: Expected `int`, got `str` - at `\$\.number`"),
        ({"silent": True}, "without a summary"),
    ],
)
def test_a_tool_that_does_not_work_never_says_clean(
    check: Check, word: dict[str, object], words: str
) -> None:
    with pytest.raises(ToolMissingError, match=words):
        check(**word)


def test_another_tuner_on_the_gpu_is_no_finding(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.inspect.tools.nvidia.LOCK_S", 0.5)
    with pytest.raises(ToolMissingError, match="another tuner keeps the GPU"):
        check(locked=True)


def _words(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_blind_tool_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checker = Checker(fake_sanitizer(tmp_path / "tools"), tmp_path, 0, "", 0, 100.0)
    with closing(CompilePool(1)) as pool:
        units = {tool: planted(tool, GPU, pool) for tool in TOOLS}
    for tool, unit in units.items():
        monkeypatch.setenv("FAKE_TOOL", "{}")
        checker.try_out(tool, unit)
        monkeypatch.setenv("FAKE_TOOL", json.dumps({"blind": True}))
        with pytest.raises(ToolMissingError, match="sees nothing wrong with a kernel that"):
            checker.try_out(tool, unit)


def test_records_without_a_place_have_no_kernel() -> None:
    assert ToolMessage("Leaked 64 bytes at 0x400200200").kernel == ""


def test_a_process_says_why_it_could_not_begin() -> None:
    assert not Watched().complaint and Watched([Complaint("no GPU")]).complaint == "no GPU"
