"""Kernels that a function builds with Triton are compiled before they are measured, all at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.api.conftest import Tune

PACKAGES = {
    "torch/__init__.py": """
        from types import SimpleNamespace
        float32 = "float32"
        def empty(shape, dtype, device):
            return SimpleNamespace(shape=shape, dtype=dtype, device=device)
        """,
    "triton/__init__.py": "from triton import runtime",
    "triton/backends/__init__.py": "",
    "triton/backends/compiler.py": """
        def GPUTarget(*target):
            return target
        """,
    "triton/runtime/__init__.py": """
        import json, os, pathlib
        class driver:
            def set_active(active):
                driver.active = active
        class JITFunction:
            def run(self, x, y, *, grid, warmup, **constants):
                active = driver.active
                said = {"target": active.get_current_target(), "array": [x.shape, x.dtype, x.device]}
                said |= {"launched": not warmup, "grid": grid, **constants}
                with pathlib.Path(__file__).with_name("compiled").open("a") as file:
                    file.write(json.dumps(said) + "\\n")
            def __getitem__(self, grid):
                return lambda *given, **named: self.run(grid=grid, warmup=False, *given, **named)
        """,
}
"""As much of both as is asked of them; what is compiled is noted."""
TEXT = """
import triton

kernel = triton.runtime.JITFunction()


def build(block):
    if block == 96:
        raise ValueError("no layout has 96")

    def scaled(x, y):
        if getattr(x, "device", "") == "meta":
            kernel[(len(x.shape), 1)](x, y, block=block)
        else:  # where it is measured, arrays of NumPy here
            y[:] = 2 * x

    return scaled
"""

X = np.linspace(1.0, 2.0, 600, dtype=np.float32).reshape(20, 30)
CALL: dict[str, Any] = {"args": {"x": X, "y": np.zeros_like(X)}, "outputs": ["y"], "reference": "2 * x"}


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install the libraries; return the file in which Triton notes what it compiles."""
    for name, text in PACKAGES.items():
        file = tmp_path / "site" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(line.removeprefix(" " * 8) for line in text.splitlines()))
    monkeypatch.syspath_prepend(tmp_path / "site")
    return tmp_path / "site/triton/runtime/compiled"


def test_configurations_are_compiled_without_a_launch(tune: Tune, tmp_path: Path, compiled: Path) -> None:
    (tmp_path / "scaled.py").write_text(TEXT)
    result = tune(f"{tmp_path / 'scaled.py'}:build", params={"block": [32, 64, 96]}, trials=3, **CALL)
    assert {trial["block"]: trial["status"] for trial in result.trials} == {
        32: "ok",
        64: "ok",
        96: "compile_error",
    }
    lines = [json.loads(line) for line in compiled.read_text().splitlines()]
    assert {line["block"] for line in lines} == {32, 64}
    for line in lines:
        assert line["target"][:1] == ["cuda"] and line["target"][2] == 32 and line["grid"] == [2, 1]
        assert line["array"] == [[20, 30], "float32", "meta"] and not line["launched"]


def test_a_file_that_needs_a_gpu_is_given_up(tune: Tune, tmp_path: Path, compiled: Path) -> None:
    imported = tmp_path / "imported"
    here = f"open({str(imported)!r}, 'a').write('.') and 1 / 0"
    where = "import sys, triton\nif 'tuner.children.build_worker' in sys.argv[0].replace('/', '.'):\n"
    own = "def build(block):\n    def scaled(x, y): y[:] = 2 * x\n    return scaled\n"
    (tmp_path / "scaled.py").write_text(f"{where}    {here}\n{own}")
    blocks = list(range(1, 21))
    result = tune(f"{tmp_path / 'scaled.py'}:build", params={"block": blocks}, trials=20, jobs=1, **CALL)
    assert {trial["status"] for trial in result.trials} == {"ok"} and len(result.trials) == 20
    assert imported.read_text() == "..." and not compiled.exists()
