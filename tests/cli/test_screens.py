"""What people see: every command fits a terminal of 80 columns, tables also wider ones, and no word is broken."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.commands import said_by
from tests.screens import ESCAPES, Screen, environment, in_tmux, on_terminal, on_terminals
from tuner.cli import COMMANDS
from tuner.kernel.load import load_kernel

pytestmark = pytest.mark.usefixtures("forked_children")

RUNS = (("gemm", "12"), ("vector_add", "6"))
WORD = re.compile(r"[\w.=/+-]+")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two replays of a few trials, made once."""
    path = tmp_path_factory.mktemp("screens") / "tuning.db"
    for kernel, trials in RUNS:
        command = ["--kernel", kernel, "--device", "replay", "--trials", trials, "--db", str(path), "-q"]
        command += ["--sampler", "random"]
        subprocess.run(
            [sys.executable, "-m", "tuner", *command], check=True, env=environment(), cwd=path.parent
        )
    return path


SCREENS = {
    "run": "--kernel vector_add --device replay --trials 3 -q --db run.db",
    "best": "best --db tuning.db",
    "best-of-one": "best --kernel gemm --db tuning.db",
    "table": "table --replayed --db tuning.db",
    "query": "query --db tuning.db --kernel gemm --limit 10",
    "query-full": "query --db tuning.db --limit 20 --full",
    "query-columns": "query --db tuning.db --kernel gemm --columns trial,time,registers,block_k,status --limit 3",
    "trial": "trial 2 --db tuning.db",
    "show": "show reduce",
    "list": "list",
    "ladder": "ladder vector_add --trials 2 --device replay -q --db ladder.db",
    "check": "db check --db tuning.db",
    "explain": "explain vector_add --db tuning.db",
    "help": "--help",
}
WIDE = ["run", "best", "table", "query"]
EMPTY_COLUMNS = {"warm", "spread", "behind", "others", "tensor", "cores"}
"""Heads that a narrow table lacks, because no row has a value."""
NOT_LAID_OUT = re.compile(r"[─-]+|.*\S{60}.*|.*/.*")
"""Rules, and lines with a path or another word that is as long as a narrow line."""


def words_of(lines: Sequence[str]) -> set[str]:
    return {
        word for line in lines for word in WORD.findall(line) if not re.fullmatch(r"[─-]+|[\d.e+-]+", word)
    }


WIDTHS = {80: SCREENS, 200: WIDE, 2000: SCREENS}


@pytest.fixture(scope="module")
def screens(database: Path) -> dict[tuple[str, int], Screen]:
    """What all commands print, by name and width."""
    asked = [(name, columns) for columns, names in WIDTHS.items() for name in names]
    printed = on_terminals([(columns, SCREENS[name]) for name, columns in asked], database.parent)
    return dict(zip(asked, printed, strict=True))


@pytest.mark.parametrize("name", list(SCREENS))
def test_screens_fit_and_no_word_is_broken(name: str, screens: dict[tuple[str, int], Screen]) -> None:
    """The words are those of a terminal on which nothing is broken."""
    wide = words_of(screens[name, 2000][1])
    for columns in (80, 200) if name in WIDE else (80,):
        status, lines = screens[name, columns]
        assert status == 0, lines
        lines = [ESCAPES.sub("", line) for line in lines]
        assert [line for line in lines if len(line) > columns and not NOT_LAID_OUT.fullmatch(line)] == []
        if name != "run":  # which has other times each time
            assert words_of(lines) - wide <= {"in", "all", "rows"}
            assert wide - words_of(lines) <= EMPTY_COLUMNS


def test_help_fits_and_no_example_is_broken(tmp_path: Path) -> None:
    groups = {"db": ("check", "merge", "backup", "delete"), "cluster": ("run", "start", "status", "stop")}
    asked = [name for name in COMMANDS if name not in groups]
    asked += [f"{group} {name}" for group, names in groups.items() for name in names]
    printed = on_terminal([f"{name} --help" for name in asked], 80, tmp_path)
    for name, (status, lines) in zip(asked, printed, strict=True):
        assert (status, lines[0].split()[:2]) == (0, ["Usage:", "tune"]), name
        assert [line for line in lines if len(line) > 80] == [], name


def test_a_pipe_has_a_line_a_row(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said_by(capsys, "query", "--db", str(database), "--limit", "0").out.splitlines()
    assert len(lines) == 1 + sum(int(trials) for _, trials in RUNS)
    assert re.split("  +", lines[0].strip())[-2:] == ["of peak", "source"]
    assert all(line.endswith("replayed") for line in lines[1:]) and max(map(len, lines)) <= 240
    full = said_by(capsys, "query", "--db", str(database), "--limit", "0", "--full").out.splitlines()
    assert sum(map(len, full)) > 1.5 * sum(map(len, lines))


def test_a_terminal_is_told_what_to_do_next(tmp_path: Path) -> None:
    """The commands that it names work; with --quiet, and in a pipe, there are none."""
    run = "--kernel vector_add --device replay --trials 3 --db a.db"
    loud, quiet = on_terminal([run, f"{run} -q"], 80, tmp_path)
    commands = [line.removeprefix("  next").strip() for line in loud[1] if "  # " in line]
    assert [command.split()[1] for command in commands] == ["explain", "report"]
    assert not [line for line in quiet[1] if line.startswith("  next")]
    asked = [command.partition("  # ")[0].removeprefix("tune ") for command in commands]
    assert [status for status, _ in on_terminal(asked, 80, tmp_path)] == [0, 0]
    assert (tmp_path / "report.html").is_file()
    piped = subprocess.run(
        [sys.executable, "-m", "tuner", *run.split()],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=tmp_path,
    )
    assert "  winner  " in piped.stdout and "  next  " not in piped.stdout + piped.stderr


def test_ten_trials_are_a_screenful(screens: dict[tuple[str, int], Screen]) -> None:
    """The configuration of a trial of gemm has up to 20 parameters."""
    for columns, most in ((80, 40), (200, 20)):
        assert len(screens["query", columns][1]) <= most


@pytest.mark.parametrize(
    "more", [{"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}, {"NO_COLOR": "1"}, {"TERM": "dumb"}]
)
def test_any_terminal(more: dict[str, str], database: Path) -> None:
    for status, lines in on_terminal([SCREENS["query"], SCREENS["run"]], 80, database.parent, **more):
        assert status == 0
        text = "\n".join(lines)
        assert not ESCAPES.search(text)
        assert text.isascii() or "LC_ALL" not in more


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
@pytest.mark.parametrize("name", ["query", "run-with-progress"])
def test_tmux_shows_the_same(name: str, database: Path) -> None:
    """A real terminal breaks no line: what it shows are the lines that the program wrote."""
    command = SCREENS["run" if "run" in name else name].replace(" -q", "")
    lines = in_tmux(command, 80, database.parent)
    if "run" in name:
        assert lines[0].startswith("tuning vector_add") and "  search     " in "\n".join(lines)
        assert not any(line.startswith("trial ") and "ETA" in line for line in lines)  # the panel is gone
        assert max(map(len, lines)) <= 80
    else:
        assert [line.rstrip() for line in lines] == on_terminal([command], 80, database.parent)[0][1]


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_ctrl_c_leaves_nothing_of_the_panel(tmp_path: Path) -> None:
    command = "--kernel gemm --device replay --trials 100000 --db a.db"
    lines = in_tmux(command, 80, tmp_path, ctrl_c_at="  ETA ")
    assert not [line for line in lines if "ETA" in line or "\u2501" in line]
    (said,) = [i for i, line in enumerate(lines) if "Ctrl-C again stops at once" in line]
    assert lines[said + 1].startswith("gemm ")
    assert lines[said + 2].startswith("  best yet")


def test_a_configuration_is_what_differs_from_the_default(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And what tables print is what ``--config`` takes."""
    out = said_by(
        capsys, "query", "--db", str(database), "--kernel", "gemm", "--columns", "configuration"
    ).out
    shown = {line.strip() for line in out.splitlines()[1:]}
    assert len(shown) == int(RUNS[0][1])
    for text in shown:
        variant, *pairs = text.split()
        defaults = load_kernel("gemm").variants[variant].defaults
        assert not set(pairs) & {f"{name}={value}" for name, value in defaults.items()}
    assert "no" not in out.split()  # truth is part of NAME=VALUE
    full = said_by(capsys, "query", "--db", str(database), "--columns", "configuration", "--full").out
    assert all("=" in line for line in full.splitlines()[1:])
    assert len(max(full.splitlines(), key=len)) > 200
