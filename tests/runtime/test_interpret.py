"""From a manifest to launches in numbers: what they are, what the workspace is, and why a problem is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.runtime.manifests import LIMITS, REPEATED, SHA, manifest_with
from tuner.core.errors import CallError
from tuner.runtime.interpret import ConcretePlan, InvalidForProblemError, Workspace, interpret, scalar_values
from tuner.runtime.manifest import read_manifest

TILED = "configurations.1"
LOOP = {"name": "step", "count": ["+", "level", 1]}
SIZES = {"m": 1000, "n": 256, "k": 4128}


def interpreted(*changes: tuple[str, Any], **sizes: int) -> ConcretePlan:
    return interpret(read_manifest(manifest_with(*changes)), 1, {**SIZES, **sizes}, LIMITS)


def test_a_plan_in_numbers() -> None:
    concrete = interpreted(m=1024)
    pad, launch = concrete.plan.launches
    assert (pad.grid, pad.block, pad.shared_bytes, pad.cluster) == ((1024, 1, 1), (32, 4, 1), 0, None)
    assert pad.arguments == (("buffer", "a", 0), ("buffer", "copy", 0), ("scalar", "int32", 4128))
    assert (launch.grid, launch.block, launch.shared_bytes) == ((16, 2, 1), (384, 1, 1), 132096)
    assert (launch.cluster, launch.carveout, launch.alignment) == ((2, 1, 1), 100, 16)
    assert (launch.cooperative, launch.resident, launch.programmatic) == (False, False, True)
    maps, rest = launch.arguments[:2], launch.arguments[2:]
    assert [(kind, name) for kind, name, _ in maps] == [("map", "copy"), ("map", "b")]
    assert json.loads(str(maps[1][2])) == {
        "dtype": "bfloat16", "rows": 256, "columns": 4128, "box_rows": 128, "box_columns": 64,
        "swizzle": 128, "promotion": 0,
    }  # fmt: skip
    assert rest == (
        ("scalar", "int64", 0),  # bias is absent: a null pointer
        ("buffer", "c", 0),
        ("buffer", "partials", 0),
        ("buffer", "tickets", 0),
        ("cluster_order", "uint8", 8),
        ("scalar", "float32", 0.10000000149011612),
        ("scalar", "int64", 1024 * 256),
        ("scalar", "float32", 1024 / 3),
    )
    assert [(tensor.name, tensor.shape) for tensor in concrete.tensors] == [
        ("a", (1024, 4128)), ("b", (256, 4128)), ("c", (1024, 256))
    ]  # fmt: skip
    assert [(entry.cubin, entry.entry) for entry in concrete.entries] == [
        (SHA, "pad_rows"), ("f" * 32, "tiled")
    ]  # fmt: skip
    assert concrete.scalar_positions == {"alpha": ((1, 7),)}


def test_launches_arguments_and_scratch_are_left_out() -> None:
    concrete = interpreted(m=128, k=4096)
    (launch,) = concrete.plan.launches
    assert [buffer.name for buffer in concrete.plan.scratch] == ["partials", "tickets"]
    assert [name for kind, name, _ in launch.arguments if kind == "map"] == ["a", "b"]
    assert not launch.needs_cluster_order
    assert concrete.scalar_positions == {"alpha": ((0, 6),)}
    assert launch.resident


def test_launches_repeat() -> None:
    repeated = interpreted((f"{TILED}.launches.0", REPEATED), m=8).plan.launches[:-1]
    assert [launch.arguments for launch in repeated] == [
        (("buffer", "copy", 0), ("scalar", "int32", 1)),
        (("buffer", "copy", 0), ("scalar", "int32", 2)),
        (("buffer", "a", 0), ("scalar", "int32", 2)),
    ]
    assert [launch.code for launch in repeated] == [0, 0, 0]
    with pytest.raises(InvalidForProblemError, match="index = 2, and one_of has 2"):
        interpreted(
            (f"{TILED}.launches.0", {**REPEATED, "arguments": [{"one_of": ["a", "copy"], "index": "step"}]}),
            m=8,
        )
    with pytest.raises(InvalidForProblemError, match="repeat more than 4096 times"):
        interpreted(
            (f"{TILED}.launches.0", {**REPEATED, "repeat": [{"name": "level", "count": "m"}, LOOP]}), m=4096
        )


def test_what_is_zeroed_once_comes_first() -> None:
    assert interpreted(m=1000).workspace == Workspace(
        {"tickets": 0, "copy": 256, "partials": 256 + 8256000}, 256, 256 + 8256000 + 264192
    )
    changes = [(f"{TILED}.scratch.{number}.zeroed_once", True) for number in range(3)]
    workspace = interpreted(*changes).workspace
    assert workspace.zeroed_once_bytes == workspace.size_bytes
    assert interpret(read_manifest(manifest_with()), 0, SIZES, LIMITS).workspace == Workspace()


LAUNCH = f"{TILED}.launches.1"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ((f"{TILED}.requires.0.holds", ["<", "m", 8]), "^rows are vectors$"),
        ((f"{TILED}.requires.1.holds", ["//", "m", 0]), "^k has two parts$"),
        ((f"{LAUNCH}.grid", [["-", "m", "m"]]), "grid = 0; it must be a whole number from 1 up"),
        ((f"{LAUNCH}.grid", [["/", "m", 3]]), "grid = 341.3"),
        ((f"{LAUNCH}.grid", [2.0**63]), "grid = 9.2"),
        ((f"{LAUNCH}.grid", [2**31]), "grid of 2147483648; the limit in this dimension is 2147483647"),
        ((f"{LAUNCH}.grid", [["//", 1, 0]]), "no value: a division by zero"),
        ((f"{LAUNCH}.grid", [514]), "a table of numbers for 257 clusters"),
        ((f"{LAUNCH}.block", [32, 64]), "a block of 2048 threads; this GPU allows 1024"),
        ((f"{LAUNCH}.shared_bytes", 232449), "232449 bytes of shared memory; this GPU allows 232448"),
        ((f"{LAUNCH}.shared_bytes", ["neg", 1]), "shared_bytes = -1"),
        ((f"{LAUNCH}.alignment", 12), "alignment = 12"),
        ((f"{LAUNCH}.when", ["%", "m", 0]), "no value"),
        ((f"{LAUNCH}.resident", ["log2", 0]), "no value"),
        ((f"{LAUNCH}.arguments.0.box", [257, 64]), "tensor map of copy: a box of 257 x 64"),
        ((f"{LAUNCH}.arguments.0.map", ["bias"]), "maps are of matrices"),
        ((f"{LAUNCH}.arguments.8.dtype", "int8"), "argument value = 262144 does not fit int8"),
        ((f"{LAUNCH}.arguments.9.dtype", "int32"), "is not a whole number"),
        (("computations.0.scalars.0", {"name": "alpha", "dtype": "uint32", "value": ["-", 0, "m"]}), "uint32"),
        (("computations.0.tensors.3.when", False), "the problem has no output"),
        (("computations.0.tensors.3.shape", [2**40, 2**23]), "c of 18446744073709551616 bytes"),
        ((f"{TILED}.scratch.1.shape", [2**62]), "partials of"),
    ],
)  # fmt: skip
def test_why_a_configuration_cannot_run(change: tuple[str, Any], said: str) -> None:
    with pytest.raises(InvalidForProblemError, match=said) as caught:
        interpreted(change, m=1024)
    assert "\n" not in str(caught.value)


def test_no_launch_is_left() -> None:
    with pytest.raises(InvalidForProblemError, match="no launch"):
        interpreted((f"{LAUNCH}.when", False), k=4096)


def test_scratch_must_fit_together() -> None:
    huge = [(f"{TILED}.scratch.{number}.shape", [2**58]) for number in (0, 1, 2)]
    with pytest.raises(InvalidForProblemError, match="scratch memory of"):
        interpreted(*huge)


@pytest.mark.parametrize(("cc", "said"), [(80, "9.0, and this GPU has 8.0"), (100, "this GPU has 10.0")])
def test_another_compute_capability_is_refused(cc: int, said: str) -> None:
    with pytest.raises(InvalidForProblemError, match=said):
        interpret(read_manifest(manifest_with()), 1, SIZES, {**LIMITS, "cc": cc})


def test_a_programmatic_launch_is_an_ordinary_one_before_hopper() -> None:
    manifest = read_manifest(manifest_with(("configurations.2.launches.0.programmatic", True)))
    concrete = interpret(manifest, 2, SIZES, {**LIMITS, "cc": 80})
    assert not concrete.plan.launches[0].programmatic


def test_what_needs_hopper() -> None:
    for launch in ({"cluster": [1]}, {"arguments": [{"map": ["a"], "box": [64, 64]}]}):
        changes = [(f"configurations.2.launches.0.{key}", value) for key, value in launch.items()]
        with pytest.raises(InvalidForProblemError, match=r"9\.0"):
            interpret(read_manifest(manifest_with(*changes)), 2, SIZES, {**LIMITS, "cc": 80})


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"m": 1, "n": 1}, "gemm takes m, n, k"),
        ({**SIZES, "m": 0}, "m = 0; a size is a whole number"),
        ({**SIZES, "m": 2**62 + 1}, "a size is a whole number"),
        ({**SIZES, "m": True}, "m = True"),
    ],
)
def test_wrong_sizes(sizes: dict[str, Any], said: str) -> None:
    with pytest.raises(CallError, match=said) as caught:
        interpret(read_manifest(manifest_with()), 1, sizes, LIMITS)
    assert not isinstance(caught.value, InvalidForProblemError)


@pytest.mark.parametrize(
    ("dtype", "scalars", "said"),
    [
        ("float32", {"beta": 1.0}, "no scalar 'beta'; choose from: alpha"),
        ("float32", {"alpha": "1"}, "alpha = '1'; give a number"),
        ("float32", {"alpha": 10**400}, "give a number"),
        ("int32", {"alpha": 0.5}, "alpha = 0.5 does not fit int32"),
        ("int32", {"alpha": math.nan}, "alpha = nan does not fit int32"),
        ("uint8", {"alpha": 256}, "alpha = 256 does not fit uint8"),
    ],
)
def test_wrong_scalars(dtype: str, scalars: dict[str, Any], said: str) -> None:
    manifest = read_manifest(
        manifest_with(("computations.0.scalars.0", {"name": "alpha", "dtype": dtype, "value": 1}))
    )
    with pytest.raises(CallError, match=said) as caught:
        scalar_values(manifest.computations[0], scalars)
    assert not isinstance(caught.value, InvalidForProblemError)
