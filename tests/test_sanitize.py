"""``tune sanitize``: logs in plain words, the configurations that have faults, and the command around a stand-in."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import Said, said_by
from tests.faults.bench_device import remember
from tests.faults.fake_tools import fake_sanitizer
from tests.faults.kernels import configuration, scale_kernel
from tuner.cli import sanitize as body
from tuner.compile.pool import CompilePool
from tuner.database.database import Database
from tuner.devices.choose import has_gpu
from tuner.hardware.roofline import ARCHITECTURES
from tuner.kernel.spec import KernelSpec
from tuner.model import Problem
from tuner.protocol.job import CaseOutcome, Complaint, ToolJob, read_job, write_job
from tuner.protocol.problem import Candidate, ProblemSetup, ReferenceData
from tuner.runtime.launches import Plan
from tuner.space.edge_sizes import ALIGNED
from tuner.space.space import SearchSpace
from tuner.tools.cases import Case, Unit, as_runs, compile_cases
from tuner.tools.checking import Checker, Settings, ToolVerdict
from tuner.tools.locate import ToolMissingError
from tuner.tools.planted import FAULTS, planted
from tuner.tools.sanitize_report import SanitizeProgress
from tuner.tools.sanitizer import (
    TOOLS,
    ToolMessage,
    findings_of,
    in_plain_words,
    parse_log,
    sanitizer_command,
)
from tuner.tools.small_sizes import MOST_WIDE_WORK, MOST_WORK, sample, small_problems
from tuner.tools.watched import Watched

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
    line = sanitizer_command(Path("cs"), "memcheck", Path("log"))
    assert int(line[line.index("--padding") + 1]) >= 256
    assert line[line.index("--destroy-on-device-error") + 1] == "context"
    assert "--padding" not in sanitizer_command(Path("cs"), "racecheck", Path("log"))


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
    assert any(p.sizes["k"] > 10000 for p in several) and all(p.sizes["m"] > 128 for p in several)
    long_only = small_problems(problem, BEST, lambda p: p.sizes["k"] > 4096 and p.sizes["n"] > 128, 3)
    assert any(p.sizes["k"] > 20000 > p.sizes["m"] * p.sizes["n"] / 2 for p in long_only)


def test_an_array_has_sizes_of_its_own() -> None:
    problem = Problem("scale", {"n": 1 << 26}, {"input": "float32"})
    found = [p.sizes["n"] for p in small_problems(problem, BEST, lambda p: True, 3)]
    assert len(set(found)) == 3 and 1 in found and max(found) == MOST_WORK - ALIGNED


def test_where_no_small_size_is_allowed_the_smallest_allowed_is_taken() -> None:
    problem = Problem("scale", {"n": 1 << 30}, {"input": "float32"})
    only = small_problems(problem, BEST, lambda p: p.sizes["n"] % (1 << 20) == 0, 3)
    assert only == [problem]
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
@pytest.mark.parametrize("cc", [75, 90, 120])
def test_the_planted_faults_compile(pool: CompilePool, tool: str, cc: int, tmp_path: Path) -> None:
    unit = planted(tool, ARCHITECTURES[cc], pool)
    assert unit.entries == (f"planted_{tool}",) and tool in FAULTS
    job = ToolJob(0, "", *as_runs([unit]))
    path, diary = write_job(job, tmp_path, "one")
    file = read_job(path)
    assert (file.job, file.diary, file.log) == (job, diary, None)


def test_what_cannot_be_run_is_left_out_with_its_reason(pool: CompilePool, tmp_path: Path) -> None:
    kernel = scale_kernel(tmp_path, faults=("ok", "int"), blocks=(32, 2048), source="extern \"C\" __global__ void "
                          "scale__{{ fault }}(const float* x, float* y, long long n) { {{ fault }} }")  # fmt: skip
    ok, large = kernel.problem({"n": 64}), kernel.problem({"n": 2**40})
    cases = [Case(ok, configuration("ok", 32, 1)), Case(ok, configuration("ok", 2048, 1)), Case(large, BEST)]
    units, left_out = compile_cases(kernel, GPU, pool, cases, ok)
    assert not units and len(left_out) == 3
    assert any("block of 2048" in item.reason for item in left_out)
    assert any("compile_error" in item.reason for item in left_out)


# -- whose fault it is


@pytest.fixture
def units() -> list[Unit]:
    candidate = Candidate(Plan((), ()), (), ("scale__ok",))
    setup = ProblemSetup((), ReferenceData("float32"))
    problem = Problem("scale", {"n": 64}, {"input": "float32"})
    return [Unit(i, Case(problem, configuration("ok", 32, i)), candidate, setup) for i in range(6)]


Check = Callable[..., list[ToolVerdict]]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, units: list[Unit]) -> Check:
    """Run a tool's stand-in over six configurations."""
    calls = tmp_path / "calls"
    monkeypatch.setenv("FAKE_CALLS", str(calls))
    settings = Settings(fake_sanitizer(tmp_path / "tools"), tmp_path, 0, "", 0, 3.0)

    def run(tool: str = "racecheck", **word: object) -> list[ToolVerdict]:
        monkeypatch.setenv("FAKE_TOOL", json.dumps(word))
        calls.unlink(missing_ok=True)
        return Checker(settings).check(tool, units)

    return run


def processes(tmp_path: Path) -> int:
    return len((tmp_path / "calls").read_text().splitlines())


def failing(verdicts: list[ToolVerdict]) -> list[int]:
    return [verdict.unit.number for verdict in verdicts if verdict.failed]


@pytest.mark.parametrize("tool", TOOLS)
def test_clean_ones_share_one_process(check: Check, tmp_path: Path, tool: str) -> None:
    verdicts = check(tool)
    assert not failing(verdicts) and all(verdict.ran for verdict in verdicts)
    assert [verdict.unit.number for verdict in verdicts] == list(range(6)) and processes(tmp_path) == 1
    assert not [*tmp_path.glob("*.job"), *tmp_path.glob("*.jsonl")]


@pytest.mark.parametrize("tool", ["racecheck", "synccheck", "initcheck"])
def test_a_finding_is_confirmed_alone(check: Check, tmp_path: Path, tool: str) -> None:
    verdicts = check(tool, **{tool: {"1": "finding", "4": "finding"}})
    assert failing(verdicts) == [1, 4] and processes(tmp_path) == 3
    assert all(verdict.alone for verdict in verdicts)
    assert verdicts[1].findings[0].kernel and verdicts[1].log.read_text().count("Error") <= 1


def test_a_finding_that_does_not_come_again_is_kept_and_marked(check: Check) -> None:
    verdicts = check(racecheck={"2": "shy"})
    assert failing(verdicts) == [2] and not verdicts[2].alone and verdicts[2].findings


def test_memcheck_goes_on_behind_a_crash(check: Check, tmp_path: Path) -> None:
    verdicts = check("memcheck", memcheck={"0": "finding", "3": "finding", "5": "finding"})
    assert failing(verdicts) == [0, 3, 5]
    assert all("tensor y" in verdicts[i].findings[0].text for i in (0, 3, 5))
    assert [verdicts[i].outcome for i in range(6)] == ["fault", "ok", "ok", "fault", "ok", "fault"]


@pytest.mark.parametrize(
    ("word", "outcome", "words"),
    [
        ("vanish", CaseOutcome.FAULT, "the process ended"),
        ("fault", CaseOutcome.FAULT, "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("wrong", CaseOutcome.WRONG, "y[3] is 0"),
    ],
)
def test_what_the_process_says_counts_too(check: Check, word: str, outcome: CaseOutcome, words: str) -> None:
    verdicts = check(racecheck={"2": word})
    assert failing(verdicts) == [2] and verdicts[2].outcome is outcome and words in verdicts[2].error
    assert all(verdict.outcome is CaseOutcome.OK for verdict in verdicts if verdict.unit.number != 2)


def test_one_that_hangs_is_ended_and_the_others_run(check: Check) -> None:
    verdicts = check(racecheck={"1": "hang"})
    assert failing(verdicts) == [1] and verdicts[1].late and "not done after 3 s" in verdicts[1].error


def test_one_that_cannot_be_launched_is_no_finding(check: Check) -> None:
    verdicts = check(racecheck={"1": "unlaunchable"})
    assert not failing(verdicts) and [verdict.ran for verdict in verdicts].count(False) == 1


def test_late_findings_are_attributed_correctly(check: Check, tmp_path: Path) -> None:
    """The log grows behind the last configuration only: each that has such a kernel runs alone."""
    verdicts = check(racecheck={"3": "finding"}, late_log=True)
    assert failing(verdicts) == [3] and verdicts[3].alone and processes(tmp_path) == 7


def test_a_full_log_hides_no_finding(check: Check) -> None:
    verdicts = check(racecheck={"1": "finding", "3": "finding", "4": "finding"}, full=True)
    assert failing(verdicts) == [1, 3, 4] and all(verdict.alone for verdict in verdicts)


def test_findings_in_unknown_words_are_findings(check: Check) -> None:
    verdicts = check(unknown_format=["2", "5"])
    assert failing(verdicts) == [2, 5]
    assert "3 errors by the log's own summary" in verdicts[2].findings[0].text


@pytest.mark.parametrize(
    ("word", "words"),
    [
        (
            {"refuses": "Error: Target application terminated before first instrumented API call"},
            "before first",
        ),
        ({"no_context": "no CUDA GPU can be used"}, "no CUDA GPU can be used"),
        ({"scribbles": True}, r"diary is malformed: Expected `int`, got `str` - at `\$\.number`"),
        ({"silent": True}, "without a summary"),
    ],
)
def test_a_tool_that_does_not_work_never_says_clean(
    check: Check, word: dict[str, object], words: str
) -> None:
    with pytest.raises(ToolMissingError, match=words):
        check(**word)


def test_another_tuner_on_the_gpu_is_no_finding(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.tools.watched.LOCK_S", 0.5)
    with pytest.raises(ToolMissingError, match="another tuner keeps the GPU"):
        check(locked=True)


def test_nothing_outlives_the_tool(check: Check, tmp_path: Path) -> None:
    check(racecheck={"1": "hang"})
    here = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in _words(path)]
    assert not here


def _words(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_blind_tool_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool: CompilePool
) -> None:
    checker = Checker(Settings(fake_sanitizer(tmp_path / "tools"), tmp_path, 0, "", 0, 10.0))
    for tool in TOOLS:
        monkeypatch.setenv("FAKE_TOOL", "{}")
        checker.try_out(tool, unit := planted(tool, GPU, pool))
        monkeypatch.setenv("FAKE_TOOL", json.dumps({"blind": True}))
        with pytest.raises(ToolMissingError, match="sees nothing wrong with a kernel that"):
            checker.try_out(tool, unit)


def test_progress_says_how_long_it_may_take(units: list[Unit], capsys: pytest.CaptureFixture[str]) -> None:
    progress = SanitizeProgress(12)
    for unit in units[:4]:
        progress(
            "memcheck", ToolVerdict(unit, "memcheck", CaseOutcome.OK if unit.number else CaseOutcome.WRONG)
        )
    assert progress.line("memcheck", 45.0) == "memcheck: 4 of 12 runs, 1 with findings, about 2 min left"


def test_the_first_verdict_says_nothing_about_the_rest(
    units: list[Unit], capsys: pytest.CaptureFixture[str]
) -> None:
    progress = SanitizeProgress(12)
    progress("racecheck", ToolVerdict(units[0], "racecheck", CaseOutcome.OK))
    assert progress.line("racecheck", 0.0) == "racecheck: 1 of 12 runs"


def test_records_without_a_place_have_no_kernel() -> None:
    assert ToolMessage("Leaked 64 bytes at 0x400200200").kernel == ""


def test_a_process_says_why_it_could_not_begin() -> None:
    assert not Watched().complaint and Watched([Complaint("no GPU")]).complaint == "no GPU"


# -- the command


Run = Callable[..., Said]


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSpec:
    return scale_kernel(tmp_path / "kernel", faults=("ok", "bad"))


@pytest.fixture
def run(
    kernel: KernelSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run ``tune sanitize`` in an empty folder, with a GPU and a sanitizer that are none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{fake_sanitizer(tmp_path / 'tools').parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(body, "describe_gpu", lambda device="cuda": GPU)

    def call(*arguments: str, **word: object) -> Said:
        monkeypatch.setenv("FAKE_TOOL", json.dumps(word))
        return said_by(capsys, "sanitize", *arguments)

    return call


def test_a_clean_winner(run: Run, kernel: KernelSpec) -> None:
    with Database.open("results/tuning.db") as database:
        remember(database, kernel, kernel.problem({"n": 2**28}), BEST, 5e4)
    said = run(str(kernel.file), "--size", "n=2**28")
    assert said.code == 0
    for words in (
        "winner, trial 1",
        "memcheck",
        "racecheck",
        "synccheck",
        "clean: 3 runs",
        "results/sanitizer/scale-",
    ):
        assert words in said.out, words
    assert "compiling for 3 runs" in said.err and "initcheck" not in said.out
    (folder,) = Path("results/sanitizer").iterdir()
    assert {path.name for path in folder.iterdir()} == {
        f"{tool}-{name}.log"
        for tool in ("memcheck", "racecheck", "synccheck")
        for name in ("001", "self-check")
    }


def test_every_winner_of_a_kernel_once(run: Run, kernel: KernelSpec) -> None:
    other = configuration("bad", 64, 1)
    with Database.open("results/tuning.db") as database:
        for n, best in ((2**20, BEST), (2**24, BEST), (2**28, other)):
            remember(database, kernel, kernel.problem({"n": n}), best, 5e4)
    said = run(str(kernel.file), "--winners", "--edges", "1", "--tool", "memcheck")
    assert said.code == 0 and "2 winners" in said.out and "clean: 2 runs" in said.out


def test_no_winner_is_one_line(run: Run, kernel: KernelSpec) -> None:
    said = run(str(kernel.file), "--winners")
    assert said.code != 0 and "find one with" in said.err and said.err.count("\n") == 1


def test_findings_end_with_status_1_and_are_listed(run: Run, kernel: KernelSpec) -> None:
    said = run(
        str(kernel.file), "--config", "fault=bad", "--edges", "2", "-q", memcheck={"scale__bad": "finding"}
    )
    assert said.code == 1 and not said.err
    assert "FINDINGS in 2 of 2 runs, of one configuration" in said.out and "clean: 2 runs" in said.out
    assert "writes 4 bytes of global memory 1 byte behind the end of tensor y" in said.out
    assert "scale__bad" in said.out and ".log:2" in said.out


def test_json_has_every_verdict(run: Run, kernel: KernelSpec) -> None:
    said = run(
        str(kernel.file), "--sample", "10", "--tool", "racecheck,initcheck", "--edges", "1", "--json",
        racecheck={"scale__bad": "finding"}, initcheck={"scale__bad": "wrong"},
    )  # fmt: skip
    data = json.loads(said.out)
    assert said.code == 1 and data["clean"] is False and data["source"].startswith("a sample of 32")
    race, init = data["tools"]["racecheck"], data["tools"]["initcheck"]
    bad = sum(verdict["parameters"]["fault"] == "bad" for verdict in race["verdicts"])
    assert race["runs"] == 10 and 0 < race["failed"] == init["failed"] == bad < 10
    (finding,) = next(verdict["findings"] for verdict in race["verdicts"] if verdict["findings"])
    assert "nothing that orders them (508 times)" in finding["text"] and finding["kernel"] == "scale__bad"
    assert {verdict["outcome"] for verdict in init["verdicts"]} == {"ok", "wrong"}


def test_sizes_can_be_named(run: Run, kernel: KernelSpec) -> None:
    said = run(str(kernel.file), "--at", "n=77", "--at", "n=1000", "--tool", "memcheck", "--json")
    verdicts = json.loads(said.out)["tools"]["memcheck"]["verdicts"]
    assert said.code == 0 and [verdict["sizes"] for verdict in verdicts] == [{"n": 77}, {"n": 1000}]


def test_sizes_that_a_configuration_is_not_made_for_are_left_out(run: Run, tmp_path: Path) -> None:
    extra = '[variants.plain.constraints]\n"whole blocks" = "n % block_size == 0"\n'
    kernel = scale_kernel(tmp_path / "whole", extra=extra)
    said = run(str(kernel.file), "--at", "n=64", "--at", "n=65", "--tool", "memcheck")
    assert said.code == 0 and "whole blocks" in said.out and "clean: 1 run" in said.out
    only = run(str(kernel.file), "--at", "n=65", "--tool", "memcheck")
    assert only.code == 2 and "whole blocks" in only.err and "--at" in only.err
    default = run(str(kernel.file), "--tool", "memcheck", "--json")
    sizes = [v["sizes"]["n"] for v in json.loads(default.out)["tools"]["memcheck"]["verdicts"]]
    assert sizes and all(n % 32 == 0 for n in sizes)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--tool", "memchek"), "did you mean memcheck"),
        (("--sample", "3", "--config", "default"), "excludes"),
        (("--variant", "plain"), "add --sample"),
        (("--winners", "--sample", "3"), "excludes"),
        (("--at", "m=3"), "no size 'm'"),
        (("--sample", "3", "--variant", "other"), "no variant"),
        (("--config", "plain speed=3"), "no parameter 'speed'"),
    ],
)
def test_wrong_words_are_one_line(
    run: Run, kernel: KernelSpec, arguments: tuple[str, ...], words: str
) -> None:
    said = run(str(kernel.file), *arguments)
    assert said.code == 2 and words in said.err and said.err.count("\n") == 1 and not said.out
    assert not Path("results").exists()


def test_logs_never_replace_others(run: Run, kernel: KernelSpec) -> None:
    arguments = (str(kernel.file), "--tool", "memcheck", "--output", "logs", "-q")
    assert run(*arguments).code == 0 and (Path("logs") / "memcheck-001.log").is_file()
    again = run(*arguments)
    assert again.code == 2 and "logs is not an empty folder" in again.err


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ({"blind": True}, ("sees nothing wrong with a kernel that writes behind", "--no-self-check")),
        ({"refuses": "Device not supported"}, ("memcheck does not work here: Device not supported", "log: ")),
    ],
)
def test_a_tool_that_does_not_work_is_one_line(
    run: Run, kernel: KernelSpec, word: dict[str, object], words: tuple[str, ...]
) -> None:
    said = run(str(kernel.file), "-q", **word)
    assert said.code == 1 and said.err.count("\n") == 1 and not said.out
    for text in words:
        assert text in said.err


def test_the_self_check_can_be_left_out(run: Run, kernel: KernelSpec) -> None:
    assert run(str(kernel.file), "-q", "--no-self-check", blind=True).code == 0


def test_without_the_tool_nothing_is_started(
    run: Run, kernel: KernelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("tuner.tools.locate._folders", lambda tool: iter([]))
    monkeypatch.setattr(body, "describe_gpu", lambda device: pytest.fail("the GPU was asked"))
    said = run(str(kernel.file))
    assert said.code == 1 and "Compute Sanitizer (compute-sanitizer) is not installed" in said.err
    assert "--compute-sanitizer PATH" in said.err and said.err.count("\n") == 1
    for arguments, word in (
        (("gem",), "did you mean gemm?"),
        ((str(kernel.file), "--tool", "foo"), "no tool 'foo'"),
    ):
        said = run(*arguments)
        assert said.code == 2 and word in said.err


def test_where_nothing_compiles_there_is_nothing_to_run(run: Run, tmp_path: Path) -> None:
    broken = scale_kernel(tmp_path / "broken", source="this is not CUDA")
    said = run(str(broken.file), "-q")
    assert said.code == 1 and "nothing can be run" in said.err and "compile_error" in said.err


@pytest.mark.skipif(has_gpu(), reason="the process would find a GPU")
def test_the_process_itself_says_that_there_is_no_gpu(run: Run, kernel: KernelSpec) -> None:
    said = run(str(kernel.file), "-q", run=True)
    assert said.code == 1 and "no CUDA GPU can be used" in said.err and said.err.count("\n") == 1
