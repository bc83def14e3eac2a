"""scripts/decoder.py on the CPU: a tiny decoder, with a function in the place of the tuned operation."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
import decoder  # noqa: E402
import decoder_model  # noqa: E402

from tests.winners import H200, store_winners  # noqa: E402
from tuner.kernel.load import load_kernel  # noqa: E402
from tuner.program import products  # noqa: E402
from tuner.space.space import SearchSpace  # noqa: E402

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
    out = work.parent / "out"
    given = ["--work", str(work), "--out", str(out), "--device", "cpu", "--tiny", "--rounds", "8", *words]
    decoder.main(given, gemm)
    return json.loads((out / "decoder.json").read_text())


@pytest.mark.parametrize("fused", [(), ("--fused",)])
def test_a_tiny_decoder_goes_all_the_way(work: Path, fused: tuple[str, ...]) -> None:
    gemm = Gemm()
    data = run(work, gemm, *fused)
    assert gemm.calls
    assert list(data["cases"]) == [case.name for case in decoder_model.TINY_CASES]
    for case in data["cases"].values():
        assert case["shares"] == {"replaced": pytest.approx(1.0)}
        assert case["output_errors"]["tuned"] <= 1.2 * case["output_errors"]["torch"] < 0.1
        calls = sum(product["calls"] for product in case["products"])
        assert calls == 2 * (4 if fused else 7) + 1
        # Each call is told to gain 10 ns.
        assert case["torch_us"] - case["predicted_us"] == pytest.approx(calls * 0.01, rel=1e-3)
    assert data["asked"]["passes"]["holds"]
    assert data["asked"]["replaced or not faster, of the operations"]["holds"]
    header, *problems = (work / "problems.csv").read_text().splitlines()
    assert header == "m,n,k,layout,dtype,calls"
    assert len(problems) > 5 and all(",nt,bfloat16," in line for line in problems)


def test_what_is_done_is_not_done_again(work: Path) -> None:
    first = run(work, Gemm())
    again = Gemm()
    assert run(work, again)["cases"] == first["cases"]
    assert not again.calls
    assert decoder.main(["--work", str(work), "--device", "cpu", "--tiny", "--fused"], again) == 2


def test_no_step_is_begun_without_time(work: Path) -> None:
    assert run(work, Gemm(), "--seconds", "1")["cases"] == {}
    assert (work / "problems.csv").is_file()


def test_what_has_no_winner_is_tuned(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each problem once, the heaviest first, until the time is over; nothing is measured before."""
    called: list[list[str]] = []

    def tune(command: list[str], **_: Any) -> Any:
        called.append((work / "next.csv").read_text().splitlines())
        return type("Done", (), {"returncode": 0})

    monkeypatch.setattr(decoder.subprocess, "run", tune)
    words = ["--work", str(work), "--device", "cpu", "--tiny", "--steps", "record,tune,measure"]
    assert decoder.main([*words, "--seconds", "30"]) == 1
    assert not called  # 30 s do not suffice for one
    _, heaviest, *problems = (work / "problems.csv").read_text().splitlines()
    m, n, k, layout, dtype, _ = heaviest.split(",")
    kernel = load_kernel("gemm")
    problem = kernel.problem({"m": int(m), "n": int(n), "k": int(k)}, {"input": dtype}, {"layout": layout})
    default = SearchSpace.from_kernel(kernel, problem, H200).default
    store_winners(work / "tuning.db", kernel, [(problem, default)])  # one is known already
    decoder.main([*words[:-2], "--steps", "tune"])
    assert [row for _, *rows in called for row in rows] == problems
    assert all(len(rows) <= 1 + decoder.AT_ONCE for rows in called)
