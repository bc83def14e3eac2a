"""Twelve torch modules as tasks, in the manner of KernelBench, and three candidates for each: the verdicts about them.

Prints a line for each candidate: ``as asked`` or ``NOT``, and the verdict. Without a GPU,
``tests/studies/judging/test_tasks.py`` says that the candidates are what their names say.
"""

from __future__ import annotations

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.gpu.test_command_line import tune

HERE = Path(__file__).parent / "tasks"
TASKS = sorted(path.stem for path in HERE.glob("*.py") if "class Model(" in path.read_text())
AT_ONCE = 5
"""``Model`` in float64 takes seconds of all cores."""
ASKED = {"fast": ("right", "faster"), "slow": ("right", "slower"), "wrong": ("wrong", None)}
"""For each candidate of a task what is judged of it, and its speed beside the module's."""


def candidate_of(task: str, kind: str) -> str:
    """Return a candidate as ``tune judge`` takes it: a module of a file of its own, or a function in the task's."""
    return f"{task}_{kind}.py" if (HERE / f"{task}_{kind}.py").is_file() else f"{task}.py:{kind}"


def judged(folder: Path, task: str, kind: str) -> str:
    """Judge one candidate; return what is wrong with the verdict, or nothing."""
    began = time.monotonic()
    try:
        words = (f"{task}.py", candidate_of(task, kind), "--json", "-q")
        verdict = json.loads(tune(folder, "judge", *words, status=None).stdout)
        found, message = (verdict["judged"], verdict["speed"]), verdict["message"]
        versus = [one for at in verdict["problems"] for mode in at["modes"] for one in mode["versus"]]
        message = message or ", ".join(f"{one['speedup']:.3f}x" for one in versus if one["speedup"])
        if found != ASKED[kind]:
            message += f" {[at['contents'] for at in verdict['problems']]}"
    except Exception as error:  # noqa: BLE001 - one line for each, whatever comes
        found, message = (type(error).__name__, None), str(error)[-300:]
    right = found == ASKED[kind]
    text = f"{task} {kind}: {found[0]}, {found[1] or 'no speed'}: {message[:300]}"
    print(f"{'as asked' if right else 'NOT     '} {text} {time.monotonic() - began:.1f} s", flush=True)
    return "" if right else text


@pytest.mark.timeout(0)  # minutes
def test_verdicts(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    shutil.copytree(HERE, tmp_path / "tasks")
    tune(tmp_path / "tasks", "judge", "gelu.py", "gelu.py:fast", "-q", status=None)  # calibrates
    with ThreadPoolExecutor(AT_ONCE) as pool:
        asked = [(task, kind) for task in TASKS for kind in ASKED]
        wrong = list(pool.map(lambda one: judged(tmp_path / "tasks", *one), asked))
    assert [one for one in wrong if one] == []
