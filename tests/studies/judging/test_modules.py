"""torch modules as tasks and candidates, as KernelBench has them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.commands import assert_refused
from tests.studies.judging.judged import Judge, cuda, task, verdict_of
from tuner.children import module_worker
from tuner.children.module_worker import Port, Ports, ports
from tuner.kernel import modules
from tuner.kernel.load import load_kernel
from tuner.studies.judging import modules as writing

torch = pytest.importorskip("torch")

MODEL = """\
import torch


class Model(torch.nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.first = torch.nn.Linear(inner, outer)
        self.second = torch.nn.Linear(inner, outer, bias=False)

    def forward(self, x, labels):
        return torch.relu(self.first(x)), self.second(x).sum(1) + labels


def get_inputs():
    return [{x}, torch.randint(0, 10, (6,))]


def get_init_inputs():
    return [8, 4]
"""
NEW = """\
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.second = torch.nn.Linear(inner, outer, bias=False)
        self.first = torch.nn.Linear(inner, outer)

    def forward(self, x, labels):
        return torch.clamp(self.first(x), min=0), self.second(x).sum(1) + labels
"""


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at a module without another process, where torch would be imported again."""
    monkeypatch.setattr(writing, "ask_once", lambda module, channel, path, limit_s: ports(path))


def written(folder: Path, x: str = "torch.rand(6, 8)") -> Path:
    path = folder / "model.py"
    path.write_text(MODEL.replace("{x}", x))
    return path


@pytest.mark.parametrize(
    ("x", "init"),
    [
        ("torch.rand(6, 8)", "uniform"),
        ("torch.randn(60, 80)", "normal"),
        ("torch.rand(60, 80) * 6 - 3", (-3.0, 3.0)),
        ("torch.zeros(6, 8)", "zeros"),
        ("torch.randn(60, 80) * 3 + 1", ""),
    ],
)
def test_how_inputs_were_drawn_is_seen(tmp_path: Path, x: str, init: object) -> None:
    torch.manual_seed(0)
    file = tmp_path / f"{len(x)}.py"
    file.write_text(f"import torch\ndef get_inputs(): return [{x}]")
    found = module_worker._init(modules.inputs_of(file)[0])
    assert found == (pytest.approx(init, abs=0.01) if isinstance(init, tuple) else init)


def test_a_module_becomes_a_kernels_file(tmp_path: Path, in_process: None) -> None:
    folder = tmp_path / "task"
    folder.mkdir()
    kernel = load_kernel(str(writing.write_task(written(tmp_path, "torch.randn(6, 8) ** 3"), folder)))
    shapes = {name: [side.text for side in one.shape] for name, one in kernel.tensors.items()}
    assert shapes == {"x0": ["6", "8"], "x1": ["6"], "y0": ["6", "4"], "y1": ["6"]}
    assert [one.dtype for one in kernel.tensors.values()] == ["float32", "int64", "float32", "float32"]
    assert [one.role for one in kernel.tensors.values()] == ["input", "input", "output", "output"]
    assert kernel.reference.exists and not kernel.judge.any_size and kernel.variants["torch"].call


def test_what_is_right_is_computed_in_float64_with_the_weights(tmp_path: Path) -> None:
    file, new = written(tmp_path), tmp_path / "new.py"
    new.write_text(NEW)
    x, labels = np.random.default_rng(0).standard_normal((6, 8)), np.arange(6)
    wide = [value for value, _ in modules.expected(file, x, labels).values()]
    assert all(one.dtype == np.float64 for one in wide)
    model = modules.build("ModelNew", new, file)  # which draws its weights in another order
    narrow = model(torch.from_numpy(x).float(), torch.from_numpy(labels))
    for one, other in zip(wide, narrow, strict=True):
        np.testing.assert_allclose(one, other.detach().numpy(), atol=1e-5)


def test_float32_is_within_the_magnitudes_and_a_lower_precision_is_not(tmp_path: Path) -> None:
    """Also where a layer cancels what the one before has rounded, which inputs do not show."""
    file = tmp_path / "gelu.py"
    file.write_text(
        "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        y = torch.nn.functional.gelu(x)\n        return y, y - y.mean(0)\n"
        "def get_init_inputs(): return []\n"
    )
    x = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32) * 2
    found = modules.expected(file, x.astype(np.float64))
    model = modules.build("Model", file, file)
    narrow, half = model(torch.from_numpy(x)), model(torch.from_numpy(x).half())
    for number, (value, magnitude) in enumerate(found.values()):
        allowed = 300 * modules.UNIT * magnitude
        assert (np.abs(narrow[number].numpy() - value) < 0.05 * allowed).all()
        assert (np.abs(half[number].float().numpy() - value) > allowed).any()


def test_a_call_of_a_module_returns_what_can_be_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.nn.Module, "cuda", lambda self: self)  # there is no GPU
    file = written(tmp_path)
    file.write_text(file.read_text().replace("return torch.relu(self.first(x)),", "return self.first(x).T,"))
    turned, sums = modules.on_gpu("Model", file, file)(torch.ones(6, 8), torch.ones(6))
    assert turned.shape == (4, 6) and turned.is_contiguous() and not turned.requires_grad
    assert sums.shape == (6,)


def test_a_module_is_judged_beside_its_reference(judge: Judge, tmp_path: Path, in_process: None) -> None:
    written(tmp_path)
    (tmp_path / "new.py").write_text(NEW)
    said = judge("model.py", "new.py", "--json")
    verdict = verdict_of(said)
    assert (said.code, verdict["judged"], verdict["candidate"]["kind"]) == (0, "right", "py"), verdict
    assert verdict["problems"][0]["sizes"] == []
    (versus,) = verdict["problems"][0]["modes"][0]["versus"]
    assert versus["baseline"] == "default"
    assert verdict["task"]["file"] == "model.py"
    assert verdict_of(judge("model.py", "new.py", "--json"))["task"] == verdict["task"]


def test_modules_without_a_task_of_their_kind_and_tasks_that_are_none(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "new.py").write_text(NEW)
    verdict = verdict_of(judge(task(tmp_path / "task"), "new.py", "--json"))
    assert verdict["reason"] == "invalid_config" and "torch module" in verdict["message"]
    (tmp_path / "model.py").write_text("x = 1")
    monkeypatch.setattr(writing, "ask_once", lambda *_: Ports(error="no Model"))
    assert_refused(judge("model.py", cuda(tmp_path)), 2, "model.py: no Model; write Model, get_inputs")
    monkeypatch.setattr(writing, "ask_once", lambda *_: None)
    assert_refused(judge("model.py", cuda(tmp_path)), 2, "has not returned in 120 s")
    monkeypatch.setattr(
        writing, "ask_once", lambda *_: Ports((Port((4,), "float32"),), (Port((4,), "float32"),))
    )
    source = cuda(tmp_path).read_text().partition("\n")[2]
    (tmp_path / "mine.cu").write_text(f"// tune: mine__ok<<<1, 4>>>(x0, y0)\n{source}")
    assert json.loads(judge("model.py", "mine.cu", "--json").out)["candidate"]["kind"] == "cu"
