"""A small bundle for the fake driver: products whose kernels compute nothing, of every kind of launch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tuner.runtime.manifest import file_digest

CUBIN = b"fake cubin\nplain 8 8 8 4 4 4 4\nsplit 128 8 8 8 8 256 4\nwhereabouts 8 8\n"
NAME = file_digest(CUBIN)


def tensors(layout: str, dtype: str) -> list[dict[str, Any]]:
    return [
        {"name": "a", "role": "input", "dtype": dtype, "shape": ["m", "k"], "transposed": layout[0] == "t"},
        {"name": "b", "role": "input", "dtype": dtype, "shape": ["k", "n"], "transposed": layout[1] == "t"},
        {"name": "c", "role": "output", "dtype": dtype, "shape": ["m", "n"]},
    ]


def plain(computation: int, cc: int = 90) -> dict[str, Any]:
    """Return a configuration with one launch and a scalar, that runs any sizes."""
    sizes = [{"value": name, "dtype": "int32"} for name in ("m", "n", "k")]
    arguments = [{"tensor": "a"}, {"tensor": "b"}, {"tensor": "c"}, {"scalar": "alpha"}, *sizes]
    grid = [["ceil_div", ["*", "m", "n"], 256]]
    launch = {
        "cubin": NAME,
        "source": NAME,
        "entry": "plain",
        "grid": grid,
        "block": [256],
        "arguments": arguments,
    }
    return {"computation": computation, "cc": cc, "variant": "plain", "launches": [launch]}


def split(computation: int) -> dict[str, Any]:
    """Return a configuration with a tensor map, clusters and memory of all kinds."""
    arguments = [
        {"map": ["a"], "box": [64, 64], "swizzle": 128},
        {"tensor": "b"},
        {"tensor": "c"},
        {"scratch": "partials"},
        {"scratch": "tickets"},
        {"cluster_order": 4},
        {"value": "k", "dtype": "int32"},
    ]
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


def manifest() -> dict[str, Any]:
    """Return one of products in two layouts and two dtypes; those of bfloat16, nt have a winner at 512 cubed."""
    kinds = [("nn", "bfloat16"), ("nt", "bfloat16"), ("nn", "float32")]
    alpha = [{"name": "alpha", "dtype": "float32", "value": 1.5}]
    winner = {"computation": 1, "configuration": 3, "gpu": "NVIDIA H200", "time_ns": 1000.0}
    return {
        "format": "kernel-tune bundle",
        "version": 1,
        "tool": "kernel-tune 0.9.0",
        "kernel": "product",
        "summary": "c = alpha a b",
        "license": "Apache-2.0",
        "minimum_driver": 13000,
        "sizes": ["m", "n", "k"],
        "probe": {"90": {"cubin": NAME, "entry": "whereabouts"}},
        "computations": [
            {
                "dtypes": {"input": dtype},
                "options": {"layout": layout},
                "tensors": tensors(layout, dtype),
                "scalars": alpha,
            }
            for layout, dtype in kinds
        ],
        "configurations": [plain(0), plain(1), plain(2), split(1)],
        "winners": [{**winner, "sizes": {"m": 512, "n": 512, "k": 512}}],
        "defaults": [{"computation": number, "cc": 90, "configuration": number} for number in range(3)],
    }


def write_bundle(folder: Path, changed: dict[str, Any] | None = None) -> Path:
    """Write it, with other values of some keys."""
    (folder / "cubin").mkdir(parents=True)
    (folder / "cubin" / f"{NAME}.cubin").write_bytes(CUBIN)
    (folder / "manifest.json").write_text(json.dumps({**manifest(), **(changed or {})}))
    return folder
