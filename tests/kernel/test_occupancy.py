"""Resident blocks by hand, and against NVIDIA's own calculator; waves."""

from __future__ import annotations

import random
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.compiled_once import run_once
from tuner.children.headers import header_folders
from tuner.core.model import Gpu
from tuner.kernel.occupancy import Limit, Occupancy, Waves, occupancy
from tuner.kernel.roofline import ARCHITECTURES, bytes_in_flight, customary_bytes_in_flight

KIB = 1024
T4, A100, RTX4090, H200 = (ARCHITECTURES[cc] for cc in (75, 80, 89, 90))


def limits(result: Occupancy) -> dict[str, int]:
    return {limit.name: limit.blocks for limit in result.limits}


def too_much(result: Occupancy) -> dict[str, int | None]:
    return {limit.name: limit.too_much for limit in result.limits}


def test_each_limit_by_itself() -> None:
    # 256 threads are 8 warps: 64 / 8. 40 registers cost a warp 1280: 16384 // 1280 = 12 warps in each of four parts, 48
    # in all, 6 blocks of 8. 20 KiB and the system's 1 KiB: 228 // 21.
    result = occupancy(H200, 256, 40, 20 * KIB)
    assert limits(result) == {"threads": 8, "blocks": 32, "registers": 6, "shared memory": 10}
    assert (result.active_blocks, result.limiter) == (6, "registers")
    assert (result.warps, result.max_warps, result.fraction) == (48, 64, 0.75)
    # Seven blocks are 56 warps, 14 in each part: 16384 // 14 = 1170 registers a warp, in units of 256 that is 1024, and
    # 32 a thread.
    assert too_much(result) == {"threads": 0, "blocks": 0, "registers": 8, "shared memory": 0}
    assert result.limiters == (Limit("registers", 6, 8),)


# -- NVIDIA's own calculator, where its header and a compiler are

ORACLE = r"""
#include <climits>
#include <cstdio>
#include <cstring>
#include "cuda_occupancy.h"
int main() {
    int major, minor, sm_threads, sm_registers, sm_shared, optin, reserved, threads, registers, shared, carveout, bars;
    while (std::scanf("%d %d %d %d %d %d %d %d %d %d %d %d", &major, &minor, &sm_threads, &sm_registers, &sm_shared,
                      &optin, &reserved, &threads, &registers, &shared, &carveout, &bars) == 12) {
        cudaOccDeviceProp device;
        device.computeMajor = major, device.computeMinor = minor, device.maxThreadsPerBlock = 1024;
        device.maxThreadsPerMultiprocessor = sm_threads, device.regsPerBlock = 65536;
        device.regsPerMultiprocessor = sm_registers, device.warpSize = 32, device.sharedMemPerBlock = 49152;
        device.sharedMemPerMultiprocessor = sm_shared, device.numSms = 1;
        device.sharedMemPerBlockOptin = optin, device.reservedSharedMemPerBlock = reserved;
        cudaOccFuncAttributes kernel;
        kernel.maxThreadsPerBlock = INT_MAX, kernel.numRegs = registers, kernel.sharedSizeBytes = 0;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN, kernel.maxDynamicSharedSizeBytes = shared;
        kernel.numBlockBarriers = bars;
        cudaOccDeviceState state;
        state.carveoutConfig = carveout;
        cudaOccResult result;
        std::memset(&result, 0, sizeof result);
        int error = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, shared);
        std::printf("%d %d %d %d\n", error, result.activeBlocksPerMultiprocessor, result.blockLimitRegs,
                    result.blockLimitSharedMem);
    }
}
"""


def oracle(folder: Path, cases: list[tuple[Gpu, int, int, int, int | None, int]]) -> list[list[int]]:
    header = next((f for f in header_folders() if (f / "cuda_occupancy.h").is_file()), None)
    compiler = shutil.which("g++")
    if header is None or compiler is None:
        pytest.skip("no g++, or no cuda_occupancy.h: pip install nvidia-cuda-runtime")
    (folder / "oracle.cpp").write_text(ORACLE)
    made = run_once(compiler, f"-I{header}", "-o", "oracle", "oracle.cpp", folder=folder, output="oracle")
    assert made.returncode == 0, made.stderr
    lines = [
        f"{g.cc // 10} {g.cc % 10} {g.max_threads_per_sm} {g.registers_per_sm} {g.shared_bytes_per_sm} "
        f"{g.shared_bytes_optin} {g.reserved_shared_bytes} {threads} {registers} {shared} "
        f"{-1 if carveout is None else carveout} {barriers}"
        for g, threads, registers, shared, carveout, barriers in cases
    ]
    done = subprocess.run(
        [folder / "oracle"], input="\n".join(lines), text=True, check=True, capture_output=True
    )
    return [[int(word) for word in line.split()] for line in done.stdout.splitlines()]


def test_as_nvidia_counts(tmp_path: Path) -> None:
    rng = random.Random(0)
    cases = [
        (
            gpu,
            rng.choice([rng.randint(1, 1024), 32 * rng.randint(1, 32)]),
            rng.randint(1, 255),
            rng.choice([0, rng.randint(0, gpu.shared_bytes_optin), 128 * rng.randint(0, 400)]),
            rng.choice([None, rng.randint(0, 100)]),
            rng.randint(0, 16),
        )
        for gpu in ARCHITECTURES.values()
        for _ in range(200)
    ]
    for case, (error, blocks, by_registers, by_shared) in zip(cases, oracle(tmp_path, cases), strict=True):
        gpu, threads, registers, shared, carveout, barriers = case
        if shared > gpu.shared_bytes_optin:
            continue
        assert error == 0, case
        result = occupancy(gpu, threads, registers, shared, carveout=carveout, barriers=barriers)
        assert result.active_blocks == blocks, case
        assert limits(result)["registers"] == by_registers, case
        if shared:  # else it limits nothing, which we call as many blocks as there are slots
            assert limits(result)["shared memory"] == by_shared, case


def test_what_is_too_much_is_exactly_too_much() -> None:
    """Taking so much less gives the block; taking a unit more does not."""
    rng = random.Random(1)
    for _ in range(150):
        gpu = rng.choice(list(ARCHITECTURES.values()))
        threads, registers = rng.randint(1, 1024), rng.randint(1, 255)
        shared, carveout = rng.randint(0, gpu.shared_bytes_optin), rng.choice([None, rng.randint(0, 100)])
        result = occupancy(gpu, threads, registers, shared, carveout=carveout)
        for limit in result.limits:
            less = {"threads": threads, "registers": registers, "shared memory": shared}
            if limit.blocks > result.active_blocks:
                assert limit.too_much == 0
            if not limit.too_much or limit.name not in less:
                continue
            blocks = {}
            for change in (limit.too_much, limit.too_much - 1):
                values = {**less, limit.name: less[limit.name] - change}
                again = occupancy(gpu, *values.values(), carveout=carveout)
                blocks[change] = limits(again).get(limit.name, 1000)
            assert blocks[limit.too_much] > result.active_blocks
            assert blocks[limit.too_much - 1] == result.active_blocks


# -- waves


def test_waves() -> None:
    # 8 blocks on each of 132 SMs: 1056 at once. 32768 blocks are 31.03 waves, and the last has 32 blocks.
    waves = Waves(32768, 8, 132)
    assert waves.slots == 1056
    assert waves.count == pytest.approx(31.03, abs=0.01)
    assert waves.last_idle == pytest.approx(1 - 32 / 1056)
    assert waves.idle == pytest.approx(1 - 32768 / (32 * 1056))
    assert not waves.at_once
    full = Waves(2112, 8, 132)
    assert (full.count, full.last_idle, full.idle) == (2.0, 0.0, 0.0)


# -- Little's law


def test_bytes_in_flight() -> None:
    assert bytes_in_flight(4.8e12, 600, 132) == pytest.approx(21818, abs=1)
    assert bytes_in_flight(4.8e12, 800, 132) == pytest.approx(29091, abs=1)


def test_one_wave_lasts_as_long_as_the_fullest_sm() -> None:
    even = Waves(528, 8, 132)
    assert even.at_once
    assert (even.idle, even.last_idle, even.sms_used) == (0.0, 0.0, 132)
    # 140 blocks: eight SMs have two, and all others wait for them.
    assert Waves(140, 8, 132).idle == pytest.approx(1 - 140 / 264)
    few = Waves(40, 8, 132)
    assert few.sms_used == 40
    assert few.idle == pytest.approx(1 - 40 / 132)


def test_customary_bytes_in_flight() -> None:
    kib = {cc: customary_bytes_in_flight(gpu) // KIB for cc, gpu in ARCHITECTURES.items()}
    assert kib == {75: 12, 80: 16, 86: 16, 89: 16, 90: 48, 100: 64, 120: 64}
    assert customary_bytes_in_flight(replace(H200, name="NVIDIA H100 80GB HBM3")) == 32 * KIB
