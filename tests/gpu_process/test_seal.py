"""What foreign code changes in a measuring process is found, and what libraries do themselves is no change."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tuner.gpu.seal import Seal
from tuner.gpu.timing import Timer


@pytest.fixture(scope="module", autouse=True)
def no_hooks() -> Iterator[None]:
    """A hook stays for good: it would slow all later tests of this process, those of torch.compile tenfold."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "addaudithook", lambda _: None)
        yield


@pytest.fixture(scope="module")
def seal() -> Seal:
    seal = Seal()
    assert seal.broken() == ""
    return seal


@pytest.mark.parametrize(
    ("owner", "name", "said"),
    [
        (time, "monotonic", "time.monotonic"),
        (Timer, "group", "Timer.group"),
        (np, "allclose", "numpy.allclose"),
    ],
)
def test_a_replaced_function(
    seal: Seal, owner: object, name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, lambda *_: 0.0)
    assert said in seal.broken()


def test_a_replaced_constant_and_code(seal: Seal, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("tuner.gpu.timing.GROUP_NS", 1e9)
        assert "GROUP_NS" in seal.broken()
    monkeypatch.setattr(Timer.measure_gap, "__code__", (lambda self, data, stamps, mode: 0.0).__code__)
    assert "Timer.measure_gap" in seal.broken()


def test_the_seal_itself_and_the_module_that_runs(seal: Seal, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = seal.broken
    with monkeypatch.context() as patched:
        patched.setattr(Seal, "_otherwise", lambda _: "")
        assert "Seal._otherwise" in seal.broken()
    with monkeypatch.context() as patched:
        patched.setattr("builtins.vars", lambda _: {})
        assert "builtins.vars" in seal.broken()
    with monkeypatch.context() as patched:  # before the attribute of an instance
        patched.setattr(Seal, "broken", property(lambda _: lambda: ""), raising=False)
        assert "it adds tuner.gpu.seal.Seal.broken" in broken()
    with monkeypatch.context() as patched:
        patched.setattr("tuner.gpu.timing.max", min, raising=False)
        assert "it adds tuner.gpu.timing.max" in seal.broken()
    monkeypatch.setattr("__main__.Worker", str, raising=False)
    other = Seal()
    monkeypatch.setattr("__main__.Worker", int)
    assert "__main__.Worker" in other.broken()


def test_what_references_are_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "of_a_task.py").write_text(
        "def twice(x): return 2 * x\nclass Model:\n    def forward(self): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("of_a_task")
    seal = Seal()
    with monkeypatch.context() as patched:
        patched.setattr(module.Model, "forward", lambda _: 0)
        assert "of_a_task.Model.forward" in seal.broken()
    monkeypatch.setattr(module, "twice", lambda x: x)
    assert "of_a_task.twice" in seal.broken()


def test_what_makes_torch_slower(seal: Seal, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    with monkeypatch.context() as patched:
        patched.setattr(torch, "add", torch.sub)
        assert "torch.add" in seal.broken()
    torch.backends.cuda.enable_flash_sdp(False)
    said = seal.broken()
    torch.backends.cuda.enable_flash_sdp(True)
    assert "flash_sdp" in said and seal.broken() == ""


def test_what_honest_code_does_when_it_is_first_called(tmp_path: Path) -> None:
    """As Triton, torch.compile and CuPy do: caches, benchmarks, texts of functions, idle threads, programs."""
    (tmp_path / "honest.py").write_text(
        "import collections, dataclasses, enum, functools, inspect, linecache, logging, subprocess, time, typing\n"
        "import warnings\nfrom concurrent.futures import ThreadPoolExecutor\n\n"
        "cache, pool = {}, ThreadPoolExecutor(1)\n"
        "Point, Kind = collections.namedtuple('Point', 'x'), enum.Enum('Kind', 'a b')\n"
        "Named = typing.NamedTuple('Named', [('x', int)])\n\n\n"
        "@dataclasses.dataclass(frozen=True)\nclass Config:\n    block: int = 64\n\n\n"
        "@functools.lru_cache\ndef text():\n    return inspect.getsource(candidate)\n\n\n"
        "def candidate():\n"
        "    if not cache:\n"
        "        began = time.perf_counter()\n"
        "        subprocess.run(['true'], check=True)\n"
        "        cache[Config()] = pool.submit(len, text()).result(), time.perf_counter() - began\n"
        "        warnings.warn('first call')\n"
        "        logging.getLogger('honest').debug('tuned')\n"
    )
    program = (
        "import sys; sys.modules['torch'] = sys.modules['cupy'] = None\n"
        "from pathlib import Path\nfrom tuner.gpu.seal import Seal\n"
        "from tuner.kernel.functions import load_function\n"
        "seal = Seal()\nload_function('candidate', Path('honest.py'))()\nprint(seal.broken())"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "\n"


def test_what_torch_itself_replaces(seal: Seal, monkeypatch: pytest.MonkeyPatch) -> None:
    """By torch._dynamo, when torch.compile is first used; and threads of a CPU make no graph slower."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch, "manual_seed", lambda seed: None)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    assert seal.broken() == ""
    torch.set_num_threads(threads)


def test_a_users_own_libraries_are_libraries(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    (folder / "tracing-1.0.dist-info").mkdir(parents=True)
    (folder / "tracing.py").write_text("import sys\n\ndef caller(): return sys._getframe(1)\n")
    (tmp_path / "own.py").write_text((folder / "tracing.py").read_text())
    program = (
        "import sys; sys.modules['torch'] = sys.modules['cupy'] = None\n"
        "from tuner.gpu.seal import Seal\nseal = Seal()\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "import tracing, own\ntracing.caller(); print(seal.broken())\nown.caller(); print(seal.broken())"
    )
    path = os.pathsep.join([*filter(None, sys.path), str(folder)])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "\ncaller asks for sys._getframe, which shows the harness\n"


def test_a_thread(seal: Seal) -> None:
    ends = threading.Event()

    def works() -> None:
        ends.wait()

    thread = threading.Thread(target=works, daemon=True)
    thread.start()
    said = seal.broken()
    ends.set()
    thread.join()
    assert said == "works runs in a thread of its own"


SEARCHES = """
import sys
sys.modules["torch"] = None  # it takes seconds
import gc, inspect, logging
from tuner.gpu.seal import Seal
own = Seal()
inspect.currentframe()
print(own.broken())
other = Seal()
logging.getLogger("a").warning("whose place logging looks up")
print(other.broken())
gc.get_objects()
print(other.broken())
third = Seal()
exec(compile("gc.get_objects()", logging.__file__, "exec"))
print(third.broken())
"""


def test_a_search_among_all_objects(forked_children: None) -> None:
    done = subprocess.run([sys.executable, "-c", SEARCHES], capture_output=True, text=True, check=True)
    frames, logged, objects, disguised = done.stdout.split("\n")[:4]
    assert "currentframe" in frames or "_getframe" in frames
    assert logged == ""
    assert "gc.get_objects" in objects
    assert "under the name of a library's file" in disguised
