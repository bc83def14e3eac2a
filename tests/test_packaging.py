"""The wheel: everything inside the package, nothing beside it, and it works away from the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.fork_server import NO_FORK
from tuner import __version__

pytestmark = pytest.mark.usefixtures("forked_children")

ROOT = Path(__file__).parent.parent

pytest.importorskip("hatchling")


def command(*arguments: str | Path, cwd: Path, path: str = "") -> str:
    """Run Python with no other PYTHONPATH than the one given, so that the checkout is not found by chance."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    environment |= {"PYTHONPATH": path, NO_FORK: "1"} if path else {}
    words = [sys.executable, *map(str, arguments)]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"{arguments}\n{done.stdout}{done.stderr}"
    return done.stdout


def build(project: Path, kind: str, folder: Path) -> Path:
    command("-m", "hatchling", "build", "--target", kind, "--directory", folder, cwd=project)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    pip = ("-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet")
    command(*pip, "install", "--no-compile", "--no-deps", "--no-index", "--target", target, wheel, cwd=target)
    return target


def contents(wheel: Path) -> list[str]:
    return sorted(zipfile.ZipFile(wheel).namelist())


def test_nothing_lands_beside_the_package(wheel: Path) -> None:
    assert {name.split("/")[0] for name in contents(wheel)} == {
        "tuner",
        f"kernel_tune-{__version__}.dist-info",
    }


def test_wheel_holds_what_the_checkout_holds(wheel: Path) -> None:
    names = contents(wheel)
    moved = {
        "tuner": "tuner",
        "templates": "tuner/data/templates",
        "search_spaces": "tuner/data/search_spaces",
    }
    for folder, inside in {**moved, "results/recorded": "tuner/data/recorded"}.items():
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert f"{inside}/{path.relative_to(ROOT / folder)}" in names
    assert "tuner/py.typed" in names and "tuner/data/docs/agents.md" in names
    assert f"kernel_tune-{__version__}.dist-info/licenses/LICENSE" in names
    assert not [name for name in names if name.endswith((".pyc", ".db", ".tmp.md"))]


def test_source_distribution_gives_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    archive = build(ROOT, "sdist", tmp_path / "sdist")
    shutil.unpack_archive(archive, tmp_path)
    again = build(tmp_path / archive.name.removesuffix(".tar.gz"), "wheel", tmp_path / "wheel")
    assert contents(again) == contents(wheel)


def test_installed_wheel_finds_its_own_kernels(installed: Path, tmp_path: Path) -> None:
    # The target comes first on the path; the dependencies are those of this environment.
    path = os.pathsep.join([str(installed), sysconfig.get_paths()["purelib"]])
    places = "tuner.__file__, p.templates(), p.search_spaces(), p.recordings(), p.agents_page()"
    where = f"import tuner, tuner.core.paths as p; print({places}, sep='\\n')"
    for line in command("-c", where, cwd=tmp_path, path=path).splitlines():
        assert Path(line).is_relative_to(installed), line
        assert Path(line).exists(), line
    shown = command(installed / "bin" / "tune", "show", "saxpy", cwd=tmp_path, path=path)
    assert str(installed / "tuner/data/search_spaces/saxpy.toml") in shown
    assert not list(tmp_path.iterdir())


def test_installed_wheel_runs_the_main_job(installed: Path, tmp_path: Path) -> None:
    path = os.pathsep.join([str(installed), sysconfig.get_paths()["purelib"]])
    arguments = ("--kernel", "vector_add", "--trials", "3", "--device", "replay")
    assert "[replayed]" in command("-m", "tuner", *arguments, cwd=tmp_path, path=path)
    assert [file.name for file in (tmp_path / "results").glob("*.db")] == ["tuning.db"]
