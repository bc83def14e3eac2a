"""``scripts/run`` says what is wrong with the place of a checkout."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_a_colon_in_the_path(tmp_path: Path) -> None:
    root = tmp_path / "12:30"
    (root / "scripts").mkdir(parents=True)
    for name in ("scripts/run", "pyproject.toml"):
        shutil.copy(ROOT / name, root / name)
    said = subprocess.run([root / "scripts/run", "true"], capture_output=True, text=True, check=False)
    assert said.returncode != 0
    assert "colon" in said.stderr
    assert "apt install" not in said.stderr
    assert not (root / ".venv").exists()
