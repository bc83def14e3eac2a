"""scripts/same_bits.py: a kernel whose last bit depends on the clock is right, and not the same twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.kernels import SOURCE, write_kernel

SCRIPT = Path(__file__).parents[2] / "scripts" / "same_bits.py"
CHANGING = SOURCE.replace(
    "if (i < n) y[i] = 2.0f * x[i];",
    "unsigned long long now;\n"
    '        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));\n'
    "        if (i < n) y[i] = __int_as_float(__float_as_int(2.0f * x[i]) + int(now >> 5 & 1));",
)


@pytest.mark.parametrize(("source", "same"), [(SOURCE, True), (CHANGING, False)])
def test_bits_are_compared(source: str, same: bool, tmp_path: Path) -> None:
    assert source == SOURCE or "globaltimer" in source
    kernel = str(write_kernel(tmp_path, source=source))
    size = ["--size", "n=2**20", "--trials", "3"]
    run = [sys.executable, "-m", "tuner", "--kernel", kernel, *size, "--db", "bits.db", "--quiet"]
    subprocess.run(run, cwd=tmp_path, check=True, timeout=120)
    words = ["--db", "bits.db", "--kernel", kernel, "--calls", "4", "--json"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    (row,) = json.loads(done.stdout)
    assert (row["same"], done.returncode) == (same, int(not same)), done.stderr
    assert row["error"] == "" if same else "bytes differ in call" in row["error"]
