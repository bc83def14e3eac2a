"""Imports between packages, and what only a few may do: pyproject.toml's contracts, and what those cannot say."""

from __future__ import annotations

import ast
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "tuner"
MODULES = {str(path.relative_to(PACKAGE)): path for path in sorted(PACKAGE.rglob("*.py"))}
MAX_LINES = 400
HEAVY = (
    "numpy", "optuna", "msgspec", "sqlite_utils", "sqlite3", "cuda", "jinja2", "rich", "matplotlib",
    "plotly", "tuner.tuning", "tuner.database",
)  # fmt: skip


def test_contracts_hold() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


def test_few_modules_at_the_root() -> None:
    assert len([name for name in MODULES if "/" not in name]) <= 2


def test_modules_are_short() -> None:
    lines = {name: path.read_text().count("\n") for name, path in MODULES.items()}
    assert {name: count for name, count in lines.items() if count > MAX_LINES} == {}


@pytest.fixture(scope="module", autouse=True)
def trees() -> Iterator[None]:
    """They take 100 MiB, and as long as they grow the collector of garbage goes through them."""
    gc.disable()
    yield
    nodes.cache_clear()
    gc.enable()


@cache
def nodes(name: str) -> tuple[ast.AST, ...]:
    """Return a module's syntax tree, in no order."""
    return tuple(ast.walk(ast.parse(MODULES[name].read_text())))


@cache
def calls(name: str) -> set[str]:
    """Return what a module calls, by its text."""
    called = (node.func for node in nodes(name) if isinstance(node, ast.Call))
    return {ast.unparse(what) for what in called if isinstance(what, ast.Name | ast.Attribute)}


def test_what_calls_winners_needs_nothing_installed_but_cudas_bindings() -> None:
    """A bundle carries a copy of the room beside two of core/, so every import of ours is relative."""
    for name in MODULES:
        if not name.startswith("runtime/"):
            continue
        for node in nodes(name):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                beyond = node.level == 2 and node.module not in ("core.errors", "core.reading")
                assert node.level < 3 and not beyond, f"{name} line {node.lineno}"
                modules += [str(node.module)] if not node.level else []
            others = {module for module in modules if module.split(".")[0] not in sys.stdlib_module_names}
            allowed = {"cuda.bindings", "torch"} if name.startswith("runtime/torch_") else {"cuda.bindings"}
            assert others <= allowed, f"{name} line {node.lineno}"


def those_with(*words: str) -> list[str]:
    """Return the modules whose text has one of some words: the others need no syntax tree."""
    return [name for name, path in MODULES.items() if any(word in path.read_text() for word in words)]


def test_only_what_launches_speaks_to_the_driver() -> None:
    found = those_with("cuda.bindings")
    assert "gpu/driver.py" in found
    for name in found:
        for node in nodes(name):
            if isinstance(node, ast.ImportFrom) and node.module == "cuda.bindings":
                driver = "driver" in {alias.name for alias in node.names}
                assert not driver or name.startswith(("gpu/", "runtime/")), name


PRINTING = ("cli/", "compat/", "report/", "__main__.py")


def test_only_commands_and_reports_print() -> None:
    for name in those_with("print", "echo", "stdout"):
        if not name.startswith(PRINTING) and "report" not in name and not name.endswith("progress.py"):
            assert not {"print", "click.echo", "sys.stdout.write"} & calls(name), name


def test_nothing_is_evaluated_or_unpickled() -> None:
    unpickling = ("pickle", "marshal", "shelve", "multiprocessing")
    for name in those_with("eval(", "exec(", "compile(", *unpickling):
        assert not {"eval", "exec", "compile"} & calls(name), name
        for node in nodes(name):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert not set(unpickling) & set(modules), name


def test_only_the_database_speaks_sql() -> None:
    statements = ("SELECT", "INSERT", "UPDATE", "DELETE", "PRAGMA", "CREATE")
    found = those_with(*statements)
    assert "database/queries.py" in found
    for name in found:
        if name.startswith("database/"):
            continue
        for node in nodes(name):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words = node.value.split()
                assert not (len(words) > 2 and words[0] in statements), f"{name} line {node.lineno}"


# -- the command line answers at once

LIST_MODULES = """
import sys
sys.argv = ["tune", *{arguments!r}]
import tuner.cli
if {arguments!r}:
    try:
        tuner.cli.main()
    except SystemExit:
        pass
print(" ".join(sorted(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize("arguments", [[], ["--help"], ["run", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    command = [sys.executable, "-c", LIST_MODULES.format(arguments=arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = done.stderr.split()
    heavy = [name for name in HEAVY if any(f"{module}.".startswith(f"{name}.") for module in loaded)]
    assert not heavy
    assert len(loaded) < 200, "which takes a tenth of a second"


def test_ctrl_c_while_modules_are_imported_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "tuner", "show"]
    done = subprocess.run(command, capture_output=True, env=environment, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")


def test_a_report_starts_no_matplotlib() -> None:
    """Optuna would: most of a second, and an error where its settings are wrong."""
    code = "import sys; from tuner.report.html import page; sys.exit('matplotlib' in sys.modules)"
    environment = {**os.environ, "MPLBACKEND": "none such"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=ROOT)


def test_without_torch_the_package_can_be_looked_at_and_a_call_names_torch() -> None:
    code = """
import inspect, pydoc, sys
sys.modules["torch"] = None
import tuner
from tuner import *
assert inspect.getdoc(record) and record.__name__ == "record" and callable(dict(inspect.getmembers(tuner))["replace"])
assert "record(" in pydoc.plain(pydoc.render_doc(tuner))
try:
    tuner.record()
except tuner.core.errors.CallError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert "tuner.record needs torch" in done.stdout, done.stderr
