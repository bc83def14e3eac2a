"""What tests of the tuner's loop and of its database begin with."""

from __future__ import annotations

import compileall
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.kernels import scale_kernel, write_synthetic_recording
from tests.fork_server import forked_children, subprocess_with_forks  # noqa: F401 - a fixture
from tuner import paths, processes
from tuner.compile import pool
from tuner.database import schema
from tuner.database.database import Database
from tuner.kernel import load
from tuner.kernel.load import load_kernel
from tuner.kernel.spec import KernelSpec
from tuner.kernel.toml.file import KernelFile

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # a shell starts what it puts into the background like this
    signal.signal(signal.SIGINT, signal.default_int_handler)


SYNCHRONOUS, schema.SYNCHRONOUS = schema.SYNCHRONOUS, ("OFF", "OFF")
"""A test that ends with a killed process needs no disk that outlives a power failure: 3 ms for each transaction."""


def pytest_configure(config: pytest.Config) -> None:
    """Compile the package once: where Python writes no bytecode, each of some thousand children would, for 0.2 s."""
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(Path(__file__).parent.parent / "tuner", quiet=2)


@pytest.fixture(autouse=True)
def one_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands start one compiler where nothing else is said: the tests themselves keep all cores busy."""
    monkeypatch.setattr(pool, "default_jobs", lambda: 1)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database waits for the disk, as users' databases do."""
    monkeypatch.setattr(schema, "SYNCHRONOUS", SYNCHRONOUS)


@pytest.fixture(scope="module", autouse=True)
def forks_of_the_tuner(request: pytest.FixtureRequest) -> Iterator[None]:
    """The tuner's children are forks, without a third of a second of imports for each; not where there is a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        if "gpu" not in request.path.parent.parts[-1:]:
            patch.setattr(processes, "subprocess", subprocess_with_forks)
        yield


@pytest.fixture(scope="module")
def kernels_once() -> Iterator[None]:
    """Files of built-in kernels are read once for all commands in this process: reading gemm's takes 80 ms."""
    files: dict[Path, KernelFile] = {}
    kernels: dict[int, KernelSpec] = {}
    read_file, kernel_of = load.read_file, load.kernel_of

    def file_of(path: Path) -> KernelFile:
        if path not in files:
            file = read_file(path)
            if path.parent != paths.search_spaces().resolve():
                return file
            files[path] = file
        return files[path]

    def once(file: KernelFile) -> KernelSpec:
        if files.get(file.path) is not file:
            return kernel_of(file)
        return kernels.get(id(file)) or kernels.setdefault(id(file), kernel_of(file))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "read_file", file_of)
        patch.setattr(load, "kernel_of", once)
        yield


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kernel = load_kernel("vector_add")
    folder = tmp_path_factory.mktemp("recorded")
    return write_synthetic_recording(
        folder / "vector_add-made_up.json.gz", kernel, [kernel.problem(preset="small")], 300
    )


@pytest.fixture
def fast() -> Iterator[Path]:
    """A folder in memory: waiting for a disk hides races."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database that is not there yet, in a folder that is not."""
    return tmp_path / "results" / "tuning.db"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database.open(tmp_path / "tuning.db") as database:
        yield database


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSpec:
    return scale_kernel(tmp_path / "kernel", blocks=range(32, 1025, 32), items=range(1, 9))
