"""scripts/decoder.py on the CPU: a tiny decoder, with a function in the place of the tuned operation."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
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
    out = work.parent / "out"
    given = ["--work", str(work), "--out", str(out), "--device", "cpu", "--tiny", "--rounds", "8", *words]
    decoder.main(given, gemm)
    return json.loads((out / "decoder.json").read_text())


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
    assert decoder.main(["--work", str(work), "--device", "cpu", "--layers", "3"], again) == 2


def test_no_step_is_begun_without_time(work: Path) -> None:
    assert run(work, Gemm(), "--seconds", "1")["cases"] == {}
    assert (work / "problems.csv").is_file()


class Tune:
    """A `tune` that may have to be told to stop."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.signals: list[int] = []

    def __call__(self, command: list[str], **_: Any) -> Tune:
        self.commands.append(command)
        Path(command[command.index("--db") + 1]).touch()
        return self

    def wait(self, timeout: float | None = None) -> int:
        if timeout is not None and not self.signals:
            raise subprocess.TimeoutExpired("tune", timeout)
        return 0

    def send_signal(self, number: int) -> None:
        self.signals.append(number)

    def kill(self) -> None:
        pass


def test_the_problems_are_tuned_in_one_list(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And once; one that was told to stop goes on."""
    tune, words = Tune(), ["--work", str(work), "--device", "cpu", "--tiny"]
    monkeypatch.setattr(decoder.subprocess, "Popen", tune)
    monkeypatch.setattr(decoder.Study, "_measured", lambda *_: pytest.fail("there is no GPU"))
    assert decoder.main([*words, "--seconds", "20"]) == 1 and not tune.commands  # 20 s do not suffice
    assert decoder.main([*words, "--seconds", "60"]) == 1 and tune.signals == [signal.SIGTERM]
    monkeypatch.setattr(decoder.Study, "_measure", lambda _: None)
    for _ in range(2):
        decoder.main(words)
    stopped, gone_on = tune.commands
    assert str(work / "problems.csv") in stopped and gone_on == [*stopped, "--resume"]


def test_a_pass_that_fails_costs_no_other(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, measured = decoder.Study._measured, list[str]()
    names = [case.name for case in decoder_model.TINY_CASES]

    def fails(self: Any, case: Any, operation: Any) -> Any:
        measured.append(case.name)
        if case.name == names[0] and len(measured) < 5:
            raise RuntimeError("an illegal address")
        return own(self, case, operation)

    monkeypatch.setattr(decoder.Study, "_measured", fails)
    assert list(run(work, Gemm())["cases"]) == []
    data = run(work, Gemm())  # by a new process: what has failed comes last
    assert list(data["cases"]) == names[1:] and measured == [names[0], *names[1:], names[0]]
    assert "illegal address" in data["failed"][names[0]]
    assert "FAILED: prefill-24" in (work.parent / "out" / "decoder.txt").read_text()
    data = run(work, Gemm())
    assert set(data["cases"]) == set(names) and not data["failed"]
