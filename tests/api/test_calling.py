"""The result as a function of the C function's arguments, on a driver without a GPU."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.api.conftest import STENCIL, STENCIL_CALL, Tune
from tests.fake_driver.programs import run_program
from tuner.core.errors import CallError, DatabaseError

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
    result = tune()
    manifest = json.loads((result.bundle(tmp_path / "stencil_bundle") / "manifest.json").read_text())
    assert manifest["winners"][0]["sizes"] == {"n": 5000}
    header = result.export(tmp_path / "stencil.hpp").read_text()
    assert f"{result.best['BLOCK']}" in header
    with pytest.raises(DatabaseError, match="exists"):
        result.export(tmp_path / "stencil.hpp")


def test_what_was_not_confirmed_is_not_called(tune: Tune) -> None:
    result = tune(STENCIL.replace("stencil", "stencil__wrong"), **STENCIL_CALL)
    assert not result.confirmed
    assert math.isnan(result.time_us)
    assert "no configuration could be verified; 5 of 5 ended as wrong_result" in result.verdict
    for call in (lambda: result(), lambda: result.bundle("x"), lambda: result.best):
        with pytest.raises(CallError, match="wrong_result"):
            call()
    assert {trial["status"] for trial in result.trials} == {"wrong_result"}
