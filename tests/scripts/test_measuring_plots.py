"""The figures of docs/measuring.md can be drawn from the evidence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "results" / "evidence"
SCRIPT = ROOT / "scripts" / "measuring" / "plot.py"
FIGURES = ["modes.svg", "spread.svg", "twins.svg"]
MOST_BYTES = 80_000

pytest.importorskip("matplotlib", reason="figures need matplotlib")
pytestmark = pytest.mark.usefixtures("forked_children")


def plot(evidence: Path, images: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(evidence), str(images)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(not EVIDENCE.is_dir(), reason="results/evidence is not part of this copy")
def test_all_figures_are_drawn(tmp_path: Path) -> None:
    done = plot(EVIDENCE, tmp_path)
    assert done.returncode == 0, done.stderr
    drawn = sorted(path.name for path in tmp_path.iterdir())
    assert drawn == FIGURES
    for name in drawn:
        text = (tmp_path / name).read_bytes()
        assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
        assert len(text) < MOST_BYTES


def test_a_missing_measurement_is_named(tmp_path: Path) -> None:
    done = plot(tmp_path, tmp_path / "images")
    assert done.returncode == 1
    assert done.stderr.startswith(f"{tmp_path / 'modes.json'} is missing")
    assert len(done.stderr.splitlines()) == 1
