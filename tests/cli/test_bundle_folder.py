"""The folder that ``tune bundle`` writes: the same bytes for the same input, whole or not at all, at home anywhere."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import Said, assert_refused, said_by
from tests.fork_server import NO_FORK
from tests.stored_winners import H200, store_winners
from tuner.core.errors import TunerError
from tuner.core.files import whole_folder
from tuner.kernel.load import load_kernel
from tuner.kernel.space import SearchSpace
from tuner.runtime.manifest import read_manifest
from tuner.winners.records import baked_names

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.usefixtures("forked_children")

MOST_BYTES = 700_000


def example(folder: Path) -> Path:
    """Store a winner of an example's kernel; return the database."""
    kernel = load_kernel(str(ROOT / "docs" / "examples" / "smooth" / "smooth.toml"))
    problem = kernel.problem()
    default = SearchSpace.from_kernel(kernel, problem, H200).default
    store_winners(folder / "w.db", kernel, [(problem, default)])
    return folder / "w.db"


def bundled(capsys: pytest.CaptureFixture[str], database: Path, output: Path, *more: str) -> Said:
    file = str(ROOT / "docs" / "examples" / "smooth" / "smooth.toml")
    return said_by(capsys, "bundle", "--kernel", file, "--db", str(database), "-o", str(output), *more)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_same_winners_give_the_same_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = example(tmp_path)
    for name in ("one", "two"):
        assert bundled(capsys, database, tmp_path / name, "--no-cache").code == 0
    said = bundled(capsys, database, tmp_path / "three", "--few", "--slices", "-q")
    assert "--few has no effect" in said.err and "--slices has no effect" in said.err
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_winners_are_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = load_kernel("softmax")
    space = SearchSpace.from_kernel(kernel, kernel.problem(), H200)
    problems = [kernel.problem(), kernel.problem({"rows": 64})]
    configurations = [space.default, next(one for one in space.configurations() if one != space.default)]
    store_winners(tmp_path / "w.db", kernel, list(zip(problems, configurations, strict=True)))
    output = tmp_path / "bundle"
    said = said_by(capsys, "bundle", "--kernel", "softmax", "--db", str(tmp_path / "w.db"), "-o", str(output))
    assert said.code == 0, said.err
    manifest = read_manifest((output / "manifest.json").read_bytes())
    assert len(manifest.winners) == len({winner.configuration for winner in manifest.winners}) == 2
    assert sum(map(len, contents(output).values())) <= MOST_BYTES


def test_a_bundle_is_replaced_as_a_whole_and_nothing_else_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database, output = example(tmp_path), tmp_path / "out"
    output.mkdir()
    (output / "mine.txt").write_text("mine")
    for more in ((), ("--force",)):
        assert_refused(bundled(capsys, database, output, *more), 1, "something else than a bundle")
    (output / "mine.txt").unlink()
    assert bundled(capsys, database, output, "--force").code == 0
    before = contents(output)
    assert_refused(bundled(capsys, database, output), 1, "--force")
    (output / "runtime" / "__pycache__").mkdir()
    (output / "runtime" / "__pycache__" / "kernel.cpython-311.pyc").write_bytes(b"of Python")
    assert bundled(capsys, database, output, "--force").code == 0
    assert contents(output) == before
    run("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS", cwd=output)
    assert_refused(bundled(capsys, database, tmp_path / "none" / "out"), 2, "is no folder")
    with contextlib.chdir(output / "runtime"):  # it would be gone
        assert_refused(bundled(capsys, database, Path(".."), "--force"), 1, ".. is where you are")
    (tmp_path / "link").symlink_to(output)
    assert_refused(bundled(capsys, database, tmp_path / "link", "--force"), 1, "is no folder")
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_a_file_of_the_users_own_in_a_bundle_is_named_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database, output = example(tmp_path), tmp_path / "out"
    assert bundled(capsys, database, output).code == 0
    own = [
        output / name
        for name in ("mine.txt", ".git/HEAD", "src/mine.cu", "include/kernel_tune/mine.hpp", "new/")
    ]
    own += [output / "__pycache__" / "notes.txt", output / "link", output / "LICENSE", output / "SHA256SUMS"]
    for path in own:
        before = path.read_text() if path.exists() else None
        path.parent.mkdir(exist_ok=True)
        if path.name == "link":
            path.symlink_to(tmp_path)
        elif path.name == "LICENSE":  # larger than any file of a bundle: it is not read
            path.write_text("mine\n")
            os.truncate(path, 1 << 40)
        elif path.name == "new":
            path.mkdir()
        else:
            path.write_text("mine\n")
        first = (
            "LICENSE" if path.name == "SHA256SUMS" else str(path.relative_to(output)).partition("/HEAD")[0]
        )
        held = contents(output) if path.name != "LICENSE" else {}
        said = bundled(capsys, database, output, "--force")
        assert_refused(said, 1, "--force would delete it")
        assert path.name == "SHA256SUMS" or f"{output / first};" in said.err
        assert path.name == "LICENSE" or contents(output) == held
        if before is not None:
            path.write_text(before)
        elif path.name == "new":
            path.rmdir()
        else:
            path.unlink()
            if path.parent.name == ".git":
                path.parent.rmdir()
    assert bundled(capsys, database, output, "--force").code == 0


def test_without_a_winner_there_is_no_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out"
    said = said_by(capsys, "bundle", "--kernel", "gemm", "--db", str(example(tmp_path)), "-o", str(output))
    assert_refused(said, 1, "tune gemm")
    (tmp_path / "damaged.db").write_bytes(b"SQLite format 3\0" + b"\x07" * 5000)
    assert_refused(bundled(capsys, tmp_path / "damaged.db", output), 1, "damaged.db")
    assert not output.exists()


def test_a_winner_that_this_compiler_makes_invalid_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in (ROOT / "docs" / "examples" / "smooth").iterdir():
        text = file.read_text().replace("constraints]\n", 'constraints]\n"few registers" = "registers < 2"\n')
        (tmp_path / file.name).write_text(text)
    kernel = load_kernel(str(tmp_path / "smooth.toml"))
    problem = kernel.problem()
    store_winners(
        tmp_path / "w.db", kernel, [(problem, SearchSpace.from_kernel(kernel, problem, H200).default)]
    )
    output = tmp_path / "out"
    said = said_by(
        capsys, "bundle", "--kernel", str(kernel.file), "--db", str(tmp_path / "w.db"), "-o", str(output)
    )
    assert said.code == 1 and ": few registers; " in said.err
    assert not output.exists()


def test_a_folder_is_whole_or_not_there(tmp_path: Path) -> None:
    left = tmp_path / ".out.0000abcd.partial"
    left.mkdir()  # by a killed process
    with pytest.raises(TunerError), whole_folder(tmp_path / "out") as partial:
        (partial / "half").write_text("half")
        raise TunerError("stop")
    assert list(tmp_path.iterdir()) == []


def test_a_moved_bundle_is_found_by_python_and_pkg_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bundled(capsys, example(tmp_path), tmp_path / "first").code == 0
    (tmp_path / "there").mkdir()
    moved = (tmp_path / "first").rename(tmp_path / "there" / "smooth_bundle")
    code = "import sys, smooth_bundle; print(smooth_bundle.load())\n"
    if importlib.util.find_spec("torch"):
        code += "print(smooth_bundle.load().torch())\n"
    loaded, *operator, modules = run(
        sys.executable, "-c", f"{code}print([m for m in sys.modules if 'tuner' in m])", cwd=moved.parent
    ).splitlines()
    assert loaded.startswith("<tuned smooth") and modules == "[]"
    for line in operator:
        assert line.startswith("<kernel_tune::smooth_") and line.endswith("-> Tensor>")
    code = "import sys; sys.modules['cuda'] = None\n"
    code += "try: import smooth_bundle\nexcept ImportError as error: print(error)"
    assert "pip install cuda-bindings" in run(sys.executable, "-c", code, cwd=moved.parent)
    if shutil.which("pkg-config"):
        ask = ("env", f"PKG_CONFIG_PATH={moved}/lib/pkgconfig", "pkg-config")
        flags = run(*ask, "--cflags", "kernel_tune_smooth")
        assert Path(flags.strip().removeprefix("-I")).resolve() == moved / "include"
        folder = run(*ask, "--variable=bundle", "kernel_tune_smooth")  # for a program's -DBUNDLE
        assert Path(folder.strip()).resolve() == moved


def run(*command: str, cwd: Path | None = None) -> str:
    """Run a program that cannot see the checkout."""
    environment = {"PATH": "/usr/bin:/bin", NO_FORK: "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_size_in_a_template_and_a_limit_in_an_option_are_requirements(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in (ROOT / "docs" / "examples" / "smooth").iterdir():
        (tmp_path / file.name).write_text(file.read_text())
    template = tmp_path / "smooth.cu.j2"
    template.write_text(template.read_text() + "// made for {{ problem.width }} columns\n")
    file = tmp_path / "smooth.toml"
    file.write_text(f'{file.read_text()}\n[compile]\noptions = ["-DSMS={{{{ sm_count }}}}"]\n')
    kernel = load_kernel(str(file))
    assert baked_names(kernel, kernel.variants["columns"].launches) == ["width"]
    problem = kernel.problem({"width": 300})
    default = SearchSpace.from_kernel(kernel, problem, H200).default
    store_winners(tmp_path / "w.db", kernel, [(problem, default)])
    arguments = ("--kernel", str(kernel.file), "--db", str(tmp_path / "w.db"), "-o", str(tmp_path / "out"))
    assert said_by(capsys, "bundle", *arguments).code == 0
    manifest = read_manifest((tmp_path / "out" / "manifest.json").read_bytes())
    winner = manifest.configurations[manifest.winners[0].configuration]
    required = [holds.tree for _, holds in winner.requires]
    assert ("==", "width", 300) in required and ("==", "sm_count", H200.sm_count) in required
