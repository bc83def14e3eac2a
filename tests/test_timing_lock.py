"""The file that stands for a GPU can be locked by every user of the machine, whatever the first one's mask."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tuner.errors import DeviceError
from tuner.gpu.timing import _lock_file


def test_the_mask_takes_nothing_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = os.umask(0o077)
    try:
        _lock_file("GPU-1").close()
    finally:
        os.umask(before)
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o666
    path.chmod(0o444)
    _lock_file("GPU-1").close()  # a second time, and nothing is changed
    assert path.stat().st_mode & 0o777 == 0o444


def test_a_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody can put one into the folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    private = tmp_path / "private"
    private.touch(mode=0o600)
    (tmp_path / "kernel-tune-GPU-1.lock").symlink_to(private)
    with pytest.raises(DeviceError, match="kernel-tune-GPU-1"):
        _lock_file("GPU-1")
    assert private.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "kernel-tune-GPU-1.lock").mkdir()
    with pytest.raises(DeviceError, match=r"kernel-tune-GPU-1\.lock.*; delete it"):
        _lock_file("GPU-1")
