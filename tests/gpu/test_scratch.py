"""Scratch memory holds nothing that a kernel could live on, and has an end."""

from __future__ import annotations

from pathlib import Path

from tuner.core.model import Configuration, Status
from tuner.devices.base import Contestant, RaceRequest
from tuner.devices.local import LocalDevice
from tuner.kernel.load import load_kernel

TOML = """
[kernel]
name = "staged"
[problem]
sizes = { n = 5000 }
dtypes = { input = "float32" }
[tensors]
x = { shape = ["n"], dtype = "input" }
y = { shape = ["n"], dtype = "input", role = "output" }
[reference]
numpy = "x"
[work]
bytes = "8 * n"
[variants.staged]
scratch.stage = { shape = ["n"], dtype = "input" }
[variants.staged.parameters]
fault = { values = ["none", "skip", "beyond"] }
[[variants.staged.launches]]
template = "staged.cu.j2"
entry = "fill_{{ fault }}"
arguments = ["x", "stage", "n"]
grid = ["ceil_div(n, 256)"]
block = ["256"]
[[variants.staged.launches]]
template = "staged.cu.j2"
entry = "drain_{{ fault }}"
arguments = ["stage", "y", "n"]
grid = ["ceil_div(n, 256)"]
block = ["256"]
"""
SOURCE = """
extern "C" __global__ void fill_{{ fault }}(const float* x, float* stage, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if ({{ "false" if fault == "skip" else "i < n" }}) stage[i] = x[i];
    if ({{ "i == 0" if fault == "beyond" else "false" }}) stage[n] = 1.0f;
}
extern "C" __global__ void drain_{{ fault }}(const float* stage, float* y, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = stage[i];
}
"""


def test_scratch_is_poisoned_and_guarded(device: LocalDevice, tmp_path: Path) -> None:
    (tmp_path / "staged.toml").write_text(TOML)
    (tmp_path / "staged.cu.j2").write_text(SOURCE)
    kernel = load_kernel(str(tmp_path / "staged.toml"))
    device.prepare(kernel, kernel.problem(), seed=1)
    found = {}
    for number, fault in enumerate(["none", "skip", "beyond", "none"]):
        device.submit(number, Configuration.of("staged", {"fault": fault}))
        while not (outcomes := device.collect(1.0)):
            pass
        found[number] = outcomes[0]
    assert found[0].status is Status.OK
    assert found[1].status is Status.WRONG_RESULT, "it lived on what the candidate before had left"
    assert found[2].status is Status.WRONG_RESULT
    assert "outside of scratch stage" in found[2].error
    assert found[3].status is Status.OK


def test_a_candidate_after_another_scratch_size(device: LocalDevice) -> None:
    kernel = load_kernel("gemm")
    problem = kernel.problem({"m": 200, "n": 136, "k": 264})
    device.prepare(kernel, problem, seed=1)
    defaults = kernel.variants["split_k"].defaults
    for number, split in enumerate((8, 2, 4)):
        device.submit(number, Configuration.of("split_k", {**defaults, "split_k": split}))
    answered = 0
    while answered < 3:
        for outcome in device.collect(1.0):
            answered += 1
            assert outcome.status in (Status.OK, Status.SLOW), outcome.error


def test_contestants_do_not_share_scratch(device: LocalDevice) -> None:
    kernel = load_kernel("gemm")
    device.prepare(kernel, kernel.problem({"m": 256, "n": 256, "k": 2048}), seed=1)
    defaults = kernel.variants["split_k"].defaults
    splits = [
        Contestant(Configuration.of("split_k", {**defaults, "split_k": split}), 5e4) for split in (2, 16, 4)
    ]
    found = device.race(RaceRequest(splits, rounds=4, samples=4, seed=0))
    assert [len(one.groups_ns) for one in found.timed.values()] == [4] * 3, found.failures
