"""The fake driver as cuda-python's bindings see it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.fake_driver import environment

PROGRAM = """
import ctypes, sys
from cuda.bindings import driver as cu

def check(result):
    assert int(result[0]) == 0, result
    return result[1] if len(result) == 2 else result[1:]

check(cu.cuInit(0))
assert check(cu.cuDeviceGetCount()) == 2 and check(cu.cuDeviceGetName(64, 1)).startswith(b"NVIDIA L4")
check(cu.cuCtxSetCurrent(check(cu.cuDevicePrimaryCtxRetain(0))))
function = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(b"fake cubin\\nadd 8 4\\n\\0")), b"add"))
stream = check(cu.cuStreamCreate(1))
address = check(cu.cuMemAlloc(1024))
values = (ctypes.c_uint64(int(address)), ctypes.c_int(7))
pointers = (ctypes.c_void_p * 2)(*map(ctypes.addressof, values))

def launch(threads, cluster):
    config = cu.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = 12, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
    config.hStream = stream
    attribute = cu.CUlaunchAttribute()
    attribute.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    attribute.value.clusterDim.x = cluster
    attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1
    config.attrs, config.numAttrs = [attribute], 1
    return int(cu.cuLaunchKernelEx(config, function, ctypes.addressof(pointers), 0)[0])

assert launch(128, 4) == 0
assert launch(128, 5) == 1 and launch(2048, 1) == 1 and launch(128, 12) == 1
check(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
assert launch(64, 1) == 0
check(cu.cuMemsetD8Async(address, 1, 1024, stream))
graph = check(cu.cuStreamEndCapture(stream))
executable = check(cu.cuGraphInstantiate(graph, 0))
check(cu.cuGraphLaunch(executable, stream))
check(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
assert int(cu.cuMemAlloc(8)[0]) == 900 and int(cu.cuStreamEndCapture(stream)[0]) == 901
assert int(cu.cuMemsetD8(int(address) + 1000, 0, 100)[0]) == 700
"""


def test_it_launches_what_a_gpu_would_and_refuses_the_rest(tmp_path: Path) -> None:
    log = tmp_path / "log"
    settings = environment(devices="NVIDIA H200:90:132,NVIDIA L4:89:58", log=str(log))
    ended = subprocess.run([sys.executable, "-c", PROGRAM], env=settings, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    plain, captured, memset = (json.loads(line) for line in log.read_text().splitlines())
    assert (plain["kernel"], plain["cluster"], plain["graph"]) == ("add", [4, 1, 1], 0)
    assert plain["arguments"][1] == "07000000"
    assert (captured["block"], captured["graph"]) == ([64, 1, 1], 1)
    assert memset["bytes"] == 1024
