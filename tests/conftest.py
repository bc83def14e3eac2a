"""What tests of the tuner's loop and of its database begin with."""

from __future__ import annotations

import compileall
import contextlib
import gc
import importlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import builtin_kernels, compiled_once
from tests.commands import Said, Tune, said_by
from tests.faults.kernels import scale_kernel, write_synthetic_recording
from tests.fork_server import COLLECTOR, PATIENT, forked_children, subprocess_with_forks  # noqa: F401 - a fixture
from tuner.children import compile_pool as pool
from tuner.core import processes
from tuner.database import opening
from tuner.database.database import Database
from tuner.kernel.load import load_kernel
from tuner.kernel.spec import KernelSpec

# A shell starts what it puts into the background without Ctrl-C, and nohup without SIGHUP: children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    # The tests' own process outlives its terminal, as nohup wants it.
    signal.signal(signal.SIGHUP, lambda *_: None)

builtin_kernels.read_once()

SYNCHRONOUS, opening.SYNCHRONOUS = opening.SYNCHRONOUS, ("OFF", "OFF")
"""A test that ends with a killed process needs no disk that outlives a power failure: 3 ms for each transaction."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.scheduling import Together

    return Together(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell workers whether their scheduler knows of files that one of them collects."""
    from tests.scheduling import OF_ONE

    node.workerinput[OF_ONE] = node.config.getvalue("dist") == "loadfile"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if _left_out(config, collection_path) else None


def _left_out(config: pytest.Config, file: Path) -> bool:
    if not hasattr(config, "workerinput"):
        return False
    from tests.scheduling import leaves_out

    return leaves_out(config.workerinput, file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return more workers than cores, because tests wait for processes, deadlines and disks."""
    cores = len(os.sched_getaffinity(0))
    return cores + max(2, cores // 4)


def pytest_configure(config: pytest.Config) -> None:
    """Compile the package once: where Python writes no bytecode, each of some thousand children would, for 0.2 s.

    Caches are the checkout's own, for all workers and from run to run: the user's are left alone. What compilers
    give is kept for all checkouts (:mod:`tests.compiled_once`).
    """
    if not hasattr(config, "workerinput"):
        caches = config.rootpath / ".pytest_cache" / "d" / "caches"  # `--cache-clear` empties d
        caches.mkdir(parents=True, exist_ok=True)
        os.environ["XDG_CACHE_HOME"] = str(caches)
        compiled_once.delete_unread()
        compiled_once.share_machine(caches)
        compiled_once.keep_listings(caches / "bin")
        compileall.compile_dir(Path(__file__).parent.parent / "tuner", quiet=2)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collect with the bytecode of rewritten tests kept, which else takes a worker 7 s, and without the collector.

    Each worker begins with other files, so that all together rewrite each file once.
    """
    worker = getattr(session.config, "workerinput", None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", False)
        gc.disable()
        if worker and session.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
            here = Path(__file__).parent
            found = [path for path in here.rglob("test_*.py") if not _left_out(session.config, path)]
            paths = [path.relative_to(here.parent).with_suffix("") for path in found]
            names = sorted(".".join(path.parts) for path in paths)
            first = len(names) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
            for name in names[first:] + names[:first]:
                with contextlib.suppress(Exception, pytest.skip.Exception):  # collected, it is reported
                    importlib.import_module(name)
        yield
    gc.enable()
    gc.freeze()  # what is collected stays: no need to look at it again, and children share it
    gc.set_threshold(*COLLECTOR)


@pytest.fixture(scope="session", autouse=True)
def busy_machine() -> Iterator[None]:
    """The tests themselves keep all cores busy: commands start one compiler where nothing else is said, and wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "default_jobs", lambda: 1)
        for (module, name), seconds in PATIENT.items():
            patch.setattr(module, name, seconds)
        yield


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database waits for the disk, as users' databases do."""
    monkeypatch.setattr(opening, "SYNCHRONOUS", SYNCHRONOUS)


@pytest.fixture(scope="module", autouse=True)
def forks_of_the_tuner(request: pytest.FixtureRequest) -> Iterator[None]:
    """The tuner's children are forks, without a third of a second of imports for each; not where there is a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        if "gpu" not in request.path.parent.parts[-1:]:
            patch.setattr(processes, "subprocess", subprocess_with_forks)
        yield


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kernel = load_kernel("vector_add")
    folder = tmp_path_factory.mktemp("recorded")
    return write_synthetic_recording(
        folder / "vector_add-made_up.json.gz", kernel, [kernel.problem(preset="small")], 100
    )


@pytest.fixture(scope="session")
def three_sizes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kernel = load_kernel("vector_add")
    path = tmp_path_factory.mktemp("recorded") / "vector_add-made_up.json.gz"
    problems = [kernel.problem({"n": n}) for n in (2**20, 2**21, 2**22)]
    return write_synthetic_recording(path, kernel, problems, 60)


@pytest.fixture
def tune(
    three_sizes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Tune:
    """Run the command line in an empty folder; the recording stands for the GPU unless told otherwise."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, device: str = f"replay:{three_sizes}") -> Said:
        return said_by(capsys, *arguments, *(["--device", device] if device else []))

    return run


@pytest.fixture
def any_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have kernels compiled fast, without optimisation: their code is not looked at."""
    monkeypatch.setenv(compiled_once.ANY_CODE, "1")


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
