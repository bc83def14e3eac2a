"""One problem over several GPUs, which are fake: their times, and what a failed one costs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.faults.kernels import write_kernel
from tests.sessions import run
from tuner.children.compile_pool import CompilePool
from tuner.core.errors import DeviceError
from tuner.database.database import Database
from tuner.devices.spread import SpreadDevice
from tuner.kernel.load import load_kernel
from tuner.kernel.spec import KernelSpec

WORKER = "tests.faults.fake_card"
TRIALS = 8


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSpec:
    return load_kernel(
        str(write_kernel(tmp_path, faults=("ok",), blocks=(32, 64, 96, 128), items=range(1, 5)))
    )


def opened(tmp_path: Path, said: list[str], *indices: int) -> SpreadDevice:
    cache = tmp_path / "cache"
    return SpreadDevice(indices or (0, 1, 2), cache, WORKER, said.append, pool=CompilePool(2, cache))


def on_cards(database: Database, run_id: str) -> Counter[str]:
    """Return how many trials each further card has measured."""
    tags = [tag for trial in database.trials(run_id) for tag in trial.tags]
    return Counter(tag for tag in tags if tag.startswith("on "))


def test_cards_measure_in_the_first_ones_time(
    kernel: KernelSpec, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SLEEP_S", "0.03")
    times = {}
    for slower in ("0", "0.03"):
        monkeypatch.setenv("FAKE_CARD_SLOWER", slower)
        said: list[str] = []
        device = opened(tmp_path, said, 0, 1)
        try:
            result = run(kernel, database, device, trials=TRIALS, seed=3)
        finally:
            device.close()
        assert result.finish is not None and result.finish.exportable
        trials = database.trials(result.state.run.id)
        times[slower] = {trial.configuration: trial.time_ns for trial in trials}
        measured = on_cards(database, result.state.run.id)
        assert set(measured) == {"on cuda:1"} and measured.total() < TRIALS
        assert bool([text for text in said if "slower than cuda:0" in text]) == (slower != "0")
    assert len(times["0"]) == TRIALS
    assert times["0.03"] == {c: pytest.approx(time_ns, rel=1e-9) for c, time_ns in times["0"].items()}


def test_a_card_that_fails_leaves_its_trials_to_the_others(
    kernel: KernelSpec, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SLEEP_S", "0.05")
    monkeypatch.setenv("FAKE_CARD_DIES", "1")
    said: list[str] = []
    device = opened(tmp_path, said, 0, 1)
    try:
        result = run(kernel, database, device, trials=16)
    finally:
        device.close()
    assert [str(trial.status) for trial in result.state.trials] == ["ok"] * 16
    assert result.finish is not None
    assert "on cuda:1" not in on_cards(database, result.state.run.id)
    assert any(text.startswith("cuda:1 measures no more") for text in said)


def test_cards_of_different_models_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CARD_OTHER", "2")
    with pytest.raises(DeviceError, match="cuda:2 is an NVIDIA L4, and cuda:0 an NVIDIA H200"):
        opened(tmp_path, [])


def test_a_card_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="cuda:1 is the same GPU as cuda:1; name each GPU once"):
        opened(tmp_path, [], 1, 1)
