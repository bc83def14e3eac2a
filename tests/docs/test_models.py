"""The program of docs/models.md, run on the CPU with a function in the place of the tuned operation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tuner.program import products  # noqa: E402

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def test_the_program_runs_and_prints_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def gemm(a: Any, b: Any, out: Any = None) -> Any:
        made = torch.from_numpy(a.float().numpy() @ b.float().numpy()).to(a.dtype)
        return made if out is None else out.copy_(made)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(products, "load", lambda *_, **__: gemm)
    monkeypatch.setattr(products, "times_in_turn", lambda *_: [[2000.0] * 15, [1000.0] * 15])
    names: dict[str, Any] = {}
    recording, replacing = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (printed,) = re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(recording, names)
    if not torch.cuda.is_available():
        assert capsys.readouterr().out == printed
    assert Path("problems.csv").read_text().splitlines()[0] == "m,n,k,layout,dtype,calls"
    exec(replacing, names)
    assert "gemm m=512 n=4096 k=1024 bfloat16 layout=nt" in capsys.readouterr().out
    assert Path("decisions.json").is_file()
