"""Simulate a cluster on one machine: Dask's scheduler and workers on 127.0.0.1, with simulated GPUs:

    scripts/run python scripts/cluster_simulation.py                   # results/evidence/cluster-simulation.json
    scripts/run python scripts/cluster_simulation.py --devices 8 --workers 100 --schedulers 20 --out /tmp/cluster.json

Workers and the scheduler are killed (``kill -9``) at random moments of a list; acknowledged rows that are missing, or
are there twice, are counted. Needs no GPU. Trials sleep; the starts of killed processes take processor time, most of it
Dask's.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from scripts import harness
from scripts.fleet_simulation import noting, rows, simulate
from scripts.harness import EVIDENCE
from tests.fleets import OPENER, Seen, jobs
from tuner.children.measuring import GpuList
from tuner.cli import fleet
from tuner.cli.commands.cluster import cluster as command
from tuner.database.database import Database
from tuner.fleet.cluster import Cluster, cluster_opening
from tuner.fleet.cluster_files import read_settings, running
from tuner.fleet.head import Head
from tuner.fleet.workers import WorkersAsCards

KILL_TRIAL_S, TRIAL_S, TRIALS = 0.2, 2.0, 24


def children(pid: int) -> dict[int, str]:
    """Return the command lines of a process's children."""
    lines = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                lines[int(stat.parent.name)] = (stat.parent / "cmdline").read_text().replace("\0", " ")
    return lines


@contextmanager
def started(devices: int) -> Iterator[tuple[Cluster, int]]:
    """Start a cluster of simulated devices by the commands; give a connection to it, and the process that keeps it."""
    uuids = tuple(f"{number:032x}" for number in range(devices))
    fleet.visible_gpus = lambda: GpuList(("NVIDIA H200",) * devices, uuids, (90,) * devices)
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = str(server.getsockname()[1])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "cluster"
        options = ["--folder", str(folder), "--port", port, "--dashboard", "-1"]
        CliRunner().invoke(command, ["start", *options], catch_exceptions=False)
        settings, (pid,) = read_settings(folder), running(folder)
        assert settings is not None
        try:
            with closing(Cluster(settings.scheduler, folder)) as connection:
                yield connection, pid
        finally:
            CliRunner().invoke(command, ["stop", "--folder", str(folder)], catch_exceptions=False)


def tune(cluster: Cluster, database: Database, folder: Path, count: int, trials: int, seen: Seen) -> None:
    """Tune so many problems on a cluster, and note what was acknowledged."""
    opening = cluster_opening("vector_add", cache=False, opener=OPENER)
    members = WorkersAsCards(cluster, opening, seen.texts.append, overlap=False)
    noting(Head(database, jobs(count, trials), [], seen, members=members), folder / "acknowledged").run()


def kills(devices: int, workers: int, schedulers: int) -> dict[str, Any]:
    """Kill workers and the scheduler while a list is tuned, again until all are killed; say what became of the rows."""
    draw = random.Random(0)
    victims = ["cluster_worker"] * workers + ["dask scheduler"] * schedulers
    draw.shuffle(victims)
    seen, at, total = Seen(), time.monotonic(), len(victims)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder, count = Path(name), max(2 * devices, 2 * total)
        simulate(trial_s=KILL_TRIAL_S, offset=0.03, noise=0.001)
        with started(devices) as (cluster, pid), Database.open(folder / "tuning.db") as database:

            def kill(head: Head) -> None:
                nonlocal at
                working = any(lane.progress for card in head.cards for lane in card.busy)
                if not victims or not working or time.monotonic() < at:
                    return
                kind = victims[-1]
                if alive := [child for child, line in children(pid).items() if kind in line]:
                    os.kill(draw.choice(alive), signal.SIGKILL)
                    victims.pop()
                    at = time.monotonic() + draw.uniform(0.5, 3.0)

            seen.on_tick = kill
            tune(cluster, database, folder, count, TRIALS, seen)
            result = rows(database, folder / "acknowledged", count, TRIALS)
    return {
        "devices": devices,
        "killed_workers": workers - victims.count("cluster_worker"),
        "killed_schedulers": schedulers - victims.count("dask scheduler"),
        "failed_problems": sorted(seen.failures.values()),
        "seconds": round(time.monotonic() - began, 1),
        **result,
    }


def main() -> int:
    options = harness.parser(__doc__)
    add = options.add_argument
    add("what", nargs="?", default="kills", choices=["kills"])
    add("--devices", type=int, default=8)
    add("--workers", type=int, default=100, help="Workers to kill.")
    add("--schedulers", type=int, default=20, help="Times to kill the scheduler.")
    add("--out", type=Path, default=EVIDENCE / "cluster-simulation.json")
    given = options.parse_args()
    results: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    results["kills"] = kills(given.devices, given.workers, given.schedulers)
    harness.write_json(given.out, results)
    sys.stdout.write(json.dumps(results, indent=1) + "\n")
    killed = results.get("kills", {})
    return 1 if killed.get("lost") or killed.get("doubled") or killed.get("problems_of_the_file") else 0


if __name__ == "__main__":
    sys.exit(main())
