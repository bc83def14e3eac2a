"""``tuner.load(db=...)``: winners are compiled when they are first used, by one process for all."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tuner
from tests.commands import said_by
from tests.stored_winners import H200, store_winners
from tuner.children.cubin_cache import CubinCache
from tuner.core.errors import CallError, CompileError, DatabaseError
from tuner.core.model import Configuration
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.kernel.load import load_kernel
from tuner.kernel.space import SearchSpace
from tuner.winners.compiling import CompiledOnUse, stored_contents
from tuner.winners.current import Kernels, choose_winners

pytestmark = pytest.mark.usefixtures("forked_children")

ROOT = Path(__file__).parents[2]
CUBIN = """
import hashlib, sys
from pathlib import Path
from tuner.winners.compiling import CompiledOnUse, stored_contents
use = CompiledOnUse(stored_contents("vector_add", Path(sys.argv[1]), ""), Path(sys.argv[2]))
name = use.configurations()[0].launches[0].cubin
print("ready", flush=True)
sys.stdin.readline()
print(hashlib.sha256(use.cubin(name)).hexdigest())
"""


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    kernel = load_kernel("vector_add")
    problem = kernel.problem()
    default = SearchSpace.from_kernel(kernel, problem, H200).default
    store_winners(tmp_path / "w.db", kernel, [(problem, default)])
    return tmp_path / "w.db"


def test_processes_on_an_empty_cache_leave_one_valid_entry(stored: Path, tmp_path: Path) -> None:
    cache = tmp_path / "kernel-tune" / "cubins"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", CUBIN, str(stored), str(cache)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(4)
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    digests = {process.communicate("\n", timeout=200)[0] for process in processes}
    assert all(process.returncode == 0 for process in processes)
    assert len(digests) == 1
    (entry,) = cache.glob("*/*.cubin")
    kept = CubinCache(cache).get(entry.parent.name + entry.stem)
    assert kept is not None
    assert kept.cubin.startswith(b"\x7fELF")


def test_nothing_is_compiled_before_it_is_used(stored: Path, tmp_path: Path) -> None:
    cache = tmp_path / "kernel-tune" / "cubins"
    use = CompiledOnUse(stored_contents("vector_add", stored, "H200"), cache)
    (name,) = {launch.cubin for launch in use.configurations()[0].launches.values()}
    assert not cache.exists()
    assert use.cubin(name).startswith(b"\x7fELF")
    assert use.cubin(name) is use.cubin(name)


def test_what_writes_to_slices_is_compiled_of_its_own(tmp_path: Path) -> None:
    kernel = load_kernel("gemm")
    problem = kernel.problem(dict.fromkeys("mnk", 64), {"": "float32"})
    configuration = Configuration.of("tiled", kernel.variants["tiled"].defaults)
    store_winners(tmp_path / "w.db", kernel, [(problem, configuration)])
    use = CompiledOnUse(stored_contents("gemm", tmp_path / "w.db", "H200"), tmp_path / "cubins")
    [first, *_] = use.configurations()
    [usual], [apart] = first.launches.values(), first.slices.values()
    assert b"gemm_tiled" in use.cubin(apart.cubin) != use.cubin(usual.cubin)


def test_a_kernel_that_has_changed_since_is_not_compiled(tmp_path: Path) -> None:
    for file in (ROOT / "docs" / "examples" / "smooth").iterdir():
        (tmp_path / file.name).write_text(file.read_text())
    kernel = load_kernel(str(tmp_path / "smooth.toml"))
    problem = kernel.problem()
    default = SearchSpace.from_kernel(kernel, problem, H200).default
    store_winners(tmp_path / "w.db", kernel, [(problem, default)])
    use = CompiledOnUse(
        stored_contents(str(kernel.file), tmp_path / "w.db", ""), tmp_path / "cache" / "cubins"
    )
    (name,) = {launch.cubin for launch in use.configurations()[0].launches.values()}
    template = tmp_path / "smooth.cu.j2"
    template.write_text(template.read_text().replace("0.125f", "0.25f"))
    with pytest.raises(CompileError, match=r"smooth\.toml"):
        use.cubin(name)


def test_load_gives_an_operation_without_a_gpu(stored: Path) -> None:
    operation = tuner.load("vector_add", db=stored)
    assert operation.name == "vector_add"
    assert "vector_add" in repr(operation)


def test_winners_that_are_not_the_kernels_are_left_out_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = load_kernel("vector_add")
    problem = kernel.problem({"n": 2**20})
    default = SearchSpace.from_kernel(kernel, problem, H200).default
    wrong = {
        "no variant 'none'": (problem, replace(default, variant="none")),
        "its parameters are none": (problem, Configuration.of(default.variant, {})),
        "block_size is 'x'": (
            problem,
            Configuration.of(default.variant, {**default.values, "block_size": "x"}),
        ),
        "its sizes are m": (replace(problem, sizes={"m": 5}), default),
        "its sizes are none": (replace(problem, sizes={}), default),
        "its size n is 0": (replace(problem, sizes={"n": 0}), default),
        "its dtypes are none": (replace(problem, dtypes={}), default),
        "no dtype float8": (replace(problem, dtypes=dict.fromkeys(problem.dtypes, "float8")), default),
        "its options are a": (replace(problem, options={"a": 1}), default),
    }
    store_winners(tmp_path / "w.db", kernel, [(kernel.problem({"n": 2**21}), default), *wrong.values()])
    with Database.open(tmp_path / "w.db") as database:
        chosen = choose_winners(
            database, Filters(kernel="vector_add", exportable=True), Kernels(), with_files=True
        )
    assert [stored.run.problem.sizes for stored in chosen.winners] == [{"n": 2**21}]
    assert len(chosen.damaged) == len(wrong) and not chosen.left_out
    for reason in wrong:
        assert any(reason in line for line in chosen.damaged), reason
    assert len(stored_contents("vector_add", tmp_path / "w.db", "").winners) == 1
    said = said_by(capsys, "export", "--db", str(tmp_path / "w.db"), "-o", "-")
    assert said.code == 0 and said.out.count("// trial ") == 1
    assert said.err.splitlines() == [f"left out: {line}" for line in chosen.damaged]
    store_winners(tmp_path / "none.db", kernel, [wrong["no variant 'none'"]])
    for command in ("export", "bundle"):
        words = [
            command, "--kernel", "vector_add", "--db", str(tmp_path / "none.db"), "-o",
            str(tmp_path / "out"),
        ]  # fmt: skip
        said = said_by(capsys, *words)
        assert said.code == 1 and "no confirmed winner" in said.err and "take what there is" not in said.err


def test_what_cannot_be_loaded_is_refused(stored: Path, tmp_path: Path) -> None:
    for arguments, error, words in (
        ({"db": stored, "gpu": "B200"}, DatabaseError, "tune vector_add"),
        ({"db": tmp_path / "none.db"}, DatabaseError, "none.db.* with db="),
        ({"db": stored, "bundle": tmp_path}, CallError, "takes a bundle alone"),
        ({}, CallError, "needs db="),
        ({"gpu": "H200"}, CallError, "needs db="),
        ({"policy": "tun"}, CallError, "no policy 'tun'.*did you mean tune"),
        ({"dtypes": {"inptu": "float16"}}, CallError, "no dtype or option 'inptu'"),
        ({"policy": "tune", "options": {"layout": "nt"}}, CallError, "no dtype or option 'layout'"),
        ({"db": stored, "policy": "fast"}, CallError, "no policy"),
        ({"db": 5}, CallError, "db cannot be 5"),
        ({"db": []}, CallError, r"db cannot be \[\];"),
        ({"bundle": "a\0b"}, CallError, "bundle cannot be"),
        ({"bundle": "\ud800"}, CallError, "bundle cannot be"),
        ({"db": stored, "policy": None}, CallError, "policy cannot be None"),
        (
            {"db": stored, "dtypes": np.zeros((2, 2))},
            CallError,
            r"dtypes cannot be array\(\[\[0., 0.\], \[0.",
        ),
        ({"db": stored, "dtypes": "float16"}, CallError, "dtypes cannot be 'float16'"),
    ):
        with pytest.raises(error, match=words):
            tuner.load("vector_add", **arguments)
    for kernel in (5, ""):
        with pytest.raises(CallError, match="kernel cannot be"):
            tuner.load(kernel, db=stored)  # type: ignore[arg-type]
    (tmp_path / "damaged.db").write_bytes(b"SQLite format 3\0" + os.urandom(5000))
    with pytest.raises(DatabaseError, match="did you mean vector_add"):
        tuner.load("vectoradd", db=stored)
    with pytest.raises(DatabaseError):
        tuner.load("vector_add", db=tmp_path / "damaged.db")
