"""The notebooks of docs/examples run to their end, with recorded times where there is no GPU."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.fork_server import ForkedPopen

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*/*.ipynb"))


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 2


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # where IPython keeps what it likes
    monkeypatch.setattr("jupyter_client.launcher.Popen", ForkedPopen)
    folder = tmp_path / "run"
    shutil.copytree(path.parent, folder, ignore=shutil.ignore_patterns("*.ipynb", "results"))
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=200, startup_timeout=200, resources={"metadata": {"path": folder}}
    ).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("text/html" in output.get("data", {}) for output in shown), "no result shows itself"
    assert not [output for output in shown if output.output_type == "error"]
