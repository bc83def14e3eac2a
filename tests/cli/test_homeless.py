"""A user number that the machine does not know, without a home: what containers are started with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.command_line import ROOT
from tests.faults.containers import permitted
from tests.faults.kernels import write_kernel

STRANGER = 54321
BECOME = ["unshare", "--user", f"--map-user={STRANGER}", f"--map-group={STRANGER}"]

pytestmark = pytest.mark.skipif(
    not permitted() or subprocess.run([*BECOME, "true"], capture_output=True, check=False).returncode != 0,
    reason="namespaces are not permitted here",
)


def said_by_stranger(tmp_path: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*BECOME, sys.executable, "-m", module, *arguments],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path), "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


def test_tuning(tmp_path: Path) -> None:
    kernel = write_kernel(tmp_path / "own")
    arguments = ["--kernel", str(kernel), "--trials", "2", "-j", "1", "--sampler", "random"]
    said = said_by_stranger(tmp_path, "tests.faults.tune_fake", *arguments)
    assert said.returncode == 0, said.stderr
    cache = tmp_path / f"kernel-tune-{STRANGER}"
    assert said.stderr.count(str(cache)) == 1, "where the cache is, is said once"
    assert cache.stat().st_mode & 0o777 == 0o700
    assert list(cache.glob("cubins/??/*.cubin"))


def test_doctor(tmp_path: Path) -> None:
    said = said_by_stranger(tmp_path, "tuner", "doctor")
    assert "Traceback" not in said.stderr
    assert said.returncode == 0, said.stderr
