"""``tune profile`` around a stand-in for ncu."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from tests import commands
from tests.commands import Said, said_by
from tests.faults.bench_device import remember
from tests.faults.fake_tools import fake_ncu
from tests.faults.kernels import configuration, scale_kernel
from tests.ncu_output import wide
from tuner.cli import explain as body
from tuner.cli.commands.inspection import profile as command
from tuner.core.conditions import Conditions, Mode
from tuner.database.database import Database
from tuner.devices.started import has_gpu
from tuner.inspect.tools.figures import Figures
from tuner.inspect.tools.nsight import EXTRA_METRICS
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.spec import KernelSpec

pytestmark = pytest.mark.usefixtures("forked_children")


GPU = ARCHITECTURES[90]
BEST = configuration("ok", 256, 2)


@dataclass
class Profiled(Said):
    calls: list[list[str]]
    """How ncu was called."""


Run = Callable[..., Profiled]


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSpec:
    return scale_kernel(tmp_path / "kernel")


@pytest.fixture
def run(
    kernel: KernelSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run ``tune profile`` in an empty folder, with a GPU and an ncu that are none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{fake_ncu(tmp_path / 'tools').parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("FAKE_CSV", str(tmp_path / "report.csv"))
    monkeypatch.setattr("tuner.cli.configuration.has_gpu", lambda: True)
    monkeypatch.setattr(body, "describe_gpu", lambda device="cuda": GPU)
    (tmp_path / "report.csv").write_text(wide())

    def call(*arguments: str, **word: object) -> Profiled:
        monkeypatch.setenv("FAKE_TOOL", json.dumps(word))
        (tmp_path / "calls").unlink(missing_ok=True)
        said = said_by(capsys, "profile", *arguments)
        calls = (tmp_path / "calls").read_text().splitlines() if (tmp_path / "calls").exists() else []
        return Profiled(said.code, said.out, said.err, [json.loads(line) for line in calls])

    return call


def assert_refused(said: Said, code: int, *words: str) -> None:
    """One line on stderr, nothing on stdout, nothing left behind."""
    commands.assert_refused(said, code, *words)
    assert not [path.name for path in Path("results").rglob("*") if path.is_file()]


def test_a_profile_of_the_default(run: Run, kernel: KernelSpec) -> None:
    said = run(str(kernel.file))
    assert said.code == 0 and not said.err
    report = Path("results/profiles/scale-n1024-float32-plain-ok-32-1.ncu-rep")
    for words in (
        "plain fault=ok block_size=32 items=1 (default)", "emptied before each pass", "--clock-control none",
        "scale__ok <<<(2, 1, 1), (256, 1, 1)>>>", "10.2 us at 1.75 GHz", "41.2 % (3000 GB/s)", "33.3 % hits",
        "71.5 % achieved of 100.0 % possible, 1.94 waves", "26 per thread", "no spills", "50 % of the bytes moved",
        "long_scoreboard: waits for data", "-> loads use 50 %", f"report  {report}", "latency: nothing is busy",
    ):  # fmt: skip
        assert words in said.out, words
    assert report.is_file()
    assert [path.name for path in report.parent.iterdir()] == [report.name]
    first, second = said.calls
    assert first[first.index("--cache-control") + 1] == "all" and "--import" in second


def test_json_has_everything(run: Run, kernel: KernelSpec) -> None:
    said = run(str(kernel.file), "--config", "items=2 block_size=256", "--json")
    (launch,) = (data := json.loads(said.out))["launches"]
    assert (data["kernel"], data["parameters"]["block_size"], data["caches"]) == ("scale", 256, "cold")
    assert data["clock_control"] == "none" and data["source"] == "as given" and data["time_ns"] is None
    assert launch["figures"]["registers"] == 26 and launch["stalls"][0]["reason"] == "long_scoreboard"
    assert set(launch["figures"]) == {field.name for field in fields(Figures)}
    assert Path(data["report"]).is_file()


def test_the_winner_as_it_was_tuned(run: Run, kernel: KernelSpec) -> None:
    with Database.open("results/tuning.db") as database:
        remember(database, kernel, kernel.problem({}), BEST, 5e4, conditions=Conditions(Mode.WARM))
    said = run(str(kernel.file))
    assert "winner, trial 1" in said.out and "50 us (warm, rested)" in said.out
    assert "as the launch before left them" in said.out
    assert said.calls[0][said.calls[0].index("--cache-control") + 1] == "none"
    assert "emptied" in run("--trial", "1", "--mode", "cold").out


def test_every_launch_is_shown(run: Run, kernel: KernelSpec) -> None:
    Path("report.csv").write_text(wide(kernels=("partial", "sum")))
    said = run(str(kernel.file))
    assert "launch 1 of 2: partial" in said.out and "launch 2 of 2: sum" in said.out


def test_reports_are_never_overwritten(run: Run, kernel: KernelSpec) -> None:
    for _ in range(2):
        assert not run(str(kernel.file)).err
    assert len(list(Path("results/profiles").iterdir())) == 2
    assert not run(str(kernel.file), "--output", "mine").err
    assert Path("mine.ncu-rep").is_file()
    again = run(str(kernel.file), "--output", "mine.ncu-rep")
    assert again.code == 0 and "replacing mine.ncu-rep" in again.err


def test_a_run_that_fails_keeps_the_report_before(run: Run, kernel: KernelSpec) -> None:
    Path("mine.ncu-rep").write_text("earlier")
    said = run(str(kernel.file), "--output", "mine.ncu-rep", permission=True)
    assert said.code == 1 and Path("mine.ncu-rep").read_text() == "earlier"


def test_counters_that_do_not_exist_are_left_out(run: Run, kernel: KernelSpec) -> None:
    unknown = ["dram__bytes_read.sum", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"]
    said = run(str(kernel.file), unknown=unknown)
    assert said.code == 0
    asked = [call[call.index("--metrics") + 1].split(",") for call in said.calls if "--metrics" in call]
    assert [len(names) for names in asked] == [
        len(EXTRA_METRICS),
        len(EXTRA_METRICS) - 1,
        len(EXTRA_METRICS) - 2,
    ]
    assert not set(unknown) & set(asked[-1])


@pytest.mark.parametrize(
    ("word", "words"),
    [
        (
            {"permission": True},
            ("performance counters", "NVreg_RestrictProfilingToAdminUsers=0", "ERR_NVGPUCTRPERM"),
        ),
        ({"busy": True}, ("another tool holds", "DCGM")),
        ({"outcome": "wrong", "error": "y[0] is 1"}, ("is wrong", "y[0] is 1")),
        ({"outcome": "unprepared", "error": "the references differ"}, ("the references differ",)),
    ],
)
def test_what_goes_wrong_is_one_line(
    run: Run, kernel: KernelSpec, word: dict[str, object], words: tuple[str, ...]
) -> None:
    assert_refused(run(str(kernel.file), **word), 1, *words)


def test_a_report_without_a_launch_is_an_error(run: Run, kernel: KernelSpec) -> None:
    Path("report.csv").write_text("==WARNING== No kernels were profiled.\n")
    assert_refused(run(str(kernel.file)), 1, "it prints no launch")


def test_a_profile_that_hangs_is_ended(run: Run, kernel: KernelSpec) -> None:
    assert_refused(
        run(str(kernel.file), "--deadline", "1", hang=True), 1, "did not end within 1 s", "--deadline"
    )


def test_another_tuner_on_the_gpu_is_no_hang(
    run: Run, kernel: KernelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.inspect.tools.nvidia.LOCK_S", 1.0)
    assert_refused(run(str(kernel.file), locked=True), 1, "another tuner keeps the GPU to itself")


def test_without_ncu_nothing_is_started(
    run: Run, kernel: KernelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("tuner.inspect.tools.nvidia._folders", lambda tool: iter([]))
    monkeypatch.setattr(body, "describe_gpu", lambda device: pytest.fail("the GPU was asked"))
    assert_refused(run(str(kernel.file)), 1, "Nsight Compute (ncu) is not installed", "--ncu PATH")
    assert_refused(run(str(kernel.file), "--size", "q=1"), 2, "no size 'q'")
    assert_refused(run("gem"), 2, "did you mean gemm?")


def test_a_kernel_that_does_not_compile(run: Run, tmp_path: Path) -> None:
    broken = scale_kernel(tmp_path / "broken", source="this is not CUDA")
    assert_refused(run(str(broken.file)), 1, "compile_error")


@pytest.mark.skipif(has_gpu(), reason="the process would find a GPU")
def test_the_process_itself_says_that_there_is_no_gpu(run: Run, kernel: KernelSpec) -> None:
    assert_refused(run(str(kernel.file), run=True), 1, "could not begin", "no CUDA GPU can be used")


def test_the_command_takes_every_way_to_name_a_configuration() -> None:
    assert {"config", "trial", "preset", "sizes", "dtypes", "options"} <= {
        param.name for param in command.params
    }
