"""``tune init``: cooperative groups."""

from __future__ import annotations

import pytest

from tests.cli.init_sources import init, launch

pytestmark = pytest.mark.usefixtures("in_empty_folder")


def test_a_kernel_that_synchronises_its_grid_is_launched_cooperatively(
    capsys: pytest.CaptureFixture[str],
) -> None:
    data, _ = init(
        capsys,
        """\
#include <cooperative_groups.h>
using namespace cooperative_groups;
__global__ void twice(const float* x, float* w, float* y, int n) {
    grid_group grid = this_grid();
    for (int i = grid.thread_rank(); i < n; i += grid.size()) w[i] = x[i];
    grid.sync();
    for (int i = grid.thread_rank(); i < n; i += grid.size()) y[i] = 2 * w[n - 1 - i];
}
""",
    )
    assert launch(data)["cooperative"] is True and "options" not in data["problem"]
    assert (launch(data)["grid"], launch(data)["block"]) == (["sm_count"], ["block_size"])


def test_tiles_of_cooperative_groups_say_a_blocks_threads_and_stores_by_function_what_is_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kernel = (
        "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\ntemplate <int ROWS>\n"
        "__global__ void first(float* y, const float* x, int rows, int ld_x) {\n"
        "    auto warp = cg::tiled_partition<32>(cg::this_thread_block());\n"
        "    int row = blockIdx.x * ROWS + warp.meta_group_rank();\n"
        "    if (row < rows && warp.thread_rank() == 0) __stcs(y + row, __ldcs(x + row * ld_x));\n}\n"
    )
    data, _ = init(capsys, kernel)
    assert launch(data)["block"] == ["32 * ROWS"] and launch(data)["grid"] == ["ceil_div(rows, ROWS)"]
    assert data["tensors"]["y"]["role"] == "output" and "ld_x" in data["scalars"]


def test_ranks_and_sizes_of_groups_are_those_of_threads(capsys: pytest.CaptureFixture[str]) -> None:
    data, said = init(
        capsys,
        """\
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void row_sums(const float* x, float* y, int rows, int cols) {
    cg::thread_block block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    const int row = block.group_index().x * warp.meta_group_size() + warp.meta_group_rank();
    if (row >= rows) return;
    float sum = 0.0f;
    for (int c = warp.thread_rank(); c < cols; c += warp.num_threads()) sum += x[row * cols + c];
    for (int o = warp.size() / 2; o > 0; o /= 2) sum += warp.shfl_down(sum, o);
    if (warp.thread_rank() == 0) y[row] = sum;
}
""",
    )
    assert (launch(data)["grid"], launch(data)["block"]) == (
        ["ceil_div(rows, block_size // 32)"],
        ["block_size"],
    )
    assert {name: one["shape"] for name, one in data["tensors"].items()} == {
        "x": ["rows", "cols"],
        "y": ["rows"],
    }
    assert "a guess" not in said.err
