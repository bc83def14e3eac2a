"""What ncu prints, and the figures and advice made of it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from tests.faults.fake_tools import fake_ncu
from tests.ncu_output import COUNTERS, STALL, wide
from tuner.core.errors import UsageError
from tuner.inspect.tools.figures import (
    REASONS,
    Figures,
    figures_of,
    limit_of,
    remedy_of,
    top_stalls,
    worth_looking_at,
)
from tuner.inspect.tools.nsight import EXTRA_METRICS, ncu_command, number, parse_csv
from tuner.inspect.tools.nvidia import NCU, SANITIZER, ToolMissingError, find

pytestmark = pytest.mark.usefixtures("forked_children")


# -- reading what ncu prints


def test_a_column_for_each_counter() -> None:
    first, second = parse_csv(wide(kernels=("one(float *, int)", "two")))
    assert (first.kernel, first.grid, first.block) == ("one(float *, int)", "(2, 1, 1)", "(256, 1, 1)")
    assert second.kernel == "two" and first.metrics == second.metrics
    assert first.metrics["gpu__time_duration.sum"] == pytest.approx(10.196e-6)
    assert first.metrics["dram__bytes_read.sum"] == 2e7
    assert first.metrics["smsp__cycles_elapsed.avg.per_second"] == pytest.approx(1.75e9)
    assert len(first.metrics) == len(COUNTERS)


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
        ("1,234.5", "nsecond", 1.2345e-6), ("2", "usecond", 2e-6), ("3", "s", 3.0), ("4", "byte/second", 4.0),
        ("7", "byte/ns", 7e9), ("32", "register/thread", 32.0),
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
        meaning, remedy = REASONS[reason]
        assert meaning and len(remedy) > 20, reason
    (unknown,) = top_stalls({STALL.format("new_in_2030"): 5.0}, figures_of({}))
    assert unknown.reason == "new_in_2030" and unknown.meaning == REASONS["misc"][0]


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
    monkeypatch.setattr("tuner.inspect.tools.nvidia._folders", lambda tool: iter([tmp_path]))
    for tool in (NCU, SANITIZER):
        with pytest.raises(ToolMissingError, match="CUDA toolkit") as caught:
            find(tool)
        assert caught.value.exit_code == 1 and tool.option in str(caught.value)
    with pytest.raises(UsageError, match="no executable"):
        find(NCU, tmp_path)
