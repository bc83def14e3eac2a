"""scripts/decoder.py on the CPU: a tiny decoder, with functions in the place of tuned operations."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from scripts import decoder, decoder_model  # noqa: E402
from tuner.program import products  # noqa: E402

pytestmark = pytest.mark.usefixtures("forked_children")


class Gemm:
    """Multiplies in float32, and counts."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, a: Any, b: Any, out: Any = None) -> Any:
        self.calls += 1
        made = torch.from_numpy(a.float().numpy() @ b.float().numpy()).to(a.dtype)
        return made if out is None else out.copy_(made)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(
        products, "times_in_turn", lambda *_: [[1000.0] * 15, [990.0] * 15]
    )  # a machine's own times would decide by chance
    yield tmp_path / "work"
    torch.set_num_threads(threads)


def run(work: Path, gemm: Gemm, *words: str) -> dict[str, Any]:
    return written(work, lambda _: gemm, *words)


def written(work: Path, load: Callable[[str], Any], *words: str, name: str = "decoder") -> dict[str, Any]:
    """Return what a call of the script writes."""
    out = work.parent / "out"
    given = ["--work", str(work), "--out", str(out), "--device", "cpu", "--tiny", "--rounds", "8", *words]
    decoder.main(given, load, lambda function: function)
    found: dict[str, Any] = json.loads((out / f"{name}.json").read_text())
    return found


def test_a_tiny_decoder_goes_all_the_way(work: Path) -> None:
    gemm = Gemm()
    data = run(work, gemm)
    assert gemm.calls
    assert list(data["cases"]) == [case.name for case in decoder_model.TINY_CASES]
    for case in data["cases"].values():
        assert case["shares"] == {"replaced": pytest.approx(1.0)}
        assert case["output_errors"]["tuned"] <= 1.2 * case["output_errors"]["torch"] < 0.1
        calls = sum(product["calls"] for product in case["products"])
        assert calls == 2 * 7 + 1
        # Each call is told to gain 10 ns.
        assert case["torch_us"] - case["predicted_us"] == pytest.approx(calls * 0.01, rel=1e-3)
    header, *problems = (work / "problems.csv").read_text().splitlines()
    assert header == "m,n,k,layout,dtype,calls"
    assert len(problems) > 5 and all(",nt,bfloat16," in line for line in problems)


def test_what_is_done_is_not_done_again(work: Path) -> None:
    first = run(work, Gemm())
    again = Gemm()
    assert run(work, again)["cases"] == first["cases"]
    assert not again.calls
    assert decoder.main(["--work", str(work), "--device", "cpu", "--layers", "3"], lambda _: again) == 2
