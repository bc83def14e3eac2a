"""``tune cluster start`` and ``stop``: what is refused, what a start leaves, and an end whatever the record is."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from contextlib import closing
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import pytest

from tests.fleet.hosts import TWO, call, children, command_of, free_port

pytest.importorskip("distributed")
pytest.importorskip("cryptography")


from tuner.cli import fleet
from tuner.fleet import cluster_host
from tuner.fleet.cluster_files import read_settings, running

pytestmark = pytest.mark.usefixtures("forked_children")


@pytest.mark.parametrize(
    ("days", "words"),
    [
        (366, ("is valid from", "start it anew")),
        (-3, ("is valid from", "on this host; set this host's clock")),
    ],
)
def test_a_certificate_of_another_time_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int, words: tuple[str, ...]
) -> None:
    class Moved(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) + timedelta(days=days)

    monkeypatch.setattr("tuner.fleet.cluster_files.datetime", Moved)
    folder = ("--folder", str(tmp_path / "c"))
    started = call("start", *folder, "--port", str(free_port()), code=2)
    joined = call("start", *folder, "--join", f"127.0.0.1:{free_port()}", code=2)
    for said in (started, joined, call("status", *folder, "--scheduler", "127.0.0.1:1", code=2)):
        assert all(word in said for word in words), said


def test_a_long_log_is_begun_anew_and_the_last_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much is written, also by those that have it open."""
    monkeypatch.setattr(cluster_host, "LOG_BYTES", 1000)
    log = tmp_path / "cluster.log"
    with log.open("ab", buffering=0) as written:
        for number in range(100):
            written.write(b"%099d\n" % number)
            cluster_host.bound(log)
            assert log.stat().st_size <= 1000
    lines = [int(line) for path in (log.with_name("cluster.log.1"), log) for line in path.read_text().split()]
    assert lines == list(range(lines[0], 100)) and 10 < len(lines) < 22
    log.unlink()
    cluster_host.bound(log)


def test_an_address_that_cannot_be_served_is_refused(tmp_path: Path) -> None:
    folder, port = ("start", "--folder", str(tmp_path / "c")), str(free_port())
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        taken = str(server.getsockname()[1])
        assert "name another --host or --port" in call(*folder, "--port", taken, code=2)
        assert "name another --dashboard" in call(*folder, "--port", port, "--dashboard", taken, code=2)
    assert "are both" in call(*folder, "--port", port, "--dashboard", port, code=2)
    for host in ("0.0.0.0", "192.0.2.1", "no.such.host.invalid", "a b"):
        assert host in call(*folder, "--host", host, "--port", port, code=2)
    with (tmp_path / "c" / f"{socket.gethostname()}.lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "another `tune cluster start` has" in call(*folder, "--port", port, code=2)
    assert "is no address" in call("status", *folder[1:], "--scheduler", "127.0.0.1:65536", code=2)


def test_a_cluster_is_ended_although_its_record_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path / "c")
    options = ("--port", str(free_port()), "--dashboard", "-1", "--device", "none")
    with monkeypatch.context() as late:  # as /proc is, which has no command line of a process that begins
        late.setattr("tuner.cli.cluster.running", lambda _: [])
        call("start", "--folder", folder, *options)
    (record,) = (tmp_path / "c").glob("*.json")
    for text in ("", "[]", "null", '{"address": 5}', '{"scheduler":"tls://x:1","dashboard":""}'):
        record.write_text(text)
        assert "no cluster of the folder" in call("status", "--folder", folder, code=2)
    (pid,) = running(tmp_path / "c")
    call("stop", "--folder", folder)
    assert not command_of(pid) and not running(tmp_path / "c")


def test_a_start_that_fails_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(fleet, "visible_gpus", lambda: TWO)
    monkeypatch.setattr("tuner.cli.cluster.write_settings", full)
    options = ("--port", str(free_port()), "--dashboard", "-1")
    said = call("start", "--folder", str(tmp_path / "c"), *options, code=1)
    assert said == f"{tmp_path}/c: No space left on device; name another --folder"
    assert not [pid for pid in children(os.getpid()) if str(tmp_path) in command_of(pid)]


def test_a_pipe_or_a_device_in_the_folder_is_not_waited_for(tmp_path: Path) -> None:
    settings = tmp_path / f"{socket.gethostname()}.json"
    os.mkfifo(settings)
    assert read_settings(tmp_path) is None
    settings.unlink()
    settings.symlink_to("/dev/zero")
    assert read_settings(tmp_path) is None
