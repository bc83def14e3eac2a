"""Bundles that are opened: what is none, and with the bindings alone. test_operation.py calls what is in them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tuner
from tests.fake_driver.programs import ROOT
from tests.runtime.manifests import write_bundle
from tuner.core.errors import BundleError, CallError


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "product_bundle")


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
