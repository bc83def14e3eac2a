"""References that are functions of the calling program, run for another process."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.api.conftest import Tune
from tuner.api.caller import Answering, caller_file, code_digest, portable

pytestmark = pytest.mark.usefixtures("forked_children")

ASK = """
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from caller import reference
try:
    answer = reference(np.arange(3.0), 2)
    print({name: np.asarray(value).tolist() for name, value in answer.items()})
except RuntimeError as error:
    print(error)
"""


def answer(folder: Path, function: Callable[..., Any], outputs: list[str]) -> str:
    (folder / "caller.py").write_text(caller_file(function, {"x": "x", "n": "n"}))
    with Answering(function, folder, outputs, "numpy", {}):
        asked = subprocess.run(
            [sys.executable, "-c", ASK, str(folder)], capture_output=True, text=True, check=True
        )
    return asked.stdout.strip()


def test_a_closure_answers_another_process(tmp_path: Path) -> None:
    shift = np.array([10.0])
    assert answer(tmp_path, lambda x, n: x * n + shift, ["y"]) == "{'y': [10.0, 12.0, 14.0]}"
    assert (
        answer(tmp_path, lambda x, n: (x, -x), ["y", "z"])
        == "{'y': [0.0, 1.0, 2.0], 'z': [-0.0, -1.0, -2.0]}"
    )
    assert answer(tmp_path, lambda x, n: (x.sum(), 2**60), ["y", "z"]) == f"{{'y': 3.0, 'z': {2**60}}}"


def test_results_may_be_written_in_place(tmp_path: Path) -> None:
    def double(x: Any, n: int) -> None:
        x *= n

    assert answer(tmp_path, double, ["x"]) == "{'x': [0.0, 2.0, 4.0]}"


def test_what_fails_names_its_line(tmp_path: Path) -> None:
    def fails(x: Any, n: int) -> Any:
        return x[n + 7]

    said = answer(tmp_path, fails, ["y"])
    assert said.startswith(f"test_caller.py:{fails.__code__.co_firstlineno + 1}: IndexError")
    assert "'NoneType'" in answer(tmp_path, lambda x, n: None + x, ["y"])
    assert "a dict of y, z" in answer(tmp_path, lambda x, n: x, ["y", "z"])


def test_a_program_that_has_ended(tmp_path: Path) -> None:
    (tmp_path / "caller.py").write_text(caller_file(lambda x, n: x, {"x": "x", "n": "n"}))
    asked = subprocess.run(
        [sys.executable, "-c", ASK, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert "has ended" in asked.stdout


@pytest.mark.parametrize("other", [lambda x: x + 2, lambda x: x - 1])
def test_a_digest_names_code_and_what_it_uses(other: Callable[..., Any]) -> None:
    def adding(value: Any) -> Callable[..., Any]:
        return lambda x: x + value

    assert code_digest(adding(1)) == code_digest(adding(1)) != code_digest(adding(2))
    assert code_digest(adding(np.zeros(2))) == code_digest(adding(np.zeros(2)))
    assert code_digest(adding(object())) != code_digest(adding(object()))  # what it holds cannot be compared
    assert code_digest(other) != code_digest(lambda x: x + 1)


def plain(x: Any, n: int) -> Any:
    if n > 2:
        return np.zeros_like(x)
    return n * x


def in_place(x: Any) -> None:
    x[:] = 0.0


def test_a_function_that_needs_nothing_is_written_into_a_file(tune: Tune, tmp_path: Path) -> None:
    """One that may need its program stays there: a closure, what writes in place, what has helpers."""
    for function in (plain, lambda x, n: np.zeros_like(x) if n > 2 else n * x):
        text, name = portable(function)
        names: dict[str, Any] = {}
        exec(text, names)
        assert names[name](np.ones(2), 2).tolist() == [2.0, 2.0]
        assert names[name](np.ones(2), 3).tolist() == [0.0, 0.0]
    assert "return (x, -x)" in portable(lambda x: (x, -x))[0]  # of two outputs
    shift = 1.0

    def closure(x: Any) -> Any:
        return x + shift

    def helped(x: Any) -> Any:
        return plain(x, 2)

    def returning(x: Any) -> Any:
        x[1:] += 1.0
        return x

    both = (lambda x: x), (lambda x: x + 1)
    others = (*both, lambda x: plain(x, 2), lambda x: [plain(y, 2) for y in x], lambda x: np.add(x, 1, out=x))
    method = type("Scale", (), {"by": lambda self, x: x})().by
    for function in (closure, helped, in_place, returning, np.add, method, *others):
        assert portable(function) == ("", "")
    for text in ("def f(x):\n    return 2 * x\n", "f = lambda x: 2 * x\n"):
        (file := tmp_path / "edited.py").write_text(text)
        kept = runpy.run_path(str(file))["f"]
        os.utime(file, (0, 0))
        assert portable(kept)[1] in ("f", "reference")
        file.write_text(text.replace("2", "3"))
        assert portable(kept) == ("", "")  # what is in the file now is another function
    saved = tune(reference=plain, trials=1).save(tmp_path / "saved" / "own.toml")
    assert (saved.parent / "reference.py").read_text() == portable(plain)[0]
    assert 'python = "reference.py:plain"' in saved.read_text()
    assert not (saved.parent / "caller.py").exists()
    with pytest.warns(
        UserWarning, match=r"only while it runs; write it to a file, .*'reference\.py:FUNCTION'"
    ):
        tune(reference=closure, trials=1).save(tmp_path / "asking" / "own.toml")
