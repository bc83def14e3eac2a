"""What Compute Sanitizer prints, in plain words; and what it is run on."""

from __future__ import annotations

import math
import os
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec import structs

from tests.faults.kernels import configuration, scale_kernel
from tuner.children.compile_pool import CompilePool
from tuner.children.job import JOB, ToolJob, write_job
from tuner.core.model import Problem
from tuner.inspect.tools.cases import (
    FAULTS,
    MOST_WIDE_WORK,
    MOST_WORK,
    Case,
    as_runs,
    compile_cases,
    planted,
    sample,
    small_problems,
)
from tuner.inspect.tools.sanitizer import TOOLS, findings_of, in_plain_words, parse_log, sanitizer_command
from tuner.kernel.edge_sizes import ALIGNED
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace

pytestmark = pytest.mark.usefixtures("forked_children")

GPU = ARCHITECTURES[90]
BEST = configuration("ok", 256, 2)

TENSORS = {"x": [0x1000, 1024], "y": [0x2000, 1024]}

MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at scale__ok(const float *, float *, long long)+0x90
=========     by thread (31,0,0) in block (1,0,0)
=========     Access to 0x2400 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x2000 of size 1,024 bytes
=========
========= Invalid __global__ write of size 4 bytes
=========     at scale__ok(const float *, float *, long long)+0x90
=========     by thread (32,0,0) in block (1,0,0)
=========     Access to 0x2404 is out of bounds
=========     and is 5 bytes after the nearest allocation at 0x2000 of size 1,024 bytes
=========
========= Program hit CUDA_ERROR_LAUNCH_FAILED (error 719) due to "unspecified launch failure" on CUDA API call.
=========     Saved host backtrace up to driver entry point at error
=========         Host Frame: main [0x8a94] in python3
=========
========= Error: process didn't terminate successfully
========= Target application returned an error
========= ERROR SUMMARY: 2 errors
"""


# -- reading what the tools print


def test_a_log_becomes_findings_that_name_the_tensor() -> None:
    log = parse_log(MEMCHECK)
    assert len(log.records) == 2 and log.complete and not log.full and not log.trouble and log.counted == 2
    (finding,) = findings_of(log.records, "memcheck", TENSORS, ["scale__ok"])
    assert (
        finding.text == "writes 4 bytes of global memory 1 byte behind the end of tensor y (of 1,024 bytes)"
    )
    assert (finding.kernel, finding.count, finding.line) == ("scale__ok", 2, 2)
    assert "by thread (31,0,0)" in finding.detail and "Program hit" not in finding.detail


@pytest.mark.parametrize(
    ("tool", "lines", "kernel", "words"),
    [
        (
            "memcheck",
            ["Invalid __global__ read of size 16 bytes", "at k+0x10", "Address 0x1001 is misaligned"],
            "k",
            "reads 16 bytes of global memory at an address that is not a multiple of 16",
        ),
        (
            "memcheck",
            ["Invalid __shared__ write of size 4 bytes", "at void tile<64>(float *)+0x10",
             "Address 0x400 is out of bounds"],
            "tile",
            "writes 4 bytes of shared memory where nothing is allocated",
        ),
        (
            "memcheck",
            ["Invalid __global__ atomic of size 4 bytes", "at k(int *):0x160 in kernel.cu:6",
             "Access to 0xffc is out of bounds",
             "and is 4 bytes before the nearest allocation at 0x1000 of size 1,024 bytes"],
            "k",
            "changes atomically 4 bytes of global memory 4 bytes before the start of tensor x",
        ),
        (
            "memcheck",
            ["Invalid __global__ read of size 4", "at 0x000000c0 in backward_kernel", "Address 0x7f1 is out of bounds"],
            "backward_kernel",
            "reads 4 bytes of global memory where nothing is allocated",
        ),
        (
            "racecheck",
            ["Error: Race reported between Write access at k(float *)+0x90 in kernel.cu:41",
             "and Read access at k(float *)+0x100 in kernel.cu:51 [508 hazards]"],
            "k",
            "a write and a read of the same shared memory by different threads, with nothing that orders them (508",
        ),
        (
            "racecheck",
            ["Warning: (Warp Level Programming) Potential RAW hazard detected at __shared__ 0x8c in block (0,0,0) :",
             "Write Thread (35,0,0) at k(int *)+0x90"],
            "k",
            "with nothing that orders them",
        ),
        (
            "racecheck",
            ["Potential invalid __shared__ read of size 4 bytes", "at k(int *, int)+0x170",
             "Address 0x1000400 is located in a block that might not have entered yet"],
            "k",
            "Potential invalid __shared__ read",
        ),
        (
            "synccheck",
            ["Barrier error detected. Divergent thread(s) in block.", "at k+0x1", "by thread (1,0,0) in block (0,0,0)"],
            "k",
            "a barrier that some threads of the block do not reach",
        ),
        (
            "synccheck",
            ["Barrier error detected. Invalid arguments", "at __cuda_sm70_warpsync+0x30"],
            "__cuda_sm70_warpsync",
            "wrong arguments",
        ),
        ("synccheck", ["Barrier error detected. Something new.", "at k+0x1"], "k", "used wrongly: Something new"),
        (
            "synccheck",
            ["Warpgroup MMA sequence error detected. Warps differ", "at k+0x1"],
            "k",
            "synccheck: Warpgroup MMA sequence error",
        ),
        (
            "initcheck",
            ["Uninitialized __global__ memory read of size 4 bytes", "at k(int *)+0x60", "Address 0x1000"],
            "k",
            "reads 4 bytes of global memory that nothing has written",
        ),
        (
            "initcheck",
            ["Uninitialized __global__ memory read of size 4 bytes", "at compare_float32+0x60", "Address 0x1000"],
            "compare_float32",
            "leaves a part of an output or of scratch memory unwritten",
        ),
    ],
)  # fmt: skip
def test_findings_in_plain_words(tool: str, lines: list[str], kernel: str, words: str) -> None:
    text = "".join(f"========= {'' if i == 0 else '    '}{line}\n" for i, line in enumerate(lines))
    (record,) = parse_log(f"========= COMPUTE-SANITIZER\n{text}========= ERROR SUMMARY: 1 error\n").records
    assert record.kernel == kernel
    assert words in in_plain_words(record, tool, TENSORS, ["k"])


def test_indentation_is_not_needed() -> None:
    flat = "\n".join(line.replace("    ", "") for line in MEMCHECK.splitlines())
    assert [record.details[0][:2] for record in parse_log(flat).records] == ["at", "at"]


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        (
            "========= Error: Target application terminated before first instrumented API call\n",
            "Error: Target application terminated before first instrumented API call",
        ),
        ("========= Unable to find injection library libsanitizer-collection.so\n", "Unable to find"),
        ("========= Device not supported. Please refer to the documentation\n", "Device not supported"),
        ("", ""),
    ],
)
def test_a_tool_that_does_not_work_says_so(text: str, trouble: str) -> None:
    log = parse_log(f"========= COMPUTE-SANITIZER\n{text}")
    assert log.trouble.startswith(trouble) and bool(log.trouble) == bool(trouble) and not log.complete


def test_a_full_log_is_noticed() -> None:
    more = "========= ERROR SUMMARY: 157 errors were not printed. Use --print-limit option to adjust it\n"
    log = parse_log(MEMCHECK.replace("2 errors", "259 errors") + more)
    assert log.full and log.complete and log.counted == 259


def test_memcheck_gets_gaps_between_allocations() -> None:
    line = sanitizer_command(Path("cs"), "memcheck", Path("log"), ["scale"])
    assert int(line[line.index("--padding") + 1]) >= 256
    assert line[line.index("--destroy-on-device-error") + 1] == "context"
    assert "--padding" not in sanitizer_command(Path("cs"), "racecheck", Path("log"), ["scale"])


def test_only_the_kernels_themselves_are_watched_but_by_initcheck() -> None:
    line = sanitizer_command(Path("cs"), "racecheck", Path("log"), ["scale", "add", "scale"])
    filters = [after for word, after in pairwise(line) if word == "--kernel-name"]
    assert filters == ["kne=add", "kne=scale"]
    assert "--kernel-name" not in sanitizer_command(Path("cs"), "initcheck", Path("log"), ["scale"])


# -- what is run


def test_sizes_are_small_edge_cases() -> None:
    problem = Problem("gemm", {"m": 4096, "n": 4096, "k": 4096}, {"input": "float16"})
    found = small_problems(problem, BEST, lambda p: True, 6)
    assert len(found) == 6 and all(p.dtypes == problem.dtypes for p in found)
    balanced, deep, wide, least, *others = (tuple(p.sizes.values()) for p in found)
    assert least == (1, 1, 1) and min(balanced) > 8 and any(size % 32 for size in balanced)
    assert deep[:2] == (40, 40) and deep[2] > 2000
    assert sorted(others) == sorted([(deep[2], 40, 40), (40, deep[2], 40)])
    assert all(math.prod(sizes) <= MOST_WORK for sizes in (balanced, deep, least, *others))
    assert -(-wide[0] // 256) * -(-wide[1] // 192) > GPU.sm_count and wide[2] > 64
    assert math.prod(wide) <= MOST_WIDE_WORK
    assert all(small_problems(problem, BEST, lambda p: True, count) == found[:count] for count in (1, 2, 3))
    row = small_problems(
        Problem("gemm", {"m": 1, "n": 8192, "k": 8192}, problem.dtypes), BEST, lambda p: p.sizes["m"] == 1, 3
    )
    assert len(row) == 3 and all(p.sizes["m"] == 1 for p in row) and max(p.sizes["k"] for p in row) > 2000


def test_sizes_are_as_a_configuration_allows() -> None:
    problem = Problem("gemm", {"m": 512, "n": 512, "k": 65536}, {"input": "float16"})
    odd = small_problems(problem, BEST, lambda p: p.sizes["n"] % 8 != 0, 4)
    assert len(odd) == 4 and all(p.sizes["n"] % 8 for p in odd)
    several = small_problems(problem, BEST, lambda p: p.sizes["m"] > 128 and p.sizes["k"] % 8 == 0, 4)
    assert any(p.sizes["k"] > 6000 for p in several) and all(p.sizes["m"] > 128 for p in several)
    long_only = small_problems(problem, BEST, lambda p: p.sizes["k"] > 4096 and p.sizes["n"] > 128, 3)
    assert any(p.sizes["k"] > 6000 and p.sizes["m"] < 256 for p in long_only)


def test_an_array_has_sizes_of_its_own() -> None:
    problem = Problem("scale", {"n": 1 << 26}, {"input": "float32"})
    found = [p.sizes["n"] for p in small_problems(problem, BEST, lambda p: True, 3)]
    assert len(set(found)) == 3 and 1 in found and max(found) == MOST_WORK - ALIGNED


def test_where_no_small_size_is_allowed_the_smallest_allowed_is_taken() -> None:
    problem = Problem("scale", {"n": 1 << 30}, {"input": "float32"})
    only = small_problems(problem, BEST, lambda p: p.sizes["n"] % (1 << 20) == 0, 3)
    assert min(one.sizes["n"] for one in only) == 1 << 20 and max(one.sizes["n"] for one in only) <= 1 << 23
    assert small_problems(problem, BEST, lambda p: False, 3) == [problem]


def test_a_sample_has_something_of_every_variant(tmp_path: Path) -> None:
    variants = "\n".join(
        f"[variants.v{i}.parameters]\nblock_size = {{ values = [32, 64, 128] }}\n[[variants.v{i}.launches]]\n"
        'template = "scale.cu.j2"\nentry = "scale__ok"\narguments = ["x", "y", { value = "n", dtype = "int64" }]\n'
        'grid = [1]\nblock = ["block_size"]\n'
        for i in range(3)
    )
    space = SearchSpace.from_kernel(kernel := scale_kernel(tmp_path, extra=variants), kernel.problem({}), GPU)
    drawn = sample(space, 8, 1)
    assert [sum(c.variant == name for c in drawn) for name in ("plain", "v0", "v1", "v2")] == [2, 2, 2, 2]
    assert len(set(sample(space, 1000, 1))) == len(space) == len(sample(space, 1000, 1))
    assert sample(space, 8, 1) == drawn != sample(space, 8, 2)


@pytest.fixture(scope="module")
def pool() -> CompilePool:
    pool = CompilePool(1)
    yield pool
    pool.close()


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("cc", [75, 120])
def test_the_planted_faults_compile(pool: CompilePool, tool: str, cc: int, tmp_path: Path) -> None:
    unit = planted(tool, ARCHITECTURES[cc], pool)
    assert unit.entries == (f"planted_{tool}",) and tool in FAULTS
    job = ToolJob(0, "", *as_runs([unit]))
    path, diary = write_job(job, tmp_path, "one")
    assert JOB.decode(path.read_bytes()) == structs.replace(job, diary=diary, head=os.getpid())


def test_what_cannot_be_run_is_left_out_with_its_reason(pool: CompilePool, tmp_path: Path) -> None:
    kernel = scale_kernel(tmp_path, faults=("ok", "int"), blocks=(32, 2048), source="extern \"C\" __global__ void "
                          "scale__{{ fault }}(const float* x, float* y, long long n) { {{ fault }} }")  # fmt: skip
    ok, large = kernel.problem({"n": 64}), kernel.problem({"n": 2**40})
    cases = [Case(ok, configuration("ok", 32, 1)), Case(ok, configuration("ok", 2048, 1)), Case(large, BEST)]
    units, left_out = compile_cases(kernel, GPU, pool, cases, ok)
    assert not units and len(left_out) == 3
    assert any("block of 2048" in reason for _, reason in left_out)
    assert any("compile_error" in reason for _, reason in left_out)
