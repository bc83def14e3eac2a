"""Programs that call a bundle on a driver without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.fake_driver.programs import run_program

START = """
import sys, threading
from cuda.bindings import driver as cu
from tests.fake_arrays import Exported, FakeTorch
from tests.fake_driver import programs
from tests.fake_driver.programs import check, count
import tuner

def refused(words, *arguments, call=None, **named):
    programs.refused(words, call or op, *arguments, **named)

torch = sys.modules["torch"] = FakeTorch()
try:
    check(cu.cuInit(0))
    check(cu.cuCtxSetCurrent(check(cu.cuDevicePrimaryCtxRetain(0))))
    torch.allocate = lambda size: int(check(cu.cuMemAlloc(size)))
except AssertionError:
    pass
bfloat16 = dict(dtype="bfloat16")
folder = sys.argv[1]
op = tuner.load("product", bundle=folder)
"""


def run(program: str, folder: Path, **settings: str) -> list[dict[str, Any]]:
    """Run a program in a process that meets the fake driver; return what it launched."""
    _, launches = run_program(START + program, folder.parent / "log", folder, **settings)
    return launches


def launches(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if "kernel" in line]
