"""Precompiled headers: the same code, one file for all children, and nothing lost where the file is damaged."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.compiled_once import PRECOMPILED
from tuner.children import precompiled
from tuner.children.compilation import Compilation, SourceRequest
from tuner.children.compile_pool import CompilePool
from tuner.children.cubin import machine_code
from tuner.children.headers import headers_of
from tuner.children.nvrtc import compile_source
from tuner.children.precompiled import PrecompiledHeaders
from tuner.core.model import Status
from tuner.kernel.roofline import ARCHITECTURES

SOURCE = """#define threads %d
#include <cuda/std/cstdint>
extern "C" __global__ void k(float* x) { x[threads] = FLT_MAX; }
"""
"""With a light header, and a name of the host: what is tested is what is done with them."""

GPU = ARCHITECTURES[90]
Compile = Callable[[str], Compilation]


@pytest.fixture(autouse=True)
def precompiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PRECOMPILED, "1")


@pytest.fixture
def compiled_by_another(tmp_path: Path) -> Iterator[Compile]:
    """Return what compiles a source in a new child and a new folder each time, with all caches in one folder."""
    numbers = itertools.count()

    def compile(source: str) -> Compilation:
        with closing(CompilePool(1, tmp_path / "cubins")) as pool:
            return pool.compile(SourceRequest(source, "k", GPU, (tmp_path / f"kernel{next(numbers)}",)))

    yield compile


def files_in(folder: Path) -> list[Path]:
    return list((folder / "precompiled").glob("*.pch"))


def test_all_children_use_one_file_and_give_the_same_code(
    tmp_path: Path, compiled_by_another: Compile
) -> None:
    assert compiled_by_another(SOURCE % 1).status is Status.OK
    (file,) = files_in(tmp_path)
    made = file.stat().st_ino, file.stat().st_mtime_ns
    for threads in (2, 3):
        found, plain = compiled_by_another(SOURCE % threads), compile_source(SOURCE % threads, "k", GPU.arch)
        assert machine_code(found.cubins[0], "k") == machine_code(plain.cubin, "k")
        assert found.resources == (plain.resources,)
        assert "precompiled" not in found.log and "warning" not in found.log
    assert files_in(tmp_path) == [file] and file.stat().st_ino == made[0]
    assert file.stat().st_mtime_ns > made[1], "it was used"
    wrong = compiled_by_another(SOURCE.replace("FLT_MAX", "nonsense") % 1)
    assert "kernel.cu:3: error" in wrong.log and wrong.status is Status.COMPILE_ERROR


@pytest.mark.parametrize("damage", ["cut", "half written"])
def test_a_damaged_file_costs_no_configuration(
    tmp_path: Path, compiled_by_another: Compile, damage: str
) -> None:
    compiled_by_another(SOURCE % 1)
    (file,) = files_in(tmp_path)
    size = file.stat().st_size
    if damage == "cut":
        with file.open("r+b") as opened:
            opened.truncate(size // 2)
    else:
        file.rename(file.with_name(".new-0"))
    assert compiled_by_another(SOURCE % 2).status is Status.OK
    assert compiled_by_another(SOURCE % 3).status is Status.OK
    assert not list(file.parent.glob(".new-*"))
    assert {one.stat().st_size for one in files_in(tmp_path)} <= {size, size // 2}


def test_the_folder_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precompiled, "MAX_FOLDER_BYTES", 0)
    headers = PrecompiledHeaders(tmp_path / "precompiled")
    found = [headers.find(headers_of(SOURCE % 1, ()), arch, (), ()) for arch in ("sm_90", "sm_80")]
    assert found == [None, None] and not files_in(tmp_path)


def test_a_folder_that_others_can_change_is_not_used(tmp_path: Path, compiled_by_another: Compile) -> None:
    (tmp_path / "precompiled").mkdir(mode=0o777)
    (tmp_path / "precompiled").chmod(0o777)
    assert compiled_by_another(SOURCE % 1).status is Status.OK
    assert not files_in(tmp_path)
