"""``tune run`` answers one clear line to whatever a user gets wrong, and leaves everything as it was."""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Said, Tune, assert_one_line, assert_refused
from tests.faults.kernels import SOURCE, altered, scale_kernel, write_kernel, write_synthetic_recording

pytestmark = pytest.mark.usefixtures("forked_children")

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("--kernel", "vector_add", "--size", "n=2**20", "--trials", "12")


# -- what a user may get wrong


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--kernel", "vector_ad"), ("vector_ad", "did you mean vector_add")),
        (("--kernel", "./missing.toml"), ("missing.toml",)),
        (("--kernel", "vector_add", "--size", "m=5"), ("no size 'm'", "n")),
        (("--kernel", "vector_add", "--size", "n=0"), ("n=0", "1")),
        (("--kernel", "vector_add", "--size", "n=many"), ("n=many", "whole number")),
        (("--kernel", "vector_add", "--size", f"n={'9' * 400}"), ("a size is", "2**62")),
        (("--kernel", "vector_add", "--size", "n=1/0"), ("n=1/0", "whole number")),
        (("--kernel", "vector_add", "--size", "n"), ("--size 'n'", "write --size n=")),
        (("--kernel", "gemm", "--size", "4096x4096x4096"), ("write --size m=", ",n=", ",k=")),
        (("--kernel", "vector_add", "--size", "n=1,n=2"), ("--size 'n=1,n=2' gives n twice",)),
        (("--kernel", "vector_add", "--problem", "n=1, n=1"), ("--problem", "gives n twice")),
        (("--kernel", "gemm", "--option", "layout=nn,layout=nt"), ("--option", "gives layout twice")),
        (("--kernel", "vector_add", "--dtype", "float23"), ("float23", "float32")),
        (("--kernel", "vector_add", "--dtype", "output=float16"), ("output",)),
        (("--kernel", "vector_add", "--option", "layout=nt"), ("layout",)),
        (("--kernel", "gemm", "--option", "layout=xy"), ("layout", "xy", "nn")),
        (("--kernel", "vector_add", "--preset", "smal"), ("smal", "small")),
        (("--kernel", "vector_add", "--problem", "q=5"), ("'q'",)),
        (("--kernel", "vector_add", "--problem", "n"), ("--problem",)),
        ((*SMALL, "--variant", "vectorised"), ("vectorised", "vectorized")),
        ((*SMALL, "--fix", "blocksize=64"), ("blocksize", "block_size")),
        ((*SMALL, "--fix", "block_size=63"), ("63", "64")),
        ((*SMALL, "--fix", "block_size"), ("--fix", "name=value")),
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
        ((*SMALL, "--nonsense"), ("--nonsense", "see tune run --help")),
        (("--kernl", "gemm"), ("Did you mean '--kernel'?",)),
        (("gemm", "--n", "64"), ("option '--n'; a size is given as --size n=N",)),
        (("gemm", "saxpy"), ("(saxpy)", "name one kernel; for several run the command for each")),
        ((), ("tune vector_add --device", "a recording of this tool")),
    ],
)  # fmt: skip
def test_bad_argument_is_one_clear_line(
    tune: Tune, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    assert_one_line(tune("run", *arguments), *words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tabel",), ("tabel", "did you mean best --agreement?")),
        (("vector_ad",), ("vector_ad", "did you mean vector_add?")),
    ],
)
def test_a_kernel_in_the_wrong_place_is_told_the_right_one(
    tune: Tune, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    assert_one_line(tune(*arguments), *words)


def test_a_source_in_place_of_a_kernel_file_is_told_from_it(tune: Tune, tmp_path: Path) -> None:
    source = tmp_path / "mine.cu"
    source.write_text("__global__ void mine() {}")
    for command in (("--kernel",), ("show",), ("check",), ("explain",)):
        assert_one_line(tune(*command, str(source), device=""), "mine.cu", ".toml")


@pytest.mark.parametrize("name", ["n=2**20", "gem*", "[gemm"])
def test_a_size_or_a_pattern_in_place_of_a_kernel_is_refused(tune: Tune, name: str) -> None:
    assert_one_line(tune("--kernel", name, device=""), "no kernel named", name)


def test_a_space_that_is_used_up_is_named(tune: Tune) -> None:
    said = tune(*SMALL[:-1], "200", "--variant", "grid_stride", "--fix", "block_size=64,128")
    assert said.code == 0, said.err
    assert re.search(r"all \d+ recorded configurations were tried", said.out)
    assert "were tried" not in tune(*SMALL, "--from-scratch").out


@pytest.mark.parametrize("arguments", [("--variant", "nope"), ("--fix", "nope=1"), ("--sampler", "nope")])
def test_a_name_that_is_not_there_is_refused_before_a_device_says_anything(
    tune: Tune, arguments: tuple[str, str]
) -> None:
    assert_one_line(tune(*SMALL, *arguments, device=""), "nope")


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("tpu", ("no device 'tpu'", "auto")),
        ("cuda:first", ("GPU",)),
        ("replay:missing", ("no recording 'missing'",)),
        ("saxpy-H200", ("did you mean replay:saxpy-H200?",)),
        ("replay:/etc/passwd", ("/etc/passwd", "not a recording")),
        ("replay:/", ("no recording",)),
    ],
)
def test_bad_device_is_one_clear_line(tune: Tune, device: str, words: tuple[str, ...]) -> None:
    assert_one_line(tune(*SMALL, device=device), *words)


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
    assert_one_line(said)
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
    assert_one_line(said, "sizes.csv line 4: ", *words)


def test_missing_csv(tune: Tune, tmp_path: Path) -> None:
    said = tune("--kernel", "vector_add", "--problems", "missing.csv")
    assert_one_line(said, "cannot read missing.csv: No such file or directory;")
    assert_one_line(tune("--kernel", "vector_add", "--problems", str(tmp_path)), "directory")


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
        assert_one_line(said, "scale.toml", *words)
    else:
        assert_one_line(said, "recording of vector_add")


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
        ("gpu", "uuid", None),
        ("gpu", "sm_count", 0),
        ("versions", "nvrtc", 13),
        ("plain", "samples_ns", [[-5]] * 16),
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
    if value == [[float("inf")]] * 16:
        assert_one_line(said, "scale-x.json.gz: not a recording: JSON is malformed")
    else:
        where = part if part == "versions" else field
        assert_one_line(said, "scale-x.json.gz: damaged:", where, "fetch it again, or record it anew")
    assert not (tmp_path / "results" / "tuning.db").exists()


def test_constraint_that_nothing_can_meet(tune: Tune, tmp_path: Path) -> None:
    extra = '[variants.plain.constraints]\n"blocks are enormous" = "block_size > 4096"\n'
    assert_one_line(own(tune, tmp_path, extra=extra), "no configuration is valid", "blocks are enormous")


def test_space_without_anything_recorded(tune: Tune, tmp_path: Path) -> None:
    assert_one_line(own(tune, tmp_path, blocks=(512, 1024)), "recording has no configuration")


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
    assert_refused(said, 1, "has changed since", "run it on a GPU")
    with sqlite3.connect("results/tuning.db") as connection:
        assert connection.execute("SELECT count(*) FROM trials").fetchone() == (0,)


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
    assert_one_line(tune(*SMALL, "--db", str(path)), "other.db", *words)
    assert (digest(path) if path.is_file() else "") == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other.db"]


def test_read_only_database(tune: Tune, tmp_path: Path) -> None:
    assert tune(*SMALL, "-q").code == 0
    path = tmp_path / "results" / "tuning.db"
    path.chmod(0o444)
    before = digest(path)
    assert_one_line(tune(*SMALL, "-q"), "tuning.db", "read-only", "writable")
    assert digest(path) == before


def test_full_disk(tmp_path: Path, three_sizes: Path) -> None:
    """Whatever was acknowledged is there, and the run can go on when there is space again."""

    limit = "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (160_000,) * 2); from tuner.cli import main; main()"
    arguments = [*SMALL[:4], "--trials", "55", "--device", f"replay:{three_sizes}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True
        )

    done = run("-c", limit, *arguments)
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "tuning.db" in lines[-1]
    assert "space" in lines[-1]
    with sqlite3.connect(tmp_path / "results" / "tuning.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        (before,) = connection.execute("SELECT count(*) FROM trials").fetchone()
    assert 0 < before < 55
    again = run("-m", "tuner", *arguments, "--resume")
    assert again.returncode == 0, again.stderr
    with sqlite3.connect(tmp_path / "results" / "tuning.db") as connection:
        assert connection.execute("SELECT count(*), count(DISTINCT run_id) FROM trials").fetchone() == (55, 1)
