"""References that people write: slices in NumPy, a Python function, and what they say of a right and a wrong kernel."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tuner.core.errors import DeviceError
from tuner.core.model import Configuration, Status
from tuner.devices.local import LocalDevice
from tuner.kernel.load import read_kernel
from tuner.kernel.spec import KernelSpec

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "smooth"
FUNCTION = """\
import numpy as np


def smooth(x):
    p = np.pad(x, 1, mode="edge")
    return 0.5 * x + 0.125 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:])
"""
SIZES = {"height": 333, "width": 517}


def smooth(folder: Path, function: str = "", wrong: bool = False) -> KernelSpec:
    """Copy the example, with a Python function as its reference where one is given."""
    for file in EXAMPLE.iterdir():
        shutil.copy(file, folder)
    toml, template = folder / "smooth.toml", folder / "smooth.cu.j2"
    if function:
        text = toml.read_text()
        start, end = text.index('numpy = """'), text.index('reduction = "5"')
        toml.write_text(text[:start] + 'python = "own.py:smooth"\n' + text[end:])
        (folder / "own.py").write_text(function)
    if wrong:
        template.write_text(template.read_text().replace("column - 1, 0)", "column - 1, 1)"))
    return read_kernel(toml.resolve())


@pytest.mark.parametrize("function", ["", FUNCTION], ids=["numpy", "python"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_right_kernels_pass_and_wrong_ones_do_not(
    device: LocalDevice, tmp_path: Path, function: str, dtype: str
) -> None:
    for wrong, expected in ((False, Status.OK), (True, Status.WRONG_RESULT)):
        folder = tmp_path / str(wrong)
        folder.mkdir()
        kernel = smooth(folder, function, wrong)
        device.prepare(kernel, kernel.problem(SIZES, {"": dtype}), seed=4)
        device.submit(0, Configuration.of("columns", kernel.variants["columns"].defaults))
        while not (outcomes := device.collect(1.0)):
            pass
        assert outcomes[0].status is expected, outcomes[0].error


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("def smooth(x):\n    return x[1:]\n", r"own.py:1: smooth returns shape \(332, 517\) for y"),
        ("def smooth(x):\n    y = x\n    return y[600]\n", "own.py:3: IndexError"),
        ("import no_such_module\n", "own.py:1: ModuleNotFoundError"),
        ("def smooth(x): return x * float('nan')\n", "returns NaN in"),
        ("import os\ndef smooth(x):\n    print('to a file')\n    os.write(1, b'x' * 100)\n", "returns None"),
    ],
)
def test_what_goes_wrong_comes_back_in_a_line(
    device: LocalDevice, tmp_path: Path, function: str, said: str
) -> None:
    """And the measuring process goes on."""
    kernel = smooth(tmp_path, function)
    with pytest.raises(DeviceError, match=said) as caught:
        device.prepare(kernel, kernel.problem(SIZES), seed=4)
    assert "\n" not in str(caught.value)
    (tmp_path / "next").mkdir()
    device.prepare(smooth(tmp_path / "next"), kernel.problem(SIZES), seed=4)
