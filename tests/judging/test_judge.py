"""``tune judge`` as a program meets it: verdicts, reasons and exit statuses of one candidate after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.judging.judged import Judge, cuda, judging, task, verdict_of
from tuner.children.compile_pool import CompilePool


class LastingPool(CompilePool):
    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompilePool]:
    pool = LastingPool(1, tmp_path_factory.mktemp("cache") / "cubins")
    yield pool
    CompilePool.close(pool)


@pytest.fixture
def judge(
    tmp_path: Path, pool: CompilePool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Judge:
    return judging(tmp_path, pool, monkeypatch, capsys)


PYTHON = "def mine__{}(x, y):\n    y.copy_(2 * x)\n"


def test_a_right_candidate_has_times_beside_the_baselines(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SCALE", "0.05")  # so short that warm times may differ
    named = '[baselines]\ntorch = "torch.mul(x, 2, out=y)"\ncupy = "cupy.multiply(x, 2, out=y)"'
    said = judge(task(tmp_path / "task", named), cuda(tmp_path), "--json", "--seed", "7")
    verdict = verdict_of(said)
    assert (verdict["format"], verdict["judged"], verdict["reason"]) == (1, "right", "")
    (at,) = verdict["problems"]
    first, warm = at["modes"]
    assert (first["mode"], warm["mode"]) == ("rotating", "warm")
    compared = {one["baseline"]: one for one in first["versus"]}
    assert set(compared) == {"torch", "default"}  # CuPy is not installed there
    assert compared["torch"]["verdict"] == "faster" and compared["torch"]["speedup_low"] > 2
    assert len(at["sizes"]) == 12 and {size["status"] for size in at["sizes"]} == {"ok"}
    assert verdict["task"]["digest"] and verdict["candidate"]["digest"] and verdict["seed"] == 7
    assert said.code == {"slower": 4}.get(verdict["speed"], 0)


def test_people_read_what_was_checked_and_the_times(judge: Judge, tmp_path: Path) -> None:
    cuda(tmp_path)
    said = judge(task(tmp_path / "task"), "ok.cu", "--against", "default", "--seed", "3")
    first, *lines = said.out.splitlines()
    assert first in ("ok.cu: right, slower", "ok.cu: right, faster")
    assert [line.split()[0] for line in lines] == ["verified", "rotating", "task"]
    assert "at 12 other sizes" in said.out and " over default: " in said.out and "--seed 3" in said.out


@pytest.mark.parametrize(
    ("fault", "judged", "reason"),
    [
        ("wrong", "wrong", "wrong_result"),
        ("edge", "wrong", "wrong_at_other_size"),
        ("untrusted", "refused", "too_fast"),
        ("hang", "refused", "hang"),
        ("die", "refused", "worker_died"),
        ("sticky700", "refused", "memory_fault"),
        ("unverified", "failed", "unverified"),
    ],
)
def test_reasons(judge: Judge, tmp_path: Path, fault: str, judged: str, reason: str) -> None:
    said = judge(task(tmp_path / "task"), cuda(tmp_path, fault), "--json", "--against", "none")
    verdict = verdict_of(said)
    assert (verdict["judged"], verdict["reason"]) == (judged, reason), verdict
    assert said.code == (1 if judged == "failed" else 3)
    assert verdict["message"]
