"""The package's floors: a module imports from lower ones, and a few powers belong to a few modules."""

from __future__ import annotations

import ast
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "tuner"

FLOORS = [
    "__init__ errors model paths",
    "answer baseline_table calls element_code elements elimination enumeration expressions headers kernel kernel_file "
    "magnitudes problem_tables reference render roofline space stats tolerance toml_table toml_terms variant_tables "
    "seed_tables seeds code_facts instructions occupancy places ptx ptx_opcodes rules sass walk",
    "baselines children compile_pool compile_worker compiler conditions cubin_cache edges plan tools.job validity "
    "advice code_reader code_worker explanation",
    "gpu.*",
    "devices.* interop.* recorded_data recording tools.*",
    "cells database migrations owners reading records rows schema search.* upkeep "
    "matmul_heuristics matmul_worker seeding",
    "ablation accuracy bench doubts importing race shortlist targets trials",
    "climb ladder rerun rungs runs session state",
    "export.* report.*",
    "__main__ cli.*",
]
"""From the ground up; a module imports from below, or from its own floor without going round in circles."""

SQL = {"database", "migrations", "reading", "records", "rows", "schema", "upkeep"}
HEAVY = (
    "numpy",
    "optuna",
    "sqlite_utils",
    "sqlite3",
    "cuda",
    "jinja2",
    "rich",
    "matplotlib",
    "tuner.session",
    "tuner.database",
)


def module_name(path: Path) -> str:
    name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    return name.removesuffix(".__init__")


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def floor_of(name: str) -> int:
    for number, text in enumerate(FLOORS):
        for pattern in text.split():
            if name == pattern or (pattern.endswith(".*") and f"{name}.".startswith(pattern[:-1])):
                return number
    pytest.fail(
        f"tuner.{name} is on no floor: give it one in tests/test_layers.py and in docs/architecture.md"
    )


def imports(path: Path) -> Iterator[tuple[str, ast.AST]]:
    """Give the full names of what a module imports, those for type checking left out."""
    pending: list[ast.AST] = [ast.parse(path.read_text())]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += node.orelse
        elif isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: write the full name of what is imported"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                known = full.removeprefix("tuner.") in MODULES or full.startswith("cuda.")
                yield full if known else str(node.module), node
        else:
            pending += ast.iter_child_nodes(node)


def own_imports(name: str) -> set[str]:
    found = {
        full.removeprefix("tuner.") for full, _ in imports(MODULES[name]) if full.split(".")[0] == "tuner"
    }
    return {"__init__" if other == "tuner" else other for other in found}


def test_every_module_has_a_floor() -> None:
    for name in MODULES:
        floor_of(name or "__init__")


@pytest.mark.parametrize("name", [name for name in MODULES if name])
def test_imports_go_down(name: str) -> None:
    for other in own_imports(name):
        assert floor_of(other) <= floor_of(name), f"tuner.{name} imports tuner.{other}, which is above it"


def test_no_circles() -> None:
    """Also within a floor nobody imports, by way of others, itself."""
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path, name])
        if name not in done:
            for other in own_imports(name) if name in MODULES else ():
                visit(other, (*path, name))
            done.add(name)

    for name in MODULES:
        visit(name, ())


def test_floors_name_nothing_that_is_gone() -> None:
    for pattern in " ".join(FLOORS).split():
        stem = pattern.removesuffix(".*")
        assert stem in MODULES or (PACKAGE / f"{stem}.py").is_file(), pattern


# -- powers that belong to a few


def users_of(*packages: str) -> set[str]:
    return {
        name
        for name, path in MODULES.items()
        for full, _ in imports(path)
        if any(full == package or full.startswith(f"{package}.") for package in packages)
    }


def test_only_gpu_talks_to_the_driver() -> None:
    assert {name for name in users_of("cuda.bindings.driver") if not name.startswith("gpu.")} == set()
    assert {
        name for name in users_of("cuda.bindings.nvml", "cuda.core") if not name.startswith("gpu.")
    } == set()


def test_only_the_measuring_process_imports_gpu() -> None:
    assert {name for name in users_of("tuner.gpu") if not name.startswith("gpu")} == set()


def test_only_the_compiler_talks_to_nvrtc() -> None:
    assert users_of("cuda.bindings.nvrtc") == {"compiler"}
    inner = {"code_worker", "compile_worker", "cubin_cache"}
    gpu = {name for name in MODULES if name.startswith("gpu.")}
    lazily = {"devices.choose", "report.health"}  # the version, for the record and for `tune doctor`
    assert users_of("tuner.compiler") <= inner | gpu | lazily


def test_only_the_database_speaks_sql() -> None:
    assert users_of("sqlite_utils") <= SQL
    assert users_of("sqlite3") <= SQL | {"report.health"}
    health = MODULES["report.health"].read_text()
    assert "sqlite3.connect" not in health
    for name, path in MODULES.items():
        if name in SQL:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words = node.value.split()
                starts = words[:1] in (["SELECT"], ["INSERT"], ["UPDATE"], ["DELETE"], ["PRAGMA"], ["CREATE"])
                assert not (starts and len(words) > 2), f"tuner.{name} line {node.lineno} speaks SQL"


def test_only_cli_and_report_print() -> None:
    for name, path in MODULES.items():
        if name.split(".")[0] in ("cli", "report", "__main__"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("print", "click.echo", "sys.stdout.write"), (
                    f"tuner.{name} line {node.lineno} prints"
                )


def test_nothing_is_evaluated_or_unpickled() -> None:
    assert users_of("pickle", "marshal", "shelve", "multiprocessing") == set()
    for name, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec", "compile"), f"tuner.{name} line {node.lineno}"


# -- the command line answers at once

LOOK = """
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


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--version"], ["run", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOK.format(arguments=arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = done.stderr.split()
    heavy = [
        name for name in HEAVY if any(module == name or module.startswith(f"{name}.") for module in loaded)
    ]
    assert not heavy


def test_help_is_quick() -> None:
    """Counted as processor time, which other tests beside this one do not change much."""
    times = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "tuner", "--help"], cwd=ROOT, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(times) < 0.3, times
