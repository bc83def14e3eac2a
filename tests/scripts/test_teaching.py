"""scripts/teaching.py: some kernels are measured again beside what the evidence has of the others."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scripts import teaching
from scripts.teaching_cases import product_cases
from tuner.kernel.baselines import settle_baseline
from tuner.kernel.functions import arguments_for, load_function
from tuner.kernel.initial import settle
from tuner.kernel.load import load_kernel
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import Allowed, narrow
from tuner.studies.bench import choose_against


@pytest.mark.parametrize("kernel_name", ["linear", "scaled_mm", "bmm", "grouped"])
def test_an_h100_and_torch_can_do_each_product(kernel_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    monkeypatch.delitem(sys.modules, "baseline_models", raising=False)
    kernel, gpu = load_kernel(kernel_name), ARCHITECTURES[90]
    cases = [case for case in product_cases() if case.kernel == kernel_name]
    assert cases
    for case in cases:
        sizes = {name: int(size) for name, size in (word.split("=") for word in case.problems[0].split(","))}
        assert sizes.keys() == kernel.sizes.keys()
        problem = kernel.problem(sizes, {"": case.dtype}, dict(word.split("=", 1) for word in case.options))
        allowed = Allowed(kernel, problem, gpu, narrow(kernel, (), {}))
        initial = [entry.configuration for entry in settle(kernel, problem, gpu, allowed.contains)]
        assert any(one and one.variant.startswith("wgmma") for one in initial), problem
        tensors = dict.fromkeys([*kernel.present(problem), *kernel.sizes])
        for baseline in choose_against(kernel, case.baselines).baselines:
            if baseline.file:
                function = load_function.__wrapped__(baseline.text, baseline.file)
                arguments_for(function, tensors, baseline.text)
            else:
                assert settle_baseline(baseline, kernel, problem).text.startswith("torch.")


def test_a_baseline_that_fails_costs_a_product_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of each mode there are rows of what could be timed, with FLOP; a pass that reads the weights for few rows."""

    def one(name: str, time_ns: float, **more: Any) -> dict[str, Any]:
        compared = {"ratio": time_ns / 5e3, "ratio_low": 1.0, "ratio_high": 2.0, "verdict": "faster"}
        return (
            {"contestant": name, "time_ns": time_ns, "variant": "wgmma", "parameters": {}} | compared | more
        )

    def tune(*words: str) -> tuple[str, float]:
        if words[0] != "bench":
            return "", 0.0
        passes = sum("read_" in word for word in words)
        assert passes == (5 if "m=16,n=8192,k=8192" in words or "m=64,n=8192,k=8192" in words else 0)
        timed = [one("best", 5e3, tflops=400.0), *[one("read_pass.cu:read_ring<6>", 4e3)] * bool(passes)]
        if "scales=rows" not in words:
            timed.append(one("torch", 6e3))
        common = {"gpu": "G", "driver": "1", "noise_floor": 0.002, "contestants": timed}
        return json.dumps([{**common, "mode": mode} for mode in ("rotating", "warm")]), 0.0

    monkeypatch.setattr(teaching, "tune", tune)
    words = ["--products", "--kernels", "scaled_mm", "--out", str(tmp_path), "--work", str(tmp_path / "w")]
    monkeypatch.setattr(sys, "argv", ["teaching.py", *words])
    teaching.main()
    found = json.loads((tmp_path / "products.json").read_text())
    assert len(found) == 2 * (18 + 10)
    assert {row["rival"] for row in found if "scales=rows" in row["options"]} == {"read pass"}
    table, printed = (tmp_path / "products.txt").read_text(), capsys.readouterr().out
    assert "| ours, us | TFLOP/s |" in table and "| 5.00 | 400 | torch | 6.00 | 1.200 |" in table
    assert "| scaled_mm scales=blocks accumulation=promoted | torch | warm | 6 | 1.200 | 1.200 |" in table
    assert table in printed
    # What one GPU has measured joins what is there of another, and nothing is measured.
    others = [{**row, "kernel": "bmm"} for row in found[:1]]
    (tmp_path / "products.json").write_text(json.dumps(others))
    monkeypatch.setattr(sys, "argv", ["teaching.py", *words, "--seconds", "1e-9"])
    monkeypatch.setattr(teaching, "tune", None)
    teaching.main()
    joined = json.loads((tmp_path / "products.json").read_text())
    assert [row for row in joined if row not in others] == found and len(joined) == len(found) + 1
