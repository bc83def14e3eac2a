"""What ncu prints."""

from __future__ import annotations

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
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size",
    "Grid Size",
)  # fmt: skip


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
