"""A cluster of this host's GPUs, by the commands of docs/fleet.md."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fleet.hosts import command_of, free_port
from tests.gpu.several import several
from tuner.cli.fleet import visible_gpus
from tuner.database.database import Database

pytest.importorskip("distributed")
pytest.importorskip("cryptography")

pytestmark = several
PROBLEMS, TRIALS = 6, 40
LEFT_S = 10.0
"""For processes that were told to end."""


class Hosts:
    """This host as two, each with one GPU and a copy of the cluster's folder.

    Args:
        folder: gets the cluster's folders.
    """

    def __init__(self, folder: Path) -> None:
        self.first, self.second = folder / "first", folder / "second"
        self.mark = f"CLUSTER_OF_A_TEST={folder}"
        self.environment = {**os.environ, "CLUSTER_OF_A_TEST": str(folder)}
        self.address = f"127.0.0.1:{free_port()}"

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command of the tuner."""
        command = [sys.executable, "-m", "tuner", *words]
        return subprocess.Popen(
            command, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def call(self, *words: str) -> str:
        """Return what `tune cluster` prints."""
        process = self.start("cluster", *words)
        output, said = process.communicate(timeout=120)
        assert process.returncode == 0, output + said
        return output

    def processes(self, *words: str) -> list[int]:
        """Return the processes that these commands have left running, those whose command line has some words."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                ours = self.mark.encode() in (folder / "environ").read_bytes().split(b"\0")
                if ours and all(word in command_of(int(folder.name)) for word in words):
                    found.append(int(folder.name))
        return found


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Hosts whose cluster is ended by the commands; no process is left of it."""
    hosts = Hosts(tmp_path)
    yield hosts
    for folder in (hosts.second, hosts.first):
        if folder.exists():
            hosts.call("stop", "--folder", str(folder))
    deadline = time.monotonic() + LEFT_S
    while hosts.processes() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [command_of(pid) for pid in hosts.processes()] == []


def test_a_worker_is_killed_and_another_one_added_while_a_list_is_tuned(hosts: Hosts, tmp_path: Path) -> None:
    problems, database = tmp_path / "problems.csv", tmp_path / "tuning.db"
    problems.write_text("n\n" + "\n".join(f"2**24+{8 * i}" for i in range(PROBLEMS)) + "\n")
    port = hosts.address.partition(":")[2]
    hosts.call(
        "start", "--folder", str(hosts.first), "--port", port, "--dashboard", "-1", "--device", "cuda:0"
    )
    tuner = hosts.start(
        "cluster", "run", "--folder", str(hosts.first), "-k", "vector_add", "--problems", str(problems),
        "-n", str(TRIALS), "--db", str(database), "--json",
    )  # fmt: skip
    status = ("status", "--folder", str(hosts.first), "--json")
    deadline = time.monotonic() + 60.0
    while not any(worker["tunes"] for worker in json.loads(hosts.call(*status))):
        assert time.monotonic() < deadline and tuner.poll() is None
    (worker,) = hosts.processes("cluster_worker")
    os.kill(worker, signal.SIGKILL)
    others_record = shutil.ignore_patterns("*.json")  # it has this host's name, too
    shutil.copytree(hosts.first, hosts.second, ignore=others_record)
    hosts.call("start", "--join", hosts.address, "--folder", str(hosts.second), "--device", "cuda:1")
    output, said = tuner.communicate(timeout=180)
    assert tuner.returncode == 0, output + said
    records = json.loads(output)
    assert len(records) == PROBLEMS and all(record["winner"]["exportable"] for record in records), said
    assert "has left the cluster" in said
    workers = json.loads(hosts.call(*status))
    assert {one["uuid"] for one in workers} == set(visible_gpus().uuids[:2])
    with Database.open(database) as opened:
        assert opened.check().problems == []
        runs = [opened.run(run_id) for run_id in opened.run_ids()]
        assert {run.gpu.uuid for run in runs} == {one["uuid"] for one in workers}
        counts = opened.select(
            "SELECT count(*) AS rows, count(DISTINCT number) AS numbers FROM trials GROUP BY run_id"
        )
        assert all(row["rows"] == row["numbers"] >= TRIALS for row in counts) and len(counts) == PROBLEMS
