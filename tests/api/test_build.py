"""A kernel that a function of a file builds: its search, its result, its file, and what is said where it is no such."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tuner
from tests.api.conftest import Tune
from tests.commands import said_by
from tuner.api.build import build_of
from tuner.core.errors import UsageError
from tuner.kernel.functions import load_function
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import load_kernel

TEXT = """\
import helped


def build(block, warps=1):
    if block == 96:
        raise ValueError("no layout has 96")

    def scaled(x, y, factor=2.0):
        y[:] = helped.times(x, factor) + 0 * block
        return y

    return scaled
"""
X = np.linspace(1.0, 2.0, 600, dtype=np.float32).reshape(20, 30)
CALL: dict[str, Any] = {
    "args": {"x": X, "y": np.zeros_like(X)},
    "params": {"block": [32, 64, 96, 128], "warps": [1, 2]},
    "outputs": ["y"],
    "reference": "2 * x",
    "trials": 8,
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "helped.py").write_text("def times(x, factor): return x * factor\n")
    (folder / "scaled.py").write_text(TEXT)
    return folder / "scaled.py"


def test_it_is_tuned_saved_and_called(
    tune: Tune,
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    build = load_function("build", file)
    built = []

    @functools.wraps(build)
    def counted(**params: Any) -> Callable[..., Any]:
        built.append(params)
        return build(**params)  # type: ignore[no-any-return]

    result = tune(build, **CALL)
    assert result.confirmed and result.kernel.name == "scaled"
    assert {trial["block"] for trial in result.trials} == {32, 64, 96, 128}
    assert (
        len({trial["time_us"] for trial in result.trials if trial["time_us"]}) == 6
    )  # each measured by itself
    failed = [trial for trial in result.trials if trial["status"] != "ok"]
    assert [(trial["block"], trial["status"]) for trial in failed] == [(96, "compile_error")] * 2
    assert "scaled.py:6: ValueError: no layout has 96" in failed[0]["error"]
    y = np.zeros_like(X)
    object.__setattr__(result, "_build", counted)
    result(X, y)
    assert np.array_equal(result(X, y=y), 2 * X) and built == [result.best]
    saved = result.save(tmp_path / "saved" / "scaled.toml")
    assert {path.name for path in saved.parent.iterdir()} >= {"scaled.py", "helped.py", "x.npy"}
    assert KernelIdentity(load_kernel(str(saved))).text == result._state.run.kernel_digest
    assert "main  (8 valid of 8)" in said_by(capsys, "show", str(saved)).out


def test_its_default_may_say_what_is_right(tune: Tune, file: Path) -> None:
    result = tune(
        f"{file}:build",
        **{**CALL, "args": [X, X, 2.0], "sizes": {"rows": 20, "columns": 30}, "reference": "default"},
    )
    assert result.confirmed and result.checked_against == "default"
    assert "no other size" not in result.verdict


PROGRAM = """\
from __future__ import annotations
import numpy as np
import tuner
FACTOR = 2.0
x = np.ones(64, np.float32)

@decorated(
    FACTOR)
def build(block):
    def scaled(x, y):
        result = y[:] = FACTOR * other(x)
    return scaled

def other(x): return x + PARTS["none"]
PARTS = {}
PARTS["none"] = 0
PARTS.clear()
result = tuner.tune(build, [x, x], {"block": [1, 2]}, outputs="y", reference="2 * x")
from decorating import decorated
"""


def test_a_program_that_tunes_its_own_function_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the function needs is kept, at its lines."""
    (tmp_path / "own.py").write_text(PROGRAM)
    (tmp_path / "decorating.py").write_text("def decorated(factor): return lambda build: build\n")
    assert build_of(f"{tmp_path}/own.py:build").files["own.py"].decode() == PROGRAM
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "own.py"), raising=False)
    found = build_of(f"{tmp_path}/own.py:build")
    assert found.files["own.py"].decode() == "".join(
        line if number in (1, 4, 7, 8, 9, 10, 11, 12, 14, 15, 16, 19) else "\n"
        for number, line in enumerate(PROGRAM.splitlines(keepends=True), 1)
    )
    assert "tuner" not in found.files["own.py"].decode() and found.files.keys() == {"own.py", "decorating.py"}
    assert found.takes == {"block": False} and found.asks == {"x": False, "y": False}


def test_a_file_that_tunes_itself_does_not_do_so_where_it_is_imported(
    tune: Tune, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", SimpleNamespace(name="tuner.gpu.worker"))
    with pytest.raises(
        UsageError, match="where its function's file is imported; put the call behind `if __name"
    ):
        tune(f"{file}:build", **CALL)


def made(block: int) -> Callable[..., Any]:
    return lambda: block


@pytest.mark.parametrize(
    ("given", "changes", "words"),
    [
        (lambda block: None, {}, ["<lambda> is no function of a file", "or 'FILE.py:FUNCTION'"]),
        (functools.partial(made, 1), {}, ["partial is a partial, and no function that gets params"]),
        (
            FunctionType(made.__code__.replace(co_filename="<cell 3>"), {}),
            {},
            ["made has no file", "into one"],
        ),
        ("nowhere.py:build", {}, ["there is no file nowhere.py"]),
        ("scaled.py", {}, ["scaled.py is given without a function", "choose from: build"]),
        (
            "scaled.py:build",
            {"params": {"blocks": [1]}},
            ["params has 'blocks', which build does not take", "block?"],
        ),
        ("scaled.py:build", {"params": {"warps": [1]}}, ["params has no block, which build takes"]),
        ("scaled.py:build", {"args": [X, X]}, ["takes 3 arguments, args has 2", "pass [x, y, factor]"]),
        ("scaled.py:build", {"args": {"x": X}, "outputs": ["x"]}, ["takes y, and args has none"]),
        ("scaled.py:build", {"args": {"x": X, "y": X, "np": X}}, ["np has a meaning of its own"]),
        ("scaled.py:build", {"outputs": ()}, ["outputs is missing", "with an array in args: ['y']"]),
        ("scaled.py:build", {"grid": 1}, ["has no argument 'grid'"]),
        ("wrong.py:build", {}, ["wrong.py:1: invalid syntax"]),
        ("hidden.py:build", {"args": [X, X]}, ["hidden.py does not show", "args={'x': x, 'y': y}"]),
        ("dotted.py:build", {}, ["dotted.py:1 imports by a dot"]),
    ],
)
def test_what_is_no_such_function(
    file: Path, monkeypatch: pytest.MonkeyPatch, given: Any, changes: dict[str, Any], words: list[str]
) -> None:
    monkeypatch.chdir(file.parent)
    Path("wrong.py").write_text("def build(:")
    Path("hidden.py").write_text(
        "import functools\ndef build(block, warps): return functools.partial(print, block)\n"
    )
    Path("dotted.py").write_text("from . import helped\ndef build(block, warps): return helped.times\n")
    call = {name: value for name, value in {**CALL, **changes}.items() if name != "trials"}
    with pytest.raises(UsageError) as raised:
        tuner.Kernel(given, **call)
    assert all(word in str(raised.value) for word in words), raised.value
