"""Options of ``tune bench``, ``tune judge``, ``tune ladder``, ``tune ablate`` and ``tune portfolio``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.cli import options as shared
from tuner.cli.loader import argument, begin, command, flag, kernel_argument, option, texts
from tuner.cli.options import ConfigurationArguments, ProblemTexts
from tuner.core import paths

if TYPE_CHECKING:
    from tuner.core.conditions import Mode, Regime


@dataclass(frozen=True)
class BenchArguments(ProblemTexts):
    """Time stored winners again, in turn with the default configuration, libraries and your own code.

    All are verified, and get the same data. Without sizes, all problems with a confirmed winner on this GPU are timed.
    A problem that was not tuned gets the configuration of the nearest size.

    Needs an NVIDIA GPU, except for --history.

    \b
    Examples:
      tune bench gemm
      tune bench gemm --size m=1000 --against torch --against default
      tune bench --check --against none
      tune bench gemm --against torch --mode auto --mode warm
      tune bench gemm --history
    """

    kernel_name: str = kernel_argument()
    dtypes: Sequence[str] = shared.dtypes(help_="Only this dtype.")
    options: Sequence[str] = shared.kernel_options(help_="Only this option.")
    against: tuple[str, ...] = shared.against("default, torch, cupy, none")
    modes: tuple[str, ...] = option(
        "--mode",
        multiple=True,
        type=shared.MODES_OR_AUTO,
        help="auto, the default: as it was tuned; repeat for several.",
    )
    regime: Regime | None = shared.regime_as_tuned()
    rounds: int = shared.rounds()
    checking: bool = flag("--check", help_="Exit status 1 if a stored best is slower than it was.")
    history: bool = flag("--history", help_="Print earlier benches; measure nothing.")
    limit: int = shared.shown(
        "--limit", 50, "At most this many rows of --history; 0 for all.", shared.Whole(min=0)
    )
    device_name: str = shared.gpu()
    seed: int = shared.seed("the inputs and the order")
    db: Path = shared.database()
    full: bool = shared.full()
    quiet: bool = shared.quiet()
    as_json: bool = shared.json()


bench = command(BenchArguments, "bench:bench")


@dataclass(frozen=True)
class JudgeArguments(ProblemTexts):
    """Judge a kernel that somebody else wrote: is it right, and is it faster than the task's baselines?

    TASK is a kernel's file, a built-in kernel, or a .py with a torch module. CANDIDATE is a .cu with a line
    `// tune: LAUNCH`, a .cubin with LAUNCH in FILE.cubin.launch, a kernel's file, of which the variants count,
    FILE.py:FUNCTION, or a .py with a torch module ModelNew. It is verified, timed in turn with the baselines,
    confirmed in a fresh process, and verified at other sizes and with other inputs.

    Exit status: 0 right, 4 right but slower than a baseline, 3 wrong or refused, 1 not judged, 2 wrong usage.

    \b
    Examples:
      tune judge gemm mine.cu --size m=2048,n=2048,k=2048
      tune judge task.toml mine.py --json
      tune judge task.toml --rounds candidates --deadline 30m
      tune judge --explain-format
    """

    task: str = argument(required=False, default="", metavar="[TASK]")
    candidate: str = argument(required=False, default="", metavar="[CANDIDATE]")
    against: tuple[str, ...] = shared.against("default, torch, cupy, none")
    mode: Mode | None = shared.mode()
    rounds_folder: Path | None = shared.file(
        "--rounds", metavar="FOLDER", help="Judge what arrives in a folder, until the deadline."
    )
    deadline_s: float | None = option(
        "--deadline", type=shared.Duration(min=0.0), metavar="TIME", help="Of --rounds: 90s, 30m or 2h."
    )
    explain_format: bool = flag("--explain-format", help_="Explain all of this to a program, and exit.")
    device_name: str = shared.gpu()
    seed: int | None = option(
        "--seed",
        type=shared.Count(min=0),
        help="Seed of the inputs and the order; by default another each time.",
    )
    jobs: int | None = shared.jobs()
    full: bool = flag("-v", "--full", help_="Also print when each step began and ended, in seconds.")
    quiet: bool = shared.quiet()
    as_json: bool = shared.json()


def _judge(given: JudgeArguments) -> str:
    """Return the body; processes begin before its import, with torch where what they compare with may need it."""
    if given.task and (given.candidate or given.rounds_folder):
        jailed = given.candidate.partition(":")[0].endswith(".py")
        ours = given.against and set(given.against) <= {"default", "none"} and not given.task.endswith(".py")
        libraries = ["torch"] if jailed and not ours else []
        begin(given.device_name, given.jobs, paths.cubins(), jailed=jailed, libraries=libraries)
    return "judge:judge"


judge = command(JudgeArguments, _judge, "judge")


@dataclass(frozen=True)
class LadderArguments:
    """Show what each optimisation step of a kernel gains, over a sweep of sizes.

    Searches the best configuration of every step of the kernel's ladder at every size, then times all of them in turn,
    beside the installed libraries. A step that was searched before is not searched again.

    \b
    Examples:
      tune ladder vector_add --sweep n=2**10..2**28:4
      tune ladder gemm --sweep m=n=k=256..8192 --plot gemm.svg
      tune ladder gemm --size m=4096,n=4096,k=4096 --step naive --step tiled
    """

    kernel_name: str = kernel_argument(required=True)
    sweeps: tuple[str, ...] = texts(
        "--sweep",
        "NAME=A..B",
        "Sizes: n=2**10..2**28, n=2**10..2**28:4, n=1000,2000 or m=n=k=256..8192; several sweeps advance together.",
    )
    sizes: tuple[str, ...] = shared.sizes(help="Sizes that stay the same.")
    dtypes: tuple[str, ...] = shared.dtypes(help_="The dtype of steps that set none.")
    options: tuple[str, ...] = shared.kernel_options()
    preset: str | None = shared.preset()
    step_names: tuple[str, ...] = texts("--step", "NAME", "Only this step; repeat for several.")
    trials: int = shared.trials(24, "Configurations to try for each step and size.")
    time_s: float = shared.time(
        "Start no new configuration of a step and size after this time.", default_s=5.0
    )
    against: tuple[str, ...] = shared.against("torch, cupy, none")
    rounds: int = shared.rounds()
    mode: Mode | None = shared.mode()
    regime: Regime = shared.regime()
    device_name: str = shared.device("cuda, cuda:N")
    seed: int = shared.seed("the searches, the inputs and the order")
    db: Path = shared.database()
    jobs: int | None = shared.jobs()
    from_scratch: bool = flag("--from-scratch", help_="Search every step again.")
    plots: tuple[Path, ...] = shared.file(
        "--plot",
        multiple=True,
        metavar="FILE",
        help="Draw NAME-roofline and NAME-sizes, as .png or .svg; repeat for both.",
    )
    full: bool = shared.full()
    quiet: bool = shared.quiet()
    as_json: bool = shared.json()


ladder = command(LadderArguments, "ladder:ladder")


@dataclass(frozen=True)
class AblateArguments(ConfigurationArguments):
    """Measure what each parameter of a configuration gains: one at a time takes its other values.

    Each change is verified, and timed in turn with the configuration itself. Without --config and --trial, this is the
    winner for this problem on this GPU, or the default configuration if nothing was tuned.

    Needs an NVIDIA GPU.

    \b
    Examples:
      tune ablate gemm --dtype bfloat16
      tune ablate gemm --size m=8192,n=8192,k=8192 --parameter stages,raster
      tune ablate --trial 12 --json
    """

    parameters: tuple[str, ...] = texts(
        "--parameter", "NAME[,...]", "Only this parameter; repeat for several."
    )
    mode: Mode | None = shared.mode_as_tuned()
    regime: Regime | None = shared.regime_as_tuned()
    rounds: int = shared.rounds()
    device_name: str = shared.gpu()
    seed: int = shared.seed("the inputs and the order")
    jobs: int | None = shared.jobs()
    full: bool = shared.full()
    quiet: bool = shared.quiet()
    as_json: bool = shared.json()


ablate = command(AblateArguments, "ablate:ablate")


@dataclass(frozen=True, kw_only=True)
class PortfolioArguments(ProblemTexts):
    """Choose a few configurations that together run all sizes of a kernel well, and a rule that selects one by size.

    Times candidates at many sizes, and keeps a few that are within a bound of each size's best. For sizes that were not
    tuned, `tune bundle` and `tuner.load` select among them. After an interruption, run the same command
    again: it continues.

    Needs an NVIDIA GPU.

    \b
    Examples:
      tune portfolio gemm --dtype bfloat16 --problems sizes.csv
      tune portfolio gemm --problem "m=1..8192,n=1024|4096,k=4096,samples=60"
      tune portfolio ./mykernel.toml --problem "n=2**10..2**28,samples=40"
    """

    kernel_name: str = kernel_argument(required=True)
    sizes: tuple[str, ...] = shared.sizes(help="Sizes that all problems share.")
    problem_file: Path | None = shared.problem_file(
        help="Problems, one per row; a value may be a choice (64|128) and, with samples, a range (16..8192:8)."
    )
    bound: float = shared.shown(
        "--bound",
        1.02,
        "Stop adding configurations when every size is within this factor of its best.",
        shared.Amount(min=1, max=10),
    )
    cubins: int = shared.shown(
        "--cubins", 32, "At most this many cubins, those of the defaults included.", shared.Whole(1, 1000)
    )
    searched: int = shared.shown(
        "--search", 8, "Number of sizes, far apart, that are searched first.", shared.Count(min=0)
    )
    trials: int = shared.trials(48, "Configurations that each of these searches tries.")
    time_s: float | None = shared.time("Start no new measurement after this time.", least_s=1)
    mode: Mode | None = shared.mode()
    regime: Regime = shared.regime()
    device_name: str = shared.gpu()
    seed: int = shared.seed("the searches, the inputs and the order")
    db: Path = shared.database()
    jobs: int | None = shared.jobs()
    quiet: bool = shared.quiet()
    as_json: bool = shared.json()


portfolio = command(PortfolioArguments, "portfolio:portfolio")
