"""Bundles that are opened: moved, damaged, for another driver or GPU, and with the bindings alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tuner
from tests.fake_driver.programs import ROOT
from tests.runtime.manifests import NAME, write_bundle
from tests.runtime.programs import launches, run
from tuner.core.errors import BundleError, CallError


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "product_bundle")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"driver": "12080"}, "the driver supports CUDA 12.8"),
        ({"devices": "NVIDIA L4:89:58"}, "compute capability 8.9"),
        ({"devices": ""}, "no CUDA GPU"),
    ],
)
def test_a_driver_or_gpu_that_does_not_fit(bundle: Path, settings: dict[str, str], words: str) -> None:
    program = f"""
torch.allocate = lambda size: 1 << 40
x = torch.randn(64, 64, **bfloat16)
refused({words!r}, x, x)
"""
    assert run(program, bundle, **settings) == []


def test_a_bundle_may_be_moved(bundle: Path, tmp_path: Path) -> None:
    moved = Path(shutil.move(bundle, tmp_path / "elsewhere"))
    program = "x = torch.randn(64, 64, **bfloat16)\nop(x, x)"
    assert len(launches(run(program, moved))) == 1


def test_a_damaged_cubin_is_not_loaded(bundle: Path) -> None:
    cubin = bundle / "cubin" / f"{NAME}.cubin"
    program = 'x = torch.randn(64, 64, **bfloat16)\nrefused("damaged", x, x)\nassert count("loads") == 0'
    cubin.write_bytes(cubin.read_bytes() + b"\n")
    run(program, bundle)
    cubin.unlink()
    run(program, bundle)


def test_what_is_no_bundle_is_refused(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="cannot be read"):
        tuner.load("product", bundle=tmp_path / "nothing")
    with pytest.raises(BundleError, match="of product, not of gemm"):
        tuner.load("gemm", bundle=bundle)
    with pytest.raises(CallError, match="no policy 'best'"):
        tuner.load("product", bundle=bundle, policy="best")
    newer = write_bundle(tmp_path / "newer", {"version": 2})
    with pytest.raises(BundleError, match="version 2"):
        tuner.load("product", bundle=newer)


@pytest.mark.parametrize(
    "start", ["import tuner.runtime.bundle", "import tuner; tuner.load('product', bundle='{}')"]
)
def test_a_bundle_needs_only_the_bindings(bundle: Path, start: str) -> None:
    program = f"import sys; {start.format(bundle)}; print(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    modules = ended.stdout.split()
    heavy = {"numpy", "optuna", "sqlalchemy", "sqlite3", "sqlite_utils", "msgspec", "jinja2", "click", "rich"}
    assert not {name.split(".")[0] for name in modules} & heavy
    assert "cuda.bindings.driver" in modules and "nvrtc" not in ended.stdout
    ours = {name for name in modules if name.startswith("tuner.") and not name.startswith("tuner.runtime")}
    assert ours <= {
        "tuner.core",
        "tuner.core.errors",
        "tuner.core.version",
        "tuner.winners",
        "tuner.winners.load",
    }
