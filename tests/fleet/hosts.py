"""A cluster's host in processes of its own, and a connection that can be cut."""

from __future__ import annotations

import os
import signal
import socket
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest

pytest.importorskip("distributed")
pytest.importorskip("cryptography")

from click.testing import CliRunner

from tests.faults.processes import command_of
from tuner.children.measuring import GpuList
from tuner.cli.commands.cluster import cluster as command
from tuner.core.errors import TunerError
from tuner.fleet.cluster_files import read_settings, running

TWO = GpuList(("NVIDIA H200",) * 2, tuple(f"{number:032x}" for number in (10, 11)), (90, 90))


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


def call(*arguments: str, code: int = 0) -> str:
    """Run ``tune cluster``; return what it printed, or its error's line."""
    result = CliRunner().invoke(command, arguments)
    if code:
        assert isinstance(result.exception, TunerError), result.output
        assert result.exception.exit_code == code
        return str(result.exception)
    assert result.exception is None, (result.output, result.exception)
    return result.output


def children(pid: int) -> list[int]:
    """Return a process's descendants."""
    below = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                below += [int(stat.parent.name), *children(int(stat.parent.name))]
    return below


class Host:
    """What `tune cluster start` has started."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.held = folder, folder / "hold"
        settings = read_settings(folder)
        assert settings is not None
        self.address, (self.pid,) = settings.scheduler, running(folder)

    def processes(self, *words: str) -> list[int]:
        """Return its processes whose command line has these words."""
        return [pid for pid in children(self.pid) if all(word in command_of(pid) for word in words)]

    def kill(self, *words: str) -> None:
        (pid,) = self.processes(*words)
        os.kill(pid, signal.SIGKILL)


class Proxy:
    """Passes connections on to a port, until they are cut."""

    def __init__(self, port: int) -> None:
        self.to = port
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.server.getsockname()[1])
        self.pairs: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                ours, _ = self.server.accept()
                theirs = socket.create_connection(("127.0.0.1", self.to))
                self.pairs += [ours, theirs]
                for a, b in ((ours, theirs), (theirs, ours)):
                    threading.Thread(target=self._pass_on, args=(a, b), daemon=True).start()

    def _pass_on(self, a: socket.socket, b: socket.socket) -> None:
        with suppress(OSError):
            while data := a.recv(1 << 16):
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        """End all connections in the middle."""
        for one in self.pairs:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self.pairs.clear()
