"""What stands in a kernel's file: text, which is UTF-8 whatever the locale says, and where a number must be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.commands import said_by

FILE = """\
reference.numpy = "2 * x"
[kernel]
name = "twice"
summary = "größer"
[problem]
sizes.n = 100
dtypes.input = "float32"
[tensors]
x = { shape = ["n"], dtype = "input" }
y = { shape = ["n"], dtype = "input", role = "output" }
[variants.main]
parameters.BLOCK = { values = [32] }
[[variants.main.launches]]
template = "k.cu"
entry = "k"
arguments = ["x", "y", "n"]
grid = "ceil_div(n, BLOCK)"
block = "BLOCK"
"""
SOURCE = """\
extern "C" __global__ void k(const float* x, float* y, int n) {  // größer
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
"""


def written(folder: Path, text: str = FILE) -> Path:
    (folder / "k.toml").write_text(text, encoding="utf-8")
    (folder / "k.cu").write_text(SOURCE, encoding="utf-8")
    return folder / "k.toml"


def test_a_locale_of_ascii_reads_them_all_the_same(tmp_path: Path) -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "tuner", "check", str(written(tmp_path)), "--cc", "90", "-j", "1"]
    done = subprocess.run(command, capture_output=True, env=os.environ | plain, check=False)
    assert done.returncode == 0 and b"0 findings" in done.stderr, done.stderr


def test_numbers_of_an_init_that_are_text_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = FILE.replace('dtype = "input" }', 'dtype = "input", init = { uniform = [0, "input"] } }', 1)
    said = said_by(capsys, "check", str(written(tmp_path, text)))
    assert said.code == 1 and "is no number" in said.out + said.err


@pytest.mark.parametrize("scale", [2.0, 3.0])
def test_a_golden_file_is_compared_with_the_other_reference(
    scale: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "y.npy", scale * np.arange(100, dtype=np.float32))
    text = FILE.replace('reference.numpy = "2 * x"', 'reference = { numpy = "2 * x", golden.y = "y.npy" }')
    text = text.replace('dtype = "input" }', 'dtype = "input", init = "index" }', 1)
    said = said_by(capsys, "check", str(written(tmp_path, text)), "--cc", "90", "-j", "1")
    assert (said.code, "differ" in said.out + said.err) == ((0, False) if scale == 2 else (1, True))


OTHERS = {
    "only a GPU runs it": ('call = "k.py:twice"\n[[initial]]\nvariant = "other"\ndefault = true', 0),
    "its condition is none": (
        'like = "main"\npruning.why = "BLOCK"\n[[initial]]\nvariant = "other"\ndefault = "n > 1"',
        1,
    ),
}


@pytest.mark.parametrize("why", OTHERS)
def test_initial_configurations_go_with_their_variant(
    why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, findings = OTHERS[why]
    (tmp_path / "k.py").write_text("def twice(x, y):\n    y[:] = 2 * x\n")
    file = written(tmp_path, f"{FILE}[variants.other]\n{other}\n")
    assert said_by(capsys, "check", str(file), "--cc", "90", "-j", "1").code == findings
