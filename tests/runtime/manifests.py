"""Manifests of small products: one with all that the format has, and a bundle whose kernels the fake driver takes."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from tuner.runtime.manifest import file_digest

SHA = "0123456789abcdef" * 2
LIMITS = {
    "cc": 90, "sm_count": 132, "l2_bytes": 52428800, "shared_bytes_optin": 232448,
    "shared_bytes_per_sm": 233472, "registers_per_sm": 65536, "max_threads_per_sm": 2048,
    "max_blocks_per_sm": 32, "max_threads_per_block": 1024,
}  # fmt: skip
"""Those of an H200."""
TENSORS = [
    {"name": "a", "role": "input", "dtype": "bfloat16", "shape": ["m", "k"]},
    {"name": "b", "role": "input", "dtype": "bfloat16", "shape": ["k", "n"], "transposed": True},
    {"name": "bias", "role": "input", "dtype": "float32", "shape": ["n"], "when": [">", "n", 100000]},
    {"name": "c", "role": "output", "dtype": "bfloat16", "shape": ["m", "n"]},
]
PLAIN = {
    "computation": 0,
    "cc": 90,
    "variant": "naive",
    "launches": [
        {
            "cubin": SHA,
            "source": SHA,
            "entry": "naive",
            "grid": [["ceil_div", ["*", "m", "n"], 256]],
            "block": [256],
            "arguments": [{"tensor": "a"}, {"tensor": "b"}, {"tensor": "bias"}, {"tensor": "c"}],
        }
    ],
}
TILED = {
    "computation": 0,
    "cc": 90,
    "variant": "tiled",
    "parameters": {"block_m": 128, "split": True, "schedule": "stream_k", "ratio": 0.5},
    "requires": [
        {"reason": "rows are vectors", "holds": ["==", ["%", "k", 8], 0]},
        {"reason": "k has two parts", "holds": ["==", ["%", "k", ["//", "k", 128]], 0]},
    ],
    "scratch": [
        {"name": "copy", "dtype": "bfloat16", "shape": ["m", "k"], "when": ["!=", ["%", "k", 64], 0]},
        {"name": "partials", "dtype": "float32", "shape": [2, 33, "m"], "zeroed": True},
        {"name": "tickets", "dtype": "uint32", "shape": [["ceil_div", "m", 128]], "zeroed_once": True},
    ],
    "launches": [
        {
            "cubin": SHA,
            "source": SHA,
            "entry": "pad_rows",
            "when": ["!=", ["%", "k", 64], 0],
            "grid": ["m"],
            "block": [32, 4],
            "arguments": [{"tensor": "a"}, {"scratch": "copy"}, {"value": "k", "dtype": "int32"}],
        },
        {
            "cubin": "f" * 32,
            "source": "e" * 32,
            "entry": "tiled",
            "grid": [["*", 2, ["ceil_div", "m", 128]], ["ceil_div", "n", 128]],
            "block": [384],
            "shared_bytes": ["+", 1024, ["*", 4, 32768]],
            "cluster": [2, 1, 1],
            "programmatic": True,
            "carveout": 100,
            "alignment": 16,
            "resident": ["<", "m", "sm_count"],
            "arguments": [
                {"map": ["copy", "a"], "box": [128, 64], "swizzle": 128, "l2_promotion": 256},
                {"map": ["b"], "box": [128, 64], "swizzle": 128},
                {"tensor": "bias"},
                {"tensor": "c"},
                {"scratch": "partials"},
                {"scratch": "tickets"},
                {"cluster_order": ["if", ["<", "m", 1024], 0, 8]},
                {"scalar": "alpha"},
                {"value": ["*", "m", "n"], "dtype": "int64"},
                {"value": ["/", "m", 3], "dtype": "float32"},
            ],
        },
    ],
}
REPEATED: dict[str, Any] = {
    **PLAIN["launches"][0],  # type: ignore[index]
    "repeat": [{"name": "level", "count": ["log2", "m"]}, {"name": "step", "count": ["+", "level", 1]}],
    "when": ["!=", "step", 0],
    "arguments": [{"one_of": ["a", "copy"], "index": ["%", "step", 2]}, {"value": "level", "dtype": "int32"}],
}
"""A launch in two loops, for the configuration with scratch memory."""
HEAD: dict[str, Any] = {
    "format": "kernel-tune bundle", "version": 1, "tool": "kernel-tune 0.9.0", "kernel": "gemm",
    "summary": "C = A B", "license": "Apache-2.0", "minimum_driver": 13000, "sizes": ["m", "n", "k"],
}  # fmt: skip
MANIFEST: dict[str, Any] = {
    **HEAD,
    "probe": {"90": {"cubin": SHA, "entry": "whereabouts"}},
    "computations": [
        {
            "dtypes": {"input": "bfloat16"},
            "options": {"layout": "nt", "fast": True, "scale": 2.0},
            "tensors": TENSORS,
            "scalars": [{"name": "alpha", "dtype": "float32", "value": ["/", 1, 10]}],
        }
    ],
    "configurations": [PLAIN, TILED, {**PLAIN, "cc": 80}],
    "winners": [
        {
            "computation": 0,
            "gpu": "NVIDIA H200",
            "sizes": {"m": 4096, "n": 4096, "k": 4096},
            "configuration": 1,
            "time_ns": 174000.5,
            "mode": "cold",
        },
        {
            "computation": 0,
            "gpu": "NVIDIA H200",
            "sizes": {"m": 16, "n": 4096, "k": 4096},
            "configuration": 0,
            "time_ns": 9000,
            "mode": "cold",
        },
    ],
    "defaults": [
        {"computation": 0, "cc": 90, "configuration": 1},
        {"computation": 0, "cc": 90, "configuration": 0},
        {"computation": 0, "cc": 80, "configuration": 2},
    ],
}


def manifest_with(*changes: tuple[str, Any]) -> bytes:
    """Return the manifest's bytes with other values.

    Args:
        changes: pairs of a path, such as ``configurations.1.launches.0.grid``, and a value; None removes the key.
    """
    data = copy.deepcopy(MANIFEST)
    for path, value in changes:
        *parents, last = path.split(".")
        target: Any = data
        for part in parents:
            target = target[int(part) if isinstance(target, list) else part]
        last = int(last) if isinstance(target, list) else last
        if value is None:
            del target[last]
        else:
            target[last] = value
    return json.dumps(data).encode()


CUBIN = b"fake cubin\nplain 8 8 8 4 4 4 4\nsplit 128 8 8 8 8 256 4\napart 128 8 16 128\nwhereabouts 8 8\n"
NAME = file_digest(CUBIN)


def _tensors(layout: str, dtype: str) -> list[dict[str, Any]]:
    return [
        {"name": "a", "role": "input", "dtype": dtype, "shape": ["m", "k"], "transposed": layout[0] == "t"},
        {"name": "b", "role": "input", "dtype": dtype, "shape": ["k", "n"], "transposed": layout[1] == "t"},
        {"name": "c", "role": "output", "dtype": dtype, "shape": ["m", "n"]},
    ]


def _plain(computation: int, cc: int = 90) -> dict[str, Any]:
    """Return a configuration with one launch and a scalar, that runs any sizes."""
    sizes = [{"value": name, "dtype": "int32"} for name in ("m", "n", "k")]
    arguments = [{"tensor": "a"}, {"tensor": "b"}, {"tensor": "c"}, {"scalar": "alpha"}, *sizes]
    grid = [["ceil_div", ["*", "m", "n"], 256]]
    launch = {
        "cubin": NAME, "source": NAME, "entry": "plain", "grid": grid, "block": [256],
        "arguments": arguments,
    }  # fmt: skip
    return {"computation": computation, "cc": cc, "variant": "plain", "launches": [launch]}


def _split(computation: int) -> dict[str, Any]:
    """Return a configuration with a tensor map, clusters and memory of all kinds."""
    arguments = [
        {"map": ["a"], "box": [64, 64], "swizzle": 128}, {"tensor": "b"}, {"tensor": "c"},
        {"scratch": "partials"}, {"scratch": "tickets"}, {"cluster_order": 4},
        {"value": "k", "dtype": "int32"},
    ]  # fmt: skip
    launch = {
        "cubin": NAME, "source": NAME, "entry": "split", "grid": [64], "block": [128], "shared_bytes": 100_000,
        "cluster": [2], "alignment": 16, "arguments": arguments,
    }  # fmt: skip
    return {
        "computation": computation,
        "cc": 90,
        "variant": "split",
        "parameters": {"block_m": 64},
        "requires": [{"reason": "rows are multiples of 16 bytes", "holds": ["==", ["%", "k", 8], 0]}],
        "scratch": [
            {"name": "partials", "dtype": "float32", "shape": ["m", "n"], "zeroed": True},
            {"name": "tickets", "dtype": "uint32", "shape": [64], "zeroed_once": True},
        ],
        "launches": [launch],
    }


def with_slices(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest whose configuration with a tensor map writes to slices by an address, a stride and a map."""
    *others, split = manifest["configurations"]
    maps = [{"map": [name], "box": [64, 64], "swizzle": 128} for name in "ac"]
    passed = [maps[0], {"tensor": "b"}, {"fields": [{"tensor": "c"}, {"stride": "c"}]}, maps[1]]
    launches = [{**split["launches"][0], "entry": "apart", "arguments": passed}]
    return {**manifest, "version": 2, "configurations": [*others, {**split, "slices": launches}]}


def product_manifest() -> dict[str, Any]:
    """Return one of products in two layouts and two dtypes; those of bfloat16, nt have a winner at 512 cubed."""
    kinds = [("nn", "bfloat16"), ("nt", "bfloat16"), ("nn", "float32")]
    alpha = [{"name": "alpha", "dtype": "float32", "value": 1.5}]
    winner = {"computation": 1, "configuration": 3, "gpu": "NVIDIA H200", "time_ns": 1000.0}
    return {
        **HEAD,
        "kernel": "product",
        "summary": "c = alpha a b",
        "probe": {"90": {"cubin": NAME, "entry": "whereabouts"}},
        "computations": [
            {
                "dtypes": {"input": dtype},
                "options": {"layout": layout},
                "tensors": _tensors(layout, dtype),
                "scalars": alpha,
            }
            for layout, dtype in kinds
        ],
        "configurations": [_plain(0), _plain(1), _plain(2), _split(1)],
        "winners": [{**winner, "sizes": {"m": 512, "n": 512, "k": 512}}],
        "defaults": [{"computation": number, "cc": 90, "configuration": number} for number in range(3)],
    }


def write_bundle(folder: Path, changed: dict[str, Any] | None = None) -> Path:
    """Write it, with other values of some keys."""
    (folder / "cubin").mkdir(parents=True)
    (folder / "cubin" / f"{NAME}.cubin").write_bytes(CUBIN)
    (folder / "manifest.json").write_text(json.dumps({**product_manifest(), **(changed or {})}))
    return folder
