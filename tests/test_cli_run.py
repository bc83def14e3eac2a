"""``tune run`` as a user meets it: what it answers, how it ends, and one clear line for whatever is wrong."""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Said, said_by
from tests.faults.kernels import SOURCE, altered, scale_kernel, write_kernel, write_synthetic_recording
from tuner.errors import Interrupted
from tuner.kernel.load import load_kernel
from tuner.tuning.request import Request
from tuner.tuning.state import Result

pytestmark = pytest.mark.usefixtures("forked_children")

ROOT = Path(__file__).resolve().parents[1]


Tune = Callable[..., Said]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kernel = load_kernel("vector_add")
    path = tmp_path_factory.mktemp("recorded") / "vector_add-made_up.json.gz"
    problems = [kernel.problem({"n": n}) for n in (2**20, 2**21, 2**22)]
    return write_synthetic_recording(path, kernel, problems, 60)


@pytest.fixture
def tune(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Tune:
    """Run the command line in an empty folder; the recording stands for the GPU unless told otherwise."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, device: str = f"replay:{recording}") -> Said:
        return said_by(capsys, *arguments, *(["--device", device] if device else []))

    return run


SMALL = ("--kernel", "vector_add", "--size", "n=2**20", "--trials", "12")


def assert_refused(said: Said, *words: str) -> None:
    """One line on stderr, nothing on stdout, and a status that is not 0."""
    assert said.code not in (0, 130), said
    lines = said.err.splitlines()
    assert len(lines) == 1, said.err
    assert lines[0].startswith("tune: ")
    assert said.out == ""
    assert "Traceback" not in said.err
    for word in words:
        assert word in lines[0], lines[0]


# -- what goes well


def test_a_size_beside_a_preset_takes_its_place_and_that_is_said(tune: Tune) -> None:
    said = tune("--kernel", "vector_add", "--preset", "large", "--size", "n=2**20", "--trials", "2")
    assert said.code == 0
    assert "tune: n=1048576 in place of n=268435456 of the preset large\n" in said.err
    said = tune(
        "--kernel", "vector_add", "--preset", "small", "--size", "n=2**20", "--trials", "2", "--from-scratch"
    )
    assert said.code == 0 and "in place of" not in said.err


def test_main_job(tune: Tune, tmp_path: Path) -> None:
    said = tune(*SMALL)
    assert said.code == 0, said.err
    assert "winner" in said.out
    assert "[replayed]" in said.out
    assert "default" in said.out
    assert (tmp_path / "results" / "tuning.db").is_file()
    with sqlite3.connect("results/tuning.db") as connection:
        assert connection.execute("SELECT count(*), min(replayed) FROM trials").fetchone() == (12, 1)


def test_quiet_says_the_result_only(tune: Tune) -> None:
    said = tune(*SMALL, "--quiet")
    assert said.err == ""
    assert "winner" in said.out


def test_json(tune: Tune) -> None:
    said = tune(*SMALL, "--json", "--quiet")
    (found,) = json.loads(said.out)
    assert found["replayed"] is True
    assert found["stats"]["trials"] == 12
    assert found["winner"]["time_ns"] > 0


def test_stop_auto(tune: Tune) -> None:
    said = tune("--kernel", "vector_add", "--size", "n=2**20", "--stop", "auto", "--json", "--quiet")
    assert said.code == 0, said.err
    (found,) = json.loads(said.out)
    stopped = found["stats"]["stopped"]
    assert stopped["expected"] < stopped["noise_floor"] and found["stats"]["trials"] < 150
    with sqlite3.connect("results/tuning.db") as connection:
        (narrowing,) = connection.execute("SELECT narrowing FROM runs").fetchone()
    assert json.loads(narrowing)["stop_early"] is True


def test_stop_auto_needs_the_default_sampler(tune: Tune) -> None:
    said = tune(*SMALL, "--stop", "auto", "--sampler", "tpe")
    assert_refused(said, "sampler tpe does not say what it expects", "leave out --stop auto")


def test_several_problems_in_one_command(tune: Tune, tmp_path: Path) -> None:
    (tmp_path / "sizes.csv").write_text("\ufeffn, dtype\n2**21, float32\n\n 4194304 ,\n", encoding="utf-8")
    said = tune(
        "--kernel", "vector_add", "--problem", "n=2^20", "--problems", "sizes.csv", "--trials", "5", "--json", "-q"
    )  # fmt: skip
    assert said.code == 0, said.err
    assert [found["problem"]["sizes"]["n"] for found in json.loads(said.out)] == [2**20, 2**21, 2**22]


def test_narrowing(tune: Tune) -> None:
    said = tune(
        *SMALL, "--variant", "vectorized", "--fix", "load_hint=none", "--fix", "block_size=64,128,256", "-q"
    )
    assert said.code == 0, said.err
    with sqlite3.connect("results/tuning.db") as connection:
        rows = connection.execute("SELECT variant, configuration FROM trials").fetchall()
    assert {variant for variant, _ in rows} == {"vectorized"}
    assert {json.loads(text)["load_hint"] for _, text in rows} == {"none"}


def test_initial_configurations_by_the_old_option(tune: Tune) -> None:
    said = tune(*SMALL, "--json", "--quiet", "--seeds", "none")
    (found,) = json.loads(said.out)
    assert (found["stats"]["seeds"], found["stats"]["seed_notes"]) == ({}, [])
    with sqlite3.connect("results/tuning.db") as connection:
        (narrowing,) = connection.execute("SELECT narrowing FROM runs").fetchone()
    assert json.loads(narrowing)["seeds"] == "none"
    words = ("vector_add.toml does not say what to make of heuristics", "[heuristics.matmul]")
    assert_refused(tune(*SMALL, "--seeds", "heuristics"), *words)
    assert tune(*SMALL, "--seeds", "some").code == 2


def test_nothing_verified_ends_with_1(tune: Tune, tmp_path: Path) -> None:
    kernel = load_kernel("vector_add")
    path = tmp_path / "bad.json.gz"
    write_synthetic_recording(path, kernel, [kernel.problem({"n": 2**20})], 20, failing=True)
    said = tune(*SMALL, "-q", "--db", "my results.db", device=f"replay:{path}")
    assert said.code == 1
    assert (
        "no configuration could be verified; 12 of 12 ended as wrong_result: c[5] is 1, expected 2"
        in said.err
    )
    assert "tune trial 1 --db 'my results.db'" in said.err
    assert "Traceback" not in said.err


@pytest.mark.skipif(any(Path("/dev").glob("nvidia[0-9]*")), reason="there is a GPU here")
def test_without_a_gpu_it_says_so(tune: Tune) -> None:
    assert_refused(tune(*SMALL, device="cuda"), "no NVIDIA GPU", "without --device cuda")
    said = tune("--kernel", "vector_add", "--trials", "5", device="")
    if said.code == 0:
        assert "no NVIDIA GPU here: replaying what an" in said.err
        assert "--device cuda" in said.err
    else:
        assert_refused(said, "no NVIDIA GPU")


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("--kernel", "reduce", "--size", "n=2**29"), "--size n=2**28"),
        (("--kernel", "transform", "--size", "n=99"), "--size n=2**24"),
        (("--kernel", "transform", "--dtype", "float32"), "--size n=2**24 --dtype float16"),
        (
            ("--kernel", "transform", "--size", "n=2**24", "--option", "op=x * x"),
            "--size n=2**24 --option 'op=x + 0.5 * (20 - x)'",
        ),
        (
            ("--kernel", "gemm", "--dtype", "float32", "--size", "m=8192"),
            "--size m=4096,n=4096,k=4096 --dtype float32",
        ),
    ],
)
def test_what_is_not_recorded_names_the_options_of_the_nearest(
    tune: Tune, arguments: tuple[str, ...], remedy: str
) -> None:
    said = tune(*arguments, "-q", "--trials", "2", device="replay")
    assert said.code == 1
    assert said.err.endswith(f"; take the nearest: {remedy}\n")
    assert tune(*arguments[:2], *shlex.split(remedy), "-q", "--trials", "2", device="replay").code == 0


@pytest.mark.parametrize(("kernel", "size"), [("reduce", 2**28), ("transform", 2**24)])
def test_a_recording_without_the_default_size_replays_the_nearest(tune: Tune, kernel: str, size: int) -> None:
    said = tune("--kernel", kernel, "--trials", "2", "--json", device="replay")
    assert said.code == 0
    assert json.loads(said.out)[0]["problem"]["sizes"] == {"n": size}
    assert "instead" in said.err


SEVERAL = ("--kernel", "vector_add", "--problem", "n=2**20", "--problem", "n=77", "--problem", "n=2**21")


def test_one_problem_that_fails_does_not_end_the_others(tune: Tune) -> None:
    said = tune(*SEVERAL, "--trials", "5", "-q", "--json")
    assert said.code == 1
    assert [found["problem"]["sizes"]["n"] for found in json.loads(said.out)] == [2**20, 2**21]
    (line,) = said.err.splitlines()
    assert line.startswith("tune: vector_add n=77")
    assert "does not hold" in line and "--size n=2**20" in line


def test_a_kernel_file_in_this_folder_is_suggested(tune: Tune, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").touch()
    assert_refused(tune("run", "--kernel", "mine"), "./mine.toml")


def test_json_of_what_is_finished_when_stopped(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    from tuner.tuning import session

    real = session.tune

    def stopped(request: Request, *others: Any) -> Result:
        if request.problem.sizes["n"] == 2**21:
            raise Interrupted("stopped after 0 of 5 trials", "go on with --resume")
        return real(request, *others)

    monkeypatch.setattr(session, "tune", stopped)
    problems = (f"--problem=n={n}" for n in (2**20, 2**21, 2**22))
    said = tune("--kernel", "vector_add", *problems, "--trials", "5", "-q", "--json")
    assert said.code == 130
    assert [found["problem"]["sizes"]["n"] for found in json.loads(said.out)] == [2**20]
    assert said.err.splitlines() == ["tune: stopped after 0 of 5 trials; go on with --resume"]


def test_resume_begins_what_never_began(tune: Tune) -> None:
    """The first is done, the second failed before it began, and nothing was interrupted."""
    assert tune("--kernel", "vector_add", "--problem", "n=2**20", "--trials", "5", "-q").code == 0
    said = tune(
        *(word.replace("77", "2**22") for word in SEVERAL), "--trials", "5", "-q", "--json", "--resume"
    )
    assert said.code == 0, said.err
    assert [found["problem"]["sizes"]["n"] for found in json.loads(said.out)] == [2**22, 2**21]
    assert said.err == ""
    said = tune(*(word.replace("77", "2**22") for word in SEVERAL), "--trials", "5", "-q", "--resume")
    assert_refused(said, "no interrupted run of any of the 3 problems", "leave out --resume")


def test_resume_says_which_options_are_not_heeded(tune: Tune) -> None:
    assert tune(*SMALL, "-q").code == 0
    with sqlite3.connect("results/tuning.db") as connection:
        connection.execute("UPDATE runs SET state = 'interrupted'")
    said = tune(*SMALL, "--seed", "3", "--fix", "block_size=64", "-q", "--resume")
    assert said.err.splitlines() == ["tune: a resumed run keeps its own --trials, --seed, --fix"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "tuner", "list"]
        said = subprocess.run(
            command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert said.returncode == 1
    assert said.stderr == "tune: cannot write: No space left on device\n"


def test_output_that_is_not_read_to_the_end() -> None:
    command = [sys.executable, "-m", "tuner", "list"]
    reading, writing = os.pipe()
    os.close(reading)  # as `tune list | head` once head has seen enough
    try:
        said = subprocess.run(
            command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    finally:
        os.close(writing)
    assert said.returncode == 128 + signal.SIGPIPE
    assert said.stderr == ""


def test_show_says_how_large_the_space_is(tune: Tune, tmp_path: Path) -> None:
    said = tune("show", "reduce", "--json", device="")
    data = json.loads(said.out)
    sizes = [variant["space"] for variant in data["variants"] if "valid" in variant["space"]]
    assert data["space"]["valid"] == sum(size["valid"] for size in sizes) > 0
    assert data["space"]["before"] == sum(size["before"] for size in sizes)
    assert (
        f"{data['space']['valid']} valid of {data['space']['before']}"
        in tune("show", "reduce", device="").out
    )
    extra = '[variants.plain.constraints]\n"blocks are enormous" = "block_size > 4096"\n'
    said = tune("show", str(write_kernel(tmp_path / "own", extra=extra)), device="")
    assert said.code == 1
    assert "plain  (0 valid of 16: no combination meets 'blocks are enormous')" in said.out
    assert "no configuration is valid" in said.err


@pytest.mark.parametrize(
    ("folder", "state", "detail"),
    [
        ("new/folder", "ok", "new/folder/kernel-tune"),
        ("file", "note", "file/kernel-tune: Not a directory: nothing"),
        ("/proc/x", "note", "/proc/x/kernel-tune cannot be written (No such file or directory)"),
    ],
)
def test_doctor_tries_to_write_to_the_cache(
    tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, state: str, detail: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / folder))
    before = sorted(tmp_path.rglob("*"))
    findings = json.loads(tune("doctor", "--json", device="").out)
    (cache,) = [found for found in findings if found["what"] == "cache"]
    assert cache["state"] == state
    assert detail in cache["detail"]
    assert bool(cache["remedy"]) == (state == "note")
    assert sorted(tmp_path.rglob("*")) == before


# -- what a user may get wrong


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--kernel", "vector_ad"), ("vector_ad", "did you mean vector_add")),
        (("--kernel", "./missing.toml"), ("missing.toml",)),
        (("--kernel", "vector_add", "--size", "m=5"), ("no size 'm'", "n")),
        (("--kernel", "vector_add", "--size", "n=0"), ("n=0", "1")),
        (("--kernel", "vector_add", "--size", "n=-4"), ("n=-4",)),
        (("--kernel", "vector_add", "--size", "n=many"), ("n=many", "whole number")),
        (("--kernel", "vector_add", "--size", "n=1.5"), ("n=1.5", "whole number")),
        (("--kernel", "vector_add", "--size", "n=1e999"), ("n=1e999", "whole number")),
        (("--kernel", "vector_add", "--size", f"n={'9' * 400}"), ("a size is", "2**62")),
        (("--kernel", "vector_add", "--size", "n=1/0"), ("n=1/0", "whole number")),
        (("--kernel", "vector_add", "--size", "n=10**60"), ("n=",)),
        (("--kernel", "vector_add", "--size", "n"), ("--size 'n'", "name=value")),
        (("--kernel", "vector_add", "--size", "n=1,n=2"), ("--size 'n=1,n=2' gives n twice",)),
        (("--kernel", "vector_add", "--problem", "n=1, n=1"), ("--problem", "gives n twice")),
        (("--kernel", "gemm", "--option", "layout=nn,layout=nt"), ("--option", "gives layout twice")),
        (("--kernel", "vector_add", "--dtype", "float23"), ("float23", "float32")),
        (("--kernel", "vector_add", "--dtype", "output=float16"), ("output",)),
        (("--kernel", "vector_add", "--dtype", "no_such=float16"), ("no_such",)),
        (("--kernel", "vector_add", "--option", "layout=nt"), ("layout",)),
        (("--kernel", "gemm", "--option", "layout=xy"), ("layout", "xy", "nn")),
        (("--kernel", "vector_add", "--preset", "smal"), ("smal", "small")),
        (("--kernel", "vector_add", "--problem", "q=5"), ("'q'",)),
        (("--kernel", "vector_add", "--problem", "n"), ("--problem",)),
        ((*SMALL, "--variant", "vectorised"), ("vectorised", "vectorized")),
        ((*SMALL, "--fix", "blocksize=64"), ("blocksize", "block_size")),
        ((*SMALL, "--fix", "block_size=63"), ("63", "64")),
        ((*SMALL, "--fix", "block_size"), ("--fix", "name=value")),
        ((*SMALL, "--fix", "block_size="), ("--fix",)),
        ((*SMALL, "--fix", "block_size=64,items=2"), ("repeat --fix",)),
        ((*SMALL, "--sampler", "annealing"), ("annealing", "tpe")),
        ((*SMALL, "--resume"), ("no interrupted run", "--resume")),
        (("--kernel", "vector_add", "--size", "n=77"), ("does not hold", "n=77")),
        (("--kernel", "saxpy",), ("vector_add", "saxpy")),
        ((*SMALL[:-2], "--trials", "0"), ("--trials", "range")),
        ((*SMALL[:-2], "--trials", "9" * 24), ("--trials", "2147483647")),
        ((*SMALL, "--kernel", "gemm"), ("--kernel is given 2 times",)),
        ((*SMALL, "--size", "n=2**21"), ("gives n twice",)),
        ((*SMALL, "--jobs", "100000"), ("--jobs", "too many", "cores")),
        ((*SMALL, "--time", "0"), ("--time",)),
        ((*SMALL, "--time", "nan"), ("--time", "finite")),
        ((*SMALL, "--seed", "-1"), ("--seed",)),
        ((*SMALL, "--jobs", "0"), ("--jobs",)),
        ((*SMALL, "--nonsense"), ("--nonsense", "see tune run --help")),
        ((), ("--kernel", "a recording of this tool")),
    ],
)  # fmt: skip
def test_bad_argument_is_one_clear_line(
    tune: Tune, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    assert_refused(tune("run", *arguments), *words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tabel",), ("tabel", "did you mean table?")),
        (("vector_ad",), ("vector_ad", "did you mean vector_add?")),
    ],
)
def test_a_kernel_in_the_wrong_place_is_told_the_right_one(
    tune: Tune, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    assert_refused(tune(*arguments), *words)


def test_a_space_that_is_used_up_is_named(tune: Tune) -> None:
    said = tune(*SMALL[:-1], "200", "--variant", "grid_stride", "--fix", "block_size=64,128")
    assert said.code == 0, said.err
    assert re.search(r"all \d+ valid configurations were tried", said.out)
    assert "were tried" not in tune(*SMALL, "--from-scratch").out


@pytest.mark.parametrize("arguments", [("--variant", "nope"), ("--fix", "nope=1"), ("--sampler", "nope")])
def test_a_name_that_is_not_there_is_refused_before_a_device_says_anything(
    tune: Tune, arguments: tuple[str, str]
) -> None:
    assert_refused(tune(*SMALL, *arguments, device=""), "nope")


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("tpu", ("no device 'tpu'", "auto")),
        ("cuda:first", ("GPU",)),
        ("replay:missing", ("no recording 'missing'",)),
        ("replay:/etc/passwd", ("/etc/passwd", "not a recording")),
        ("replay:/", ("no recording",)),
    ],
)
def test_bad_device_is_one_clear_line(tune: Tune, device: str, words: tuple[str, ...]) -> None:
    assert_refused(tune(*SMALL, device=device), *words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", ("no rows",)),
        (b"n\n", ("no rows",)),
        (b"n\n,\n", ("line 2",)),
        (b"n\n5,6\n", ("line 2", "more columns")),
        (b"n,dtype\n1048576,float32\n1048576\n", ("line 3", "fewer columns")),
        (b"n, n \n1048576,1048576\n", ("line 1 gives n twice",)),
        (b"n\nfive\n", ("n=five",)),
        (b"q\n5\n", ("'q'",)),
        (b"n\n\xff\xfe\n", ("sizes.csv: it is not text",)),
        (b"n\n\x00\n", ("sizes.csv", "n=")),
        (b'n\n"5\n', ("sizes.csv", "unexpected end")),
    ],
)
def test_bad_csv_is_one_clear_line(tune: Tune, tmp_path: Path, text: bytes, words: tuple[str, ...]) -> None:
    (tmp_path / "sizes.csv").write_bytes(text)
    said = tune("--kernel", "vector_add", "--problems", "sizes.csv")
    if said.code == 0 or "does not hold" in said.err:
        pytest.fail(f"{text!r} was taken for a problem: {said.err}")
    assert_refused(said)
    assert any(word in said.err for word in words), said.err


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ("abc,float32", ("size n=abc", "whole number")),
        ("0,float32", ("n",)),
        ("64,float8", ("float8", "choose from")),
    ],
)
def test_an_error_in_a_csv_file_names_the_line(
    tune: Tune, tmp_path: Path, cells: str, words: tuple[str, ...]
) -> None:
    (tmp_path / "sizes.csv").write_text(f"n,dtype\n1024,float32\n\n{cells}\n")
    said = tune("--kernel", "vector_add", "--problems", "sizes.csv")
    assert_refused(said, "sizes.csv line 4: ", *words)


def test_missing_csv(tune: Tune, tmp_path: Path) -> None:
    said = tune("--kernel", "vector_add", "--problems", "missing.csv")
    assert_refused(said, "cannot read missing.csv: No such file or directory;")
    assert_refused(tune("--kernel", "vector_add", "--problems", str(tmp_path)), "directory")


# -- a kernel of one's own that is wrong


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('flops = "n"', 'flop = "n"'), ("unknown key 'flop'", "did you mean flops")),
        (("summary", "summary"), ()),
        (("block_size = {", "block_size = [{"), ("TOML",)),
        (('entry = "', 'entri = "'), ("entr",)),
        (('template = "scale.cu.j2"', 'template = "missing.cu"'), ("missing.cu",)),
        (("ceil_div(n, block_size * items)", "ceil_div(n, blok)"), ("blok", "block_size")),
        (('numpy = "2 * x"', 'numpy = "__import__(1)"'), ("no function '__import__'",)),
        (('role = "output"', 'role = "outptu"'), ("outptu", "output")),
        (("values = [32, 64, 128, 256]", "values = []"), ("values",)),
    ],
)
def test_bad_kernel_file_is_one_clear_line(
    tune: Tune, tmp_path: Path, change: tuple[str, str], words: tuple[str, ...]
) -> None:
    path = write_kernel(tmp_path / "own")
    path.write_text(path.read_text().replace(*change))
    said = tune("--kernel", str(path))
    if words:
        assert_refused(said, "scale.toml", *words)
    else:
        assert_refused(said, "recording of vector_add")


def own(tune: Tune, tmp_path: Path, **changes: object) -> Said:
    """Tune a kernel of one's own on a recording of what it was before the changes."""
    good = scale_kernel(tmp_path / "own")
    path = write_synthetic_recording(tmp_path / "scale-x.json.gz", good, [good.problem()], 50)
    write_kernel(tmp_path / "own", **changes)  # type: ignore[arg-type]
    return tune("--kernel", str(tmp_path / "own" / "scale.toml"), "-n", "5", "-q", device=f"replay:{path}")


def test_own_kernel_replays(tune: Tune, tmp_path: Path) -> None:
    said = own(tune, tmp_path)
    assert said.code == 0, said.err


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("gpu", "driver", 13),
        ("gpu", "name", 7),
        ("gpu", "uuid", None),
        ("gpu", "sm_count", 0),
        ("gpu", "sm_count", "many"),
        ("gpu", "l2_bytes", "a"),
        ("versions", "nvrtc", 13),
        ("plain", "samples_ns", [[-5]] * 16),
        ("plain", "samples_ns", [[0, 0]] * 16),
        ("plain", "samples_ns", [[float("inf")]] * 16),
    ],
)
def test_bad_recording_is_refused_before_anything_is_kept(
    tune: Tune, tmp_path: Path, part: str, field: str, value: object
) -> None:
    kernel = scale_kernel(tmp_path / "own")
    path = write_synthetic_recording(tmp_path / "scale-x.json.gz", kernel, [kernel.problem()], 50)

    def change(data: dict[str, Any]) -> None:
        plain = data["problems"][0]["variants"]["plain"]
        (plain if part == "plain" else data[part])[field] = value

    altered(path, change)
    said = tune("--kernel", str(kernel.file), "-n", "5", "-q", device=f"replay:{path}")
    assert_refused(said, "scale-x.json.gz: damaged:", field, "fetch it again, or record it anew")
    assert not (tmp_path / "results" / "tuning.db").exists()


def test_constraint_that_nothing_can_meet(tune: Tune, tmp_path: Path) -> None:
    extra = '[variants.plain.constraints]\n"blocks are enormous" = "block_size > 4096"\n'
    assert_refused(own(tune, tmp_path, extra=extra), "no configuration is valid", "blocks are enormous")


def test_space_without_anything_recorded(tune: Tune, tmp_path: Path) -> None:
    assert_refused(own(tune, tmp_path, blocks=(512, 1024)), "recording has no configuration")


def test_template_that_does_not_render_on_a_replay(tune: Tune, tmp_path: Path) -> None:
    said = own(tune, tmp_path, source="{{ unknown }}\n")
    assert said.code == 1
    assert "Traceback" not in said.err
    with sqlite3.connect("results/tuning.db") as connection:
        rows = connection.execute("SELECT DISTINCT status, error FROM trials").fetchall()
    assert [status for status, _ in rows] == ["compile_error"]
    assert "'unknown' is undefined" in rows[0][1]


def test_changed_kernel_is_not_replayed(tune: Tune, tmp_path: Path) -> None:
    said = own(tune, tmp_path, source=SOURCE.replace("2.0f", "3.0f"))
    assert said.code == 1
    with sqlite3.connect("results/tuning.db") as connection:
        assert connection.execute("SELECT DISTINCT status FROM trials").fetchall() == [("invalid_config",)]


def test_changed_comment_is_still_replayed(tune: Tune, tmp_path: Path) -> None:
    said = own(tune, tmp_path, source="// a comment, and more   space\n" + SOURCE.replace(" if (", "   if ("))
    assert said.code == 0, said.err


# -- a database that cannot be used


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")


def newer(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA application_id = {0x74756E65}")
        connection.execute("PRAGMA user_version = 99")
        connection.execute("CREATE TABLE runs (id TEXT)")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (foreign, ("another program", "--db")),
        (newer, ("newer kernel-tune", "upgrade")),
        (
            lambda path: path.write_text("these are my notes"),
            ("not an SQLite file", "--db"),
        ),
        (lambda path: path.mkdir(), ("not a file", "--db")),
    ],
)
def test_database_of_another_program(
    tune: Tune, tmp_path: Path, make: Callable[[Path], object], words: tuple[str, ...]
) -> None:
    path = tmp_path / "other.db"
    make(path)
    before = digest(path) if path.is_file() else ""
    assert_refused(tune(*SMALL, "--db", str(path)), "other.db", *words)
    assert (digest(path) if path.is_file() else "") == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other.db"]


def test_read_only_database(tune: Tune, tmp_path: Path) -> None:
    assert tune(*SMALL, "-q").code == 0
    path = tmp_path / "results" / "tuning.db"
    path.chmod(0o444)
    before = digest(path)
    assert_refused(tune(*SMALL, "-q"), "tuning.db", "read-only", "writable")
    assert digest(path) == before


def test_full_disk(tmp_path: Path, recording: Path) -> None:
    """Whatever was acknowledged is there, and the run can go on when there is space again."""

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (160_000, 160_000))

    command = [sys.executable, "-m", "tuner", *SMALL[:4], "--trials", "55", "--device", f"replay:{recording}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, preexec_fn=small_disk
    )
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "tuning.db" in lines[-1]
    assert "space" in lines[-1]
    with sqlite3.connect(tmp_path / "results" / "tuning.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        (before,) = connection.execute("SELECT count(*) FROM trials").fetchone()
    assert 0 < before < 55
    again = subprocess.run(
        [*command, "--resume"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert again.returncode == 0, again.stderr
    with sqlite3.connect(tmp_path / "results" / "tuning.db") as connection:
        assert connection.execute("SELECT count(*), count(DISTINCT run_id) FROM trials").fetchone() == (55, 1)
