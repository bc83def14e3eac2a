"""What ``tune init`` makes of conditionals: the branch that counts, and the values that choose one."""

from __future__ import annotations

import pytest

from tests.cli.init_sources import init, launch

pytestmark = pytest.mark.usefixtures("in_empty_folder")


@pytest.mark.parametrize(
    ("before", "condition", "holds"),
    [
        ("#define WIDE 0", "WIDE", False),
        ("#define WIDE 1", "!WIDE", False),
        ("#define WIDE 2", "WIDE == 2", True),
        ("#define WIDE 2", "WIDE != 2 || WIDE > 2", False),
        ("#define WIDE ALSO\n#define ALSO (1 << 4)", "WIDE % 16 + 1 < 1", False),
        ("#define WIDE 0x10u", "defined(WIDE) && WIDE / 8 <= 1", False),
        ("#ifndef WIDE\n#define WIDE 0\n#endif", "WIDE", False),
        ("#define WIDE 1\n#if WIDE\n#undef WIDE\n#define WIDE 0\n#endif", "WIDE", True),
        ("#define WIDE 0", "WIDE && UNKNOWN", False),
        ("#define WIDE 0", "WIDE || UNKNOWN", True),
        ("#define WIDE WIDE", "WIDE == 1", True),
        ("#define WIDE 1", "WIDE / 0", True),
    ],
)
def test_the_branch_counts_that_the_macros_choose(
    before: str, condition: str, holds: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first where that takes a name without a value."""
    text = f"""{before}
#if {condition}
typedef double real;
#else
typedef float real;
#endif
__global__ void twice(const real* x, real* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}}
"""
    data, _ = init(capsys, text)
    assert data["tensors"]["y"]["dtype"] == ("float64" if holds else "float32")


def test_of_kernels_of_one_name_that_counts_whose_branch_is_chosen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = """
    #define LOCAL 1
    #if LOCAL == 0
    __global__ void copied(const float* x, float* y, int n) { y[blockIdx.x] = x[blockIdx.x]; }
    #endif
    #if LOCAL == 1
    __global__ void copied(const float* x, double* y) { y[blockIdx.x] = x[blockIdx.x]; }
    #endif
    """
    data, _ = init(capsys, text)
    assert launch(data)["arguments"] == ["x", "y"]
    assert data["tensors"]["y"]["dtype"] == "float64"
