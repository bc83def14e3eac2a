"""Options of the compiler for one variant, and with values of parameters."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.kernels import configuration, write_kernel
from tuner.children.compilation import Compilation, RenderRequest
from tuner.children.compile_worker import Compiler
from tuner.core.errors import KernelError
from tuner.core.model import Status
from tuner.kernel.load import read_kernel
from tuner.kernel.options import options_of
from tuner.kernel.roofline import ARCHITECTURES

GPU = ARCHITECTURES[90]
SOURCE = """extern "C" __global__ void scale__ok(const float* x, float* y, long long n) {
    const long long i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = FACTOR * x[i] / 3.0f;
}
"""


def write(folder: Path, options: str, for_all: str = "[]") -> Path:
    extra = f"[variants.plain.compile]\noptions = {options}\n[compile]\noptions = {for_all}\n"
    return write_kernel(folder, source=SOURCE, extra=extra)


def compiled(file: Path, items: int) -> Compilation:
    problem = read_kernel(file).problem()
    return Compiler(None).answer(RenderRequest(file, problem, GPU, configuration("ok", 32, items)))


def test_options_of_a_variant_come_behind_those_of_all_and_have_its_values(tmp_path: Path) -> None:
    options = """["-DFACTOR={{ items }}", "{{ '-use_fast_math' if items > 1 else '' }}"]"""
    file = write(tmp_path, options, """["-w", "-DHALF={{ items // 2 }}", "-DIS_{{ input }}"]""")
    kernel = read_kernel(file)
    given = {
        items: options_of(kernel, kernel.problem(), GPU, configuration("ok", 32, items)) for items in (1, 2)
    }
    assert given[1] == ("-w", "-DHALF=0", "-DIS_float32", "-DFACTOR=1")
    assert given[2] == ("-w", "-DHALF=1", "-DIS_float32", "-DFACTOR=2", "-use_fast_math")
    assert options_of(kernel, kernel.problem(), GPU, None) == ("-w", "-DIS_float32")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ('["-DFACTOR={{ itmes }}"]', "itmes"),
        ('["--output-file=x"]', "allowed, each as"),
        ('["-DONE=1 -DTWO=2"]', "as a text of its own"),
        ('["-DFACTOR={{ n }}"]', "the size 'n' write problem.n"),
        ('["-DFACTOR={{ items"]', "options has"),
    ],
)
def test_options_that_cannot_be_are_refused(tmp_path: Path, options: str, said: str) -> None:
    for file in (write(tmp_path, options), write(tmp_path, "[]", options)):
        with pytest.raises(KernelError, match="compile") as refused:
            read_kernel(file)
        assert said in f"{refused.value.problem} {refused.value.remedy}"


def test_an_option_that_is_refused_where_it_is_rendered_costs_a_configuration(tmp_path: Path) -> None:
    file = write(tmp_path, """["-DFACTOR=2", "{{ '--output-file=x' if items == 2 else '' }}"]""")
    assert compiled(file, 1).status is Status.OK
    assert (found := compiled(file, 2)).status is Status.COMPILE_ERROR
    assert "'--output-file=x' here" in found.error
