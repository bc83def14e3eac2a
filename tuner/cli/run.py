"""``tune run``: the main job."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path

import click

from tuner.cli.options import (
    MOST,
    Amount,
    database_option,
    device_option,
    jobs_option,
    presets_option,
    problems_option,
    seed_option,
    timed_mode_option,
    timed_regime_option,
)

EPILOG = """\b
Examples:
  tune --kernel gemm --trials 200
  tune --kernel gemm --size m=1024,n=1024,k=64 --dtype float32 --variant register_tiled
  tune --kernel vector_add --problem n=2**20 --problem n=2**28 --time 60
  tune --kernel ./mykernel.toml --fix block_size=128,256
  tune --kernel gemm --dtype float32,float16,bfloat16 --max-error 1e-3
  tune --space FILE.T1.json --device replay:FILE.json.gz --trials 100 --seed 3 --json
"""


@click.command(epilog=EPILOG)
@click.option(
    "-k",
    "--kernel",
    "kernel_name",
    help="Built-in kernel (`tune list`), or the path of your own .toml file.",
)
@click.option(
    "--space",
    "space_file",
    type=click.Path(path_type=Path),
    metavar="FILE.T1.json",
    help="In place of a kernel: the valid set of another tool's recording.",
)
@click.option(
    "-n",
    "--trials",
    default=200,
    show_default=True,
    type=click.IntRange(min=1, max=MOST),
    help="Configurations to try.",
)
@click.option(
    "--time",
    "time_s",
    type=Amount(min=0.1),
    metavar="SECONDS",
    help="Try nothing new after this time.",
)
@click.option(
    "--stop",
    default="never",
    show_default=True,
    type=click.Choice(["never", "auto"]),
    help="auto: try nothing new once no gain beyond the noise floor is expected.",
)
@click.option(
    "-s",
    "--size",
    "sizes",
    multiple=True,
    metavar="NAME=N[,...]",
    help="Problem sizes, such as m=4096,k=2**12.",
)
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    metavar="[ROLE=]DTYPE",
    help="float32, float16, bfloat16, ...; several, with commas, under --max-error.",
)
@click.option(
    "--max-error",
    type=Amount(min=0, min_open=True),
    metavar="ERROR",
    help="Choose the dtype, too: the fastest result this close to the true one.",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="The kernel's options, such as layout=nt.",
)
@presets_option
@problems_option
@click.option(
    "--problems",
    "problem_file",
    type=click.Path(path_type=Path),
    metavar="FILE.csv",
    help="Problems, one a row; the first row names the sizes.",
)
@click.option("--variant", "variants", multiple=True, help="Search only this variant; repeat for several.")
@click.option(
    "--fix", "fixes", multiple=True, metavar="NAME=V[,V...]", help="Allow only these values of a parameter."
)
@click.option(
    "--rules",
    multiple=True,
    metavar="NAME[,NAME...]",
    help="Narrow the space by rules of thumb: warp_multiple, occupancy, divides_sm, registers, all.",
)
@timed_mode_option
@timed_regime_option
@device_option
@click.option(
    "--sampler",
    default="kriging",
    show_default=True,
    help="kriging, tpe, random, brute-force, or any Optuna sampler by name.",
)
@seed_option("Of the search and the inputs.")
@click.option(
    "--seeds",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "none", "kernel", "heuristics", "all"]),
    help="What is tried first: what the kernel's file names, what matmul heuristics propose.",
)
@database_option
@jobs_option
@click.option("--resume", is_flag=True, help="Go on with the last interrupted run of this problem.")
@click.option("--from-scratch", is_flag=True, help="Ignore what earlier runs of this problem found.")
@click.option("--no-cache", is_flag=True, help="Compile everything anew.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw time against error, as .png or .svg; with --max-error.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print the result only.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def run(
    kernel_name: str | None,
    space_file: Path | None,
    trials: int,
    time_s: float | None,
    stop: str,
    sizes: tuple[str, ...],
    dtypes: tuple[str, ...],
    max_error: float | None,
    options: tuple[str, ...],
    presets: tuple[str, ...],
    problem_texts: tuple[str, ...],
    problem_file: Path | None,
    variants: tuple[str, ...],
    fixes: tuple[str, ...],
    rules: tuple[str, ...],
    mode_name: str,
    regime_name: str,
    device_name: str,
    sampler: str,
    seed: int,
    seeds: str,
    db: Path,
    jobs: int | None,
    resume: bool,
    from_scratch: bool,
    no_cache: bool,
    plot: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Tune a kernel for a problem on the GPU in front of you.

    Tries configurations, keeps each in the database, races the best against the default, and confirms the winner in
    a fresh process. Without a GPU the recorded answers of another machine's GPU are replayed, and marked as such.
    """
    from tuner import paths  # everything heavy waits until the command is used
    from tuner.cli import batch
    from tuner.cli.stopping import stopping
    from tuner.database.database import Database
    from tuner.devices.choose import kernel_for, open_device
    from tuner.devices.foreign_replay import open_others
    from tuner.kernel.load import load_kernel
    from tuner.kernel.rules import RULES, parse_rules, with_rules
    from tuner.model import Mode, Regime
    from tuner.report.tables import say
    from tuner.search import find_sampler, initial
    from tuner.space.space import narrow
    from tuner.tuning.state import Request

    rule_names = parse_rules(rules)
    others = open_others(kernel_name, device_name, space_file)
    if others:
        batch.refuse_recording(others, max_error)
    wanted = str(kernel_name) if others else kernel_for(device_name, str(kernel_name))
    kernel = with_rules(others.others.kernel if others else load_kernel(wanted), rule_names)
    to_do = batch.make_jobs(kernel, sizes, dtypes, options, presets, problem_texts, problem_file, max_error)
    batch.check_figure(plot, to_do)
    fixed = _fixed(fixes)
    narrow(kernel, variants, fixed)  # these refuse what is not there, before a device says anything
    find_sampler(sampler)
    initial.refuse(kernel, seeds)
    asked = Request(
        kernel,
        to_do[0].choices[0],
        trials,
        sampler,
        seed,
        variants,
        fixed,
        time_s,
        from_scratch=from_scratch or others is not None,  # to study a search, a seed must give the same run
        mode=None if mode_name == "auto" else Mode(mode_name),
        regime=Regime(regime_name),
        max_error=max_error,
        stop_early=stop == "auto",
        rules=tuple(rule_names),
        seeds=seeds,
    )
    cache = None if no_cache else paths.cache() / "cubins"
    failed = False
    try:
        with (
            stopping() as stopped,
            closing(others or open_device(device_name, kernel.name, jobs, cache)) as device,
        ):
            batch.refuse_recording(device, max_error)
            if device.recorded and (unjudged := [name for name in rule_names if RULES[name].compiled]):
                say(f"a recording compiles nothing: the rule of thumb {', '.join(unjudged)} is not judged")
            if not quiet:
                device.say = say
                if device.note:
                    say(device.note)
                if wanted != str(kernel_name):
                    say(f"{kernel.name} has changed since: this is the kernel as it was recorded")
            with Database.open(db) as database:
                if resume:
                    batch.resume_jobs(to_do, database, device)
                failed = batch.run_jobs(
                    to_do, asked, device, database, stopped, quiet=quiet, as_json=as_json, plot=plot
                )
    finally:
        found = [record for job in to_do for record in job.to_json()]
        if as_json and (found or failed):
            click.echo(json.dumps(found, indent=2))
    for line in (line for job in to_do for line in job.failures(db)):
        failed = True
        say(line)
    if failed:
        sys.exit(1)


def _fixed(texts: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    from tuner.errors import UsageError

    fixed: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise UsageError(f"--fix {text!r}", "write --fix name=value or --fix name=value,value")
        if "=" in values:
            raise UsageError(
                f"--fix {text!r} names several parameters", "repeat --fix, once for each of them"
            )
        fixed[name.strip()] = fixed.get(name.strip(), ()) + tuple(
            value.strip() for value in values.split(",")
        )
    return fixed
