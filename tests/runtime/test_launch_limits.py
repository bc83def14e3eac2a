"""What a GPU can launch: the last that passes, and the first that is refused."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tuner.core.errors import KernelError
from tuner.kernel.roofline import ARCHITECTURES
from tuner.runtime.launch_limits import (
    BLOCK_LIMITS,
    CLUSTER_LIMITS,
    DEVICE_LIMITS,
    GRID_LIMITS,
    UnlaunchableError,
    check_launch,
    cluster_of,
    fits,
    map_argument,
    packed,
    rounded,
    triple,
)
from tuner.runtime.launches import MAX_CLUSTERS, Buffer, Launch

LIMITS = {name: getattr(ARCHITECTURES[90], name) for name in DEVICE_LIMITS}
LAUNCH = Launch((1, 1, 1), (LIMITS["max_threads_per_block"], 1, 1), LIMITS["shared_bytes_optin"], ())


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        (GRID_LIMITS, (2147483647, 65535, 65535)),
        (BLOCK_LIMITS, (1024, 1024, 64)),
        (CLUSTER_LIMITS, (16, 16, 16)),
    ],
)
def test_sizes_up_to_each_limit(limits: Any, most: tuple[int, ...]) -> None:
    """Of CUDA's programming guide, table of technical specifications."""
    assert triple(most, "grid", limits) == most
    assert triple(most[:1], "grid", limits) == (most[0], 1, 1)
    for i in range(3):
        with pytest.raises(UnlaunchableError, match=f"grid of {most[i] + 1}.*is {most[i]}"):
            triple([*most[:i], most[i] + 1], "grid", limits)


def test_clusters_need_a_gpu_and_a_grid_for_them() -> None:
    assert cluster_of((2, 1), (4, 3, 1), 90) == (2, 1, 1)
    assert cluster_of((1, 1, 1), (4, 3, 1), 90) is cluster_of((), (4, 3, 1), 80) is None
    with pytest.raises(UnlaunchableError, match=r"compute capability 9\.0"):
        cluster_of((2, 1), (4, 3, 1), 89)
    for sizes in ((3,), (1, 2), (1, 1, 2)):
        with pytest.raises(UnlaunchableError, match="no multiple of cluster"):
            cluster_of(sizes, (4, 3, 1), 90)


@pytest.mark.parametrize(
    ("most", "beyond"),
    [
        ({}, {"block": (LIMITS["max_threads_per_block"] + 1, 1, 1)}),
        ({}, {"shared_bytes": LIMITS["shared_bytes_optin"] + 1}),
        ({"carveout": 100}, {"carveout": 101}),
        (
            {"grid": (2 * MAX_CLUSTERS, 1, 1), "arguments": (("cluster_order", "uint8", 8),)},
            {"grid": (2 * MAX_CLUSTERS + 2, 1, 1)},
        ),
    ],
)
def test_launches_up_to_each_limit(most: dict[str, Any], beyond: dict[str, Any]) -> None:
    launch = replace(LAUNCH, cluster=(2, 1, 1), **most)
    check_launch(launch, LIMITS)
    with pytest.raises(UnlaunchableError):
        check_launch(replace(launch, **beyond), LIMITS)


def of_map(
    shape: tuple[int, ...] = (512, 512), dtype: str = "float32", box: tuple[int, int] = (8, 8), *,
    swizzle: int = 0, promotion: int = 0, cc: int = 90,
) -> dict[str, Any]:  # fmt: skip
    """Return what a map of a matrix says."""
    kind, name, text = map_argument(Buffer("a", shape, dtype, "input"), "map a", box, swizzle, promotion, cc)
    assert (kind, name) == ("map", "a")
    return json.loads(text)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("good", "beyond"),
    [
        ({"box": (256, 4)}, {"box": (257, 4)}),
        ({"box": (1, 256)}, {"box": (1, 260)}),
        ({"box": (1, 4)}, {"box": (1, 2)}),  # 16 bytes
        ({"box": (1, 32), "swizzle": 128}, {"box": (1, 36)}),
        ({"swizzle": 32}, {"swizzle": 16}),
        ({"swizzle": 64}, {"swizzle": 256}),
        ({"promotion": 64}, {"promotion": 32}),
        ({"promotion": 128}, {"promotion": 512}),
        ({"promotion": 256}, {"promotion": 1}),
        ({"shape": (3, 12)}, {"shape": (3, 14)}),  # 48 bytes a row
        ({"dtype": "float16", "box": (1, 8)}, {"dtype": "float64"}),
        ({"dtype": "bfloat16", "box": (1, 8)}, {"dtype": "int32"}),
        ({}, {"shape": (512,)}),
        ({}, {"cc": 89}),
    ],
)
def test_maps_up_to_each_limit(good: dict[str, Any], beyond: dict[str, Any]) -> None:
    said, box = of_map(**good), good.get("box", (8, 8))
    assert (said["rows"], said["columns"]) == good.get("shape", (512, 512))
    assert (said["box_rows"], said["box_columns"]) == box
    for name in ("swizzle", "promotion", "dtype"):
        assert said[name] == good.get(name, {"dtype": "float32"}.get(name, 0))
    with pytest.raises((UnlaunchableError, KernelError)):
        of_map(**{**good, **beyond})


def test_there_is_no_map_of_what_a_problem_lacks() -> None:
    with pytest.raises(KernelError, match="maps are of matrices"):
        map_argument(None, "map a", (8, 8), 0, 0, 90)


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("int8", -128, 127), ("uint8", 0, 255), ("int32", -(2**31), 2**31 - 1), ("uint32", 0, 2**32 - 1),
        ("int64", -(2**63), 2**63 - 1), ("int16", -(2**15), 2**15 - 1), ("uint16", 0, 2**16 - 1),
        ("uint64", 0, 2**64 - 1),
    ],
)  # fmt: skip
def test_integers_up_to_each_limit(dtype: str, low: int, high: int) -> None:
    assert (fits(low, dtype, "n"), fits(high, dtype, "n"), fits(1.0, dtype, "n")) == (low, high, 1)
    for beyond in (low - 1, high + 1):
        with pytest.raises(UnlaunchableError, match=f"{beyond} does not fit {dtype}"):
            fits(beyond, dtype, "n")
    with pytest.raises(KernelError, match='not a whole number; give it dtype = "float32", as'):
        fits(0.5, dtype, "n")
    with pytest.raises(UnlaunchableError, match="2 does not fit bool; it is 0 or 1"):
        fits(2, "bool", "n")
    assert fits(0.5, "bfloat16", "n") == 0.5


@pytest.mark.parametrize(
    ("value", "dtype", "kept"),
    [
        (1 + 2**-8, "bfloat16", 1.0),  # ties to even
        (1 + 3 * 2**-8, "bfloat16", 1 + 2**-6),
        (1 + 2**-8 + 2**-16, "bfloat16", 1 + 2**-7),
        (1 + 2**-11, "float16", 1.0),
        (65520.0, "float16", float("inf")),
        (-1e39, "float32", float("-inf")),
        (3.4e38, "float32", 3.3999999521443642e38),
        (0.1, "float64", 0.1),
        (0.1, "float32", 0.10000000149011612),
        (1.0625, "float8_e4m3fn", 1.0),  # ties to even
        (2**-9 * 0.75, "float8_e4m3fn", 2**-9),
        (-1000.0, "float8_e4m3fn", -448.0),
    ],
)
def test_numbers_are_rounded_as_an_argument_is(value: float, dtype: str, kept: float) -> None:
    assert rounded(value, dtype) == kept


@pytest.mark.parametrize(
    ("value", "dtype", "data"),
    [
        (1.0, "bfloat16", "803f"),
        (1 + 2**-8 + 2**-16, "bfloat16", "813f"),
        (-1.5, "float16", "00be"),
        (0.0, "float8_e4m3fn", "00"),
        (-1.9375, "float8_e4m3fn", "c0"),  # carries
        (0.1, "float32", "cdcccc3d"),
        (1.0, "float64", "000000000000f03f"),
        (1 - 2j, "complex64", "0000803f000000c0"),
        (-2, "int8", "fe"),
        (2**32 - 1, "uint32", "ffffffff"),
        (-1, "int64", "ffffffffffffffff"),
        (7.0, "int32", "07000000"),
    ],
)
def test_a_number_lies_in_memory_as_its_dtype_has_it(value: complex, dtype: str, data: str) -> None:
    assert packed(value, dtype).hex() == data


def test_numbers_of_two_bytes_are_rounded_to_the_nearest() -> None:
    draw = random.Random(3)
    values = [0.0, -0.0, math.inf, -math.inf, 65504.0, 65519.9, 65520.0, 6e-8, 3.3e38, 3.4e38, 1 + 3 * 2**-8]
    values += [draw.gauss(0, 1) * 2.0 ** draw.randrange(-30, 20) for _ in range(100)]
    with np.errstate(over="ignore"):
        single = np.array(values, np.float32)
        bits = single.view(np.uint32).astype(np.uint64)
        wanted = {"float16": np.array(values).astype(np.float16).view(np.uint16),
                  "bfloat16": (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16}  # fmt: skip
    for dtype, numbers in wanted.items():
        found = [int.from_bytes(packed(value, dtype), "little") for value in values]
        assert found == numbers.tolist(), dtype
        assert math.isnan(rounded(math.nan, dtype))
