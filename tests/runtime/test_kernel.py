"""Launches as the driver gets them: what is bound, what attributes they have, in a stream and as nodes of a graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.fake_driver.programs import run_program

PRELUDE = """
import ctypes, json
from cuda.bindings import driver as cu
from tuner.gpu.driver import Context
from tuner.gpu.driver import Graph
from tuner.runtime.cluster_order import ClusterOrders, probe
from tuner.runtime.driver import DriverFailure, check, library
from tuner.runtime.kernel import Kernel
from tuner.runtime.launches import Launch

context = Context(0)
stream = int(context.stream)

def module(*kernels):
    return check(cu.cuModuleLoadData("\\n".join(["fake cubin", *kernels, "\\0"]).encode()))

def matrix(rows, columns, **others):
    settings = dict(dtype="bfloat16", box_rows=128, box_columns=64, swizzle=128, promotion=256)
    return json.dumps(dict(rows=rows, columns=columns, **{**settings, **others}))

def memory(count):
    return [int(check(cu.cuMemAlloc(1024))) for _ in range(count)]

ONE = ((1, 1, 1), (32, 1, 1), 0)
"""


def run(tmp_path: Path, program: str) -> tuple[list[Any], list[dict[str, Any]]]:
    """Run a program with the fake driver; return the JSON lines it prints, and the log of launches."""
    printed, launches = run_program(PRELUDE + program, tmp_path / "log")
    return [json.loads(line) for line in printed], launches


def number(text: str) -> int:
    """Return an argument's bytes as a whole number."""
    return int.from_bytes(bytes.fromhex(text), "little")


def test_a_launch_in_a_stream_is_what_the_record_says(tmp_path: Path) -> None:
    printed, [launch] = run(
        tmp_path,
        """
a, c = memory(2)
arguments = (
    ("map", "a", matrix(100, 520)), ("buffer", "c", 0), ("scalar", "int32", -5), ("scalar", "int64", 1 << 40),
    ("cluster_order", "uint8", 3), ("scalar", "float64", 0.1), ("scalar", "int8", -1), ("scalar", "uint8", 255),
    ("scalar", "uint32", 1 << 31), ("scalar", "float32", 1.5),
)
record = Launch((32, 6, 2), (64, 2, 1), 100000, arguments, (16, 1, 1), carveout=50, programmatic=True)
entry = module("gemm 128 8 4 8 256 8 1 1 4 4")
kernel = Kernel(entry, "gemm", record, {"a": a, "c": c}, lambda launch, size: [9 - size] * launch.clusters)
kernel.launch(stream)
print(json.dumps([a, c, stream]))
""",
    )
    a, c, stream = printed[0]
    assert (launch["grid"], launch["block"], launch["cluster"]) == ([32, 6, 2], [64, 2, 1], [16, 1, 1])
    assert (launch["shared"], launch["carveout"], launch["stream"]) == (100000, 50, stream)
    assert (launch["cooperative"], launch["programmatic"]) == (0, 1)
    mapped, *others = launch["arguments"]
    assert (mapped["address"], mapped["rows"], mapped["columns"], mapped["stride"]) == (a, 100, 520, 1040)
    # As cuda.h numbers bfloat16, 128 bytes of swizzle, 256 of promotion.
    assert (mapped["box"], mapped["dtype"], mapped["swizzle"], mapped["promotion"]) == ([128, 64], 9, 3, 3)
    table = bytes.fromhex(others.pop(3))
    assert table == bytes([6] * 24 + [0] * 232)
    numbers = [number(text) for text in others]
    assert numbers[:3] == [c, 2**32 - 5, 1 << 40]
    assert numbers[4:] == [255, 255, 1 << 31, 0x3FC00000]
    assert np.uint64(numbers[3]).view(np.float64) == 0.1


def test_blocks_that_wait_for_each_other_are_launched_together(tmp_path: Path) -> None:
    """The driver refuses more than can be resident, instead of waiting for ever."""
    printed, launches = run(
        tmp_path,
        """
entry = module("waits")
for blocks in (132, 133):
    record = Launch((blocks, 1, 1), (32, 1, 1), 200000, (), resident=True)
    try:
        Kernel(entry, "waits", record).launch(stream)
    except DriverFailure as failure:
        print(json.dumps([blocks, str(failure), failure.sticky]))
""",
    )
    assert [launch["cooperative"] for launch in launches] == [1]
    assert printed == [[133, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE (720)", False]]


def test_a_node_of_a_graph_is_what_a_launch_in_a_stream_is(tmp_path: Path) -> None:
    _, logged = run(
        tmp_path,
        """
[a, b] = memory(2)
record = Launch((4, 4, 1), (32, 1, 1), 60000, (("buffer", "a", 0),), (2, 2, 1), True, 25, programmatic=True)
kernel = Kernel(module("k 8"), "k", record, {"a": a})
kernel.launch(stream)
graph = Graph(context)
graph.memset(a, 0, 16)
graph.kernel(kernel)
kernel.bind({"a": b})  # the node keeps what was bound
graph.kernel(kernel)
graph.launch()
""",
    )
    alone, _, first, second = logged
    assert alone["cluster"] == [2, 2, 1] and alone["cooperative"] == 1 and alone["shared"] == 60000
    same = [name for name in alone if name not in ("graph", "programmatic", "arguments")]
    for node in (first, second):
        assert {name: node[name] for name in same} == {name: alone[name] for name in same}
    assert [entry["programmatic"] for entry in (alone, first, second)] == [
        1,
        0,
        1,
    ]  # a memset has no such edge
    assert alone["arguments"] == first["arguments"] != second["arguments"]


def test_other_addresses_and_values(tmp_path: Path) -> None:
    printed, launches = run(
        tmp_path,
        """
a, b, c, d = memory(4)
arguments = (("map", "a", matrix(8, 64)), ("map", "b", matrix(8, 64)), ("buffer", "c", 0), ("scalar", "float32", 1.0))
kernel = Kernel(module("k 128 128 8 4"), "k", Launch(*ONE, arguments))
for addresses in ({"a": a, "b": b, "c": c}, {"a": a, "b": d, "c": d}, {"a": a, "b": d, "c": c}):
    kernel.bind(addresses)
    kernel.launch(stream)
kernel.set_scalar(3, -2.0)
kernel.launch(stream)
print(json.dumps([a, b, c, d]))
count = library().fake_cuda_count
count.restype = ctypes.c_long
print(count(b"maps"))
""",
    )
    [a, b, c, d], encoded = printed
    bound = [(m["address"], n["address"], number(p)) for m, n, p, _ in (run["arguments"] for run in launches)]
    assert bound == [(a, b, c), (a, d, d), (a, d, c), (a, d, c)]
    assert [run["arguments"][3] for run in launches] == ["0000803f"] * 3 + ["000000c0"]
    assert encoded == 3  # those whose matrix has moved


def test_what_the_driver_refuses_is_named(tmp_path: Path) -> None:
    printed, launches = run(
        tmp_path,
        """
def said(do):
    try:
        do()
    except DriverFailure as failure:
        print(json.dumps(str(failure)))

[a] = memory(1)
entry = module("k", "m 128")
said(lambda: Kernel(entry, "q", Launch(*ONE, ())))
said(lambda: Kernel(entry, "k", Launch((1, 1, 1), (32, 1, 1), 1 << 20, ())))
said(lambda: Kernel(entry, "k", Launch((70000, 70000, 1), (32, 1, 1), 0, ())).launch(stream))
kernel = Kernel(entry, "m", Launch(*ONE, (("map", "a", matrix(8, 64)),)))
said(lambda: kernel.bind({"a": a + 8}))
said(lambda: kernel.bind({"a": a + 8}))  # it is no map of that address
kernel.bind({"a": a})
kernel.launch(stream)
""",
    )
    assert printed == [
        "CUDA_ERROR_NOT_FOUND (500)",
        "CUDA_ERROR_INVALID_VALUE (1)",
        "CUDA_ERROR_INVALID_VALUE (1)",
        "cuTensorMapEncodeTiled (1)",
        "cuTensorMapEncodeTiled (1)",
    ]
    assert len(launches) == 1


def test_a_failure_that_only_newer_bindings_name(tmp_path: Path) -> None:
    printed, _ = run(
        tmp_path,
        """
from tuner.runtime.driver import failure
print(json.dumps([str(failure(98765)), failure(700).sticky]))
""",
    )
    assert printed == [["CUDA error (98765)", True]]


def test_two_launches_of_one_function_with_other_needs(tmp_path: Path) -> None:
    _, launches = run(
        tmp_path,
        """
entry = module("k")
sizes = (100000, 60000, 0)
kernels = [Kernel(entry, "k", Launch((1, 1, 1), (32, 1, 1), size, ())) for size in sizes]
for kernel in kernels:
    kernel.launch(stream)
""",
    )
    assert [launch["shared"] for launch in launches] == [100000, 60000, 0]


def test_where_clusters_run_is_seen(tmp_path: Path) -> None:
    """The fake driver's clusters go to seven GPCs in turn."""
    [[orders, gpcs]], launches = run(
        tmp_path,
        """
orders = ClusterOrders(probe(module("whereabouts 8 8"), stream))
pairs = Launch((48, 1, 1), (32, 1, 1), 0, (), (2, 1, 1))
print(json.dumps([orders.of(pairs, 3), sorted(orders.gpcs().items())]))
""",
    )
    assert {launch["kernel"] for launch in launches} == {"whereabouts"}
    assert {launch["cluster"][0] for launch in launches} == {16, 8, 4, 2}
    of_sm = dict(map(tuple, gpcs))
    assert len(set(of_sm.values())) == 7 and all(of_sm[sm] == of_sm[sm - sm % 18] for sm in of_sm)
    assert sorted(orders) == list(range(24))
    parts = [{cluster % 7 for cluster in range(24) if orders[cluster] // 3 == part} for part in range(8)]
    assert sum(len(part) == 1 for part in parts) == 7
