"""Commands are options, and bodies that are imported when they run: both fit each other, and help imports no body."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest
from click.testing import CliRunner

from tests.cli.filled_database import call
from tests.commands import assert_refused, said_by
from tests.test_imports import HEAVY
from tuner.cli import ADVANCED, FORMER, GROUPS, cli
from tuner.cli import COMMANDS as LISTED
from tuner.cli.commands.results import db, trials
from tuner.cli.commands.run import SECTIONS, run
from tuner.cli.commands.winners import export
from tuner.cli.options import Duration
from tuner.core.conditions import Mode, Regime
from tuner.core.errors import TunerError
from tuner.database.records import SORTS
from tuner.winners.header import NAMESPACE

ROOT = Path(__file__).resolve().parents[2]


def commands(group: click.Group, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], click.Command]:
    """Return every command that does something, by its words."""
    found: dict[tuple[str, ...], click.Command] = {}
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found |= commands(command, (*path, name))
        else:
            found[*path, name] = command
    return found


COMMANDS = commands(cli)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_body_takes_what_the_options_give(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    command, calls = COMMANDS[words], []
    load = importlib.import_module

    class Recorded(ModuleType):
        def __getattr__(self, name: str) -> object:
            body = getattr(load(self.__name__), name)
            return lambda record: calls.append((body, record))

    def stand_in(name: str, package: str | None = None) -> ModuleType:
        ours = name.startswith("tuner.cli.")  # Plotly calls the same function
        return Recorded(name) if ours else load(name, package)

    monkeypatch.setattr("tuner.cli.loader.importlib.import_module", stand_in)
    assert command.callback is not None
    given = [str(parameter.name) for parameter in command.params if parameter.expose_value]
    command.callback(**{name: name for name in given})
    ((body, record),) = calls
    asked, *others = inspect.signature(body, eval_str=True).parameters.values()
    assert isinstance(record, asked.annotation)
    assert {name: getattr(record, name) for name in given} == {name: name for name in given}
    assert all(other.default is not other.empty for other in others)


def test_help_of_no_command_imports_anything_heavy() -> None:
    script = f"""
import sys
from tuner.cli import main
for words in {[*COMMANDS]!r}:
    try:
        main([*words, "--help"])
    except SystemExit as ended:
        assert not ended.code
print(*sys.modules, file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = {
        module.split(".")[0] if not module.startswith("tuner.") else module for module in done.stderr.split()
    }
    assert len(loaded) > 10
    assert not {name for name in HEAVY if any(m == name or m.startswith(f"{name}.") for m in loaded)}


def values(command: click.Command, name: str) -> list[str]:
    """Return the choices of an option."""
    (kind,) = (option.type for option in command.params if option.name == name)
    assert isinstance(kind, click.Choice)
    return [str(choice) for choice in kind.choices]


def test_options_repeat_what_their_bodies_know() -> None:
    """They are written out, because the modules that define them take long to import."""
    assert values(trials, "mode") == [str(mode) for mode in Mode]
    assert values(trials, "regime") == [str(regime) for regime in Regime]
    assert values(run, "mode") == ["auto", *(str(mode) for mode in Mode)]
    assert values(run, "regime") == [str(regime) for regime in Regime]
    (sort,) = (option for option in trials.params if option.name == "sort")
    assert isinstance(sort, click.Option)
    assert sort.help is not None and sort.help.startswith(", ".join(SORTS) + ";")
    (namespace,) = (option for option in export.params if option.name == "namespace")
    assert namespace.default == NAMESPACE


NEEDED = {("bundle",): ("-o", "x"), ("export",): ("-o", "x")}
"""What a command asks for besides a kernel."""
WITH_A_KERNEL = {
    words: command
    for words, command in COMMANDS.items()
    if {"kernel", "kernel_name"} & {parameter.name for parameter in command.params}
    and words != ("db", "import")  # its arguments are files
}


@pytest.mark.parametrize("words", WITH_A_KERNEL, ids=" ".join)
def test_kernel_is_named_with_and_without_its_option(words: tuple[str, ...]) -> None:
    command = WITH_A_KERNEL[words]

    def given(*arguments: str) -> dict[str, object]:
        return command.make_context("tune", [*arguments, *NEEDED.get(words, ())]).params

    assert given("saxpy") == given("--kernel", "saxpy") == given("-k", "saxpy") == given("--kernel=saxpy")
    assert "saxpy" in given("saxpy").values()
    for twice in (("saxpy", "gemm"), ("saxpy", "--kernel", "gemm"), ("-k", "saxpy", "--kernel", "gemm")):
        with pytest.raises((TunerError, click.UsageError)):
            given(*twice)
    usage, _, rest = CliRunner().invoke(cli, [*words, "--help"]).output.partition("\n")
    assert "KERNEL" in usage and "--kernel" not in rest and "-k" not in rest


def test_commands_with_a_kernel_are_all_there() -> None:
    of_kernels = (
        "portfolio bench ladder ablate explain render profile sanitize best trials report export bundle"
    )
    assert {*of_kernels.split(), "run", "show", "check", "cluster run"} == {*map(" ".join, WITH_A_KERNEL)}


@pytest.mark.parametrize("command", ["bundle -o x", "portfolio", "ladder", "check"])
def test_a_kernel_that_is_needed_is_asked_for(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = said_by(capsys, *command.split())
    assert said.code == 2 and said.out == "" and "kernel" in said.err.lower() and "Missing" in said.err


@pytest.mark.parametrize("kernel", ["saxpy", "./nothing_there.toml"])
def test_kernel_in_place_of_a_command_is_tuned(kernel: str) -> None:
    short = CliRunner().invoke(cli, [kernel, "--device", "nowhere"]).exception
    long = CliRunner().invoke(cli, ["run", "--kernel", kernel, "--device", "nowhere"]).exception
    assert isinstance(short, TunerError) and str(short) == str(long)


def test_a_text_in_place_of_a_number_is_refused_in_plain_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert_refused(said_by(capsys, "gemm", "--trials", "1e3"), 2, "'1e3' is not a valid integer;")
    assert_refused(said_by(capsys, "gemm", "--time", "6e"), 2, "'6e' is not a valid")
    assert_refused(said_by(capsys, "gemm", "--time", "0 s"), 2, "0.0 is not in the range")
    assert Duration().convert("1.5min", None, None) == Duration().convert("90 s", None, None) == 90


def test_short_helps_are_whole() -> None:
    assert "..." not in call(db, "--help").output.partition("Commands:")[2]


@pytest.mark.parametrize("words", [*LISTED, "cluster start", "cluster run"])
def test_examples_are_the_end_of_a_help(words: str) -> None:
    _, shown, examples = CliRunner().invoke(cli, [*words.split(), "--help"]).output.partition("Examples:\n")
    assert all(line.strip().startswith("tune ") for line in examples.splitlines())
    assert shown or words in ("report", "show", "doctor", "cluster", "db")


def test_first_help_is_short_and_help_all_has_the_rest() -> None:
    first, everything = (CliRunner().invoke(cli, [word]).output for word in ("--help", "--help-all"))
    shown = [name for group in GROUPS.values() for name in group]
    assert len(shown) <= 14
    for name in LISTED:
        line = re.compile(rf"(?m)^  {name}  +\S")
        assert bool(line.search(first)) == (name in shown) and line.search(everything)
    assert all(name in first for group in ADVANCED.values() for name in group)
    assert not any(f"\n  {name} " in everything for name in FORMER)


def test_help_of_run_is_a_screen_and_help_all_has_every_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    first, everything = (CliRunner().invoke(cli, ["run", word]).output for word in ("--help", "--help-all"))
    assert len(first.splitlines()) <= 40
    options = {
        parameter.name: parameter.opts[-1]
        for parameter in run.params
        if not parameter.opts[-1].endswith("kernel")
    }
    options = {name: spelling for name, spelling in options.items() if spelling.startswith("--")}
    sections = [name for names in SECTIONS.values() for name in names.split()]
    assert sorted(sections) == sorted(options.keys() - {"help_all"})
    short = SECTIONS["Options"].split()
    for name, spelling in options.items():
        stands = re.compile(rf"(?m)^  (-\w, )?{spelling}\b(?!-)")
        assert bool(stands.search(first)) == (name in short or name == "help_all"), name
        assert stands.search(everything), name


@pytest.mark.parametrize("words", ["", "best", "run", "db merge", "trials 12", "query"])
def test_help_is_also_a_command(words: str) -> None:
    asked = CliRunner().invoke(cli, ["help", *words.split()])
    assert asked.exit_code == 0 and asked.output == CliRunner().invoke(cli, [*words.split(), "--help"]).output


SAME = {
    "table": "best --agreement",
    "query": "trials",
    "trial 7": "trials 7",
    "import f": "db import f",
    "trial --log 7": "trials 7 --log",
    "list": "show",
}


@pytest.mark.parametrize("former", SAME)
def test_former_names_mean_the_same(former: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same body is given the same."""
    assert former.split()[0] in FORMER
    given = []
    load = importlib.import_module

    class Recorded(ModuleType):
        def __getattr__(self, name: str) -> object:
            return lambda record: given.append((self.__name__, name, vars(record)))

    def loaded(name: str) -> ModuleType:
        return load(name) if "commands" in name else Recorded(name)

    monkeypatch.setattr(importlib, "import_module", loaded)
    for words in (former, SAME[former]):
        said = CliRunner().invoke(cli, [*words.split(), "--json"])
        assert said.exit_code == 0, said.output
    assert len(given) == 2 and given[0] == given[1]


def test_what_is_no_kernel_is_not_proposed_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    """``gemm.initial.toml`` lies beside the kernels' files."""
    assert_refused(said_by(capsys, "gemm.initia"), 2, "neither a command nor a kernel; see tune --help")
    assert_refused(said_by(capsys, "gem"), 2, "neither a command nor a kernel; did you mean gemm?")


def test_show_without_a_kernel_lists_the_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    listed = said_by(capsys, "show", "--json")
    assert listed.code == 0 and listed.out == said_by(capsys, "list", "--json").out
    lines = said_by(capsys, "show").out.splitlines()
    assert len(lines) < 30 and all(len(line) < 120 for line in lines)  # a kernel a line, as a person reads
    assert_refused(said_by(capsys, "show", "--size", "n=4"), 2, "need a kernel")


def test_a_number_after_trials_is_one_trial(tmp_path: Path) -> None:
    missing = CliRunner().invoke(cli, ["trials", "3", "--db", str(tmp_path / "no.db")])
    assert isinstance(missing.exception, TunerError)
    as_printed = CliRunner().invoke(cli, ["trials", "#3", "--db", str(tmp_path / "no.db")])
    assert str(as_printed.exception) == str(missing.exception)
    assert "--again" in CliRunner().invoke(cli, ["trials", "3", "--help"]).output


def test_a_command_does_not_import_pandas_and_a_kernels_function_may(tmp_path: Path) -> None:
    (tmp_path / "pandas.py").write_text("print('imported')")
    program = """
import sys
from tuner.cli import cli
try:
    cli.main(["trials", "--db", "none.db"], standalone_mode=False)
except Exception:
    pass
assert "sqlite_utils" in sys.modules
print("and now")
import pandas
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\n")[-3:] == ["and now", "imported", ""]
    assert done.stdout.count("imported") == 1
