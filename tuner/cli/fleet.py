"""The jobs of a command on GPUs of this host or of a cluster: which there are, and the head that tunes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from tuner.children.compile_pool import default_jobs
from tuner.children.cubin_cache import CubinCache
from tuner.children.measuring import LISTING_GPUS, GpuList
from tuner.cli.commands.run import RunArguments
from tuner.cli.jobs import Jobs, TuningJob
from tuner.core.conditions import Mode
from tuner.core.errors import NoGpuError, UsageError
from tuner.core.files import temporary_folder
from tuner.core.model import Gpu, Problem, RunOptions
from tuner.core.processes import ChildDied, ask_once
from tuner.database.records import Filters
from tuner.devices.choose import gpu_number
from tuner.devices.started import has_gpu
from tuner.fleet.cards import Card, Job
from tuner.fleet.cluster import Cluster, Described, listed
from tuner.fleet.head import OUT_OF_TIME, Head
from tuner.fleet.messages import ChildLink, Compilers, Events, GpuFacts, Link, OpenDevice, Task, TaskDone
from tuner.fleet.progress import Announcer
from tuner.fleet.workers import WorkersAsCards
from tuner.kernel.batching import choose_conditions
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.roofline import roof_of, tuning_seconds
from tuner.tuning.accuracy import Best
from tuner.tuning.opening import adopt, interrupted_run

OPENER = ""
"""What opens a searcher's device in place of this package; tests put their own there."""
LISTING_S = 60.0
"""For the driver to say which GPUs there are: a cold one takes seconds."""


def visible_gpus() -> GpuList:
    """Return the GPUs of this machine that this process may use.

    Raises:
        NoGpuError: there is none.
    """
    listed: GpuList | None = None
    error = "this machine has no NVIDIA GPU"
    if has_gpu():
        try:
            listed = ask_once("tuner.gpu.listing", LISTING_GPUS, None, LISTING_S)
        except ChildDied as death:
            error = f"the GPUs cannot be listed: {death.reason}"
    if listed is None or not listed.names:
        raise NoGpuError(listed.error if listed and listed.error else error, "see `tune doctor`")
    return listed


def is_list(device: str) -> bool:
    """Return whether ``--device`` names several GPUs."""
    return device == "cuda:all" or "," in device


def searched_on(asked: RunArguments, jobs: Sequence[TuningJob]) -> list[str]:
    """Return the GPUs on which searchers of their own tune; none where this process tunes by itself.

    Raises:
        UsageError, NoGpuError: as :func:`devices_of`.
    """
    device, alone = asked.device_name, len(jobs) == 1 or jobs[0].comparison is not None
    if is_list(device):
        return devices_of(device)
    kind, _, number = device.partition(":")
    ours = (kind == "cuda" and (not number or number.isdigit())) or device == "auto"
    if alone or asked.no_overlap or not ours or not has_gpu():
        return []  # what is wrong with the device is said when it is opened
    return [f"cuda:{number or 0}"]


def workers_of(cluster: Cluster, gpu: str) -> tuple[str, list[str]]:
    """Return the model of GPU that a run on a cluster is for, and the names of such devices on their hosts.

    The model is empty where there is no worker yet: the first to come settles it.

    Args:
        cluster: has the workers.
        gpu: a part of the model's name, in any case; empty for the only one that there is.

    Raises:
        UsageError: no worker has such a GPU, or several models fit.
    """
    workers = [worker for _, worker, _ in listed(cluster) if isinstance(worker, Described)]
    models = sorted({worker.model for worker in workers})
    fitting = [model for model in models if gpu.lower() in model.lower()]
    if len(fitting) > 1:
        raise UsageError(
            f"the cluster has {' and '.join(fitting)}, whose times are not pooled",
            "name one with --gpu, and run once for each: what one finds guides the search on the other",
        )
    if models and not fitting:
        raise UsageError(f"no worker has a GPU {gpu!r}", f"there are: {', '.join(models)}")
    return "".join(fitting), sorted({worker.device for worker in workers if worker.model in fitting})


def devices_of(device: str) -> list[str]:
    """Return the GPUs that ``--device`` names: ``cuda:all``, or a list such as ``cuda:0,cuda:2``.

    Raises:
        UsageError: one does not exist, or is named twice.
        NoGpuError: there is none.
    """
    count = len(visible_gpus().names)
    if device == "cuda:all":
        return [f"cuda:{number}" for number in range(count)]
    names = [name.strip() for name in device.split(",") if name.strip()]
    for name in names:
        match = re.fullmatch(r"cuda:(\d+)", name)
        if match is None:
            raise UsageError(f"--device {device}: {name} is no GPU", "write cuda:all, or cuda:0,cuda:2")
        if int(match[1]) >= count:
            raise UsageError(
                f"there is no GPU {name}", f"this machine has {count}: cuda:0 to cuda:{count - 1}"
            )
    numbers = [gpu_number(name) for name in names]
    if len(set(numbers)) < len(numbers) or not numbers:
        raise UsageError(f"--device {device} names a GPU twice", "name each once")
    return [f"cuda:{number}" for number in numbers]


def run_fleet(
    jobs: Jobs,
    devices: Sequence[str],
    stop: Callable[[], bool],
    cluster: Cluster | None = None,
    model: str = "",
) -> None:
    """Tune the problems of some jobs on GPUs, each in searchers of its own.

    Args:
        jobs: they collect the results.
        devices: where; with a cluster the names that they have on their hosts.
        stop: called often; once it returns true, nothing new is tried.
        cluster: whose workers are the devices.
        model: of the workers that count; empty for that of the first.

    Raises:
        Interrupted: ``stop`` said so.
        TunerError: a run cannot go on.
    """
    kernel, asked = jobs.request.kernel, jobs.asked
    adopt(jobs.database, kernel)
    left = jobs.left
    given_out = _given_out(jobs)

    def done(job: Job, result: TaskDone) -> None:
        own, problem, _ = left[job.number]
        database, compares = jobs.database, own.comparison is not None
        winners = database.winners(Filters(run=result.run)).rows if compares else []
        trials = database.trials(result.run) if compares else ()
        outcome = database.run(result.run), trials, Best.stored(winners[-1]) if winners else None
        jobs.done(own, problem, outcome, result)

    def fail(job: Job, error: str) -> None:
        own, problem, _ = left[job.number]
        jobs.fail(own, problem, error, inaccurate=job.too_inaccurate, fault=error != OUT_OF_TIME)

    with (
        temporary_folder() as folder,
        closing(Announcer(done, fail, quiet=jobs.asked.quiet)) as announcer,
    ):
        cards = [] if cluster else _cards(asked, devices, folder / "compilers")
        members = None
        if cluster is not None:
            opening = OpenDevice("", asked.cache, opener=OPENER)
            overlap = not asked.no_overlap
            members = WorkersAsCards(cluster, opening, announcer.note, model=model, overlap=overlap)
        head = Head(jobs.database, given_out, cards, announcer, stop, members)
        budget = jobs.budget()

        def time_s(number: int) -> float | None:
            return budget.of(number, {one.number for one in head.ended}, len(head.cards))

        for job in given_out:
            job.time_s = partial(time_s, job.number)
        try:
            head.run()
        finally:
            if asked.cache is not None:
                CubinCache(asked.cache).trim()


def _given_out(jobs: Jobs) -> list[Job]:
    """Return the problems that are left as what a head gives out; dtypes that are compared stay on one device.

    Raises:
        TunerError: a run cannot go on.
    """
    request, database = jobs.request, jobs.database
    kernel, text = request.kernel, KernelIdentity(request.kernel).text
    made: list[Job] = []
    for number, (own, problem, run) in enumerate(jobs.left):
        truth = own.comparison.truth if own.comparison is not None else None
        options, mark = replace(request.options, truth=truth), None
        if run is not None:
            run = interrupted_run(database, replace(request, problem=problem), run.device)
            mark = database.mark_of(run.id)
            options = replace(options, trials=run.options.trials)
        name, full = str(database.path), jobs.asked.full
        task = Task("", kernel.file.resolve(), text, problem, options, database=name, full=full)
        # What is worth most to a program begins first, as its file has it; else what takes longest.
        estimate_s = -float(number) if own.worth else tuning_seconds(kernel, problem, request.options.trials)
        job = Job(number, task, estimate_s, run, mark, worth=str(own.worth or ""))
        job.trials = len(database.rows(run.id)) if run is not None else 0
        made.append(job)
    for own in jobs.listed:
        if own.comparison is not None and own.to_do:
            together = [job for job, (other, _, _) in zip(made, jobs.left, strict=True) if other is own]
            estimates_s = [job.estimate_s for job in together]
            for job in together:
                job.compared, job.settle = together, partial(_settled, jobs, own, together)
                job.estimate_s = max(estimates_s) if own.worth else sum(estimates_s)
    return made


def _settled(jobs: Jobs, own: TuningJob, together: Sequence[Job], gpu: Gpu) -> RunOptions:
    """Return how a problem's dtypes are timed on a GPU."""
    kernel, regime = jobs.request.kernel, jobs.request.options.regime

    def mode_of(problem: Problem) -> Mode:
        return choose_conditions(roof_of(kernel, problem, gpu), None, regime)[0].mode

    return jobs.options_of(own, mode_of, [job.going_on for job in together])


def _cards(asked: RunArguments, devices: Sequence[str], slots: Path) -> list[Card]:
    total = asked.jobs or default_jobs()
    compilers = Compilers(total, max(1, total // len(devices)), slots)

    def start(device: str, events: Events, facts: GpuFacts | None) -> Link:
        return ChildLink(events.put, OpenDevice(device, asked.cache, compilers, facts, OPENER))

    return [Card(device, partial(start, device), not asked.no_overlap) for device in devices]
