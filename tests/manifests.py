"""A manifest of a kernel like gemm, small, with all that the format has."""

from __future__ import annotations

import copy
import json
from typing import Any

SHA = "0123456789abcdef" * 2
LIMITS = {
    "cc": 90,
    "sm_count": 132,
    "l2_bytes": 52428800,
    "shared_bytes_optin": 232448,
    "shared_bytes_per_sm": 233472,
    "registers_per_sm": 65536,
    "max_threads_per_sm": 2048,
    "max_blocks_per_sm": 32,
    "max_threads_per_block": 1024,
}
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
MANIFEST: dict[str, Any] = {
    "format": "kernel-tune bundle",
    "version": 1,
    "tool": "kernel-tune 0.9.0",
    "kernel": "gemm",
    "summary": "C = A B",
    "license": "Apache-2.0",
    "minimum_driver": 13000,
    "sizes": ["m", "n", "k"],
    "probe": {"90": {"cubin": SHA, "entry": "whereabouts"}},
    "computations": [
        {
            "dtypes": {"input": "bfloat16"},
            "options": {"layout": "nt", "fast": True, "scale": 2.0},
            "tensors": TENSORS,
            "scalars": [{"name": "alpha", "dtype": "float32", "value": ["/", 1, 10]}],
        },
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
