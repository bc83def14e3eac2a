"""``scripts/run`` says what it does, and what is wrong with the place of a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def run(root: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Return what ``scripts/run true`` says in a checkout."""
    (root / "scripts").mkdir(parents=True, exist_ok=True)
    for name in ("scripts/run", "pyproject.toml"):
        shutil.copy(ROOT / name, root / name)
    given = {**os.environ, **environment}
    return subprocess.run(
        [root / "scripts/run", "true"], env=given, capture_output=True, text=True, check=False
    )


def test_a_colon_in_the_path(tmp_path: Path) -> None:
    root = tmp_path / "12:30"
    said = run(root)
    assert said.returncode != 0
    assert "colon" in said.stderr
    assert "apt install" not in said.stderr
    assert not (root / ".venv").exists()


def test_what_development_needs_is_added(tmp_path: Path) -> None:
    """After ``scripts/run tune`` the first other command installs once more."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\ncase $1 in -c) ;; --version) echo Python 3.11.7 ;; *) exit 1 ;; esac\n")
    python.chmod(0o755)
    assert "run: setting up" in run(tmp_path, PYTHON=str(python)).stderr
    (tmp_path / ".venv/bin").mkdir(parents=True)
    shutil.copy(python, tmp_path / ".venv/bin/python")
    stamp = f"{tmp_path}\npackage\n{(ROOT / 'pyproject.toml').read_text()}"
    (tmp_path / ".venv/.set-up-from").write_text(stamp)
    assert "run: adding what tests and development need to" in run(tmp_path, PYTHON=str(python)).stderr
