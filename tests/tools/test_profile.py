"""``tune profile``: what ncu prints, figures and advice made of it, and the command around a stand-in for ncu."""

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
from tuner.cli import profile as body
from tuner.cli.commands.profile import profile as command
from tuner.conditions import Conditions, Mode
from tuner.database.database import Database
from tuner.devices.choose import has_gpu
from tuner.errors import UsageError
from tuner.hardware.roofline import ARCHITECTURES
from tuner.kernel.spec import KernelSpec
from tuner.tools.figures import Figures, figures_of, limit_of
from tuner.tools.locate import NCU, SANITIZER, ToolMissingError, find
from tuner.tools.nsight import EXTRA_METRICS, ncu_command, number, parse_csv
from tuner.tools.stalls import REASONS, remedy_of, top_stalls, worth_looking_at

pytestmark = pytest.mark.usefixtures("forked_children")

GPU = ARCHITECTURES[90]
BEST = configuration("ok", 256, 2)
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
COUNTERS = {
    "gpu__time_duration.sum": ("nsecond", "10,196"),
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "41.25"),
    "dram__bytes_read.sum": ("byte", "20,000,000"),
    "dram__bytes_write.sum": ("byte", "10,588,000"),
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "30.5"),
    "lts__t_sector_hit_rate.pct": ("%", "33.3"),
    "l1tex__throughput.avg.pct_of_peak_sustained_active": ("%", "22"),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "12"),
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": ("%", "0"),
    "smsp__issue_active.avg.per_cycle_active": ("inst/cycle", "0.21"),
    "sm__maximum_warps_per_active_cycle_pct": ("%", "100"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "71.5"),
    "launch__waves_per_multiprocessor": ("", "1.94"),
    "launch__registers_per_thread": ("register/thread", "26"),
    "launch__shared_mem_per_block": ("byte/block", "1,024"),
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": ("sector", "0"),
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": ("sector", "0"),
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio": ("byte/sector", "16"),
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": ("sector", "4,000"),
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": ("request", "1,000"),
    "smsp__cycles_elapsed.avg.per_second": ("cycle/nsecond", "1.75"),
    STALL.format("long_scoreboard"): ("inst", "18.5"),
    STALL.format("lg_throttle"): ("inst", "2.5"),
    STALL.format("selected"): ("inst", "1.0"),
    STALL.format("wait"): ("inst", "1.9"),
    STALL.format("drain"): ("inst", "0.1"),
}
HEAD = (
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
)


def wide(counters: dict[str, tuple[str, str]] = COUNTERS, kernels: tuple[str, ...] = ("scale__ok",)) -> str:
    """Write what ``--page raw --csv`` prints, among messages."""
    rows = [
        [*HEAD, "Device", "CC", *counters],
        [*[""] * (len(HEAD) + 2), *(unit for unit, _ in counters.values())],
        *(
            [str(i), "7", "python3", "h", name, "1", "7", "(256, 1, 1)", "(2, 1, 1)", "0", "9.0"]
            + [value for _, value in counters.values()]
            for i, name in enumerate(kernels)
        ),
    ]
    lines = [",".join(f'"{cell}"' for cell in row) for row in rows]
    return "\n".join(["==PROF== Disconnected from process 7", *lines, "==WARNING== something, or other", ""])


# -- reading what ncu prints


def test_a_column_for_each_counter() -> None:
    first, second = parse_csv(wide(kernels=("one(float *, int)", "two")))
    assert (first.kernel, first.grid, first.block) == ("one(float *, int)", "(2, 1, 1)", "(256, 1, 1)")
    assert second.kernel == "two" and first.metrics == second.metrics
    assert first.metrics["gpu__time_duration.sum"] == pytest.approx(10.196e-6)
    assert first.metrics["dram__bytes_read.sum"] == 2e7
    assert first.metrics["smsp__cycles_elapsed.avg.per_second"] == pytest.approx(1.75e9)
    assert len(first.metrics) == len(COUNTERS)


def test_a_row_for_each_counter() -> None:
    text = (
        "what the program printed, with a comma\n"
        '"ID","Process ID","Kernel Name","Block Size","Grid Size","Metric Name","Metric Unit","Metric Value"\n'
        '"0","7","scale__ok","(32, 1, 1)","(8, 1, 1)","gpu__time_duration.sum","us","3.5"\n'
        '"0","7","scale__ok","(32, 1, 1)","(8, 1, 1)","dram__bytes.sum","Mbyte","1,000.5"\n'
        '"0","7","scale__ok","(32, 1, 1)","(8, 1, 1)","device__attribute_display_name","","NVIDIA H200"\n'
        '"1","7","reduce","(32, 1, 1)","(1, 1, 1)","gpu__time_duration.sum","ms","2"\n'
    )
    first, second = parse_csv(text)
    assert first.metrics == {"gpu__time_duration.sum": pytest.approx(3.5e-6), "dram__bytes.sum": 1000.5e6}
    assert second.kernel == "reduce" and second.metrics["gpu__time_duration.sum"] == pytest.approx(2e-3)


def test_without_a_line_of_units() -> None:
    text = '"ID","Kernel Name","Block Size","Grid Size","launch__registers_per_thread"\n"0","k","","","32"\n'
    (launch,) = parse_csv(text)
    assert launch.metrics == {"launch__registers_per_thread": 32.0}


@pytest.mark.parametrize(
    "text", ["", "==ERROR== nothing\n", "a,b\n1,2\n", '"ID","Kernel Name"\n', "no csv at all"]
)
def test_what_holds_no_launch_gives_none(text: str) -> None:
    assert parse_csv(text) == []


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("1,234.5", "nsecond", 1.2345e-6), ("2", "usecond", 2e-6), ("3", "s", 3.0), ("4", "Gbyte/second", 4e9),
        ("1.5", "Tbyte/s", 1.5e12), ("7", "byte/ns", 7e9), ("1.98", "Ghz", 1.98e9), ("32", "register/thread", 32.0),
        ("5", "byte/block", 5.0), ("99.5", "%", 99.5), ("n/a", "%", None), ("", "", None), ("(!) 3", "", None),
    ],
)  # fmt: skip
def test_numbers_have_their_units(text: str, unit: str, value: float | None) -> None:
    found = number(text, unit)
    assert found == (None if value is None else pytest.approx(value))


def test_clocks_are_never_touched() -> None:
    cold = ncu_command(Path("ncu"), Path("r.ncu-rep"), EXTRA_METRICS, warm=False)
    warm = ncu_command(Path("ncu"), Path("r.ncu-rep"), (), warm=True)
    for line, caches in ((cold, "all"), (warm, "none")):
        assert line[line.index("--clock-control") + 1] == "none"
        assert line[line.index("--cache-control") + 1] == caches
        assert line[line.index("--profile-from-start") + 1] == "off"
    assert "--metrics" not in warm


# -- figures


def test_the_figures() -> None:
    (launch,) = parse_csv(wide())
    figures = figures_of(launch.metrics)
    assert figures.duration_ns == pytest.approx(10196)
    assert figures.dram_bytes_per_s == pytest.approx(30.588e6 / 10.196e-6)
    assert (figures.dram_percent, figures.l2_percent, figures.l2_hit_percent) == (41.25, 30.5, 33.3)
    assert figures.issue_percent == pytest.approx(21.0)
    assert (figures.load_efficiency_percent, figures.sectors_per_load) == (50.0, 4.0)
    assert figures.local_bytes == 0.0 and figures.shared_bytes == 1024.0
    assert figures.store_efficiency_percent is None and figures.bank_conflict_percent is None
    assert limit_of(figures).startswith("latency: nothing is busy (DRAM at 41 % of its peak at most)")


@pytest.mark.parametrize(
    ("metrics", "name", "value"),
    [
        ({"dram__bytes.sum": 3e6, "gpu__time_duration.sum": 1e-3}, "dram_bytes_per_s", 3e9),
        ({"dram__bytes.sum.per_second": 4e9}, "dram_bytes_per_s", 4e9),
        (
            {"dram__bytes_op_read.sum": 1e6, "dram__bytes_op_write.sum": 1e6, "gpu__time_duration.sum": 1e-3},
            "dram_bytes_per_s",
            2e9,
        ),
        ({"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 9.0}, "dram_percent", 9.0),
        ({"smsp__issue_active.avg.pct_of_peak_sustained_active": 44.0}, "issue_percent", 44.0),
        (
            {"launch__shared_mem_per_block_static": 1.0, "launch__shared_mem_per_block_dynamic": 2.0},
            "shared_bytes",
            3.0,
        ),
        (
            {
                "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": 20.0,
                "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum": 5.0,
                "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": 100.0,
            },
            "bank_conflict_percent",
            25.0,
        ),
        ({"smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct": 75.0}, "store_efficiency_percent", 75.0),
    ],
)  # fmt: skip
def test_names_that_differ_between_architectures(metrics: dict[str, float], name: str, value: float) -> None:
    assert getattr(figures_of(metrics), name) == pytest.approx(value)


def test_nothing_is_made_up_where_nothing_was_counted() -> None:
    figures = figures_of({})
    assert all(getattr(figures, field.name) is None for field in fields(Figures))
    assert limit_of(figures) == "" and top_stalls({}, figures) == []


def test_what_is_busy_is_the_limit() -> None:
    busy = figures_of({"dram__throughput.avg.pct_of_peak_sustained_elapsed": 92.0})
    assert limit_of(busy) == "DRAM at 92 % of its peak: that is the limit"
    between = figures_of({"sm__throughput.avg.pct_of_peak_sustained_elapsed": 70.0})
    assert "not saturated" in limit_of(between)


# -- stalls


def test_the_largest_come_first_and_issuing_is_no_stall() -> None:
    (launch,) = parse_csv(wide())
    stalls = top_stalls(launch.metrics, figures_of(launch.metrics))
    assert [stall.reason for stall in stalls] == ["long_scoreboard", "lg_throttle", "wait"]
    assert stalls[0].share == pytest.approx(18.5 / 24.0) and stalls[0].cycles == 18.5
    assert "use 50 %" in stalls[0].remedy and "neighbours" in stalls[0].remedy


def test_every_reason_has_a_meaning_and_a_remedy() -> None:
    named = (
        "long_scoreboard short_scoreboard barrier mio_throttle lg_throttle math_pipe_throttle not_selected wait membar "
        "tex_throttle drain imc_miss no_instruction branch_resolving dispatch_stall gmma warpgroup_arrive sleeping"
    )
    for reason in named.split():
        assert REASONS[reason].meaning and len(REASONS[reason].remedy) > 20, reason
    (unknown,) = top_stalls({STALL.format("new_in_2030"): 5.0}, figures_of({}))
    assert unknown.reason == "new_in_2030" and unknown.meaning == REASONS["misc"].meaning


@pytest.mark.parametrize(
    ("reason", "metrics", "words"),
    [
        ("long_scoreboard", {"dram__throughput.avg.pct_of_peak_sustained_elapsed": 93.0}, "only fewer bytes"),
        ("long_scoreboard", {}, "more bytes in flight"),
        (
            "lg_throttle",
            {
                "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": 10.0,
                "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": 0.0,
            },
            "spill",
        ),
        (
            "mio_throttle",
            {
                "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": 50.0,
                "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": 100.0,
            },
            "50 % of the shared memory's wavefronts are bank conflicts",
        ),
    ],
)
def test_remedies_depend_on_the_other_figures(reason: str, metrics: dict[str, float], words: str) -> None:
    assert words in remedy_of(reason, figures_of(metrics))


def test_where_every_cycle_issues_waiting_costs_nothing() -> None:
    assert not worth_looking_at(figures_of({"smsp__issue_active.avg.per_cycle_active": 0.93}))
    assert worth_looking_at(figures_of({}))


# -- finding the tool


def test_the_tool_is_looked_for_in_toolkits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    older = fake_ncu(tmp_path / "nsight-compute-2025.3.1")
    assert find(NCU) == older
    newer = fake_ncu(tmp_path / "nsight-compute-2025.10.0")
    assert find(NCU) == newer
    assert find(NCU, older) == older
    monkeypatch.setenv("PATH", str(fake_ncu(tmp_path / "path").parent))
    assert find(NCU) == tmp_path / "path" / "ncu"


def test_a_missing_tool_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("tuner.tools.locate._folders", lambda tool: iter([tmp_path]))
    for tool in (NCU, SANITIZER):
        with pytest.raises(ToolMissingError, match="CUDA toolkit") as caught:
            find(tool)
        assert caught.value.exit_code == 1 and tool.option in str(caught.value)
    with pytest.raises(UsageError, match="no executable"):
        find(NCU, tmp_path)


# -- the command


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
        "71.5 % achieved of 100.0 % possible, 1.94 waves", "26 a thread", "no spills", "50 % of the bytes moved",
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
        ({"outcome": "fault", "error": "CUDA_ERROR_ILLEGAL_ADDRESS (700)"}, ("cannot be run", "700")),
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
    monkeypatch.setattr("tuner.tools.watched.LOCK_S", 1.0)
    assert_refused(run(str(kernel.file), locked=True), 1, "another tuner keeps the GPU to itself")


def test_without_ncu_nothing_is_started(
    run: Run, kernel: KernelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("tuner.tools.locate._folders", lambda tool: iter([]))
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
