"""``tune run``: the main job."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import dataclass, replace
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


@dataclass(frozen=True)
class Arguments:
    """The command line of ``tune run``, by the names of its options' parameters."""

    kernel_name: str | None
    space_file: Path | None
    trials: int
    time_s: float | None
    total_time_s: float | None
    stop: str
    sizes: tuple[str, ...]
    dtypes: tuple[str, ...]
    max_error: float | None
    options: tuple[str, ...]
    presets: tuple[str, ...]
    problem_texts: tuple[str, ...]
    problem_file: Path | None
    shard: str | None
    variants: tuple[str, ...]
    fixes: tuple[str, ...]
    rules: tuple[str, ...]
    mode_name: str
    regime_name: str
    device_name: str
    sampler: str
    seed: int
    initial: str
    db: Path
    jobs: int | None
    no_overlap: bool
    spread: bool
    study_storage: str | None
    resume: bool
    from_scratch: bool
    no_cache: bool
    margin: float | None
    plot: Path | None
    full: bool
    quiet: bool
    as_json: bool

    @property
    def problems(self) -> ProblemTexts:
        """What it says of its problems."""
        return ProblemTexts(
            self.sizes, self.dtypes, self.options, self.presets, self.problem_texts, self.problem_file
        )

    def run_options(self) -> RunOptions:
        """Return how each problem is tuned.

        Raises:
            UsageError: a text means nothing.
        """
        return RunOptions(
            trials=self.trials,
            sampler=self.sampler,
            seed=self.seed,
            variants=self.variants,
            fixed=fixed_values(self.fixes),
            from_scratch=self.from_scratch,
            stop_early=self.stop == "auto",
            rules=tuple(parse_rules(self.rules)),
            initial=self.initial,
            max_error=self.max_error,
            one_mode=self.mode_name != "auto",
            margin=None if self.margin is None else self.margin / 100,
            time_s=self.time_s,
            mode=None if self.mode_name == "auto" else Mode(self.mode_name),
            regime=Regime(self.regime_name),
            study_storage=self.study_storage,
        )


def run(given: Arguments, cluster: Cluster | None = None, gpu: str = "") -> None:
    """Tune every problem of the command line, and print what each run found; exit status 1 if one failed.

    With a cluster its workers are the devices, those whose GPU's name contains ``gpu``.
    """
    options, max_error, plot, quiet = given.run_options(), given.max_error, given.plot, given.quiet
    tell = say_nothing if quiet else say
    foreign = open_foreign(given.kernel_name, given.device_name, given.space_file, tell)
    if foreign:
        batch.refuse_recording(foreign, max_error)
    wanted = str(given.kernel_name) if foreign else kernel_for(given.device_name, str(given.kernel_name))
    kernel = with_rules(foreign.results.kernel if foreign else load_kernel(wanted), options.rules)
    jobs_to_do = batch.make_jobs(kernel, given.problems, max_error)
    if given.shard is not None:
        jobs_to_do = shard_of(jobs_to_do, kernel, given.shard, given.trials)
        if not jobs_to_do:
            say(f"shard {given.shard}: there are fewer problems than shards, and none is left for this one")
            return
    batch.check_figure(plot, jobs_to_do)
    narrow(
        kernel, options.variants, options.fixed
    )  # these refuse what is not there, before a device says anything
    find_sampler(options.sampler)
    initial_configurations.refuse(kernel, options.initial)
    if foreign:  # to study a search, a seed must give the same run
        options = replace(options, from_scratch=True)
    request = Request(kernel, jobs_to_do[0].choices[0], options)
    cache = None if given.no_cache else paths.cubins()
    printing = batch.Printing(quiet, given.as_json, given.full, plot)
    failed = False
    model, gpus = "", list[str]()
    if cluster is not None:
        model, gpus = workers_of(cluster, gpu)
    elif foreign is None:
        gpus = searched_on(
            given.device_name,
            len(jobs_to_do),
            overlap=not given.no_overlap,
            spread=given.spread,
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
                    gpus,
                    given.jobs,
                    cache,
                    not given.no_overlap,
                    printing,
                    given.total_time_s,
                    cluster,
                    model,
                )
                with Database.open(given.db) as database:
                    failed = run_fleet(jobs_to_do, request, database, stopped, settings, resume=given.resume)
            else:
                if given.spread and foreign is None:
                    opened: Device = open_spread(given.device_name, given.jobs, cache, tell)
                else:
                    opened = foreign or open_device(given.device_name, kernel.name, given.jobs, cache, tell)
                with closing(opened) as device:
                    batch.refuse_recording(device, max_error)
                    _introduce(device, request, changed=wanted != str(given.kernel_name), quiet=quiet)
                    named = given.sizes or given.presets or given.problem_texts or given.problem_file
                    if isinstance(device, ReplayDevice) and not named:
                        batch.recorded_instead(jobs_to_do, kernel, device)
                    with Database.open(given.db) as database:
                        if given.resume:
                            batch.resume_jobs(jobs_to_do, kernel, database, device)
                        failed = batch.run_jobs(
                            jobs_to_do, request, device, database, stopped, printing, given.total_time_s
                        )
    finally:
        records = [record for job in jobs_to_do for record in job.to_json()]
        if given.as_json and (records or failed):
            show_json(records)
    failures = [line for job in jobs_to_do for line in job.failures(given.db)]
    for line in failures:
        say(line)
    if len(jobs_to_do) > 1 and (without := sum(job.without_result(given.db) for job in jobs_to_do)):
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


def fixed_values(texts: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the values of each parameter that ``--fix`` texts allow."""
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
