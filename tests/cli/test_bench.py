"""``tune bench`` as a user meets it: tables, JSON, figures, exit statuses, and one clear line for whatever is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import Said, assert_refused, said_by
from tests.faults.bench_device import BenchDevice, kernel_with_baselines, remember
from tests.faults.kernels import configuration, scale_kernel
from tests.faults.stub_device import Watcher
from tuner.cli import main
from tuner.core.conditions import Conditions, Mode
from tuner.core.model import RunOptions
from tuner.database.database import Database
from tuner.devices import choose
from tuner.devices.local import LocalDevice
from tuner.devices.started import Processes
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec
from tuner.tuning.request import Request
from tuner.tuning.session import tune as run_tune

BEST = configuration("ok", 256, 2)
DEFAULT = configuration("ok", 32, 1)


Bench = Callable[..., Said]


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSpec:
    return kernel_with_baselines(tmp_path / "kernel")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> BenchDevice:
    device = BenchDevice({BEST: 1e5, DEFAULT: 1.25e5, "torch": 0.9e5, "cupy": 1.0001e5})
    monkeypatch.setattr("tuner.cli.configuration.open_device", lambda *arguments: device)
    return device


@pytest.fixture
def bench(
    device: BenchDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Bench:
    """Run ``tune bench`` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Said:
        return said_by(capsys, "bench", *arguments)

    return run


def know(kernel: KernelSpec, time_ns: float = 1e5, n: int = 1024, **changes: object) -> None:
    with Database.open("results/tuning.db") as database:
        remember(database, kernel, kernel.problem({"n": n}), BEST, time_ns, **changes)  # type: ignore[arg-type]


def test_default_is_what_the_tests_think(kernel: KernelSpec, device: BenchDevice) -> None:
    assert SearchSpace.from_kernel(kernel, kernel.problem(), device.gpu).default == DEFAULT


# -- what it says


def test_table(bench: Bench, kernel: KernelSpec, device: BenchDevice) -> None:
    know(kernel)
    said = bench("--kernel", str(kernel.file))
    assert said.code == 0, said.err
    rows = {line.split()[0]: line for line in said.out.splitlines() if line}
    assert "scale n=1024 float32 order=up on NVIDIA H200" in said.out
    assert "cold, rested: as it was tuned; noise floor 0.4 %" in said.out
    assert "clocks are held by their owner" in said.out
    assert "plain block_size=256 items=2" in rows["best"]
    assert "100 us" in rows["best"]
    assert re.search(r" 1\.2\d+x \(1\.2\d+ \.\. 1\.2\d+\)", rows["default"])
    assert re.search(r" 0\.9\d*x \(.*\); slower", rows["torch"])
    assert "torch.mul(x, 2, out=y)" in rows["torch"]
    assert "; tied" in rows["cupy"]  # within the noise
    assert "speedup of best over it" in said.out
    assert device.closed


def test_it_fits_a_terminal(bench: Bench, kernel: KernelSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    know(kernel)
    plain = bench("--kernel", str(kernel.file)).out
    monkeypatch.setattr("tuner.report.layout.columns_of", lambda _: 80)
    for arguments in (("--kernel", str(kernel.file)), ("--history",)):
        said = bench(*arguments)
        assert said.code == 0
        assert max(map(len, said.out.splitlines())) <= 80
        assert all(word in said.out for word in ("torch", "125 us", "block_size=256", "(0.899 .. 0.901)"))
    assert plain != bench("--kernel", str(kernel.file)).out


def test_quiet_and_progress(bench: Bench, kernel: KernelSpec) -> None:
    know(kernel)
    assert "timing scale" in bench().err
    assert bench("--quiet").err == ""


def test_json(bench: Bench, kernel: KernelSpec, device: BenchDevice) -> None:
    know(kernel)
    device.absent = {"torch": "it does not capture"}
    said = bench("-k", str(kernel.file), "--json", "-q")
    assert said.code == 0
    assert "torch" in said.err
    (found,) = json.loads(said.out)
    assert (found["mode"], found["regime"], found["reference"]) == ("cold", "rested", "best")
    assert [row["contestant"] for row in found["contestants"]] == ["best", "cupy", "default"]
    assert found["failed"] == [
        {"contestant": "torch", "what": "torch.mul(x, 2, out=y)", "error": "it does not capture"}
    ]
    default = found["contestants"][2]
    assert default["parameters"]["block_size"] == 32
    assert default["ratio"] == pytest.approx(1.25, rel=1e-3)
    assert default["verdict"] == "faster"
    assert len(default["samples_ns"]) == 160
    assert found["tuned_for"] == found["problem"]


def test_every_tuned_problem_without_sizes(bench: Bench, kernel: KernelSpec, device: BenchDevice) -> None:
    for n in (1024, 2048):
        know(kernel, n=n)
    know(kernel, conditions=Conditions(Mode.WARM))
    assert len(json.loads(bench("--json", "-q").out)) == 3
    assert len(json.loads(bench("--json", "-q", "--mode", "warm").out)) == 2
    assert_refused(bench("--dtype", "float16"), 1, "no confirmed winner")
    assert_refused(bench("--option", "order=down"), 1, "no confirmed winner")
    assert bench("--dtype", "float16,float32", "--option", "order=UP", "-q").code == 0
    assert_refused(bench("--dtype", "output=float16"), 1, "no confirmed winner")


def test_several_modes_in_one_process(bench: Bench, kernel: KernelSpec, device: BenchDevice) -> None:
    know(kernel)
    found = json.loads(bench("--json", "-q", "--mode", "auto", "--mode", "warm").out)
    assert [one["mode"] for one in found] == ["cold", "warm"]
    assert [len(field) for field in device.fields] == [4, 4]
    assert found[1]["contestants"][0]["contestant"] == "best"
    assert "it was tuned cold, rested" in found[1]["notes"]
    assert len(json.loads(bench("--json", "-q", "--mode", "auto", "--mode", "cold").out)) == 1
    know(kernel, conditions=Conditions(Mode.WARM))
    assert len(json.loads(bench("--json", "-q", "--mode", "auto", "--mode", "warm").out)) == 2
    assert len(json.loads(bench("--history", "--mode", "warm", "--json").out)) == 8
    assert_refused(bench("--history", "--mode", "cold", "--mode", "warm"), 2, "one --mode")


def test_size_that_was_not_tuned(bench: Bench, kernel: KernelSpec) -> None:
    know(kernel)
    said = bench("-k", str(kernel.file), "--size", "n=1000", "-q")
    assert said.code == 0
    assert "scale n=1000" in said.out
    assert "tuned for n=1024" in said.out
    said = bench("-k", str(kernel.file), "--size", "n=1000", "--dtype", "float16", "-q")
    assert said.code == 0
    assert "only the default" in said.out
    assert "speedup of default over it" in said.out


def test_against(bench: Bench, kernel: KernelSpec, device: BenchDevice, tmp_path: Path) -> None:
    know(kernel)
    mine = tmp_path / "mine.cu"
    mine.write_text('extern "C" __global__ void twice(const float* x, float* y) {}\n')
    device.times_ns["mine.cu:twice"] = 2e5
    said = bench("--against", "cupy", "--against", f"{mine}:twice<<<ceil_div(n, 64), 64>>>(x, y)", "-q")
    assert said.code == 0, said.err
    assert [line.split()[0] for line in said.out.splitlines()[-3:]] == ["best", "cupy", "mine.cu:twice"]
    assert device.fields == [[BEST, "cupy", "mine.cu:twice"]]
    device.absent = {"torch": "torch is not installed"}
    said = bench("--against", "torch", "-q")
    assert said.code == 1
    assert "torch is not installed" in said.err
    assert "best" in said.out


def test_several_problems_of_which_one_fails(bench: Bench, kernel: KernelSpec, device: BenchDevice) -> None:
    know(kernel)
    other = scale_kernel(kernel.file.parent.parent / "gone")
    know(other, n=2048)
    (other.file).unlink()
    said = bench("-q")
    assert said.code == 1
    assert "n=1024" in said.out
    assert "n=2048" in said.err
    assert "gone" in said.err


# -- history


def test_history(bench: Bench, kernel: KernelSpec, device: BenchDevice) -> None:
    know(kernel)
    know(kernel, n=2048)
    bench("-k", str(kernel.file), "--size", "n=1024", "-q")
    device.times_ns[BEST] = 1.1e5
    bench("-k", str(kernel.file), "--against", "none", "-q")
    rows = json.loads(bench("--history", "--json").out)
    assert [row["contestant"] for row in rows[:2]] == ["best", "best"]
    assert rows[0]["time_ns"] == pytest.approx(1.1e5, rel=0.01)
    assert len(rows) == 6
    assert len({row["bench"] for row in rows}) == 2
    rows = json.loads(bench("-k", str(kernel.file), "--size", "n=2048", "--history", "--json").out)
    assert [row["problem"]["sizes"]["n"] for row in rows] == [2048]
    said = bench("--history")
    assert said.code == 0
    assert len(said.out.splitlines()) == 7
    assert re.search(r"torch .* 0\.9\d*x .*; slower", said.out)
    assert_refused(bench("--history", "--mode", "warm"), 1, "no bench")
    said = bench("--history", "--limit", "2")
    assert len(said.out.splitlines()) == 3
    assert "2 of 6 rows" in said.err
    assert len(json.loads(bench("--history", "--limit", "0", "--json").out)) == 6
    for option in ("--check", "--rounds=20", "--device=cuda", "--seed=0", "--against=none"):
        assert_refused(bench("--history", option), 2, "--history", option.partition("=")[0])
    assert_refused(bench("--limit", "3"), 2, "--history")


def test_contestant_that_no_kernel_knows_is_refused_once(
    bench: Bench, kernel: KernelSpec, device: BenchDevice
) -> None:
    know(kernel)
    know(kernel, n=2048)
    assert_refused(bench("--against", "nope"), 2, "nope")
    assert_refused(bench("--against", "default", "--against", "nope"), 2, "nope")
    assert_refused(bench("--against", "none", "--against", "torch"), 2, "none")
    assert device.timed == []


def test_contestant_that_some_kernels_know(
    bench: Bench, kernel: KernelSpec, device: BenchDevice, tmp_path: Path
) -> None:
    know(kernel)
    know(scale_kernel(tmp_path / "bare"), n=2048)
    said = bench("--against", "torch", "-q")
    assert said.code == 1
    assert "scale n=1024" in said.out
    assert "n=2048" in said.err


def test_warm_has_no_share_of_the_memory(bench: Bench, kernel: KernelSpec) -> None:
    know(kernel)
    (cold,) = json.loads(bench("--json", "-q").out)
    (warm,) = json.loads(bench("--json", "-q", "--mode", "warm").out)
    assert cold["contestants"][0]["speed_of_light"] > 0
    assert warm["contestants"][0]["speed_of_light"] is None
    assert warm["contestants"][0]["gbytes_per_s"] > 0
    assert "%" not in re.sub(r".*noise floor.*", "", bench("-q", "--mode", "warm").out).replace("95 %", "")


# -- the check


def test_check(bench: Bench, kernel: KernelSpec, device: BenchDevice) -> None:
    know(kernel)
    said = bench("--check", "-q")
    assert (said.code, said.err) == (0, "")
    assert "as fast as it was" in said.out
    device.times_ns[BEST] = 1.05e5
    said = bench("--check", "-q", "--against", "none")
    assert said.code == 1
    assert "+5.0 %" in said.out
    assert "SLOWER" in said.out
    said = bench("--check", "-q", "--json")
    assert said.code == 1
    assert "+5.0 %" in said.err
    assert json.loads(said.out)[0]["check"]["slower"] is True
    assert bench("-q").code == 0  # a slowdown changes the status only with --check


def test_nothing_to_check(bench: Bench, kernel: KernelSpec, device: BenchDevice) -> None:
    assert_refused(bench("--check"), 2, "nothing to check")
    know(kernel)
    assert_refused(bench("--check", "--mode", "warm", "-q"), 2, "nothing to check")
    assert_refused(bench("-k", str(kernel.file), "--size", "n=5", "--check", "-q"), 2, "nothing to check")
    assert device.fields == []


# -- what is refused


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("--size", "n=3"), 2, "needs its kernel"),
        (("--kernel", "gem"), 2, "gemm"),
        (("--kernel", "gemm", "--against", "toch"), 2, "torch"),
        (("--kernel", "gemm", "--against", "none", "--against", "torch"), 2, "none"),
        (("--kernel", "gemm", "--against", "./nothing.cu"), 2, "nothing.cu"),
        (("--device", "replay"), 2, "GPU of this machine"),
        (("--history",), 1, "no database"),
        ((), 1, "no confirmed winner"),
    ],
)
def test_refused(bench: Bench, arguments: tuple[str, ...], code: int, word: str) -> None:
    assert_refused(bench(*arguments), code, word)


def test_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(choose, "has_gpu", lambda: False)
    assert_refused(said_by(capsys, "bench", "--kernel", "gemm"), 1, "no NVIDIA GPU", "tune doctor")


# -- through the real device and a process that pretends to measure


def test_with_a_measuring_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = scale_kernel(tmp_path / "kernel")
    monkeypatch.chdir(tmp_path)

    def open_fake(*arguments: object) -> LocalDevice:
        return LocalDevice(Processes(0, 1, tmp_path / "cache", "tests.faults.fake_worker"))

    monkeypatch.setattr("tuner.cli.configuration.open_device", open_fake)
    device = open_fake()
    try:
        with Database.open("results/tuning.db") as database:
            result = run_tune(
                Request(kernel, kernel.problem(), RunOptions(trials=6, sampler="random")),
                device,
                database,
                Watcher(),
            )
    finally:
        device.close()
    assert result.finish is not None
    assert result.finish.exportable
    with pytest.raises(SystemExit) as ended:
        main(["bench", "--check", "--json", "-q"])
    said = capsys.readouterr()
    assert not ended.value.code, said.err
    (found,) = json.loads(said.out)
    assert found["check"]["slower"] is False
    assert found["contestants"][0]["parameters"] == result.finish.winner.configuration.values
