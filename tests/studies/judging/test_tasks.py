"""The tasks of ``tests/gpu/test_tasks.py`` on the CPU, smaller: of their candidates two are right, one is wrong."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.gpu.test_tasks import ASKED, HERE, TASKS, candidate_of
from tuner.children.module_worker import ports
from tuner.kernel import modules
from tuner.kernel.candidates import candidate_kernel
from tuner.kernel.contents import further_contents
from tuner.kernel.functions import load_function
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import tensors_of
from tuner.kernel.python_reference import Asked, expected_on_host
from tuner.kernel.reference import Expected, norm_allowance, settle_reference, tolerance
from tuner.kernel.roofline import ARCHITECTURES
from tuner.studies.judging import modules as writing

torch = pytest.importorskip("torch")


def small(folder: Path) -> None:
    for path in HERE.glob("*.py"):
        text = re.sub(r"^(.* = ).*# small: (.*)$", r"\1\2", path.read_text(), flags=re.MULTILINE)
        (folder / path.name).write_text(text)


def is_right(found: Any, expected: Expected) -> bool:
    """Return whether an output is within what the referee allows of a module's."""
    value, magnitude = expected.value, expected.magnitude
    found = found.numpy().reshape(value.shape)
    if value.dtype.kind != "f":
        return np.array_equal(found, value)
    bound = tolerance(modules.REDUCTION, "float32", "float32", modules.TOLERANCE)
    error = np.abs(found - value)
    scale = np.sqrt(np.sum(value**2 + magnitude**2 / bound.reduction))
    norm = np.sqrt(np.sum(error**2)) <= bound.norm_coefficient * norm_allowance(value.size) * scale
    return bool(
        norm and (error <= bound.coefficient * magnitude + bound.unit * np.abs(value) + bound.tiny).all()
    )


@pytest.mark.parametrize("task", TASKS)
def test_candidates_are_what_they_are_called(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "ask_once", lambda module, channel, path, limit_s: ports(path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "reference_module", raising=False)  # another task's, in this process
    small(tmp_path)
    (tmp_path / "task").mkdir()
    kernel = load_kernel(str(writing.write_task(tmp_path / f"{task}.py", tmp_path / "task")))
    file = tmp_path / "task" / modules.FILE
    tensors = tensors_of(kernel, kernel.problem(), ARCHITECTURES[90])
    outputs = [tensor.name for tensor in tensors if tensor.role == "output"]
    reference = settle_reference(kernel, kernel.problem(), ARCHITECTURES[90])
    inputs = [tensor.name for tensor in tensors if tensor.role == "input"]
    wrong = dict.fromkeys(ASKED, 0)
    functions = {}
    for kind in ASKED:
        call = candidate_kernel(kernel, candidate_of(task, kind)).variants["candidate"].call
        assert call is not None
        functions[kind] = (
            modules.build(call.name, call.file, file)
            if call.name == modules.MODEL_NEW
            else load_function(call.name, call.file)
        )

    def compute(numbers: Any) -> bool:
        arrays = [numbers[name] for name in inputs]
        expected = list(
            expected_on_host(reference, tensors, numbers, {}, outputs, Asked(further=True)).values()
        )
        for kind, function in functions.items():
            with torch.no_grad():
                found = function(*(torch.from_numpy(array.astype("float32")) for array in arrays))
            wrong[kind] += not all(is_right(found, one) for one in expected)
        return True

    tried = [*further_contents(tensors, compute, seed=1, later=True)]
    assert {one.why for one in tried} == {""}
    assert wrong["fast"] == wrong["slow"] == 0 < wrong["wrong"], wrong
