"""[baselines] of a kernel's file: calls for all problems, and calls for some."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernel_files import GOOD, write
from tuner.core.errors import KernelError
from tuner.kernel.load import read_kernel
from tuner.kernel.spec import KernelSpec

BASELINE = 'torch = "torch.mul(x, alpha, out=y)"'


def kernel_with(folder: Path, calls: str) -> KernelSpec:
    assert BASELINE in GOOD
    return read_kernel(write(folder, GOOD.replace(BASELINE, calls)))


def test_calls_may_have_conditions(tmp_path: Path) -> None:
    kernel = kernel_with(
        tmp_path,
        """\
cupy = "cupy.multiply(x, 2,  out=y)"
torch = { call = "torch.mul(x, 2, out=y)", when = "order == 'up'" }
other = [
    { call = "torch.mul(x, 2, out=y)", when = "order == 'up' and input == 'float16'" },
    { call = "torch.add(x, x, out=y)" },
]""",
    )
    found = {
        name: [(call.text, call.when and call.when.text) for call in calls]
        for name, calls in kernel.baselines.items()
    }
    assert found == {
        "cupy": [("cupy.multiply(x, 2, out=y)", None)],
        "torch": [("torch.mul(x, 2, out=y)", "order == 'up'")],
        "other": [
            ("torch.mul(x, 2, out=y)", "order == 'up' and input == 'float16'"),
            ("torch.add(x, x, out=y)", None),
        ],
    }


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ("torch = 3", "is not text or a table or an array"),
        ("torch = { when = \"order == 'up'\" }", "key 'call' is missing"),
        ('torch = { call = "torch.mul(x, 2, out=y)", if = "n > 1" }', "unknown key 'if'"),
        ('torch = { call = "torch.mul(x, 2, out=y)", when = "m > 1" }', "unknown name 'm'"),
        ('torch = { call = "torch.mul(q, 2, out=y)" }', "unknown name 'q'"),
        ('torch = "torch.mul(x, 2, out=x)"', "out=x is not an output"),
        ('torch = "torch.load(x, out=y)"', "is not allowed"),
        ('best = "torch.mul(x, 2, out=y)"', "'best' cannot name a baseline"),
        (
            'mine = [{ call = "torch.mul(x, 2, out=y)" }, { call = "cupy.multiply(x, 2, out=y)" }]',
            "mine mixes cupy and torch",
        ),
    ],
)
def test_a_wrong_call_is_named(tmp_path: Path, calls: str, said: str) -> None:
    with pytest.raises(KernelError) as caught:
        kernel_with(tmp_path, calls)
    assert said in str(caught.value)
    assert "baselines" in str(caught.value)
