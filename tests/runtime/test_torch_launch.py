"""Operators of torch launch what their operation does: on a driver without a GPU, with memory of the CPU.

Each program is a fork of one process that has imported torch, which takes a process seconds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake_driver import environment
from tests.fake_driver.programs import ROOT
from tests.runtime.manifests import write_bundle

pytestmark = pytest.mark.usefixtures("forked_children")

pytest.importorskip("torch")

FORKS = """
import json, os, sys, torch
import tuner
from cuda.bindings import driver as cu
from tests.fake_driver.programs import check, count, refused
from tuner.runtime import libraries

for line in sys.stdin:
    sys.stdout.flush()
    if not os.fork():
        program, bundle, os.environ["FAKE_CUDA_LOG"] = json.loads(line)
        exec(program)
        sys.stdout.flush()
        os._exit(0)
    print("ended", os.wait()[1], flush=True)
"""

START = """
layout, streams = libraries._Torch.layout, [0]
libraries._Torch.layout = lambda self, array, read: layout(self, array, read)._replace(device=0, memory="cuda:0")
libraries._Torch.stream = lambda self, device: streams[0]
check(cu.cuInit(0))
check(cu.cuCtxSetCurrent(check(cu.cuDevicePrimaryCtxRetain(0))))
op = tuner.load("product", bundle=bundle)
product = op.torch()
def randn(*shape):
    return torch.randn(shape, dtype=torch.bfloat16)
"""

Run = Callable[..., tuple[list[str], list[dict[str, Any]]]]


@pytest.fixture(scope="module")
def forks() -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, "-c", FORKS], env={**environment(), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    yield started
    started.communicate()


@pytest.fixture
def run(forks: subprocess.Popen[str], tmp_path: Path) -> Run:
    """Run a program in a fork that meets the fake driver; return the lines it prints, and what it launched."""

    def run(program: str, manifest: dict[str, Any] | None = None) -> tuple[list[str], list[dict[str, Any]]]:
        bundle, log = write_bundle(tmp_path / "bundle", manifest), tmp_path / "log"
        log.touch()
        assert forks.stdin is not None and forks.stdout is not None
        print(json.dumps([START + program, str(bundle), str(log)]), file=forks.stdin, flush=True)
        printed: list[str] = []
        for line in forks.stdout:
            printed.append(line.rstrip("\n"))
            if line.startswith("ended "):
                break
        assert printed.pop() == "ended 0", printed
        lines = map(json.loads, log.read_text().splitlines())
        return printed, [line for line in lines if line.get("kernel", "whereabouts") != "whereabouts"]

    return run


def test_an_operator_launches_what_the_operation_does(run: Run) -> None:
    program = """
a, b, w = randn(96, 64), randn(64, 32), randn(32, 64)
streams[0] = int(check(cu.cuStreamCreate(1)))
c = product(a, b, alpha=0.1)
assert (c.shape, c.stride(), c.dtype) == ((96, 32), (32, 1), torch.bfloat16)
d = op(a, b, alpha=0.1)
assert product(a, w.t()).shape == (96, 32)
loads = count("loads")
for _ in range(10):
    product(a, b)
assert count("loads") == loads
odd = torch.cat([randn(1), a.flatten()])[1:].view(96, 64)
whole = torch.cat([a, a], 1)
for other in (odd, whole[:, :64]):
    product(other, w.t())  # by tensor maps: they need a copy that is aligned, without gaps
libraries._Torch.layout = layout
refused("is in the memory of cpu", lambda: product(randn(8, 8), randn(8, 8)))
"""
    _, lines = run(program)
    operator, operation, transposed = lines[:3]
    addresses = [line["arguments"][:3] for line in (operator, operation)]
    assert addresses[0][:2] == addresses[1][:2] and operator["arguments"][3:] == operation["arguments"][3:]
    assert operator["stream"] == operation["stream"] == transposed["stream"] != 0
    assert transposed["kernel"] == "split"
    assert len(lines) == 15


def test_rows_that_lie_apart_are_read_where_they_are_by_tensor_maps(run: Run) -> None:
    program = """
w, wide, odd = randn(32, 64), randn(96, 128), randn(96, 100)
parts = [wide[:, 32:96], wide[:, 32:96], wide[:, :64], wide[:, 33:97], odd[:, :64]]
for number, a in enumerate(parts):
    (product if number else op)(a, w.t())
    product(randn(96, 64), w.t())  # without gaps again
product(wide[:, :64], randn(32, 128)[:, :64].t())  # the right one is read otherwise: copied
print(json.dumps([[a.data_ptr(), a.stride(0) * 2] for a in parts]))
refused("rows of a lie 100 elements apart", lambda: op(odd[:, :64], w.t()))
refused("rows of b lie 128 elements apart", lambda: op(wide[:, :64], randn(32, 128)[:, :64].t()))
"""
    (text,), lines = run(program)
    maps = [line["arguments"][0] for line in lines if line.get("kernel") == "split"]
    found, parts = [[one["address"], one["stride"]] for one in maps], json.loads(text)
    assert found[0:6:2] == parts[:3] and parts[0][1] == 256
    assert [stride for _, stride in found[1::2]] == [128] * 5
    for (address, stride), (original, _) in zip(found[6:10:2], parts[3:], strict=True):
        assert stride == 128 and address != original  # not at, or not, multiples of 16 bytes: copied


def test_captured_once_it_was_prepared(run: Run) -> None:
    program = """
def captured(call):
    streams[0] = int(check(cu.cuStreamCreate(1)))
    check(cu.cuStreamBeginCapture(streams[0], cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
    try:
        return call()
    finally:
        check(cu.cuStreamEndCapture(streams[0]))
        streams[0] = 0
words = "product was not prepared for this problem, and the stream is being captured"
captured(lambda: refused(words, lambda: product(randn(96, 64), randn(64, 32))))
product(randn(96, 64), randn(64, 32))
captured(lambda: product(randn(96, 64), randn(64, 32)))
captured(lambda: product(randn(192, 64)[::2], randn(64, 32)))  # another kind of call of the same problem
op.warm([{"m": 128, "n": 32, "k": 64, "dtypes": {"input": "bfloat16"}, "options": {"layout": "nn"}}])
captured(lambda: product(randn(128, 64), randn(64, 32)))
assert count("captured") == 3
op.close()
refused("product is closed", lambda: product(randn(96, 64), randn(64, 32)))
"""
    assert len(run(program)[1]) == 1
