"""``tune run``: the main job."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

from tuner.cli import batch
from tuner.cli.fleet import open_spread, run_fleet, searched_on, workers_of
from tuner.cli.fleet_jobs import FleetSettings
from tuner.cli.problems import ProblemTexts
from tuner.cli.shard import shard_of
from tuner.cli.stopping import stopping
from tuner.core import paths
from tuner.core.conditions import Mode, Regime
from tuner.core.errors import UsageError
from tuner.core.model import RunOptions
from tuner.database.database import Database
from tuner.devices.base import Device, say_nothing
from tuner.devices.choose import kernel_for, open_device
from tuner.devices.foreign_replay import open_foreign
from tuner.devices.replay import ReplayDevice
from tuner.fleet.cluster import Cluster
from tuner.kernel.load import load_kernel
from tuner.kernel.rules import RULES, parse_rules, with_rules
from tuner.kernel.space import narrow
from tuner.report.tables import say, show_json
from tuner.search import initial as initial_configurations
from tuner.search.samplers import find_sampler
from tuner.tuning.request import Request


def run(
    kernel_name: str | None,
    space_file: Path | None,
    trials: int,
    time_s: float | None,
    total_time_s: float | None,
    stop: str,
    sizes: tuple[str, ...],
    dtypes: tuple[str, ...],
    max_error: float | None,
    options: tuple[str, ...],
    presets: tuple[str, ...],
    problem_texts: tuple[str, ...],
    problem_file: Path | None,
    shard: str | None,
    variants: tuple[str, ...],
    fixes: tuple[str, ...],
    rules: tuple[str, ...],
    mode_name: str,
    regime_name: str,
    device_name: str,
    sampler: str,
    seed: int,
    initial: str,
    db: Path,
    jobs: int | None,
    no_overlap: bool,
    spread: bool,
    study_storage: str | None,
    resume: bool,
    from_scratch: bool,
    no_cache: bool,
    margin: float | None,
    plot: Path | None,
    full: bool,
    quiet: bool,
    as_json: bool,
    cluster: Cluster | None = None,
    gpu: str = "",
) -> None:
    """Tune every problem of the command line, and print what each run found; exit status 1 if one failed.

    With a cluster its workers are the devices, those whose GPU's name contains ``gpu``.
    """
    rule_names = parse_rules(rules)
    tell = say_nothing if quiet else say
    foreign = open_foreign(kernel_name, device_name, space_file, tell)
    if foreign:
        batch.refuse_recording(foreign, max_error)
    wanted = str(kernel_name) if foreign else kernel_for(device_name, str(kernel_name))
    kernel = with_rules(foreign.results.kernel if foreign else load_kernel(wanted), rule_names)
    given = ProblemTexts(sizes, dtypes, options, presets, problem_texts, problem_file)
    jobs_to_do = batch.make_jobs(kernel, given, max_error)
    if shard is not None:
        jobs_to_do = shard_of(jobs_to_do, kernel, shard, trials)
        if not jobs_to_do:
            say(f"shard {shard}: there are fewer problems than shards, and none is left for this one")
            return
    batch.check_figure(plot, jobs_to_do)
    fixed = _fixed(fixes)
    narrow(kernel, variants, fixed)  # these refuse what is not there, before a device says anything
    find_sampler(sampler)
    initial_configurations.refuse(kernel, initial)
    request = Request(
        kernel,
        jobs_to_do[0].choices[0],
        trials,
        sampler,
        seed,
        RunOptions(
            variants,
            fixed,
            from_scratch or foreign is not None,  # to study a search, a seed must give the same run
            stop == "auto",
            tuple(rule_names),
            initial,
            max_error,
            one_mode=mode_name != "auto",
            margin=None if margin is None else margin / 100,
        ),
        time_s,
        mode=None if mode_name == "auto" else Mode(mode_name),
        regime=Regime(regime_name),
        study_storage=study_storage,
    )
    cache = None if no_cache else paths.cubins()
    printing = batch.Printing(quiet, as_json, full, plot)
    failed = False
    model, gpus = "", list[str]()
    if cluster is not None:
        model, gpus = workers_of(cluster, gpu)
    elif foreign is None:
        gpus = searched_on(
            device_name,
            len(jobs_to_do),
            overlap=not no_overlap,
            spread=spread,
            compares=max_error is not None,
        )
    if plot is not None and (gpus or cluster is not None):
        raise UsageError("--plot draws a run that this process tunes", "name one GPU, or use tune report")
    try:
        with stopping() as stopped:
            if gpus or cluster is not None:
                for note in () if quiet else kernel.old_keys:
                    say(note)
                settings = FleetSettings(
                    gpus, jobs, cache, not no_overlap, printing, total_time_s, cluster, model
                )
                with Database.open(db) as database:
                    failed = run_fleet(jobs_to_do, request, database, stopped, settings, resume=resume)
            else:
                if spread and foreign is None:
                    opened: Device = open_spread(device_name, jobs, cache, tell)
                else:
                    opened = foreign or open_device(device_name, kernel.name, jobs, cache, tell)
                with closing(opened) as device:
                    batch.refuse_recording(device, max_error)
                    _introduce(device, request, changed=wanted != str(kernel_name), quiet=quiet)
                    named = sizes or presets or problem_texts or problem_file
                    if isinstance(device, ReplayDevice) and not named:
                        batch.recorded_instead(jobs_to_do, kernel, device)
                    with Database.open(db) as database:
                        if resume:
                            batch.resume_jobs(jobs_to_do, kernel, database, device)
                        failed = batch.run_jobs(
                            jobs_to_do, request, device, database, stopped, printing, total_time_s
                        )
    finally:
        records = [record for job in jobs_to_do for record in job.to_json()]
        if as_json and (records or failed):
            show_json(records)
    failures = [line for job in jobs_to_do for line in job.failures(db)]
    for line in failures:
        say(line)
    if len(jobs_to_do) > 1 and (without := sum(job.without_result(db) for job in jobs_to_do)):
        say(f"{without} of {len(jobs_to_do)} problems have no winner")
    if failed or failures:
        sys.exit(1)


def _introduce(device: Device, request: Request, *, changed: bool, quiet: bool) -> None:
    """Say what holds for all runs on a device.

    Args:
        device: where the runs are.
        request: of the runs.
        changed: whether the kernel is one that is recorded, and is now another.
        quiet: say only what the answer depends on.
    """
    unknown = [name for name in request.options.rules if RULES[name].compiled]
    if device.recorded and unknown:
        say(f"a recording compiles nothing: the rule of thumb {', '.join(unknown)} is not applied")
    if quiet:
        return
    for note in (*request.kernel.old_keys, device.note):
        if note:
            say(note)
    if changed:
        say(f"{request.kernel.name} has changed since: this is the kernel as it was recorded")


def _fixed(texts: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
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
