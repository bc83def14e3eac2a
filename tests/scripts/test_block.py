"""scripts/block.py on the CPU: two tiny layers by operators whose launches torch computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from scripts import block  # noqa: E402
from scripts.decoder_model import TINY, TINY_CASES  # noqa: E402
from tests import torch_on_cpu as cpu  # noqa: E402
from tuner.kernel.load import load_kernel  # noqa: E402


def loaded(kernel: str) -> Any:
    options = dict(option.split("=") for option in block.OPTIONS[kernel])
    return cpu.on_cpu(kernel, getattr(cpu, kernel), [{"input": "bfloat16", **options}])


def test_tiny_blocks_go_all_the_way_and_are_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu.pose_as_gpu(monkeypatch)
    given = [
        "--work",
        str(tmp_path / "w"),
        "--out",
        str(tmp_path),
        "--device",
        "cpu",
        "--tiny",
        "--rounds",
        "2",
    ]
    assert block.main(given, loaded, lambda function: function) == 0
    data = json.loads((tmp_path / "block.json").read_text())
    assert list(data["cases"]) == [case.name for case in TINY_CASES[::2]] and not data["failed"]
    for case in data["cases"].values():
        assert case["errors"]["tuned"] <= 1.2 * case["errors"]["torch"] < 0.1
        assert set(case["eager"]["us"]) == {"torch", "compiled", "tuned"}
    assert block.main(given, lambda _: None) == 0
    assert json.loads((tmp_path / "block.json").read_text()) == data


@pytest.mark.parametrize("kernel", block.OPTIONS)
def test_what_is_tuned_are_problems_of_the_kernel(kernel: str) -> None:
    texts = list(block.problems(kernel, TINY, TINY_CASES))
    assert texts
    for text in texts:
        sizes = {name: int(size) for name, size in (part.split("=") for part in text.split(","))}
        problem = load_kernel(kernel).problem(
            sizes, {"": "bfloat16"}, dict(o.split("=") for o in block.OPTIONS[kernel])
        )
        assert problem.sizes == sizes
