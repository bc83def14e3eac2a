"""Options of ``tune run``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli import options as shared
from tuner.cli.loader import begin, command, flag, kernel_argument, option, texts
from tuner.cli.options import ProblemTexts
from tuner.core import paths

if TYPE_CHECKING:
    from tuner.core.conditions import Mode, Regime

SECTIONS = {
    "Options": "trials time_s effort sizes dtypes options presets fixes device_name db resume quiet as_json",
    "Problems": "problem_texts problem_file max_error total_time_s shard",
    "Search": "variants sampler seed initial learn_from from_scratch stop space_file",
    "Timing and choice": "mode regime margin",
    "Machine": "jobs no_overlap no_cache",
    "Output": "full plot",
}


@dataclass(frozen=True)
class RunArguments(ProblemTexts):
    """Tune a kernel: a built-in one (tune show lists them), or the path of a .toml file.

    Tries configurations, verifies and stores each, times the best alternately with the default, and confirms the winner
    in a fresh process. Without a GPU it replays measurements of another one.

    \b
    Examples:
      tune gemm --trials 200
      tune gemm --size m=1024,n=1024,k=64 --dtype float32 --variant tiled
      tune vector_add --problem n=2**20 --problem n=2**28 --time 60
      tune ./mykernel.toml --fix block_size=128,256
      tune gemm --dtype float32,float16,bfloat16 --max-error 1e-3
    """

    kernel_name: str = kernel_argument()
    space_file: Path | None = shared.file(
        "--space",
        metavar="FILE.T1.json",
        help="Instead of a kernel: the valid set of another tool's recording.",
    )
    trials: int | None = option(
        "-n", "--trials", type=shared.Count(min=1), help="Configurations to try. [default: 200]"
    )
    time_s: float | None = shared.time(
        "Search until so long after the start, a GPU's calibration left out; the race and the confirmation follow."
    )
    effort: str = shared.shown(
        "--effort",
        "normal",
        "How many trials, how long a race, whether to stop early.",
        click.Choice(["quick", "normal", "thorough"]),
    )
    total_time_s: float | None = shared.time(
        "Time for all problems together; problems with more work (calls times time) get more of it.",
        "--total-time",
    )
    stop: str | None = option(
        "--stop",
        type=click.Choice(["never", "auto"]),
        help="auto: stop when no gain beyond the noise floor is expected. [default: never, with --effort quick auto]",
    )
    sizes: tuple[str, ...] = shared.sizes(help="Problem sizes, such as m=4096,k=2**12.")
    dtypes: tuple[str, ...] = shared.dtypes(help_="Such as float16; several with --max-error.")
    max_error: float | None = option(
        "--max-error",
        type=shared.Amount(min=0, min_open=True),
        metavar="ERROR",
        help="Also choose the dtype: the fastest result whose relative error is at most this.",
    )
    options: tuple[str, ...] = shared.kernel_options(
        help_="The kernel's options, such as layout=nt; tune show KERNEL lists them."
    )
    problem_file: Path | None = shared.problem_file(
        help="Problems, one per row; the first row names the sizes. "
        "With a column calls, those with the most work first."
    )
    shard: str | None = option(
        "--shard",
        metavar="I/N",
        help="Tune only part I of N of the problems, on one of N hosts; then join the databases with tune db merge.",
    )
    variants: tuple[str, ...] = texts("--variant", "NAME", "Search only this variant; repeat for several.")
    fixes: tuple[str, ...] = texts("--fix", "NAME=V[,V...]", "Allow only these values of a parameter.")
    mode: Mode | None = shared.mode()
    regime: Regime = shared.regime()
    device_name: str = shared.device("cuda, cuda:N, cuda:all")
    sampler: str = shared.shown(
        "--sampler",
        "gp-ei",
        "gp-ei, tpe, random, brute-force, an Optuna sampler by name, or your own as module:Class.",
        metavar="NAME",
    )
    seed: int = shared.seed("the search and the inputs")
    initial: str = shared.shown(
        "--initial",
        "auto",
        "Try the initial configurations of the kernel's file first, or not.",
        click.Choice(["auto", "none"]),
    )
    db: Path = shared.database()
    jobs: int | None = shared.jobs()
    no_overlap: bool = flag("--no-overlap", help_="Prepare a problem only when the previous one has ended.")
    resume: bool = flag("--resume", help_="Continue the problem's last interrupted run.")
    from_scratch: bool = flag("--from-scratch", help_="Search without the results of earlier runs.")
    learn_from: tuple[Path, ...] = shared.file(
        "--learn-from",
        multiple=True,
        metavar="FILE",
        help="Begin with the winners in this file, and learn from its results: of another GPU, size or tool. A T4 or "
        "Kernel Tuner cache file, a recording or a database; repeat for several.",
    )
    margin: float | None = option(
        "--margin",
        type=shared.Amount(min=0, max=2),
        callback=lambda _, __, percent: None if percent is None else percent / 100,
        metavar="PERCENT",
        help="For tables that several runs agree on, such as 0.75: how much faster a winner must be for each value in "
        "which it differs from the default or an initial configuration, at most four times that in all. 0 by default: "
        "then no finalist is faster than the winner beyond the noise.",
    )
    no_cache: bool = flag("--no-cache", help_="Do not use the cache of compiled kernels.")
    plot: Path | None = shared.file(
        "--plot",
        metavar="FILE",
        help="Draw the search and the race as .png or .svg; with --max-error, time over error.",
    )
    full: bool = flag(
        "-v", "--full", help_="Also print how it was timed, compared and searched, and all parameters."
    )
    quiet: bool = shared.quiet()
    as_json: bool = flag("--json", help_="Print the result as JSON.")

    @property
    def cache(self) -> Path | None:
        """Folder of the cubin cache; None for none."""
        return None if self.no_cache else paths.cubins()


def _body(given: RunArguments) -> str:
    if given.space_file is None:
        begin(given.device_name, given.jobs, given.cache)
    return "run:run"


run = command(RunArguments, _body, "run", sections=SECTIONS)
