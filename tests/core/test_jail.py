"""What code of others can do in a jail, and what it cannot; nothing of it needs a GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.core import jail

ALLOWED = (
    "read its file", "write in its folder", "look up a file", "run a program", "compile", "caches",
    "change the shared file", "signal itself", "write to its entries",
    "a pair of sockets", "a socket", "command of the parent",
)  # fmt: skip
BY = {
    "files": ("list the folder of it", "read a secret", "list other folders", "write beside", "change its file",
              "remove a file", "remove the shared file", "write to the parent's", "environment of the parent",
              "memory of the parent"),
    "network": ("datagrams", "raw datagrams", "a pair for datagrams",
                "TCP", "UDP", "connect to a socket", "fork", "leave the group", "signal the parent", "signal the group",
                "signal all", "signal the parent's thread", "signal the parent's first thread", "queue a signal",
                "queue a signal to a thread", "signal by a folder", "have the parent signalled", "limit the parent"),
    "rights": ("write to a file of another owner",),
    "memory": ("take all memory", "write a file of 4 GiB"),
}  # fmt: skip
"""What bars an attempt, by the first word of what is said where the system lacks it."""


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
@pytest.mark.parametrize("open_files", ["", "the driver does not start"])
def test_what_a_jail_leaves(open_files: str, tmp_path: Path) -> None:
    own, mine, secret = tmp_path / "own", tmp_path / "mine.py", tmp_path / "others" / "secret"
    for folder in (own, secret.parent / "known"):
        folder.mkdir(parents=True)
    anothers, shared = own / "another's", tmp_path / "shared"
    for file in (mine, secret, secret.parent / "known" / "key", anothers, shared):
        file.write_text("text")
    anothers.chmod(0o444)
    if not os.getuid():
        os.chown(anothers, 1, 1)
    done = subprocess.run(
        [sys.executable, "-m", "tests.core.jailed", own, mine, secret, shared, open_files],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    said = json.loads(done.stdout)
    for name, answer in said["found"].items():
        if name in ALLOWED:
            assert answer == "ok", name
            continue
        (barrier,) = (word for word, names in BY.items() if name in names)
        lacks = any(what.split()[0].strip(",") == barrier for what in said["missing"])
        assert answer != "ok" or lacks, (name, said["missing"])
    assert not any(what.startswith("threads") for what in said["missing"])
    if not open_files:
        assert secret.read_text() == mine.read_text() == "text"


def test_threads_that_stay_outside_are_said() -> None:
    code = (
        "import threading, pathlib; from tuner.core import jail\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "print(jail.enter(pathlib.Path('nowhere'), [], (), 'no GPU'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "threads that ran before" in done.stdout and "files, memory of other processes" in done.stdout


def test_what_is_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pip has installed to, all of it; in a checkout its packages alone."""
    target, checkout = tmp_path / "target", tmp_path / "checkout"
    for folder in (target / "thing-1.0.dist-info", checkout / "package", checkout / "notes"):
        folder.mkdir(parents=True)
    (checkout / "package" / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(target), str(checkout), str(tmp_path / "nowhere")])
    found = [path for path in jail.libraries() if path.is_relative_to(tmp_path)]
    assert found == [target, checkout / "package"]
    assert [path for path in jail.installed() if path.is_relative_to(tmp_path)] == [target]


def test_nothing_is_imported_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command may begin in a folder of candidates, and one of them have the name of a library that is not there."""
    (tmp_path / "cupy_planted.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    with jail.installed_only():
        assert not importlib.util.find_spec("cupy_planted") and importlib.util.find_spec("numpy")
    assert importlib.util.find_spec("cupy_planted")
