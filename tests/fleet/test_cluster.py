"""A cluster on one host: a scheduler and workers in processes of their own, simulated GPUs, only 127.0.0.1."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.hosts import TWO, Host, Proxy, call, children, free_port

pytest.importorskip("distributed")
pytest.importorskip("cryptography")

from click.testing import CliRunner
from msgspec import structs

from tests.faults.processes import command_of, gone
from tests.fleets import OPENER, RECORDING, Seen, jobs, sound
from tuner.children.measuring import GpuList
from tuner.cli import fleet
from tuner.cli.commands.cluster import cluster as command
from tuner.core.errors import NoGpuError
from tuner.database.database import Database
from tuner.fleet import cards
from tuner.fleet import cluster as cluster_module
from tuner.fleet import workers as workers_module
from tuner.fleet.cluster import Cluster, Described, WorkerLink
from tuner.fleet.cluster_connections import HANDSHAKE_S
from tuner.fleet.cluster_files import full_address, make_certificate, read_settings
from tuner.fleet.head import Head
from tuner.fleet.messages import Event, OpenDevice
from tuner.fleet.workers import WorkersAsCards

pytestmark = pytest.mark.usefixtures("forked_children")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A cluster of two simulated GPUs, started and ended by the commands; no process is left of it."""
    folder = tmp_path_factory.mktemp("cluster")
    folder.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fleet, "visible_gpus", lambda: TWO)
        patch.setattr(fleet, "OPENER", OPENER)
        patch.setattr(cluster_module, "CONNECT_S", 100.0)
        patch.setattr(cluster_module, "ANSWER_S", 100.0)
        simulated = {"recording": str(RECORDING), "trial_s": 0.01, "hold": str(folder / "hold"), "held": 2}
        patch.setenv("SIMULATED", json.dumps(simulated))
        said = call(
            "start", "--folder", str(folder), "--port", str(free_port()), "--dashboard", str(free_port())
        )
        started = Host(folder)
        assert started.address in said and said.count("NVIDIA H200") == 2
        mine = [started.pid, *children(started.pid)]
        with closing(Cluster(started.address, folder)) as cluster:
            ports = [int(at.rpartition(":")[2]) for at in (started.address, *cluster.workers())]
        silent = [socket.create_connection(("127.0.0.1", port)) for port in ports]
        yield started
        assert len(silent) == 3
        for one in silent:  # who has not shown the key in time is let go, by the scheduler and by the workers
            one.settimeout(HANDSHAKE_S + 100)
            with suppress(ConnectionResetError):
                assert one.recv(1) == b""
            one.close()
        mine += children(started.pid)
        call("stop", "--folder", str(folder))
    deadline = time.monotonic() + 100
    while any("tuner." in command_of(pid) for pid in mine) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [command_of(pid) for pid in mine if "tuner." in command_of(pid)]
    assert read_settings(folder) is None


def tuned(host: Host, database: Path, seen: Seen, count: int, trials: int, address: str = "") -> list[str]:
    """Tune problems on the cluster; return what was said of its workers."""
    said: list[str] = []
    with closing(Cluster(address or host.address, host.folder)) as cluster, Database.open(database) as opened:
        opening = OpenDevice("", None, opener=OPENER)
        members = WorkersAsCards(cluster, opening, said.append, overlap=False)
        Head(opened, jobs(count, trials), [], seen, members=members).run()
        assert seen.failures == {}
        sound(opened, count, trials)
    return said


def test_a_list_is_tuned_by_the_commands_and_each_worker_shows_its_problem(
    host: Host, tmp_path: Path
) -> None:
    problems = tmp_path / "problems.csv"
    problems.write_text("n\n" + "\n".join(f"2**20+{i}" for i in range(4)) + "\n")
    arguments = (
        "run", "--folder", str(host.folder), "--kernel", "vector_add", "--problems", str(problems), "--trials",
        "12", "--sampler", "random", "--db", str(tmp_path / "x.db"), "--from-scratch", "--json", "--quiet",
    )  # fmt: skip
    result: list[Any] = []
    thread = threading.Thread(target=lambda: result.append(CliRunner().invoke(command, arguments)))
    tunes: list[str] = []
    host.held.touch()
    with closing(Cluster(host.address, host.folder)) as beside:
        thread.start()  # connected by now: the run may take no longer than that
        while thread.is_alive():
            tunes += [problem for tuned in beside.tuned_on().values() for problem in tuned]
            if max(map(tunes.count, tunes), default=0) > 2:
                host.held.unlink(missing_ok=True)
            time.sleep(0.02)
    thread.join()
    deadline = time.monotonic() + 100.0
    workers: list[Any] = [{"tunes": [""]}]
    while any(worker["tunes"] for worker in workers) and time.monotonic() < deadline:  # Dask has its own pace
        time.sleep(0.1)
        workers = json.loads(call("status", "--folder", str(host.folder), "--json"))
    assert [(worker["model"], worker["cc"], worker["tunes"]) for worker in workers] == [
        ("NVIDIA H200", 90, [])
    ] * 2
    assert result[0].exit_code == 0, result[0].output
    records = json.loads(result[0].stdout)
    assert [record["problem"]["sizes"]["n"] for record in records] == [2**20 + i for i in range(4)]
    shown = {text: tunes.count(text) for text in tunes if text.startswith("vector_add n=10485")}
    assert max(shown.values(), default=0) > 2, shown  # as long as it is tuned
    with Database.open(tmp_path / "x.db", write=False) as database:
        sound(database, 4, 12)
        assert {database.run(run_id).gpu.uuid for run_id in database.run_ids()} == {
            f"{i:032x}" for i in (0, 1)
        }


def test_what_killed_processes_had_is_gone_on_with_and_no_row_is_missing(host: Host, tmp_path: Path) -> None:
    """A worker and the scheduler, one after the other: without those that are started again nothing would end."""
    seen, killed = Seen(), list[float]()
    victims = [("cluster_worker", TWO.uuids[0]), ("dask scheduler",)]

    def kill(head: Head) -> None:
        working = any(lane.progress for card in head.cards for lane in card.busy)
        if len(killed) < len(victims) and working and time.monotonic() - sum(killed[-1:]) > 0.3:
            host.kill(*victims[len(killed)])
            killed.append(time.monotonic())
            if len(killed) == len(victims):
                host.held.unlink()

    host.held.touch()
    seen.on_tick = kill
    said = tuned(host, tmp_path / "x.db", seen, 4, 12)
    assert len(killed) == 2
    assert any("has left the cluster" in line for line in said), said
    assert any("given out again" in line for line in seen.texts), seen.texts


def test_a_searcher_that_is_stopped_is_killed_and_its_problem_goes_on(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cards, "SILENT_S", 6.0)
    seen, stopped = Seen(), list[int]()

    def stop(head: Head) -> None:
        if not stopped and any(lane.progress for card in head.cards for lane in card.busy):
            stopped.extend(host.processes("tuner.fleet.searcher"))
            os.kill(stopped[0], signal.SIGSTOP)

    seen.on_tick = stop
    tuned(host, tmp_path / "x.db", seen, 1, 12)
    assert any("sent no heartbeat for 6 s" in line for line in seen.texts), seen.texts
    assert gone(stopped[0])


def test_the_end_waits_for_a_searcher_that_is_starting_and_not_for_a_dead_worker(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "CONNECT_S", 200.0)
    opening = OpenDevice("", None, opener=OPENER)
    with closing(Cluster(host.address, host.folder)) as cluster:
        (address, *_) = cluster.workers()
        began = time.monotonic()
        for at in (f"tls://127.0.0.1:{free_port()}", address):
            link = WorkerLink(cluster, at, "", queue.SimpleQueue(), opening)
            link.kill()
            link.close()
        assert time.monotonic() - began < cluster_module.CONNECT_S / 2
        assert not host.processes("tuner.fleet.searcher")


def test_a_searcher_ends_with_the_connection_to_its_head(host: Host) -> None:
    opening = OpenDevice("", None, opener=OPENER)
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    with closing(Cluster(host.address, host.folder)) as cluster:
        (address, *_) = cluster.workers()
        WorkerLink(cluster, address, "", events, opening)
        events.get(timeout=100)  # it is there
        assert host.processes("tuner.fleet.searcher")
    deadline = time.monotonic() + 100
    while host.processes("tuner.fleet.searcher") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not host.processes("tuner.fleet.searcher")


def test_a_connection_that_is_cut_in_the_middle_loses_nothing(host: Host, tmp_path: Path) -> None:
    seen, cuts = Seen(), list[float]()
    proxy = Proxy(int(host.address.rpartition(":")[2]))

    def cut(head: Head) -> None:
        if (
            len(cuts) < 2
            and sum(len(card.busy) for card in head.cards) > 1
            and time.monotonic() - sum(cuts[-1:]) > 2
        ):
            cuts.append(time.monotonic())
            proxy.cut()
            host.held.unlink(missing_ok=True)

    host.held.touch()
    seen.on_tick = cut
    with closing(proxy.server):
        tuned(host, tmp_path / "x.db", seen, 4, 12, f"tls://127.0.0.1:{proxy.port}")
    assert cuts


def copy_of(host: Host, folder: Path) -> Path:
    folder.mkdir(mode=0o700)
    for file in host.folder.glob("*.pem"):
        shutil.copy(file, folder)
    return folder


def test_a_wrong_address_is_one_line(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "CONNECT_S", 0.5)
    wrong = f"127.0.0.1:{free_port()}"
    said = call("status", "--folder", str(host.folder), "--scheduler", wrong, code=1)
    assert f"no scheduler answers at tls://{wrong}" in said
    for text in ("http://x:1", "a:b", ":"):
        call("status", "--folder", str(host.folder), "--scheduler", text, code=2)
    assert full_address("gpu1") == "tls://gpu1:8786"


def test_another_certificate_is_refused_on_both_sides(host: Host, tmp_path: Path) -> None:
    make_certificate(tmp_path / "other")
    for arguments in (("status", "--scheduler"), ("start", "--join")):
        said = call(*arguments, host.address, "--folder", str(tmp_path / "other"), code=1)
        assert "certificate do not match" in said
    said = call("status", "--scheduler", host.address, "--folder", str(tmp_path), code=2)
    assert "there is no" in said and "cluster.pem" in said
    assert (tmp_path / "other/cluster-key.pem").stat().st_mode & 0o777 == 0o600


def test_a_gpu_that_is_in_the_cluster_already_does_not_join_again(host: Host, tmp_path: Path) -> None:
    said = call("start", "--join", host.address, "--folder", str(copy_of(host, tmp_path / "copy")), code=2)
    assert "is in the cluster already" in said and TWO.uuids[0] in said


def test_a_host_without_a_gpu_is_refused(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> GpuList:
        raise NoGpuError("this machine has no NVIDIA GPU", "see `tune doctor`")

    monkeypatch.setattr(fleet, "visible_gpus", none)
    said = call("start", "--join", host.address, "--folder", str(copy_of(host, tmp_path / "copy")), code=1)
    assert said == "this machine has no NVIDIA GPU; --device none starts a scheduler without workers"


def test_a_worker_of_another_version_is_left_out(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "__version__", "99.0")
    workers = json.loads(call("status", "--folder", str(host.folder), "--json"))
    assert all("and this is 99.0" in worker["left_out"] for worker in workers)
    monkeypatch.setattr(workers_module, "PATIENCE_S", 0.5)
    seen, said = Seen(), list[str]()
    with closing(Cluster(host.address, host.folder)) as cluster, Database.open(tmp_path / "x.db") as database:
        opening = OpenDevice("", None, opener=OPENER)
        members = WorkersAsCards(cluster, opening, said.append, overlap=False)
        Head(database, jobs(1, 4), [], seen, members=members).run()
    assert "no device is left" in seen.failures[0]
    assert sum("and this is 99.0" in line for line in said) == 2


def test_gpus_of_two_models_are_not_pooled(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def workers(cluster: Cluster) -> dict[str, tuple[str, Described | str]]:
        found = ask(cluster)
        for address, (name, worker) in found.items():
            assert isinstance(worker, Described)
            if worker.uuid == TWO.uuids[1]:
                found[address] = name, structs.replace(worker, model="NVIDIA H100")
        return found

    ask = Cluster.workers
    monkeypatch.setattr(Cluster, "workers", workers)
    options = ("--folder", str(host.folder), "--kernel", "vector_add", "--db", str(tmp_path / "x.db"))
    said = call("run", *options, code=2)
    assert "NVIDIA H100 and NVIDIA H200" in said and "--gpu" in said
    assert "there are: NVIDIA H100, NVIDIA H200" in call("run", *options, "--gpu", "a100", code=2)
    call("run", *options, "--gpu", "h200", "--trials", "4", "--sampler", "random", "--problem", "n=1048576")
    with Database.open(tmp_path / "x.db", write=False) as database:
        sound(database, 1, 4)


def test_a_second_start_and_a_second_stop_are_refused(host: Host, tmp_path: Path) -> None:
    assert "runs on this host already" in call("start", "--folder", str(host.folder), code=2)
    assert f"no cluster of the folder {tmp_path} runs" in call("stop", "--folder", str(tmp_path), code=2)


def test_a_key_that_others_can_read_and_a_damaged_one_are_refused(host: Host, tmp_path: Path) -> None:
    folder = copy_of(host, tmp_path / "copy")
    asked = ("status", "--scheduler", host.address, "--folder", str(folder))
    folder.chmod(0o770)
    assert "can be written by others" in call(*asked, code=2)
    folder.chmod(0o700)
    (folder / "cluster-key.pem").chmod(0o640)
    assert "other users can read" in call(*asked, code=2)
    (folder / "cluster-key.pem").chmod(0o600)
    (folder / "cluster-key.pem").write_text("damaged")
    said = call("start", "--folder", str(folder), "--port", str(free_port()), code=2)
    assert "its key do not match" in said
    (folder / "cluster-key.pem").write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----")
    assert "has a pass phrase" in call(*asked, code=2)
    (folder / "cluster.pem").write_text("-----BEGIN TRUSTED CERTIFICATE-----")
    assert "is no certificate" in call(*asked, code=2)
    assert read_settings(folder) is None
