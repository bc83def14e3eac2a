"""Bundles that are opened: what is none, and with the bindings alone. test_operation.py calls what is in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tuner
from tests.cpp_interface import interface, python_on
from tests.fake_driver.programs import ROOT
from tests.runtime.manifests import product_manifest, write_bundle
from tuner.core.errors import BundleError, CallError
from tuner.runtime import strict_json
from tuner.runtime.strict_json import MAX_VALUES, parsed
from tuner.winners.bundle import bundle_files


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
    for given, name in (({"bundle": bundle}, "bundle"), ({"gpu": "h100"}, "gpu")):
        with pytest.raises(
            CallError, match=f"policy='tune' tunes on this machine's GPU, and takes no {name}"
        ):
            tuner.load("product", policy="tune", **given)
    newer = write_bundle(tmp_path / "newer", {"version": 3})
    with pytest.raises(BundleError, match="version 3"):
        tuner.load("product", bundle=newer)


def test_a_bundle_needs_only_the_bindings(bundle: Path) -> None:
    program = f"import sys, tuner; tuner.load('product', bundle='{bundle}'); print(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    modules = ended.stdout.split()
    heavy = {"numpy", "optuna", "sqlalchemy", "sqlite3", "sqlite_utils", "msgspec", "jinja2", "click", "rich"}
    assert not {name.split(".")[0] for name in modules} & heavy
    assert "cuda.bindings.driver" in modules and "nvrtc" not in ended.stdout
    ours = {name for name in modules if name.startswith("tuner.") and not name.startswith("tuner.runtime")}
    assert ours <= {
        "tuner.core", "tuner.core.errors", "tuner.core.reading", "tuner.core.version", "tuner.winners",
        "tuner.winners.load",
    }  # fmt: skip


ENDLESS = """
from tuner.core.errors import BundleError
from tuner.winners.load import load
for folder in sys.argv[2:]:
    code, bundle = opened(folder)
    print(text.value.decode() if code else "opened")
    try:
        load("product", bundle=folder)
        print("opened")
    except BundleError as error:
        print(error.problem)
"""


def test_of_a_manifest_no_more_is_read_than_its_limit(tmp_path: Path) -> None:
    folders = {
        name: write_bundle(tmp_path / name) for name in ("sparse", "pipe", "device", "values", "whole")
    }
    for name, folder in folders.items():
        if name != "whole":
            (folder / "manifest.json").unlink()
    with (folders["sparse"] / "manifest.json").open("wb") as file:
        file.truncate(1 << 40)
    os.mkfifo(folders["pipe"] / "manifest.json")
    (folders["device"] / "manifest.json").symlink_to("/dev/zero")
    many = json.dumps({**product_manifest(), "winners": []})
    (folders["values"] / "manifest.json").write_text(many.replace("[]", f"[{'0,' * MAX_VALUES}0]"))
    said = python_on(interface(), ENDLESS, *folders.values()).splitlines()
    sparse, pipe, device, values, whole = (said[i : i + 2] for i in range(0, 10, 2))
    assert all("more than 64 MiB" in line for line in sparse)
    assert all("cannot be read" in line for line in (*pipe, *device))
    assert all("2000000" in line and "limit" in line and "damaged" not in line for line in values)
    assert whole == ["opened", "opened"]


def test_what_has_too_many_values_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 20_000  # of two million, Python makes objects for two seconds
    monkeypatch.setattr(strict_json, "MAX_VALUES", most)
    item = ["a,[{", [], {}, {"b": 1}]  # as JSON six values
    whole = (most - 1) // 6
    rest = [0] * (most - 1 - 6 * whole)
    assert len(parsed(json.dumps([item] * whole + rest).encode())) == whole + len(rest)
    with pytest.raises(BundleError, match=f"{most + 1} values"):
        parsed(json.dumps([item] * whole + [0, *rest]).encode())
    manifest = {"kernel": "product", "winners": [item] * (whole + 1)}
    with pytest.raises(BundleError, match="smaller bundle"):
        bundle_files(manifest, {}, {})
