"""Host time of warm calls in Python, beside torch's, in turn in one process; a program of its own (``starts.py``)."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BATCHES, CALLS = 60, 100
"""Calls of a batch: less than the thousand launches that a stream takes before the host has to wait."""


def with_torch(torch: Any, op: Any, m: int, n: int, k: int, layout: str) -> dict[str, Callable[[], object]]:
    """Return calls with torch's tensors, and torch's own product."""
    a = torch.randn((m, k), device="cuda", dtype=torch.bfloat16)
    b = torch.randn((n, k) if layout == "nt" else (k, n), device="cuda", dtype=torch.bfloat16)
    b = b.T if layout == "nt" else b
    out = torch.empty((m, n), device="cuda", dtype=torch.bfloat16)
    return {
        "Python": lambda: op(a, b, out=out),
        "Python, new output": lambda: op(a, b),
        "torch.mm": lambda: torch.mm(a, b, out=out),
        "torch.mm, new output": lambda: torch.mm(a, b),
    }


def with_dlpack(op: Any, m: int, n: int, k: int, layout: str) -> dict[str, Callable[[], object]]:
    """Return calls with arrays that speak DLPack alone, of memory that is never written."""
    sys.path.insert(0, str(ROOT))
    cu = importlib.import_module("cuda.bindings.driver")
    array = importlib.import_module("tests.fake_arrays").Exported
    cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(0)[1])
    _, address = cu.cuMemAlloc(2 * (m * k + k * n + m * n))
    a = array(int(address), (m, k), "bfloat16")
    b = array(int(address) + 2 * m * k, (k, n), "bfloat16", strides=(1, k) if layout == "nt" else (n, 1))
    out = array(int(address) + 2 * (m * k + k * n), (m, n), "bfloat16")
    return {"Python, DLPack": lambda: op(a, b, out=out)}


def host_us(calls: Mapping[str, Callable[[], object]], wait: Callable[[], object]) -> dict[str, float]:
    """Return the host's microseconds of each call: medians of batches, in turn.

    Args:
        calls: by name.
        wait: waits for the GPU, between batches.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for batch in range(BATCHES + 1):
        for name, call in calls.items():
            call()
            wait()
            began = time.perf_counter()
            for _ in range(CALLS):
                call()
            us = 1e6 * (time.perf_counter() - began) / CALLS
            wait()
            if batch:
                times[name].append(us)
    return {name: median(values) for name, values in times.items()}


def main() -> None:
    bundle, (sizes, dtypes, options) = Path(sys.argv[1]), json.loads(sys.argv[2])
    sys.path.insert(0, str(bundle.parent))
    op = importlib.import_module(bundle.name).load(dtypes=dtypes, options=options)
    op.warm([sizes])
    try:
        torch = importlib.import_module("torch")
        there = torch.cuda.is_available()
    except ImportError:
        there = False
    calls = with_torch(torch, op, **sizes, **options) if there else {}
    wait = torch.cuda.synchronize if there else (lambda: None)
    calls |= with_dlpack(op, **sizes, **options)
    print(json.dumps(host_us(calls, wait)))


if __name__ == "__main__":
    main()
