"""A task, candidates for it, and ``tune judge`` on a measuring process without a GPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Said, said_by
from tests.compiled_once import ANY_CODE
from tests.devices.fake_measuring import log_into
from tests.faults.kernels import write_kernel
from tuner.children.compile_pool import CompilePool
from tuner.devices.local import LocalDevice
from tuner.devices.started import Processes

WORKER = "tests.faults.fake_worker"
Judge = Callable[..., Said]
CUDA = """\
// tune: mine__{fault}<<<ceil_div(n, {block}), {block}>>>(x, y, int64(n))
extern "C" __global__ void mine__{fault}(const float* x, float* y, long long n) {{
    const long long i = blockIdx.x * {block}ll + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}}
"""


class _LastingPool(CompilePool):
    def close(self) -> None:
        pass


@pytest.fixture(scope="session")
def pool() -> Iterator[CompilePool]:
    """Return a compiler that does not end with a device: starting it takes longer than a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ANY_CODE, "1")
        pool = _LastingPool(1, None)
    yield pool
    CompilePool.close(pool)


def cuda(folder: Path, fault: str = "ok", block: int = 64, name: str = "") -> Path:
    """Write a candidate that misbehaves as its fault says."""
    path = folder / (name or f"{fault}.cu")
    path.write_text(CUDA.format(fault=fault, block=block))
    return path


def task(folder: Path, extra: str = "") -> Path:
    return write_kernel(folder, blocks=(32, 64), items=(1,), extra=extra)


@pytest.fixture
def judge(
    tmp_path: Path,
    any_code: None,
    pool: CompilePool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Judge:
    """Return ``tune judge`` in a folder of the test's own."""
    log_into(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    # Short batches, on a host that may be busy.
    for name, value in {"BATCH_NS": 1e6, "REST": 0.0, "ASKING_NS": 1e7}.items():
        monkeypatch.setattr(f"tuner.devices.pacing.{name}", value)
    monkeypatch.setattr(
        "tuner.cli.configuration.open_device",
        lambda *_: LocalDevice(Processes(0, None, tmp_path / "cache", WORKER, pool)),
    )
    return lambda *arguments: said_by(capsys, "judge", *map(str, arguments))


def verdict_of(said: Said) -> dict[str, Any]:
    found = json.loads(said.out)
    assert isinstance(found, dict)
    return found


def in_toml(folder: Path) -> Path:
    """Write a candidate that is a kernel's file with variants alone."""
    cuda(folder, name="two.cu")
    file = folder / "mine.toml"
    file.write_text(
        """
[definitions]
blocks = "ceil_div(n, block_size)"
n_again = "n"

[variants.mine.parameters]
block_size = { values = [64, 128], default = 128 }

[[variants.mine.launches]]
template = "two.cu"
entry = "mine__ok"
arguments = ["x", "y", { value = "n_again", dtype = "int64" }]
grid = ["blocks"]
block = ["block_size"]
"""
    )
    return file
