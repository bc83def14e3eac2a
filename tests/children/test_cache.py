"""Cubins on disk: what was not read for longest goes first, and a full disk leaves nothing half written."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tuner.children.compile_pool import CompilePool
from tuner.children.cubin_cache import CubinCache
from tuner.children.nvrtc import Cubin
from tuner.core import paths
from tuner.core.model import Resources

pytestmark = pytest.mark.usefixtures("forked_children")

KEY = "0" * 64


def compiled(size: int) -> Cubin:
    return Cubin(bytes(size), "scale", Resources(), "")


def test_tests_leave_the_users_cache_alone(pytestconfig: pytest.Config) -> None:
    assert paths.cache().is_relative_to(pytestconfig.rootpath)


def test_what_was_not_read_for_longest_goes_first(tmp_path: Path) -> None:
    cache = CubinCache(tmp_path)
    keys = [cache.key(f"source {i}", "scale", [], "13.0", "") for i in range(6)]
    for age, key in enumerate(keys):
        cache.put(key, compiled(10_000))
        (path,) = tmp_path.glob(f"??/{key[2:]}.cubin")
        os.utime(path, (1e9 - age, 1e9 - age))
    assert cache.get(keys[5]) is not None  # the oldest is read again
    cache.trim(35_000)
    assert [cache.get(key) is not None for key in keys] == [True, True, False, False, False, True]
    cache.trim(35_000)
    assert len(list(tmp_path.glob("??/*"))) == 3


def test_compilers_that_end_trim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CubinCache.trim, "__defaults__", (0,))
    CubinCache(tmp_path).put("0" * 64, compiled(100))
    CompilePool(1, tmp_path).close()
    assert not list(tmp_path.glob("??/*.cubin"))


@pytest.fixture
def cache(tmp_path: Path) -> CubinCache:
    """One with an entry, made by a user who lets everybody write everything."""
    before = os.umask(0)
    try:
        made = CubinCache(tmp_path / "kernel-tune" / "cubins")
        made.put(KEY, compiled(100))
    finally:
        os.umask(before)
    return made


def test_only_its_owner_can_write_it_whatever_the_mask(cache: CubinCache) -> None:
    for path in (cache.folder.parent, *cache.folder.parent.rglob("*")):
        assert not path.stat().st_mode & 0o022, path
    assert cache.get(KEY) is not None


@pytest.mark.parametrize("which", ["the folder above", "folder", "folder of the entry", "entry"])
def test_what_others_can_write_is_not_used(cache: CubinCache, which: str) -> None:
    (entry,) = cache.folder.glob("??/*")
    paths = dict(
        zip(
            ["entry", "folder of the entry", "folder", "the folder above"],
            [entry, *entry.parents],
            strict=False,
        )
    )
    paths[which].chmod(0o777)
    again = CubinCache(cache.folder)
    assert again.get(KEY) is None
    if "folder" in which and which != "folder of the entry":
        again.put("1" * 64, compiled(1))
        again.trim(0)
        assert list(cache.folder.glob("??/*")) == [entry]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_is_of_another_user_is_not_used(cache: CubinCache) -> None:
    (entry,) = cache.folder.glob("??/*")
    os.chown(entry, 54321, 54321)
    assert cache.get(KEY) is None
    os.chown(cache.folder, 54321, 54321)
    assert "another user" in CubinCache(cache.folder).refusal


def test_links_are_not_followed(cache: CubinCache, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o700)
    precious = outside / "precious.cubin"
    precious.write_bytes(bytes(1000))
    os.utime(precious, (0, 0))
    (cache.folder / "aa").symlink_to(outside)
    (entry,) = cache.folder.glob("00/*")
    moved = outside / entry.name
    entry.rename(moved)
    entry.symlink_to(moved)
    assert cache.get(KEY) is None
    cache.trim(0)
    assert precious.exists()
    assert moved.exists()


def test_what_a_killed_process_was_writing_goes_at_the_next_start(tmp_path: Path) -> None:
    folder = tmp_path / "cubins"
    code = """if True:
        import sys
        from pathlib import Path
        from tests.children.test_cache import compiled
        from tuner.children.cubin_cache import CubinCache
        cache = CubinCache(Path(sys.argv[1]))
        cache.put("0" * 64, compiled(20_000_000))
        print("ok", flush=True)
        while True:
            cache.put("0" * 64, compiled(20_000_000))
    """
    root = Path(__file__).resolve().parents[2]
    left = 0
    for seed in range(40):  # most of the time the first is killed while it writes
        command = [sys.executable, "-c", code, str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(random.Random(seed).uniform(0.0, 0.2))
            cache = CubinCache(folder)
            cache.sweep()  # another tuner starts, which leaves alone what is being written
            process.kill()
        left += len(list(folder.glob(".new-*")))
        if left > 2:
            break
    assert left, "no process was killed while it was writing"
    CompilePool(1, folder).close()
    assert not [path for path in folder.rglob("*") if path.name.startswith(".new-")]
    assert cache.get("0" * 64) is not None


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    cache = CubinCache(tmp_path)
    monkeypatch.setattr(Path, "replace", full)
    cache.put("0" * 64, compiled(100))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    monkeypatch.undo()
    cache.put("0" * 64, compiled(100))
    assert cache.get("0" * 64) is not None
