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
from tests.stored_winners import H200, store_winners  # noqa: E402
from tuner.kernel.load import load_kernel  # noqa: E402
from tuner.kernel.space import SearchSpace  # noqa: E402
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
    assert decoder.main(["--work", str(work), "--device", "cpu", "--layers", "3"], again) == 2


def test_no_step_is_begun_without_time(work: Path) -> None:
    assert run(work, Gemm(), "--seconds", "1")["cases"] == {}
    assert (work / "problems.csv").is_file()


class Tune:
    """A `tune` that finds winners of some of its problems, and may have to be told to stop."""

    def __init__(self, work: Path, finds: int, *, ends: bool = True) -> None:
        self.work, self.finds, self.ends = work, finds, ends
        self.lists: list[list[str]] = []
        self.signals: list[int] = []
        self.words: list[str] = []

    def __call__(self, command: list[str], **_: Any) -> Tune:
        self.words = command
        self.lists.append((self.work / "next.csv").read_text().splitlines()[1:])
        store(self.work, self.lists[-1][: self.finds])
        return self

    def wait(self, timeout: float | None = None) -> int:
        if not self.ends and not self.signals:
            raise subprocess.TimeoutExpired("tune", timeout or 0)
        return 0

    def send_signal(self, number: int) -> None:
        self.signals.append(number)

    def kill(self) -> None:
        assert self.ends or self.signals


def store(work: Path, rows: list[str]) -> None:
    kernel, winners = load_kernel("gemm"), []
    for row in rows:
        m, n, k, layout, dtype, _ = row.split(",")
        sizes = {"m": int(m), "n": int(n), "k": int(k)}
        problem = kernel.problem(sizes, {"input": dtype}, {"layout": layout})
        winners.append((problem, SearchSpace.from_kernel(kernel, problem, H200).default))
    if winners:
        store_winners(work / "tuning.db", kernel, winners)


def tuned(work: Path, *words: str) -> int:
    return decoder.main(
        ["--work", str(work), "--device", "cpu", "--tiny", "--steps", "record,tune,measure", *words]
    )


def test_what_has_no_winner_is_tuned(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All in one list, the heaviest first; what has no winner after others have got one is not tried again."""
    tune = Tune(work, finds=0)
    monkeypatch.setattr(decoder.subprocess, "Popen", tune)
    assert tuned(work, "--seconds", "20") == 1
    assert not tune.lists  # 20 s do not suffice for one
    problems = (work / "problems.csv").read_text().splitlines()[1:]
    store(work, problems[:1])  # one is known already
    assert tuned(work) == 1
    assert tune.lists == [problems[1:]] * 2 and {"--resume", "--no-overlap"} <= {*tune.words}
    tune.finds = 3
    monkeypatch.setattr(decoder.Study, "_measured", lambda *_: pytest.fail("no GPU"))
    monkeypatch.setattr(decoder.Study, "_bundled", lambda _: pytest.fail("all are tried: they are measured"))
    with pytest.raises(pytest.fail.Exception):
        tuned(work)
    assert tune.lists[2:] == [problems[1:]]
    (work / "tuning.db").unlink()  # another machine has the winners alone
    with pytest.raises(pytest.fail.Exception):
        tuned(work)
    assert len(tune.lists) == 3


def test_a_tune_is_told_to_stop_when_time_is_over(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tune = Tune(work, finds=2, ends=False)
    monkeypatch.setattr(decoder.subprocess, "Popen", tune)
    assert tuned(work, "--seconds", "60") == 1
    assert tune.signals == [signal.SIGTERM]
    tune.ends = True
    monkeypatch.setattr(decoder.Study, "_measure", lambda _: None)
    tuned(work, "--seconds", "60")
    assert tune.lists[1] == tune.lists[0][2:]


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
