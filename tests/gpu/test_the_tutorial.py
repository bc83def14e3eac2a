"""docs/tutorial.md on a GPU: all of its commands and programs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.docs.test_tutorial import follow, run


def test_all_of_it(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    follow(tmp_path, lambda words: run([sys.executable, "-m", "tuner", *words], tmp_path), gpu=True)
    assert (tmp_path / "rms_norm_bundle" / "manifest.json").is_file()
