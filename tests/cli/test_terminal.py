"""Whatever a file brings along, no character that a terminal obeys is printed."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.commands import Said, Tune, assert_refused, said_by
from tests.stored import GPU, make_benchmark, make_run, make_trial, make_winner
from tuner.core.model import Configuration, Problem, Status
from tuner.database.database import Database
from tuner.report import tables
from tuner.report.progress import Progress, counted_line

pytestmark = pytest.mark.usefixtures("forked_children")

NASTY = "\x1b]0;owned\x07\x1b[31m\r\x08\x7f\x9b2J\x85\u202e\u2066\u200b\u2028"
UNSAFE = re.compile(r"[^ -~\n\t\u00a1-\u2000\u2070-\uffff]|[\ufeff\u200b]")
REPOSITORY = Path(__file__).parents[2]


KERNEL = f"""\
[kernel]
name = "scale"
summary = "y = 2 x {NASTY!r}"

[problem]
sizes = {{ n = 1024 }}
dtypes = {{ input = ["float32"], output = "input" }}
options = {{ order = ["up{NASTY!r}", "down"] }}
presets."small{NASTY!r}" = {{ n = 16 }}

[tensors]
x = {{ shape = ["n"], dtype = "input" }}
y = {{ shape = ["n"], dtype = "output", role = "output" }}

[reference]
numpy = "2 * x"

[work]
bytes = "2 * n * itemsize(input)"

[[ladder]]
name = "one"
variant = "plain"
doc = "a step {NASTY!r}"

[[initial]]
variant = "plain"
parameters = {{ block_size = 64 }}
doc = "a seed {NASTY!r}"

[variants.plain]
summary = "one element a thread {NASTY!r}"

[variants.plain.parameters]
block_size = {{ values = [64, 128], default = 128, doc = "threads {NASTY!r}" }}
text = {{ values = ["fast{NASTY!r}", "slow"], default = "slow" }}

[variants.plain.constraints]
"not larger {NASTY!r}" = "block_size <= n"

[[variants.plain.launches]]
template = "scale.cu"
entry = "scale"
arguments = ["x", "y", "n"]
grid = ["ceil_div(n, block_size)"]
block = ["block_size"]
"""


def toml_text(text: str) -> str:
    """Return TOML in which ``repr`` was used for escapes that TOML writes otherwise."""
    body = "".join(f"\\u{ord(c):04x}" for c in NASTY)
    return text.replace(repr(NASTY), body)


@pytest.fixture
def tune(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tune:
    """Run a command in an empty folder, and see to it that it prints nothing that acts on a terminal."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Said:
        said = said_by(capsys, *map(str, arguments))
        for text in (said.out, said.err):
            assert UNSAFE.findall(text) == [], (arguments, text)
        return said

    return call


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Fill a database in which every text is hostile."""
    path = tmp_path / "hostile.db"
    problem = Problem(f"scale{NASTY}", {"n": 1024}, {"input": "float32"}, {"order": f"up{NASTY}\n"})
    gpu = replace(GPU, name=f"H200 {NASTY}", driver=f"580 {NASTY}")
    configuration = Configuration.of(f"plain{NASTY}", {"text": f"=fast{NASTY}", "block": 64})
    run = make_run(problem=problem, gpu=gpu)
    run = replace(run, device=f"cuda:0{NASTY}", options=replace(run.options, sampler=f"tpe{NASTY}"))
    assert run.calibration is not None
    run = replace(run, calibration=replace(run.calibration, notes=(f"note {NASTY}",)))
    good = replace(
        make_trial(0),
        configuration=configuration,
        sources=(f"// source {NASTY}\n",),
        compile_log=f"log {NASTY}\n",
        tags=(f"tag{NASTY}",),
    )
    bad = replace(good, number=1, status=Status.LAUNCH_ERROR, time_ns=None, error=f"=error\n{NASTY}")
    with Database.open(path) as opened:
        opened.start_run(run)
        opened.record(run.id, good)
        opened.record(run.id, bad)
        first = opened.trials(run.id)[0]
        winner = make_winner(first, reason=f"reason {NASTY}")
        opened.record_winner(run.id, winner)
        opened.record_benchmark(
            [
                replace(make_benchmark(), problem=problem, gpu=gpu, configuration=configuration),
                replace(make_benchmark(f"torch{NASTY}"), problem=problem, gpu=gpu),
            ]
        )
        opened.finish_run(run.id, "finished")
    return path


COMMANDS = (
    ("query",), ("query", "--json"), ("query", "--csv"), ("query", "--kernel", "nothing"),
    ("query", "--sql", f"SELECT *, '{NASTY}' AS 'head{NASTY}' FROM trials"),
    ("query", "--sql", f"SELECT error, '{NASTY}' AS 'head{NASTY}' FROM trials", "--csv"),
    ("query", "--sql", f"SELECT error AS 'head{NASTY}' FROM trials", "--json"),
    ("query", "--sql", f"SELECT nothing{NASTY} FROM trials"),
    ("best",), ("best", "--csv"), ("best", "--json"), ("trial", "1"), ("trial", "2"), ("trial", "2", "--json"),
    ("db", "check"), ("bench", "--history"), ("bench", "--history", "--json"),
    ("export", "-o", "-", "--format", "t4"), ("export", "-o", "-", "--format", "kernel-tuner-cache"),
    ("explain", "--trial", "1"), ("trial", "1", "--again"),
)  # fmt: skip


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: " ".join(arguments[:3]).split("'")[0])
def test_a_hostile_database(tune: Tune, database: Path, arguments: Sequence[str]) -> None:
    said = tune(*arguments, "--db", database)
    assert (said.out + said.err).strip()
    assert said.code in (0, 1, 2)


def test_a_hostile_database_that_is_damaged(tune: Tune, database: Path) -> None:
    connection = sqlite3.connect(database)
    connection.execute("UPDATE trials SET time_ns = 1, variant = variant || ? WHERE id = 1", (NASTY,))
    connection.commit()
    connection.close()
    assert "problems" in tune("db", "check", "--db", database).err
    assert [row["id"] for row in json.loads(tune("query", "--json", "--db", database).out)] == [2]


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_hostile_kernel(tune: Tune, tmp_path: Path, more: Sequence[str]) -> None:
    (tmp_path / "scale.cu").write_text('extern "C" __global__ void scale() {}\n')
    (tmp_path / "scale.toml").write_text(toml_text(KERNEL))
    said = tune("show", "scale.toml", *more)
    assert said.code == 0, said.err
    assert "one element a thread" in said.out and "owned" in said.out


@pytest.mark.parametrize(
    ("good", "wrong"),
    [('name = "scale"', 'name = "?"'), ("x = {", 'x = { "?" = 1,'), ('"scale.cu"', '"?"'),
     ('"block_size <= n"', '"block_size <= ?"'), ('role = "output"', 'role = "?"')],
)  # fmt: skip
def test_errors_about_a_hostile_kernel(tune: Tune, tmp_path: Path, good: str, wrong: str) -> None:
    (tmp_path / "scale.cu").write_text('extern "C" __global__ void scale() {}\n')
    text = KERNEL.replace(good, wrong.replace("?", repr(NASTY)), 1)
    (tmp_path / "scale.toml").write_text(toml_text(text))
    said = tune("show", "scale.toml")
    assert said.code == 2
    (line,) = said.err.splitlines()
    assert line.startswith("tune: ")


@pytest.mark.parametrize(
    "arguments",
    [("show", f"gone{NASTY}.toml"), ("show", f"gone{NASTY}"), ("--kernel", "vector_add", "--problems", f"{NASTY}.csv"),
     ("query", "--db", f"gone{NASTY}.db"), ("import", f"gone{NASTY}.json"), (f"command{NASTY}",),
     ("query", f"--option{NASTY}"), ("--kernel", "vector_add", "--size", f"n=1{NASTY}"),
     ("--space", f"{NASTY}.json", "--device", "replay:x")],
    ids=str,
)  # fmt: skip
def test_names_on_the_command_line(tune: Tune, arguments: Sequence[str]) -> None:
    said = tune(*arguments)
    assert said.code in (1, 2)
    (line,) = said.err.splitlines()
    assert line.startswith("tune: ")


def test_a_name_of_several_lines_forges_no_message(tune: Tune) -> None:
    first, *others = tune("show", "gone\ntune: all is well").err.splitlines()
    assert first.startswith("tune: ")
    assert not [line for line in others if line.startswith("tune:")]


def test_csv_holds_no_formula(capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["=1+1", "+A1", "-A1", "@SUM(A1)", "\t=1", "\r=1", "\uff1d1", "-", "a=1", "", "x\ny"]
    numbers = ["-1", "+1.5", "-1e-3", "12", "1.", "-.5"]
    tables.show_csv(["=head", "n"], [[text, -1.5] for text in texts + numbers])
    out = capsys.readouterr().out
    head, *rows = csv.reader(io.StringIO(out))
    assert head == ["'=head", "n"]
    assert [row[0] for row in rows] == [
        *("'=1+1", "'+A1", "'-A1", "'@SUM(A1)", "\\t=1", "\\r=1", "'\uff1d1", "'-", "a=1", "", "x\\ny"),
        *numbers,
    ]
    assert {row[1] for row in rows} == {"-1.5"}
    assert len(out.splitlines()) == 1 + len(texts) + len(numbers)


def test_json_is_printable_and_keeps_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    tables.show_json({NASTY: [NASTY, b"\x1b"]})
    out = capsys.readouterr().out
    assert UNSAFE.findall(out) == [] and out.isascii()
    assert json.loads(out) == {NASTY: [NASTY, "1b"]}


def on_a_terminal(*arguments: object) -> str:
    """Return what a command writes to a terminal."""
    reader, writer = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200", "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "tuner", *map(str, arguments)]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=writer, stderr=writer, env=environment
    )
    os.close(writer)
    written = b""
    while True:
        try:
            piece = os.read(reader, 65536)
        except OSError:  # Linux's end of a terminal
            break
        if not piece:
            break
        written += piece
    os.close(reader)
    process.wait(200)
    return written.decode()


@pytest.mark.parametrize("arguments", [("query",), ("trial", "1"), ("trial", "1", "--source")])
def test_on_a_terminal(database: Path, arguments: Sequence[str]) -> None:
    said = on_a_terminal(*arguments, "--db", database)
    assert "owned" in said
    plain = re.sub(r"\x1b\[[\d;]*m", "", said.replace("\x1b[31m", "NASTY")).replace("\r\n", "\n")
    assert UNSAFE.findall(re.sub(r"[\u2500-\u257f]", "-", plain)) == []
    assert "NASTY" not in plain


def test_a_check_shows_how_far_it_is() -> None:
    kernel = REPOSITORY / "docs" / "examples" / "rms_norm" / "rms_norm.toml"
    said = on_a_terminal("check", kernel, "--configurations", "1", "--cc", "90", "--no-cpu")
    assert "compilations: 0 of 2" in said


def test_sources_go_to_a_file_as_they_are(database: Path, tmp_path: Path) -> None:
    for option, text in (("--source", f"// source {NASTY}\n"), ("--log", f"log {NASTY}\n")):
        command = [sys.executable, "-m", "tuner", "trial", "1", option, "--db", database]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}
        )
        assert done.stdout.decode() == text


def test_what_is_printed_above_a_live_panel(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    before = sys.stdout, sys.stderr
    progress = Progress(counted_line)
    progress.phase("checking", 2)
    progress.step(f"line {NASTY}")
    print(f"beside {NASTY}", file=sys.stderr)
    progress.close()
    assert (sys.stdout, sys.stderr) == before
    said = capfd.readouterr().err
    assert "line" in said and "beside" in said
    for piece in ("\x1b]0", "\x07", "\x1b[31m", "\u202e", "\x9b"):
        assert piece not in said


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_no_success(database: Path, unbuffered: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tuner", "query", "--json", "--db", database],
            stdout=full, stderr=subprocess.PIPE, env=environment,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith(b"tune: cannot write: No space left")


@pytest.mark.parametrize("arguments", [["--version"], ["show", "vector_add"]])
def test_a_reader_that_leaves_is_no_failure_of_ours(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "tuner", *arguments],
        stdout=writing, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("lacking", [MemoryError(), RuntimeError("can't start new thread")])
def test_what_the_system_refuses_is_one_line(
    tune: Tune, lacking: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after ``ulimit -v`` and ``ulimit -u``."""

    def fails(_: object) -> None:
        raise lacking

    monkeypatch.setattr("tuner.cli.show.show", fails)
    said = tune("show")
    what = "memory" if isinstance(lacking, MemoryError) else "threads"
    assert (said.code, said.err) == (1, f"tune: no {what} left; see `ulimit -a`, and what else runs here\n")


def test_a_disk_that_fills_up_is_no_success(database: Path, tmp_path: Path) -> None:
    """The file system takes a part of a write, and Python's unbuffered stream takes that for all of it."""
    script = (
        "import io, sys\n"
        "class Full(io.RawIOBase):\n"
        "    left = 100\n"
        "    def writable(self): return True\n"
        "    def write(self, data):\n"
        "        if not self.left: raise OSError(28, 'No space left on device')\n"
        "        taken = min(self.left, len(data)); self.left -= taken\n"
        "        return taken\n"
        "sys.stdout = io.TextIOWrapper(Full(), write_through=True)\n"
        "from tuner.cli import main\n"
        f"main(['query', '--json', '--db', {str(database)!r}])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}
    )
    assert done.returncode == 1, done
    assert b"cannot write: No space left" in done.stderr


def test_a_message_says_what_is_wrong_and_what_to_do_however_long_the_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = said_by(capsys, "query", "--status", "x" * 1_000_000, "--db", "missing.db")
    assert_refused(said, 2, "there is no status 'xxx", "choose from: ")
    assert len(said.err) < 2000


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("", "complete"),
        ("tune ben", "bench"),
        ("tune gem", "plain,gemm"),
        ("tune run --sam", "--sampler"),
    ],
)
def test_a_shell_completes_commands_and_options(words: str, found: str) -> None:
    ask = {"_TUNE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    environment = {**os.environ, **(ask if words else {"_TUNE_COMPLETE": "bash_source"})}
    done = subprocess.run(
        [sys.executable, "-m", "tuner"], env=environment, capture_output=True, text=True, check=False
    )
    assert not done.stderr
    assert found in done.stdout
