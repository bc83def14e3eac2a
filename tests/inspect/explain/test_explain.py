"""``tune explain``: built-in kernels on typical cards, kernels of a user's own, what is stored, and its errors."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.builtin_kernels import own_kernels
from tests.faults.kernels import configuration, scale_kernel, write_kernel
from tests.inspect.explain.explained import data, limits, run
from tests.kernel_files import GOOD, write
from tuner.core.errors import CompileError, TunerError
from tuner.core.model import Configuration
from tuner.inspect.explain import code
from tuner.inspect.explain.code import read_code
from tuner.inspect.explain.explanation import explain as put_together
from tuner.inspect.explain.sass import Kind
from tuner.kernel.load import load_kernel
from tuner.kernel.roofline import ARCHITECTURES
from tuner.report.configurations import ChosenConfiguration

pytestmark = pytest.mark.usefixtures("forked_children", "nowhere", "read_once")


# -- the built-in kernels

# Blocks by shared memory, by hand: 32768 bytes of a block of this configuration (two stages of two tiles of 128 x 32
# halves), 1 KiB of the system's on cc 8.0 and up: 228 KiB // 33. Blocks by threads: 2048 // 128.
MMA = "mma_sync block_m=128 block_n=128 block_k=32 warps_m=2 warps_n=2 stages=2 group_m=8 min_blocks=1"


def test_gemm_on_a_typical_card() -> None:
    found = data("gemm", "--cc", "90", "--config", MMA)
    (launch,) = found["launches"]
    assert launch["dynamic_shared_bytes"] == 32768
    assert (limits(launch)["shared memory"], limits(launch)["threads"]) == (6, 16)
    assert limits(launch)["blocks"] == 32
    active = launch["occupancy"]["active_blocks"]
    assert active == launch["active_blocks"] == min(limits(launch).values())
    assert launch["waves"]["count"] == 1024 / (active * ARCHITECTURES[90].sm_count)
    assert launch["code"]["sass"]["main_path"]["matrix"]
    assert found["roofline"]["binding"] == "matrix"
    verdicts = {line["about"]: line["verdict"] for line in found["advice"]}
    assert verdicts["tensor cores"] == "ok"
    said = run("gemm", "--cc", "90", "--config", MMA, "--full").output
    for words in (
        "NVIDIA H200 (cc 90, 132 SMs)",
        "at least 137.4 GFLOP and 100.7 MB",
        "matrix: 1.071 PFLOP/s for float16 by the data sheet",
        "1024 blocks of 128 threads",
        "32768 B dynamic per block, and 1024 B of the system's",
        "limited by",
        "one more block takes",
        "fewer",
        "by the SASS, as written: each instruction counts once",
        "rule of thumb: 128 threads leave 0 lanes of the last warp idle",
    ):
        assert words in said, words
    assert "bytes in flight" not in said  # of tensor cores


@pytest.mark.parametrize(("cc", "blocks"), [(75, 4), (90, 8)])
def test_vector_add_fills_typical_cards(cc: int, blocks: int) -> None:
    found = data("vector_add", "--cc", str(cc), "--size", "n=2**28")
    (launch,) = found["launches"]
    assert launch["block"][0] == 256 and launch["registers"] <= 32
    assert launch["occupancy"]["active_blocks"] == blocks
    assert launch["occupancy"]["fraction"] == 1.0 and launch["occupancy"]["limiter"] == "threads"
    assert found["roofline"]["binding"] == "bandwidth"
    assert found["roofline"]["intensity"] == pytest.approx(1 / 12)
    loads = [a for a in launch["code"]["sass"]["main_path"]["accesses"] if a["kind"] == "global load"]
    assert max(a["bytes"] for a in loads) == 16
    in_flight = launch["code"]["sass"]["in_flight"]
    threads = blocks * 256
    assert launch["bytes_in_flight"]["bytes"] == threads * in_flight["load_bytes"]


def test_a_full_sm_takes_no_further_block() -> None:
    text = run("vector_add", "--cc", "90", "--size", "n=2**28", "--full").output
    assert "100 % occupancy" in text and "fewer" not in text and "less shared memory" not in text
    row = next(line for line in text.splitlines() if line.startswith("threads "))
    assert row.split() == ["threads", "8", "yes"]
    for words in (
        "before one is needed, by the SASS",
        "Little's law",
        "KiB per SM, as CUB has it for this architecture",
    ):
        assert words in text


def test_a_kernel_goes_by_the_name_in_its_file(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace('entry = "scale"', 'entry = "scale<2>"'))
    (tmp_path / "scale.cu").write_text(
        "template <int F> __global__ void scale(const float* x, float* y, float a, float* p, int n, long long m) {\n"
        "    y[blockIdx.x] = F * a * x[blockIdx.x];\n}\n"
    )
    (launch,) = data(str(path), "--cc", "90")["launches"]
    assert launch["name"] == "scale<2>" and launch["entry"].startswith("_Z5scale")
    assert "--- launch: scale<2>\n" in run(str(path), "--cc", "90", "--full").output


@pytest.mark.parametrize(
    ("name", "cc"), [(name, (75, 120)[turn % 2]) for turn, name in enumerate(own_kernels()[::4])]
)
def test_built_in_kernels_can_be_explained(name: str, cc: int) -> None:
    kernel, gpu = load_kernel(name), ARCHITECTURES[cc]
    problem = kernel.problem()
    variant = kernel.usable_variants(problem, gpu)[0][0]
    chosen = Configuration.of(variant.name, variant.defaults)
    read = read_code(kernel, problem, gpu, chosen)
    found = put_together(ChosenConfiguration(kernel, problem, gpu, chosen), read)
    assert found.launches
    for launch in found.launches:
        assert launch.occupancy.active_blocks > 0
        assert launch.facts is not None and launch.under_way is not None
        assert launch.waves.blocks > 0
        facts = launch.facts
        assert facts.walk.count(Kind.GLOBAL_STORE, Kind.BULK_STORE) > 0
        assert facts.in_flight.loads or facts.in_flight.copies or facts.in_flight.bulk
        assert bool(facts.whole.matrix) == ("mma_sync" in launch.code.entry)
        assert facts.walk.instructions <= facts.whole.instructions


def test_several_launches(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    text = path.read_text()
    second = text[text.index("[[variants") :].replace('entry = "scale"', 'entry = "again"')
    path.write_text(f"{text}\n{second}")
    body = "(const float* x, float* y, float a, float* p, int n, long long m) { y[blockIdx.x] = a * x[blockIdx.x]; }\n"
    (tmp_path / "scale.cu").write_text(
        "".join(f'extern "C" __global__ void {name}{body}' for name in ("scale", "again"))
    )
    found = data(str(path))
    assert [launch["entry"] for launch in found["launches"]] == ["scale", "again"]
    assert {line["launch"] for line in found["advice"]} >= {1, 2}
    text = run(str(path), "--full").output
    assert "--- launch 1 of 2: scale" in text and "--- launch 2 of 2: again" in text


# -- kernels of a user's own

CLUSTER = """\
extern "C" __global__ void scale__{{ fault }}(const float* x, float* y, long long n) {
    const long long i = blockIdx.x * {{ block_size }}ll + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
"""


def with_launch(folder: Path, line: str, **changes: Any) -> Path:
    path = write_kernel(folder, source=CLUSTER, items=(1,), **changes)
    path.write_text(f"{path.read_text()}{line}\n")
    return path


def test_clusters_and_carveout(tmp_path: Path) -> None:
    path = with_launch(tmp_path / "k", 'cluster = ["2"]\ncarveout = "25"\nshared_bytes = "21 * 1024 - 1024"')
    found = data(str(path), "--size", "n=4096", "--config", "block_size=128")
    (launch,) = found["launches"]
    assert (launch["cluster"], launch["carveout"]) == ([2, 1, 1], 25)
    assert limits(launch)["shared memory"] == 3  # 64 KiB set aside, 21 for each
    text = run(str(path), "--size", "n=4096", "--config", "block_size=128", "--full").output
    assert "2: 2 blocks start together on SMs of one GPC" in text and "25 % of the L1 requested" in text


def test_a_kernel_that_does_not_compile_is_one_line(tmp_path: Path) -> None:
    path = write_kernel(tmp_path / "k", source='extern "C" __global__ void scale__ok() { int; x = 1; }\n')
    with pytest.raises(CompileError, match=r"does not compile: .*error: .*\"x\" is undefined") as caught:
        run(str(path))
    assert "\n" not in str(caught.value)


def test_a_template_that_does_not_render_is_one_line(tmp_path: Path) -> None:
    path = write_kernel(tmp_path / "k", source="{{ nothing }}\n")
    with pytest.raises(TunerError, match="nothing") as caught:
        run(str(path))
    assert "\n" not in str(caught.value)


def test_more_launches_than_there_may_be_are_one_line(tmp_path: Path) -> None:
    path = write_kernel(tmp_path / "k")
    repeat = 'repeat = { name = "turn", count = "5000" }\n'
    path.write_text(path.read_text().replace("entry =", f"{repeat}entry ="))
    with pytest.raises(TunerError, match="does not compile: its launches repeat more than 4096 times"):
        run(str(path))


def test_a_compiler_that_hangs_or_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = scale_kernel(tmp_path / "k")
    monkeypatch.setattr(code, "DEADLINE_S", 0.0)
    with pytest.raises(CompileError, match="not compiled after 0 s"):
        read_code(kernel, kernel.problem(), ARCHITECTURES[90], configuration())
    monkeypatch.undo()
    bad = replace(kernel, file=tmp_path / "nowhere.toml")
    with pytest.raises(CompileError, match="does not compile: cannot read"):
        read_code(bad, kernel.problem(), ARCHITECTURES[90], configuration())


def test_a_configuration_that_is_not_valid(tmp_path: Path) -> None:
    extra = '[variants.plain.constraints]\n"blocks are large" = "block_size > 64"\n'
    path = write_kernel(tmp_path / "k", extra=extra)
    with pytest.raises(TunerError, match="blocks are large"):
        run(str(path), "--config", "plain block_size=32")


def test_first_the_six_lines_and_what_to_change() -> None:
    head, _, advice = run(
        "vector_add", "--cc", "90", "--config", "vectorized vector_width=1"
    ).output.partition("\n\n")
    names = [re.split("  +", line)[0] for line in head.splitlines()]
    assert names[:7] == ["problem", "configuration", "time", "bound", "resident", "addresses", "not examined"]
    assert set(names[7:]) <= {"note"}
    assert (
        " of warps, as it runs on the CPU at n=" in head and "worth a try" in advice and "\nok" not in advice
    )
    few = run("vector_add", "--cc", "90", "--size", "n=2**28").output
    assert "nothing stands out in what was examined" in few


def test_without_a_number_of_flop_bytes_bound_the_time(tmp_path: Path) -> None:
    path = write_kernel(tmp_path / "k")
    path.write_text(path.read_text().replace('flops = "n"\n', ""))
    (bound,) = (line for line in run(str(path)).output.splitlines() if line.startswith("bound"))
    assert "add work.flops; its bytes take at least" in bound


def test_sms_left_free_on_purpose_are_no_problem(tmp_path: Path) -> None:
    """A grid that goes by the number of SMs leaves them; one of few tiles lacks the work."""
    path = write_kernel(tmp_path / "k")
    text, grid = path.read_text(), "ceil_div(n, block_size * items)"
    for blocks, size, verdict in (
        (f"min({grid}, sm_count - 4)", "2**20", "ok"),
        (f"min({grid}, sm_count - 4)", "512", "problem"),
        (grid, "512", "problem"),
    ):
        path.write_text(text.replace(grid, blocks))
        found = data(str(path), "--cc", "90", "--size", f"n={size}")
        (waves,) = (line for line in found["advice"] if line["about"] == "waves")
        assert waves["verdict"] == verdict and "SMs get none" in waves["because"]
