"""The result as a function of the C function's arguments, on a driver without a GPU."""

from __future__ import annotations

import ctypes
import json
import math
from pathlib import Path

import numpy as np
import pytest

import tuner
from tests.api.conftest import STENCIL, STENCIL_CALL, Tune
from tests.fake_driver.programs import run_program
from tuner.core.errors import CallError, DatabaseError, NoGpuError
from tuner.runtime import driver

pytestmark = pytest.mark.usefixtures("forked_children", "any_code")
PROGRAM = """
import os, sys
import numpy as np
from tests.api.conftest import STENCIL, STENCIL_CALL
from tests.faults import tune_fake
from tests.fake_driver.programs import refused
import tuner
from tuner.api import tune as module
module.open_device = tune_fake.open_fake
os.chdir(sys.argv[1])
result = tuner.tune(STENCIL, **{**STENCIL_CALL, "trials": 1})
x, y = np.ones(5000, np.float32), np.zeros(5000, np.float32)
assert result(x, y, 5000) is y
result(x=x, y=y, n=5000)
refused("it takes x, y, n", result, x, y)
refused("x is a list", result, [1.0], y, 5000)
refused("not contiguous", result, x[::2], y, 5000)
print(result.best["BLOCK"])
"""


def test_arrays_of_numpy(tmp_path: Path) -> None:
    (block,), lines = run_program(PROGRAM, tmp_path / "log", tmp_path, devices="NVIDIA H200:90:132")
    launches = [line for line in lines if "kernel" in line]
    assert len(launches) == 2
    assert {launch["block"][0] for launch in launches} == {int(block)}


def test_a_bundle_and_a_header(tune: Tune, tmp_path: Path) -> None:
    result = tune(trials=2)
    manifest = json.loads((result.bundle(tmp_path / "stencil_bundle") / "manifest.json").read_text())
    assert manifest["winners"][0]["sizes"] == {"n": 5000}
    header = result.export(tmp_path / "stencil.hpp").read_text()
    assert f"{result.best['BLOCK']}" in header
    with pytest.raises(DatabaseError, match="exists"):
        result.export(tmp_path / "stencil.hpp")


def test_what_was_not_confirmed_is_not_called(tune: Tune) -> None:
    result = tune(STENCIL.replace("stencil", "stencil__wrong"), **{**STENCIL_CALL, "trials": 2})
    assert not result.confirmed
    assert math.isnan(result.time_us)
    assert "no configuration could be verified; 2 of 2 ended as wrong_result" in result.verdict
    for call in (lambda: result(), lambda: result.bundle("x"), lambda: result.best):
        with pytest.raises(CallError, match="wrong_result"):
            call()
    assert {trial["status"] for trial in result.trials} == {"wrong_result"}


ON_CALL = """
import fcntl, os, sys
from cuda.bindings import driver as cu
from tests.fake_arrays import FakeTorch
from tests.faults import tune_fake
from tests.fake_driver.programs import check, refused
from tuner.api import tune as module
from tuner.core import paths
from tuner.core.files import open_lock_file
import tuner
module.open_device = tune_fake.open_fake
os.chdir(sys.argv[1])
os.environ["XDG_CACHE_HOME"] = sys.argv[1]
paths.cache().mkdir()
torch = sys.modules["torch"] = FakeTorch()
check(cu.cuInit(0))
check(cu.cuCtxSetCurrent(check(cu.cuDevicePrimaryCtxRetain(0))))
torch.allocate = lambda size: int(check(cu.cuMemAlloc(size)))
op = tuner.load("vector_add", policy="tune", trials=1)
lock = open_lock_file(paths.cache() / "tunes-on-call-0.lock", os.O_RDWR, 0o600)
fcntl.flock(lock, fcntl.LOCK_EX)  # as if another process tuned
op(torch.randn(4096), torch.randn(4096))
print(op.plan(dtypes={"input": "float32"}, n=4096).match)
os.close(lock)
stream = check(cu.cuStreamCreate(0))
check(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
refused("is being captured", op, torch.randn(8192), torch.randn(8192), stream=int(stream))
check(cu.cuStreamEndCapture(stream))
for n in (4096, 4096, 8192):
    op(torch.randn(n), torch.randn(n))
    print(op.plan(dtypes={"input": "float32"}, n=n).match)
print(tuner.load("vector_add", db="results/tuning.db").plan(dtypes={"input": "float32"}, n=8192).match)
print(len(tuner.open().query(sql="SELECT id FROM runs")))
"""


def test_a_problem_is_tuned_when_it_is_first_called(tmp_path: Path) -> None:
    """Not while another process tunes or the stream is captured; then once."""
    lines, _ = run_program(ON_CALL, tmp_path / "log", tmp_path, devices="NVIDIA H200:90:132")
    assert lines == ["default", "exact", "exact", "exact", "exact", "2"]


def test_where_there_is_no_driver_it_says_what_a_call_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> ctypes.CDLL:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(driver, "library", driver.library.__wrapped__)
    monkeypatch.setattr(ctypes, "CDLL", missing)
    x = np.zeros(8, np.float32)
    with pytest.raises(NoGpuError) as refused:
        tuner.load("vector_add", policy="tune")(x, x)
    assert str(refused.value) == (
        "no CUDA GPU can be used: this machine has no NVIDIA driver that can be loaded (libcuda.so.1: cannot open "
        "shared object file); kernels run on a machine with an NVIDIA GPU and its driver; `tune doctor` says what is "
        "missing"
    )
