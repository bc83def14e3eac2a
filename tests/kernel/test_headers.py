"""Headers of a kernel's own are part of what identifies its cubins and its results."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.command_line import ROOT
from tests.faults.kernels import SOURCE, write_kernel
from tests.kernel_files import GOOD, write
from tuner.core.errors import KernelError
from tuner.kernel.headers import headers_digest, own_headers, read_source
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import read_kernel


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    files = {
        "kernel/own.cuh": '#include "deep/inner.h"\n',
        "kernel/deep/inner.h": "#  include <beside.h>\nconstexpr int FACTOR = 2;\n",
        "kernel/deep/beside.h": "#include <own.cuh>\n",
        "kernel/unused.h": "",
        "include/far.cuh": "",
        "include/deep/inner.h": "not this one\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return [tmp_path / "kernel", tmp_path / "include"]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("#include <cuda_fp16.h>\n", []),
        ('int a;\n  # include "own.cuh"\n', ["beside.h", "inner.h", "own.cuh"]),
        ("#include <own.cuh> // ours\n#include <far.cuh>\n", ["beside.h", "far.cuh", "inner.h", "own.cuh"]),
        ('// see #include "far.cuh"\n', []),
        (f'#include "{"x" * 5000}"\n#include "\0"\n', []),
        ('#include "{{ header }}"\n', []),
    ],
)
def test_headers_are_followed(source: str, names: list[str], folders: list[Path]) -> None:
    assert sorted(path.name for path in own_headers([source], folders)) == names


def test_a_header_without_end_is_refused(folders: list[Path]) -> None:
    with (folders[0] / "own.cuh").open("wb") as file:
        file.truncate(1 << 40)  # takes no room on the disk
    with pytest.raises(KernelError, match=r"own\.cuh is too large"):
        headers_digest("#include <own.cuh>\n", folders)


def test_what_a_macro_includes_is_not_known(folders: list[Path]) -> None:
    assert headers_digest("#include <cuda_fp16.h>\n", folders) == ""
    assert headers_digest('/* ours */ #include "own.cuh"\n', folders)
    assert headers_digest("#include HEADER\n", folders) is None
    (folders[0] / "deep" / "inner.h").write_text("#include HEADER\n")
    assert headers_digest('#include "own.cuh"\n', folders) is None


def test_results_with_another_header_are_of_another_kernel(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    source = tmp_path / "scale.cu"
    source.write_text("#include <factor.cuh>\n" + source.read_text())
    (tmp_path / "factor.cuh").write_text("constexpr float FACTOR = 2;\n")
    before = KernelIdentity(read_kernel(path)).text
    assert KernelIdentity(read_kernel(path)).text == before
    (tmp_path / "factor.cuh").write_text("constexpr float FACTOR = 3;\n")
    assert KernelIdentity(read_kernel(path)).text != before


@pytest.mark.usefixtures("forked_children")
@pytest.mark.parametrize("name", ["scale.cu.j2", "huge.h"])
def test_a_file_larger_than_memory_is_refused(tmp_path: Path, name: str) -> None:
    kernel = write_kernel(tmp_path, source='#include "huge.h"\n' + SOURCE)
    (tmp_path / "huge.h").touch()
    os.truncate(tmp_path / name, 20 << 30)  # without a byte on the disk
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({2 << 30}, {2 << 30}))"
    code = f"{limit}; from tests.faults.tune_fake import run; run()"
    command = [sys.executable, "-c", code, "--kernel", str(kernel), "--trials", "2", "-j", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path)}
    said = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=200
    )
    assert said.returncode == 2, said.stderr
    assert f"{name} is too large" in said.stderr.splitlines()[-1]


def test_a_source_that_would_end_at_a_character_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "k.cuh"
    for content in (b"int a;\0 int b;", "int a;".encode("utf-16")):
        file.write_bytes(content)
        with pytest.raises(KernelError, match=r"k\.cuh has a character NUL, .*save it as UTF-8"):
            read_source(file)
