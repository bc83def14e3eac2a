"""docs/tutorial.md, followed step by step: its files are written and its commands run, on a GPU all of them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import said_by

pytestmark = pytest.mark.usefixtures("forked_children")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
STEP = re.compile(r"^(?:`([\w./]+)`(, continued)?\n\n)?```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WITHOUT_A_GPU = ("check", "show", "explain")


def run(words: list[str], folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout


def write(folder: Path, name: str, continued: str, text: str) -> None:
    with (folder / name).open("a" if continued else "w") as file:
        file.write(f"\n{text}" if continued else text)


def follow(folder: Path, tune: Callable[[list[str]], str], *, gpu: bool) -> list[str]:
    """Do what the page says, and return what its commands printed; ``tune`` runs the command line."""
    printed = []
    for name, continued, language, text in STEP.findall(PAGE):
        if name:
            write(folder, name, continued, text)
        elif language == "sh":
            for line in text.splitlines():
                program, *words = shlex.split(line)
                if program == "tune" and (gpu or words[0] in WITHOUT_A_GPU):
                    printed.append(tune(words))
        elif language == "python" and gpu:
            printed.append(run([sys.executable, "-c", text], folder))
    return printed


def test_its_files_are_those_of_the_examples(tmp_path: Path) -> None:
    for name, continued, _, text in STEP.findall(PAGE):
        if name:
            write(tmp_path, name, continued, text)
    examples = ROOT / "docs" / "examples" / "rms_norm"
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert written == {
        path.name: path.read_text() for path in examples.iterdir() if path.suffix in (".cu", ".toml")
    }


def test_what_needs_no_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def tune(words: list[str]) -> str:
        few = ["--configurations", "2"] if words[0] == "check" else []
        said = said_by(capsys, *words, *few)
        assert said.code == 0, said
        return said.out

    printed = follow(tmp_path, tune, gpu=False)
    assert len(printed) == 4
    assert "30 valid of 30" in printed[1]
