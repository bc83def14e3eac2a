"""``tune ablate`` as a user meets it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import Said, assert_refused, said_by
from tests.faults.ablated import BEST, ablated_device, ablated_kernel
from tests.faults.bench_device import BenchDevice, remember
from tests.faults.kernels import scale_kernel
from tuner.core.conditions import Conditions, Mode
from tuner.core.model import Measurement, Status
from tuner.database.database import Database
from tuner.devices import choose
from tuner.kernel.spec import KernelSpec
from tuner.studies.ablation import ITSELF, changes


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSpec:
    return ablated_kernel(tmp_path)


@pytest.fixture
def device() -> BenchDevice:
    return ablated_device()


def test_what_a_search_leaves_out_is_timed_and_marked(
    tmp_path: Path, device: BenchDevice, command: Callable[..., Said]
) -> None:
    limit = '[variants.plain.pruning]\n"short blocks are for much" = "block_size > 32 or n > 4096"\n'
    kernel = scale_kernel(tmp_path, extra=limit)
    small, large = kernel.problem({"n": 1024}), kernel.problem({"n": 8192})
    for problem, reason in ((small, "short blocks are for much"), (large, "")):
        first, *others = changes(kernel, problem, device.gpu, BEST)
        assert (first.name, first.objection, first.unsearched) == ("block_size=32", "", reason)
        assert not any(one.unsearched for one in others)
    know(kernel, conditions=Conditions(Mode.WARM))
    said = command(str(kernel.file))
    (row,) = [line.split() for line in said.out.splitlines() if line.startswith("block_size=256")]
    assert row[1:3] == ["32", "*"] and "* left out of a search at this size" in said.out
    assert f"tune show {kernel.file} --full" in " ".join(said.out.split())
    found = json.loads(command(str(kernel.file), "--json").out)
    marked = [one["unsearched"] for choice in found["choices"] for one in choice["alternatives"]]
    assert sorted(filter(None, marked)) == ["short blocks are for much"]


def test_it_fits_a_terminal(
    kernel: KernelSpec, command: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    know(kernel)
    monkeypatch.setattr("tuner.report.layout.columns_of", lambda _: 80)
    said = command(str(kernel.file), "-q")
    assert said.code == 0
    assert max(map(len, said.out.splitlines())) <= 80
    assert "plain block_size=256 items=2, else default" in said.out


@pytest.fixture
def command(
    device: BenchDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tuner.cli.configuration.open_device", lambda *arguments: device)
    return lambda *arguments: said_by(capsys, "ablate", *arguments)


def know(kernel: KernelSpec, **changes: object) -> None:
    with Database.open("results/tuning.db") as database:
        remember(database, kernel, kernel.problem({"n": 1024}), BEST, 1e5, **changes)  # type: ignore[arg-type]


def test_table(command: Callable[..., Said], kernel: KernelSpec, device: BenchDevice) -> None:
    know(kernel, conditions=Conditions(Mode.WARM))
    said = command(str(kernel.file))
    assert said.code == 0, said.err
    assert "scale n=1024 float32 order=up on NVIDIA H200" in said.out
    assert "(winner, trial 1)" in said.out
    assert "warm, rested: as it was tuned; noise floor" in said.out
    assert "clocks are held by their owner" in said.out
    assert "faster than what was chosen: items=4" in said.out
    lines = [line.split() for line in said.out.splitlines()]
    # The choice whose loss costs most comes first, each value in the order of the file.
    assert [line[:2] for line in lines if line[0].startswith(("block_size=", "items="))] == [
        ["block_size=256", "32"],
        ["items=2", "1"],
    ]
    assert "ablation: 0 of 2: compiling and checking 6 configurations" in said.err
    assert re.search(r"ablation: 1 of 2, about \d+ s left: timing 1 to 5 of 5 in turn with it", said.err)
    assert device.timed == [(kernel.problem({"n": 1024}), Conditions(Mode.WARM))]
    assert device.closed
    assert command(str(kernel.file), "--quiet").err == ""


def test_json_and_history(
    command: Callable[..., Said], kernel: KernelSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    know(kernel)
    said = command(str(kernel.file), "--json", "--quiet", "--parameter", "block_size")
    found = json.loads(said.out)
    assert (said.code, found["variant"], found["parameters"]) == (0, "plain", BEST.values)
    (choice,) = found["choices"]
    assert (choice["parameter"], choice["value"], choice["instead"]) == ("block_size", 256, 128)
    assert choice["worth"] == pytest.approx(1.1, rel=0.002)
    assert [(one["value"], one["verdict"]) for one in choice["alternatives"]] == [
        *((32, None), (64, "faster"), (128, "faster")),
    ]
    assert choice["alternatives"][0]["error"] == "not valid: blocks of 32 are too small"
    assert found["complete"] and found["tags"] == ["power_cap"]
    rows = json.loads(said_by(capsys, "bench", "--history", "--json").out)
    assert {row["contestant"]: row["verdict"] for row in rows} == {
        ITSELF: "",
        "block_size=64": "faster",
        "block_size=128": "faster",
    }


def test_any_configuration(command: Callable[..., Said], kernel: KernelSpec, device: BenchDevice) -> None:
    said = command(str(kernel.file), "--config", "plain block_size=64 items=1", "--json", "-q")
    found = json.loads(said.out)
    assert (found["source"], found["why"]) == ("as given", "it takes long enough")
    assert found["parameters"] == {"fault": "ok", "block_size": 64, "items": 1}
    said = command(str(kernel.file), "--mode", "warm", "--regime", "sustained", "--json", "-q")
    assert (json.loads(said.out)["mode"], json.loads(said.out)["regime"]) == ("warm", "sustained")
    assert json.loads(said.out)["source"] == "default"


def test_refusals(command: Callable[..., Said], kernel: KernelSpec, device: BenchDevice) -> None:
    assert_refused(command(str(kernel.file), "--parameter", "blocksize", "-q"), 2, "blocksize", "block_size")
    assert_refused(command(str(kernel.file), "--device", "replay"), 2, "this needs a GPU of this machine")
    assert_refused(command("nosuch"), 2, "nosuch")
    device.answer = lambda c: Measurement(Status.HANG, error="no end")
    said = command(str(kernel.file), "-q")
    assert said.code == 1
    assert "could not be timed: hang: no end" in said.err


@pytest.mark.parametrize("name", ["ablate", "sanitize"])
def test_a_slip_is_said_without_a_gpu(
    name: str,
    kernel: KernelSpec,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(choose, "has_gpu", lambda: False)
    know(kernel)
    file = str(kernel.file)
    assert_refused(said_by(capsys, name, file, "--config", "plian items=1"), 2, "no variant 'plian'")
    assert_refused(said_by(capsys, name, file, "--config", "plain items=9"), 2, "items is never '9'")
    assert_refused(said_by(capsys, name, "--trial", "99"), 2, "there is no trial 99")
    assert_refused(said_by(capsys, name, "--trial", "1", "--config", "default"), 2, "exclude each other")
    assert_refused(said_by(capsys, name, file, "--device", "tpu"), 2, "this needs a GPU of this machine")
    if name == "ablate":
        assert_refused(said_by(capsys, name, file, "--parameter", "itms"), 2, "scale has no parameter 'itms'")
        assert_refused(said_by(capsys, name, file, "--parameter", "items"), 1, "no NVIDIA GPU")
