"""The Python of the pages on the database and on the search runs as it stands there."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import optuna
import pytest

import tuner
from tests.faults import tune_fake
from tests.stored import filled, make_benchmark
from tuner.api import tune as api
from tuner.api.result import Result
from tuner.database.database import Database
from tuner.kernel.load import load_kernel
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def run_code_of(page: str, names: dict[str, Any]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        if "@triton" not in block:  # tests/gpu/test_python.py has it
            exec(block, names)


def test_database_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "results" / "tuning.db"
    filled(path)
    with Database.open(path) as database:
        database.record_benchmark([make_benchmark()])
        database.backup(tmp_path / "copy.db")
    run_code_of("database.md", {})
    printed = capsys.readouterr().out
    assert "'time_ns': 1000.0" in printed and "NVIDIA H200" in printed and "faster" in printed


def test_search_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kernel = load_kernel("vector_add")
    fixed = {"vector_width": ["4"], "items_per_thread": ["1", "2"], "arrangement": ["striped"]}
    fixed |= {"min_blocks": ["0"], "load_hint": ["none"], "store_hint": ["none"]}
    space = SearchSpace.from_kernel(kernel, kernel.problem(), ARCHITECTURES[90], ["vectorized"], fixed)
    tried: list[Any] = []

    def seconds_of(configuration: Any) -> float:
        tried.append(configuration)
        return 1.0

    run_code_of("searching.md", {"space": space, "time_ns": 1000.0, "seconds_of": seconds_of})
    assert len(set(tried)) == len(tried) == sum(map(len, space.variants)) > 3
    (study,) = optuna.get_all_study_summaries("sqlite:///study.db")
    assert study.n_trials == len(tried)


def test_python_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the fake device; what launches needs a GPU."""
    monkeypatch.setattr(api, "open_device", tune_fake.open_fake)
    monkeypatch.setattr(Result, "__call__", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    run_code_of("python.md", names)
    assert names["result"].confirmed
    written = {path.name for path in tmp_path.iterdir()}
    assert written >= {"stencil.toml", "stencil.hpp", "stencil_bundle", "described.toml"}
    assert names["results"].query(status="ok", limit=1)


def loads() -> list[tuple[str, ast.Call]]:
    """Return the pages' calls of ``tuner.load`` that name a kernel of the package."""
    blocks = [
        (page, block)
        for page in sorted(DOCS.rglob("*.md"))
        for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    ]
    return [
        (str(page.relative_to(DOCS)), node)
        for page, block in blocks
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "tuner.load"
        if (ROOT / f"search_spaces/{ast.unparse(node.args[0])[1:-1]}.toml").is_file()
    ]


def test_what_pages_load_can_be_asked_for() -> None:
    assert {"kernels/rope.md", "kernels/scaled_mm.md"} <= {page for page, _ in loads()}
    for page, call in loads():
        named = {word.arg: word.value for word in call.keywords if word.arg}
        inspect.signature(tuner.load).bind(*call.args, **named)
        assert named.keys() & {"db", "bundle", "policy"}, page
        options = ast.literal_eval(named["options"]) if "options" in named else {}
        load_kernel(ast.literal_eval(call.args[0])).problem(options=options)
