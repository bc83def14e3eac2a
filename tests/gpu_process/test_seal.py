"""What foreign code changes in a measuring process is found, and what libraries do themselves is no change."""

from __future__ import annotations

import gc
import importlib
import inspect
import logging
import math
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tuner.core import stats
from tuner.gpu.seal import Seal
from tuner.gpu.timing import Timer


@pytest.fixture(scope="module")
def seal() -> Seal:
    seal = Seal()
    assert seal.broken() == ""
    return seal


@pytest.mark.parametrize(
    ("owner", "name", "said"),
    [
        (time, "monotonic", "time.monotonic"),
        (math, "fsum", "math.fsum"),
        (Timer, "group", "Timer.group"),
        (np, "allclose", "numpy.allclose"),
        (stats, "median_interval", "stats.median_interval"),
    ],
)
def test_a_replaced_function(
    seal: Seal, owner: object, name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, lambda *_: 0.0)
    assert said in seal.broken()


def test_a_replaced_constant_and_code(seal: Seal, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("tuner.gpu.timing.GROUP_NS", 1e9)
        assert "GROUP_NS" in seal.broken()
    monkeypatch.setattr(Timer.measure_gap, "__code__", (lambda self, data, stamps, mode: 0.0).__code__)
    assert "Timer.measure_gap" in seal.broken()


def test_the_seal_itself_and_the_module_that_runs(seal: Seal, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = seal.broken
    with monkeypatch.context() as patched:
        patched.setattr(Seal, "_otherwise", lambda _: "")
        assert "Seal._otherwise" in seal.broken()
    with monkeypatch.context() as patched:
        patched.setattr("builtins.vars", lambda _: {})
        assert "builtins.vars" in seal.broken()
    with monkeypatch.context() as patched:  # before the attribute of an instance
        patched.setattr(Seal, "broken", property(lambda _: lambda: ""), raising=False)
        assert "it adds tuner.gpu.seal.Seal.broken" in broken()
    with monkeypatch.context() as patched:
        patched.setattr("tuner.gpu.timing.max", min, raising=False)
        assert "it adds tuner.gpu.timing.max" in seal.broken()
    monkeypatch.setattr("__main__.Worker", str, raising=False)
    other = Seal()
    monkeypatch.setattr("__main__.Worker", int)
    assert "__main__.Worker" in other.broken()


def test_what_references_are_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "of_a_task.py").write_text(
        "def twice(x): return 2 * x\nclass Model:\n    def forward(self): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("of_a_task")
    seal = Seal()
    with monkeypatch.context() as patched:
        patched.setattr(module.Model, "forward", lambda _: 0)
        assert "of_a_task.Model.forward" in seal.broken()
    monkeypatch.setattr(module, "twice", lambda x: x)
    assert "of_a_task.twice" in seal.broken()


def test_what_makes_torch_slower(seal: Seal, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    with monkeypatch.context() as patched:
        patched.setattr(torch, "add", torch.sub)
        assert "torch.add" in seal.broken()
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    said = seal.broken()
    torch.set_num_threads(threads)
    assert "num_threads" in said
    torch.backends.cuda.enable_flash_sdp(False)
    said = seal.broken()
    torch.backends.cuda.enable_flash_sdp(True)
    assert "flash_sdp" in said and seal.broken() == ""


def test_a_thread(seal: Seal) -> None:
    ends = threading.Event()

    def works() -> None:
        ends.wait()

    thread = threading.Thread(target=works, daemon=True)
    thread.start()
    said = seal.broken()
    ends.set()
    thread.join()
    assert said == "works runs in a thread of its own"


def test_a_search_among_all_objects() -> None:
    own = Seal()
    inspect.currentframe()
    assert "currentframe" in own.broken() or "_getframe" in own.broken()
    other = Seal()
    logging.getLogger("a").warning("whose place logging looks up")
    assert other.broken() == ""
    gc.get_objects()
    assert "gc.get_objects" in other.broken()
