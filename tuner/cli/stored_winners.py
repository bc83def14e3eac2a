"""What ``tune export`` and ``tune bundle`` share: which stored winners they take, and what they say of the others."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.cli.filters import kernel_filters, named_kernel
from tuner.database.records import Filters, StoredWinner
from tuner.kernel.load import builtin_kernels
from tuner.report.tables import show_line
from tuner.winners.chosen import Chosen


def winner_filters(
    kernel: str, gpu: str, dtype: str, mode: str | None, regime: str, *, replayed: bool
) -> Filters:
    """Return the filters that the command line gives of confirmed winners."""
    return Filters(
        **kernel_filters(kernel), gpu=gpu, dtype=dtype, exportable=True, replayed=None if replayed else False,
        mode=mode or "", regime=regime,
    )  # fmt: skip


def say_left_out(choice: Chosen) -> None:
    """Say which winners are left out: damaged ones, and those whose kernel has changed or is gone."""
    for line in choice.damaged:
        show_line(f"left out: {line}", err=True)
    for where, state in choice.left_out.items():
        show_line(f"left out: {where}: {state}", err=True)


def say_several(choice: Chosen) -> None:
    """Say that there were winners of other modes."""
    if choice.several:
        show_line(
            f"{choice.several} of {len(choice.winners)} problems were tuned in several modes: took the last;"
            " --mode names one",
            err=True,
        )


def find_one(kernel: str, replayed: bool, otherwise: Sequence[StoredWinner]) -> str:
    """Return how to come by a winner: what there is in other modes or of replays, or a command that finds one."""
    more = ", or add --replayed" if otherwise else ""
    if timed := [stored.run.conditions for stored in otherwise if replayed or not stored.run.replayed]:
        more = f", or take what there is with --mode {timed[0].mode} --regime {timed[0].regime}"
    if kernel and named_kernel(kernel) is None and kernel not in builtin_kernels():
        return f"name the kernel's .toml file with --kernel{more}"
    return f"find one with: tune --kernel {kernel or 'gemm'}{more}"
