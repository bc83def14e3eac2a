"""Options of the commands that look at kernels, configurations and this machine."""

from __future__ import annotations

import click

from tuner.cli.kernel_name import kernel_argument
from tuner.cli.loader import Once, Option, runs
from tuner.cli.options import (
    FILE,
    Amount,
    Count,
    Whole,
    configuration_options,
    gpu_option,
    jobs_option,
    json_option,
    named_gpu_options,
    problem_options,
    result_options,
    seed_option,
)

as_json_option: Option = click.option("--json", "as_json", is_flag=True, help="Print as JSON.")

CHECK_EXAMPLES = """\b
Examples:
  tune check ./mykernel.toml
  tune check gemm --cc 90 --configurations all
  tune check ./mykernel.toml --json
"""


@click.command(cls=Once, epilog=CHECK_EXAMPLES)
@kernel_argument(required=True)
@click.option(
    "--cc",
    "ccs",
    multiple=True,
    type=int,
    default=(80, 90),
    help="Compute capability to compile for, times ten; repeat for several. 80 and 90 by default.",
)
@click.option(
    "--configurations",
    default="20",
    show_default=True,
    metavar="N|all",
    help="Configurations of each variant that are compiled; 0: check only the file.",
)
@click.option("--cpu/--no-cpu", default=True, help="Run plain kernels on the CPU and compare their results.")
@jobs_option
@seed_option("the sample")
@json_option
@runs("tuner.cli.check:check")
def check() -> None:
    """Find mistakes in a kernel's file, its templates and its reference, without a GPU.

    Prints `file:line: what is wrong; what to do` for each. Compiles a sample of configurations, compares arguments with
    what the kernels take, and runs plain CUDA C++ on the CPU at small sizes, compared with the reference. Exit status 1
    on any finding.
    """


EXPLAIN_EXAMPLES = """\b
Examples:
  tune explain vector_add --size n=2**28
  tune explain gemm --cc 80 --config "mma_sync block_m=128 stages=3"
  tune explain --trial 12 --json
"""


@click.command(cls=Once, epilog=EXPLAIN_EXAMPLES)
@configuration_options
@named_gpu_options
@json_option
@runs("tuner.cli.explain:explain")
def explain() -> None:
    """Explain what limits a configuration: roofline, occupancy, waves, memory access, bytes in flight, and advice.

    Compiles it and reads its machine code, the SASS. Runs nothing, and needs no GPU.
    Without --config and --trial, the configuration is the winner for this problem, or the default if nothing was tuned.
    Without --gpu, --cc and --device, the GPU is that of this machine, else the winner's or trial's, else a typical
    H200.
    """


PROFILE_EXAMPLES = """\b
Examples:
  tune profile vector_add --size n=2**28
  tune profile gemm --config "mma_sync block_m=128 stages=3" --json
  tune profile --trial 12 --output before.ncu-rep
"""


@click.command(cls=Once, epilog=PROFILE_EXAMPLES)
@configuration_options
@click.option(
    "--mode",
    "mode_name",
    type=click.Choice(["cold", "warm"]),
    help="What the caches hold; by default as it was tuned, else cold.",
)
@click.option(
    "-o",
    "--output",
    type=FILE,
    metavar="FILE",
    help="The report file, for Nsight Compute's GUI.",
)
@click.option("--ncu", "ncu_path", type=FILE, metavar="PATH", help="Path of Nsight Compute's ncu.")
@click.option(
    "--deadline",
    "deadline_s",
    default=600,
    show_default=True,
    type=Amount(min=1),
    metavar="SECONDS",
    help="Time that it may take.",
)
@gpu_option
@seed_option("the inputs")
@json_option
@runs("tuner.cli.profile:profile")
def profile() -> None:
    """Profile one configuration with Nsight Compute: what limits it, and why its warps wait.

    Prints a dozen figures and remedies, and writes the full report to a file. Without --config and --trial, it is
    the winner for this problem on this GPU, or the default configuration if nothing was tuned.

    Needs an NVIDIA GPU.
    """


SANITIZE_EXAMPLES = """\b
Examples:
  tune sanitize gemm
  tune sanitize transform --size n=2**28 --dtype float16 --tool memcheck
  tune sanitize reduce --sample 50 --json
  tune sanitize --trial 12 --at n=1000003
  tune sanitize reduce --winners
"""


@click.command(cls=Once, epilog=SANITIZE_EXAMPLES)
@configuration_options
@click.option(
    "--sample",
    type=Whole(min=1),
    metavar="N",
    help="N random configurations instead of one.",
)
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME",
    help="With --sample: only this variant; repeat for several.",
)
@click.option(
    "--winners",
    is_flag=True,
    help="All stored winners of the kernel on GPUs of this name; --dtype and --option select some.",
)
@click.option(
    "--tool",
    "tools",
    multiple=True,
    metavar="NAME[,...]",
    help="memcheck, racecheck, synccheck, initcheck; by default the first three.",
)
@click.option(
    "--at",
    "size_texts",
    multiple=True,
    metavar="NAME=N[,...]",
    help="Run at these sizes instead of edge cases; repeat for several.",
)
@click.option(
    "--edges",
    "edge_sizes",
    default=3,
    show_default=True,
    type=Whole(min=1, max=48),
    help="Edge-case sizes for each configuration.",
)
@click.option(
    "-o",
    "--output",
    type=FILE,
    metavar="FOLDER",
    help="A new folder for the logs.",
)
@click.option(
    "--compute-sanitizer",
    "sanitizer_path",
    type=FILE,
    metavar="PATH",
    help="Path of compute-sanitizer.",
)
@click.option(
    "--self-check/--no-self-check",
    default=True,
    help="Check first that each tool finds a planted fault.",
)
@click.option(
    "--deadline",
    "deadline_s",
    default=120,
    show_default=True,
    type=Amount(min=1),
    help="Seconds for one configuration at one size.",
)
@gpu_option
@seed_option("the inputs, the sample and the sizes")
@result_options
@runs("tuner.cli.sanitize:sanitize")
def sanitize() -> None:
    """Find wrong memory accesses, races and misused barriers. Exit status 1 on any finding.

    Runs NVIDIA's compute-sanitizer on configurations, and compares their results with the reference. The tools are
    slow, so sizes are small: edge cases around the tile. Without --config, --trial and --sample, it is the winner for
    this problem on this GPU, or the default configuration if nothing was tuned.

    Needs an NVIDIA GPU.
    """


RENDER_EXAMPLES = """\b
Examples:
  tune render vector_add --size n=2**28
  tune render gemm --cc 80 --config "mma_sync block_m=128 stages=3" -o sources
  tune render --trial 12 --launch 1 --no-line > kernel.cu
"""


@click.command(cls=Once, epilog=RENDER_EXAMPLES)
@configuration_options
@named_gpu_options
@click.option("--launch", "number", type=Count(min=1), metavar="I", help="Only launch I.")
@click.option(
    "--no-line",
    "exact",
    is_flag=True,
    help="Leave out #line directives, and with one launch also comments: exactly what is compiled.",
)
@click.option(
    "-o", "--output", type=FILE, metavar="FOLDER", help="Write a .cu file for each launch into this folder."
)
@click.option("--force", is_flag=True, help="Also replace files that tune render did not write.")
@json_option
@runs("tuner.cli.render:render")
def render() -> None:
    """Print the source of each launch of a configuration, its grid, block, shared memory and arguments.

    Needs no GPU. With the #line directives, compilers report the template's file and line. Without --config and
    --trial, the configuration is the winner for this problem, or the default if nothing was tuned. Without --gpu, --cc
    and --device, the GPU is that of this machine, else the winner's or trial's, else a typical H200.
    """


@click.command(cls=Once)
@kernel_argument(required=True)
@problem_options
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME",
    help="Only this variant, even if the problem excludes it; repeat for several.",
)
@click.option(
    "--cc",
    type=int,
    default=90,
    show_default=True,
    help="Compute capability, times ten, of the GPU whose limits count.",
)
@click.option(
    "--rules",
    multiple=True,
    metavar="NAME[,NAME...]",
    help="Count what rules of thumb exclude: warp_multiple, occupancy, divides_sm, registers, all.",
)
@click.option("--full", is_flag=True, help="Show all variants with their parameters and constraints.")
@as_json_option
@runs("tuner.cli.show:show")
def show() -> None:
    """Show a kernel: its problem, presets and variants, and the number of configurations.

    A kernel of many variants is shown in short: what each does. --variant adds the parameters and constraints of one,
    --full those of all that the problem allows.
    """


@click.command("list", cls=Once)
@as_json_option
@runs("tuner.cli.kernel_description:list_kernels")
def list_kernels() -> None:
    """List the built-in kernels with their variants."""


@click.command(cls=Once)
@click.option("--calibrate", is_flag=True, help="Measure ceilings and noise of the GPU again.")
@as_json_option
@runs("tuner.cli.doctor:doctor")
def doctor() -> None:
    """Show what this machine has, what is missing, and how to get it. Exit status 1 if tuning on a GPU cannot work.

    Looks at Python, NVRTC, the GPU and its driver, what else uses the GPU, how well it can be timed, CUDA's headers,
    SQLite, the cache and NVIDIA's tools.
    """
