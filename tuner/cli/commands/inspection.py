"""Options of the commands that look at kernels, configurations and this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from tuner.cli import options as shared
from tuner.cli.loader import argument, command, flag, kernel_argument, option, texts
from tuner.cli.options import ConfigurationArguments, ForGpuArguments, ProblemArguments


@dataclass(frozen=True)
class InitArguments:
    """Write a kernel's TOML file from its CUDA source.

    Reads the kernel's parameters, macros and launches, and how it indexes its arrays. What nothing defines becomes a
    parameter, with values to try. What cannot be read is guessed, and marked TODO. Results are compared with those of
    the default configuration until you say what they must be. Runs nothing, and needs no GPU.

    \b
    Examples:
      tune init stencil.cu
      tune init kernels.cu --entry transpose -o transpose.toml
      tune init atax.cu -I ../common
    """

    source: Path = argument(type=shared.FILE, metavar="FILE.cu")
    entry: str = option(
        "--entry", default="", metavar="NAME", help="The kernel, where the source has several."
    )
    include: tuple[Path, ...] = option(
        "-I",
        "--include",
        multiple=True,
        type=shared.FILE,
        metavar="FOLDER",
        help="Where headers are that do not lie beside the source; repeat for several.",
    )
    output: Path | None = shared.file(
        "-o", "--output", metavar="FILE.toml", help="By default beside the source, with its name."
    )
    force: bool = flag("--force", help_="Replace the file if it exists.")


init = command(InitArguments, "init:init")


@dataclass(frozen=True)
class CheckArguments:
    """Find mistakes in a kernel's file, its templates and its reference, without a GPU.

    Prints `file:line: what is wrong; what to do` for each. Compiles a sample of configurations, compares arguments with
    what the kernels take, and runs plain CUDA C++ on the CPU at small sizes, compared with the reference. Stopped or
    out of time, it prints what it has found. Exit status 1 on any finding, 124 if there was none until --time was over
    or the reference was given up.

    \b
    Examples:
      tune check ./mykernel.toml
      tune check gemm --cc 90 --configurations all
      tune check ./mykernel.toml --json
    """

    kernel_name: str = kernel_argument(required=True)
    ccs: tuple[int, ...] = option(
        "--cc",
        multiple=True,
        type=int,
        default=(80, 90),
        help="Compute capability to compile for, times ten; repeat for several. 80 and 90 by default.",
    )
    configurations: str = shared.shown(
        "--configurations",
        "20",
        "Configurations of each variant that are compiled; 0: check only the file.",
        metavar="N|all",
    )
    cpu: bool = option(
        "--cpu/--no-cpu", default=True, help="Run plain kernels on the CPU and compare their results."
    )
    jobs: int | None = shared.jobs()
    time_s: float | None = shared.time("End after this time, and print what was found so far.")
    seed: int = shared.seed("the sample")
    as_json: bool = shared.json()


check = command(CheckArguments, "check:check")


@dataclass(frozen=True)
class ExplainArguments(ForGpuArguments):
    """Explain what limits a configuration: roofline, occupancy, waves, memory access, bytes in flight, and advice.

    Shows seven lines and what to change; --full shows all that was examined. Compiles it and reads its machine code,
    the SASS; a plain kernel also runs on the CPU, which shows its accesses, but not with --trial. Needs no GPU. Without
    --config and --trial, it is the winner for this problem, or else the default. Without --gpu, --cc and --device, the
    GPU is that of this machine, else the winner's or trial's, else a typical H200.

    \b
    Examples:
      tune explain vector_add --size n=2**28
      tune explain gemm --cc 80 --config "mma_sync block_m=128 stages=3"
      tune explain --trial 12 --json
    """

    full: bool = flag(
        "-v", "--full", help_="Show all that was examined: each launch, its limits and its code."
    )
    as_json: bool = shared.json()


explain = command(ExplainArguments, "explain:explain")


@dataclass(frozen=True)
class ProfileArguments(ConfigurationArguments):
    """Profile one configuration with Nsight Compute: what limits it, and why its warps wait.

    Prints a dozen figures and remedies, and writes the full report to a file. Without --config and --trial, it is
    the winner for this problem on this GPU, or the default configuration if nothing was tuned.

    Needs an NVIDIA GPU.

    \b
    Examples:
      tune profile vector_add --size n=2**28
      tune profile gemm --config "mma_sync block_m=128 stages=3" --json
      tune profile --trial 12 --output before.ncu-rep
    """

    mode_name: str | None = option(
        "--mode",
        type=click.Choice(["cold", "warm"]),
        help="What the caches hold; by default as it was tuned, else cold.",
    )
    output: Path | None = shared.file(
        "-o", "--output", metavar="FILE", help="The report file, for Nsight Compute's GUI."
    )
    ncu_path: Path | None = shared.file("--ncu", metavar="PATH", help="Path of Nsight Compute's ncu.")
    deadline_s: float = shared.time("Time that it may take.", "--deadline", 1, 600)
    device_name: str = shared.gpu()
    seed: int = shared.seed("the inputs")
    as_json: bool = shared.json()


profile = command(ProfileArguments, "explain:profile")


@dataclass(frozen=True)
class SanitizeArguments(ConfigurationArguments):
    """Find wrong memory accesses, races and misused barriers. Exit status 1 on any finding.

    Runs NVIDIA's compute-sanitizer on configurations, and compares their results with the reference. The tools are
    slow, so sizes are small: edge cases around the tile. Without --config, --trial and --sample, it is the winner for
    this problem on this GPU, or the default configuration if nothing was tuned.

    Needs an NVIDIA GPU.

    \b
    Examples:
      tune sanitize gemm
      tune sanitize transform --size n=2**28 --dtype float16 --tool memcheck
      tune sanitize reduce --sample 50 --json
      tune sanitize --trial 12 --at n=1000003
      tune sanitize reduce --winners
    """

    sample: int | None = option(
        "--sample", type=shared.Whole(min=1), metavar="N", help="N random configurations instead of one."
    )
    variants: tuple[str, ...] = texts(
        "--variant", "NAME", "With --sample: only this variant; repeat for several."
    )
    winners: bool = flag(
        "--winners",
        help_="All stored winners of the kernel on GPUs of this name; --dtype and --option select some.",
    )
    tools: tuple[str, ...] = texts(
        "--tool",
        "NAME[,...]",
        "memcheck, racecheck, synccheck, initcheck; by default the first three.",
    )
    size_texts: tuple[str, ...] = texts(
        "--at", "NAME=N[,...]", "Run at these sizes instead of edge cases; repeat for several."
    )
    edge_sizes: int = shared.shown(
        "--edges", 3, "Edge-case sizes for each configuration.", shared.Whole(min=1, max=48)
    )
    output: Path | None = shared.file("-o", "--output", metavar="FOLDER", help="A new folder for the logs.")
    sanitizer_path: Path | None = shared.file(
        "--compute-sanitizer", metavar="PATH", help="Path of compute-sanitizer."
    )
    self_check: bool = option(
        "--self-check/--no-self-check",
        default=True,
        help="Check first that each tool finds a planted fault.",
    )
    deadline_s: float = shared.shown(
        "--deadline", 120, "Seconds for one configuration at one size.", shared.Amount(min=1)
    )
    device_name: str = shared.gpu()
    seed: int = shared.seed("the inputs, the sample and the sizes")
    quiet: bool = shared.quiet()
    as_json: bool = shared.json()


sanitize = command(SanitizeArguments, "sanitize:sanitize")


@dataclass(frozen=True)
class RenderArguments(ForGpuArguments):
    """Print the source of each launch of a configuration, its grid, block, shared memory and arguments.

    Needs no GPU. With the #line directives, compilers report the template's file and line. Without --config and
    --trial, the configuration is the winner for this problem, or the default if nothing was tuned. Without --gpu, --cc
    and --device, the GPU is that of this machine, else the winner's or trial's, else a typical H200.

    \b
    Examples:
      tune render vector_add --size n=2**28
      tune render gemm --cc 80 --config "mma_sync block_m=128 stages=3" -o sources
      tune render --trial 12 --launch 1 --no-line > kernel.cu
    """

    number: int | None = option("--launch", type=shared.Count(min=1), metavar="I", help="Only launch I.")
    exact: bool = flag(
        "--no-line",
        help_="Leave out #line directives, and with one launch also comments: exactly what is compiled.",
    )
    output: Path | None = shared.file(
        "-o", "--output", metavar="FOLDER", help="Write a .cu file for each launch into this folder."
    )
    force: bool = flag("--force", help_="Also replace files that tune render did not write.")
    as_json: bool = shared.json()


render = command(RenderArguments, "render:render")


@dataclass(frozen=True)
class ShowArguments(ProblemArguments):
    """Show a kernel: its problem, presets and variants, and the number of configurations.

    Without a kernel, the built-in ones are listed. A kernel of many variants is shown in short: what each does.
    --variant adds the parameters and constraints of one, --full those of all that the problem allows.
    """

    variants: tuple[str, ...] = texts(
        "--variant", "NAME", "Only this variant, even if the problem excludes it; repeat for several."
    )
    cc: int = shared.shown("--cc", 90, "Compute capability, times ten, of the GPU whose limits count.", int)
    full: bool = flag("--full", help_="Show all variants with their parameters and constraints.")
    as_json: bool = shared.json()


show = command(ShowArguments, "show:show")


@dataclass(frozen=True)
class DoctorArguments:
    """Show what this machine has, what is missing, and how to get it. Exit status 1 if more than a GPU is missing.

    Looks at Python, NVRTC, the GPU and its driver, what else uses the GPU, how well it can be timed, CUDA's headers,
    SQLite, the cache and NVIDIA's tools.
    """

    calibrate: bool = flag("--calibrate", help_="Measure ceilings and noise of the GPU again.")
    as_json: bool = shared.json()


doctor = command(DoctorArguments, "doctor:doctor")
