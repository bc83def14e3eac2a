"""A compiled candidate is loaded: a module for each of its codes, which launches that repeat share."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.children.measuring import Candidate
from tuner.children.nvrtc import compile_source
from tuner.gpu import candidate as module
from tuner.gpu.candidate import load
from tuner.runtime.launches import Launch, Plan


def test_launches_that_repeat_share_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = count()
    driver = SimpleNamespace(cuModuleLoadData=lambda _: (0, f"module {next(modules)}"))
    monkeypatch.setattr(module, "cu", driver)
    monkeypatch.setattr(module, "Kernel", lambda of, entry, launch, *_: (of, entry, launch.grid[0]))
    helpers = SimpleNamespace(cluster_orders=SimpleNamespace(of=None))
    data: Any = SimpleNamespace(memory=None, helpers=helpers, copies=2, addresses=lambda _=0: {})
    cubin = compile_source('extern "C" __global__ void a() {}', "a", "sm_90").cubin
    passes = [
        Launch((grid, 1, 1), (32, 1, 1), 0, (), code=code) for grid, code in ((1, 0), (2, 1), (3, 0), (4, 1))
    ]
    loaded = load(data, Candidate(Plan(tuple(passes), ()), (cubin, cubin), ("first", "second")))
    assert loaded.launches == 4 and loaded.modules == ["module 0", "module 1"]
    first, second = ("module 0", "first"), ("module 1", "second")
    assert loaded.kernels == [(*first, 1), (*second, 2), (*first, 3), (*second, 4)]
