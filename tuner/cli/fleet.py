"""Several problems, or several GPUs: which there are, what goes on, and the head that tunes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from tuner.children.compile_pool import CompilePool, default_jobs
from tuner.children.cubin_cache import CubinCache
from tuner.children.measuring import LISTING_GPUS, GpuList
from tuner.children.nvrtc import nvrtc_version
from tuner.cli.batch import TuningJob
from tuner.cli.fleet_jobs import FleetJobs, FleetSettings
from tuner.core.errors import NoGpuError, UsageError
from tuner.core.files import temporary_folder
from tuner.core.processes import ChildDied, ask_once
from tuner.database.database import Database
from tuner.devices.choose import has_gpu
from tuner.devices.spread import SpreadDevice
from tuner.fleet.cards import Card
from tuner.fleet.cluster import Cluster, Described, cluster_opening, listed
from tuner.fleet.head import Head
from tuner.fleet.jobs import Job
from tuner.fleet.links import ChildLink, Events, Link
from tuner.fleet.messages import Compilers, GpuFacts, OpenDevice
from tuner.fleet.progress import Announcer
from tuner.fleet.workers import WorkersAsCards
from tuner.tuning.opening import adopt
from tuner.tuning.request import Request

OPENER = ""
"""What opens a searcher's device in place of this package; tests put their own there."""
SPREAD_WORKER = "tuner.gpu.worker"
"""Module of the measuring processes under ``--spread``; tests put their own there."""
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


def open_spread(
    device: str, jobs: int | None, cache: Path | None, say: Callable[[str], None]
) -> SpreadDevice:
    """Open the GPUs that ``--device`` names as one device.

    Raises:
        UsageError: it names only one.
        NoGpuError, DeviceError: one cannot be used, or is of another model.
    """
    if not is_list(device):
        raise UsageError(f"--spread needs several GPUs, and --device is {device}", "give --device cuda:all")
    names = devices_of(device)
    if len(names) < 2:
        raise UsageError(f"--spread needs several GPUs, and there is only {names[0]}", "leave it out")
    version = nvrtc_version()  # said before anything is started
    indices = [int(name.partition(":")[2]) for name in names]
    pool = CompilePool(jobs, cache)
    return SpreadDevice(indices, cache, SPREAD_WORKER, say, version, pool)


def searched_on(device: str, problems: int, *, overlap: bool, spread: bool, compares: bool) -> list[str]:
    """Return the GPUs on which searchers of their own tune; none where this process tunes by itself.

    Args:
        device: as the command line names it.
        problems: how many there are.
        overlap: whether one problem may be prepared while another one is searched.
        spread: whether each problem is spread over the GPUs.
        compares: whether the dtypes of a problem are compared, one after the other.

    Raises:
        UsageError, NoGpuError: as :func:`devices_of`.
    """
    if spread:
        return []
    if is_list(device):
        return devices_of(device)
    kind, _, number = device.partition(":")
    ours = (kind == "cuda" and (not number or number.isdigit())) or device == "auto"
    if problems < 2 or not overlap or compares or not ours or not has_gpu():
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
    numbers = [int(name.partition(":")[2]) for name in names]
    if len(set(numbers)) < len(numbers) or not numbers:
        raise UsageError(f"--device {device} names a GPU twice", "name each once")
    return [f"cuda:{number}" for number in numbers]


def run_fleet(
    jobs: Sequence[TuningJob],
    request: Request,
    database: Database,
    stop: Callable[[], bool],
    settings: FleetSettings,
    *,
    resume: bool,
) -> bool:
    """Tune problems on GPUs, each in searchers of its own; return whether one of them failed.

    Args:
        jobs: they collect the results.
        request: of each, but for the problem.
        database: where every trial goes.
        stop: called often; once it returns true, nothing new is tried.
        settings: where, and how.
        resume: go on with interrupted runs on any of the devices.

    Raises:
        Interrupted: ``stop`` said so.
        TunerError: nothing is left to do.
    """
    adopt(database, request.kernel)
    problems = FleetJobs(jobs, request, database, settings, resume=resume)
    with (
        temporary_folder() as folder,
        closing(Announcer(problems.done, problems.fail, quiet=settings.printing.quiet)) as announcer,
    ):
        cards = _cards(settings, request.kernel.name, folder / "compilers")
        members = _members(settings, request.kernel.name, announcer)
        head = Head(database, problems.jobs, cards, announcer, stop, members)
        _share_time(head, problems.shares, settings)
        try:
            head.run()
        finally:
            if settings.cache is not None:
                CubinCache(settings.cache).trim()
    return bool(problems.failed)


def _members(settings: FleetSettings, kernel: str, announcer: Announcer) -> WorkersAsCards | None:
    """Return the workers of a cluster as devices that come and go; None where the devices are this host's."""
    if settings.cluster is None:
        return None
    opening = cluster_opening(kernel, cache=settings.cache is not None, opener=OPENER)
    return WorkersAsCards(
        settings.cluster, opening, announcer.note, model=settings.model, overlap=settings.overlap
    )


def _cards(settings: FleetSettings, kernel: str, slots: Path) -> list[Card]:
    if settings.cluster is not None:
        return []
    total = settings.jobs or default_jobs()
    compilers = Compilers(total, max(1, total // len(settings.devices)), slots)

    def card(device: str) -> Card:
        def start(events: Events, facts: GpuFacts | None) -> Link:
            return ChildLink(events, OpenDevice(device, kernel, settings.cache, compilers, facts, OPENER))

        return Card(device, start, settings.overlap)

    return [card(device) for device in settings.devices]


def _share_time(head: Head, shares: Sequence[float], settings: FleetSettings) -> None:
    """Let each problem have its share of a time for all of them, as of the moment in which it begins."""
    if settings.total_s is None:
        return
    until = time.monotonic() + settings.total_s

    def time_of(job: Job) -> float | None:
        rest = sum(shares[other.number] for other in head.jobs if other not in head.ended)
        left_s = (until - time.monotonic()) * max(1, len(head.cards)) * shares[job.number] / (rest or 1.0)
        left_s = min(left_s, until - time.monotonic())
        time_s = job.task.options.time_s
        return left_s if time_s is None else min(left_s, time_s)

    for job in head.jobs:
        job.time_s = lambda job=job: time_of(job)
