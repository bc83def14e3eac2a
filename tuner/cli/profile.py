"""``tune profile``: Nsight Compute on one configuration, and the figures that matter."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.choice import Asked, choice_options
from tuner.cli.options import Amount, gpu_option, seed_option

if TYPE_CHECKING:
    from tuner.cli.choice import Choice
    from tuner.protocol.job import Job

FOLDER = Path("results/profiles")
SUFFIX = ".ncu-rep"
MAX_NAME = 120
"""Characters of a report's name before its suffix; file systems allow 255 bytes."""

EPILOG = """\b
Examples:
  tune profile vector_add --size n=2**28
  tune profile gemm --config "mma_sync block_m=128 stages=3" --json
  tune profile --trial 12 --output before.ncu-rep
"""


@click.command(epilog=EPILOG)
@choice_options
@click.option(
    "--mode",
    "mode_name",
    type=click.Choice(["cold", "warm"]),
    help="What the caches hold; as it was tuned, if not given, else cold.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The report, for Nsight Compute's window.",
)
@click.option(
    "--ncu", "ncu_path", type=click.Path(path_type=Path), metavar="PATH", help="Nsight Compute's ncu."
)
@click.option(
    "--deadline",
    "deadline_s",
    default=600,
    show_default=True,
    type=Amount(min=1),
    help="Seconds that it may take.",
)
@gpu_option
@seed_option("Of the inputs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def profile(
    asked: Asked,
    mode_name: str | None,
    output: Path | None,
    ncu_path: Path | None,
    deadline_s: float,
    device_name: str,
    seed: int,
    as_json: bool,
) -> None:
    """Show what holds one configuration back, by Nsight Compute's counters, and keep its report.

    Without --config and --trial it is the winner for this problem on this GPU, or the default configuration where
    nothing was tuned.
    """
    from tuner.cli.choice import choose, gpu_here, number_of, refuse_device, refuse_slips
    from tuner.model import Mode
    from tuner.report.tables import say, show_json
    from tuner.tools.locate import NCU, find
    from tuner.tools.nsight import profile as run_ncu
    from tuner.tools.profile_report import Profile, profile_as_json, show_profile

    refuse_slips(asked)
    refuse_device(device_name)
    ncu = find(NCU, ncu_path)  # what is missing is said before anything is started
    choice = choose(asked, gpu_here(device_name))
    warm = (
        mode_name == "warm" if mode_name else bool(choice.conditions and choice.conditions.mode is Mode.WARM)
    )
    report = _report_file(choice, output)
    if report.exists():
        say(f"replacing {report}")
    job, spill_bytes = _job(choice, number_of(device_name), seed)
    report.parent.mkdir(parents=True, exist_ok=True)
    launches = run_ncu(ncu, job, report, deadline_s, warm=warm)
    found = Profile(
        choice.problem,
        choice.gpu,
        choice.configuration,
        choice.source,
        choice.time_ns,
        choice.conditions,
        warm,
        spill_bytes,
        report,
        launches,
        choice.notes,
    )
    if as_json:
        show_json(profile_as_json(found))
    else:
        show_profile(found)


def _report_file(choice: Choice, output: Path | None) -> Path:
    """Settle where the report goes: as asked, or a new file named after kernel, sizes and configuration."""
    if output is not None:
        return output if output.suffix == SUFFIX else output.with_name(output.name + SUFFIX)
    words = [
        choice.problem.kernel,
        *(f"{name}{size}" for name, size in choice.problem.sizes.items()),
        choice.problem.dtype,
        choice.configuration.variant,
        *(str(value) for value in choice.configuration.values.values()),
    ]
    name = re.sub(r"[^\w.+-]", "_", "-".join(words))[:MAX_NAME]
    path, count = FOLDER / f"{name}{SUFFIX}", 2
    while path.exists():
        path, count = FOLDER / f"{name}-{count}{SUFFIX}", count + 1
    return path


def _job(choice: Choice, device: int, seed: int) -> tuple[Job, int]:
    """Compile the configuration and its reference; give the job, and the bytes that are spilled.

    Raises:
        CompileError: it does not compile.
        UnlaunchableError: it cannot be launched.
    """
    from tuner import paths
    from tuner.compile.pool import CompilePool
    from tuner.errors import CompileError
    from tuner.protocol.job import Job
    from tuner.tools.cases import Case, as_runs, compile_cases

    cache = paths.cache() / "cubins"
    with closing(CompilePool(2, cache)) as pool:
        cases = [Case(choice.problem, choice.configuration)]
        units, left_out = compile_cases(choice.kernel, choice.gpu, pool, cases, choice.problem)
    if left_out:
        raise CompileError(f"{left_out[0].case}: {left_out[0].reason}", "choose another configuration")
    setups, runs = as_runs(units)
    job = Job(device, str(cache), setups, runs, seed=seed, profiled=True)
    return job, sum(resources.spill_bytes for resources in units[0].resources)
