"""``tune ladder`` as a user meets it: sweeps, tables, JSON, figures, and one clear line for whatever is wrong."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.commands import Said, assert_refused, said_by
from tests.faults.kernels import scale_kernel, write_synthetic_recording
from tests.faults.ladder_device import BEST, LAUNCH_NS, LadderDevice, kernel_with_ladder
from tuner.cli import main
from tuner.devices import choose
from tuner.devices.local import LocalDevice
from tuner.devices.started import Processes
from tuner.kernel.load import load_kernel
from tuner.kernel.spec import KernelSpec

pytestmark = pytest.mark.usefixtures("forked_children")


Ladder = Callable[..., Said]


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSpec:
    return kernel_with_ladder(tmp_path / "kernel")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> LadderDevice:
    device = LadderDevice()
    monkeypatch.setattr("tuner.cli.ladder.open_device", lambda *arguments: device)
    return device


@pytest.fixture
def ladder(
    kernel: KernelSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Ladder:
    """Run ``tune ladder`` for a kernel in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, of: str = str(kernel.file)) -> Said:
        return said_by(capsys, "ladder", of, *arguments)

    return run


# -- what it says


def test_one_size(ladder: Ladder, device: LadderDevice) -> None:
    device.times_ns[BEST["one warp"]], device.times_ns[BEST["more"]] = 2e5, 1e5
    said = ladder("-q")
    assert said.code == 0, said.err
    assert said.err == ""
    assert "the ladder of scale on NVIDIA H200" in said.out
    assert "32 threads a block" in said.out
    rows = said.rows()
    assert "100 us" in rows["more"]
    assert "2.00x" in rows["more"]
    assert re.search(r" 2\.\d+x \(2\.\d+ \.\. 2\.\d+\)", rows["more"])
    assert rows["more"].endswith("  plain block_size=256")
    assert "1.00x" in rows["one warp"]
    assert re.search(r"  1\.00x  ", rows["half"])  # the first of its dtype
    assert "the same dtype: float32 one warp; float16 half" in said.out
    assert rows["tomorrow"] == "-"
    assert "tomorrow: requires cc >= 990" in said.out
    assert "by launch" not in said.out
    assert "time, by" not in said.out  # there is one size
    assert device.closed


def test_sweep_ends_with_everything_at_once(ladder: Ladder, device: LadderDevice) -> None:
    said = ladder("--sweep", "n=4096..2**14:4", "-q")
    assert said.code == 0, said.err
    assert [line for line in said.out.splitlines() if line.startswith("scale n=")] == [
        f"scale n={text} on NVIDIA H200" for text in ("4096", "2^14")
    ]
    summary = said.out[said.out.index("time, by n") :]
    head, *rows = summary.splitlines()[1:]
    assert head.split() == ["step", "4096", "2^14"]
    names = [re.split(r"\s{2,}", row)[0] for row in rows[: rows.index("")]]
    assert names == [
        *("one warp", "more", "half", "tomorrow"),
        *("torch (float32)", "cupy (float32)"),
        *("torch (float16)", "cupy (float16)"),
    ]
    assert "of peak, by n" in summary


def test_progress(ladder: Ladder, device: LadderDevice) -> None:
    said = ladder("--sweep", "n=1024..2048")
    assert said.code == 0
    assert said.err.splitlines()[0].startswith("ladder: 0 of 12: n=1024: one warp")


def test_only_some_steps(ladder: Ladder, device: LadderDevice) -> None:
    said = ladder("--step", "half", "--step", "more", "--against", "none", "-q")
    assert said.code == 0
    assert "one warp" not in said.out
    assert [len(field) for field in device.fields] == [1, 1]
    assert "against" not in said.out


def test_dtype_and_option_hold_where_a_step_has_none(ladder: Ladder, device: LadderDevice) -> None:
    said = ladder("--dtype", "float16", "--option", "order=down", "--size", "n=64", "-q")
    assert said.code == 0
    (problem,) = {problem.key: problem for problem in device.prepared}.values()
    assert (problem.dtype, problem.options, problem.sizes) == ("float16", {"order": "down"}, {"n": 64})
    assert "another problem" not in said.out


def test_launch_latency_is_the_answer(ladder: Ladder, device: LadderDevice) -> None:
    device.times_ns[BEST["one warp"]], device.times_ns[BEST["more"]] = 1.1 * LAUNCH_NS, 1.05 * LAUNCH_NS
    device.times_ns["torch"] = 1.2 * LAUNCH_NS
    said = ladder("--sweep", "n=1024..2048", "-q")
    assert "launch latency decides: 1.05 us, where a kernel that copies 512 bytes takes 1 us" in said.out
    first = said.out[: said.out.index("scale n=2048")]
    (row,) = (line for line in first.splitlines() if line.startswith("more  "))
    assert re.search(r" 1\.1.*; launch latency", row)
    assert "faster" not in row
    said = ladder("--size", "n=1024", "-q", "--json")
    comparisons = json.loads(said.out)["levels"][0]["contests"]
    assert [comparison["launch_decides"] for comparison in comparisons] == [True, True]
    assert [row["by_launch"] for row in comparisons[0]["contestants"]][:3] == [True, True, True]


def test_steps_that_are_statistically_tied(ladder: Ladder, device: LadderDevice) -> None:
    device.times_ns[BEST["one warp"]], device.times_ns[BEST["more"]] = 1.0001e5, 1e5
    said = ladder("-q")
    assert re.search(r"(more|one warp) is tied with (more|one warp)", said.out)


def test_json(ladder: Ladder, device: LadderDevice) -> None:
    device.absent = {"cupy": "it does not capture"}
    said = ladder("--sweep", "n=1024,4096", "--json", "-q")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert (found["kernel"], found["complete"], found["swept"]) == ("scale", True, ["n"])
    assert found["rungs"][1]["parameters"] == {"block_size": [128, 256]}
    assert found["rungs"][2]["dtypes"] == {"input": "float16"}
    first, second = found["levels"]
    assert (first["sizes"], second["sizes"]) == ({"n": 1024}, {"n": 4096})
    assert first["first"] == "one warp"
    assert first["absent"] == {"tomorrow": {"reason": "requires cc >= 990", "failed": False}}
    singles, halves = first["contests"]
    assert singles["against"] == "torch"
    assert singles["failed"] == [
        {"contestant": "cupy", "what": "cupy.multiply(x, 2, out=y)", "error": "it does not capture"}
    ]
    more = singles["contestants"][1]
    assert more["parameters"] == BEST["more"].values
    assert more["trial"] > 0
    assert (more["known"], more["over_first"]["paired"]) == (False, True)
    assert more["versus"]["verdict"] == "faster"
    assert len(more["samples_ns"]) == 160
    assert halves["contestants"][0]["over_first"]["paired"] is False
    again = json.loads(ladder("--size", "n=1024", "--json", "-q").out)
    assert again["levels"][0]["contests"][0]["contestants"][1]["known"] is True


def test_bench_history_has_the_comparisons(
    ladder: Ladder, device: LadderDevice, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ladder("-q").code == 0
    with pytest.raises(SystemExit):
        main(["bench", "--history"])
    history = capsys.readouterr().out
    assert "rung:one warp" in history
    assert "torch" in history


# -- how it ends


def test_step_that_fails_ends_with_1(ladder: Ladder, device: LadderDevice) -> None:
    device.absent = {BEST["more"]: "an illegal address"}
    said = ladder("-q")
    assert said.code == 1
    assert "an illegal address" in said.out
    assert said.rows()["one warp"].endswith("plain")  # its default


def test_baseline_that_was_asked_for_and_fails_ends_with_1(ladder: Ladder, device: LadderDevice) -> None:
    device.absent = {"torch": "torch is not installed"}
    said = ladder("--against", "torch", "-q")
    assert said.code == 1
    assert "torch could not be timed: torch is not installed" in said.out
    said = ladder("-q")
    assert said.code == 0
    assert "torch could not" not in said.out


def test_nothing_at_all_ends_with_1(ladder: Ladder, device: LadderDevice) -> None:
    device.full = 1
    said = ladder("-q", "--plot", "nothing.svg")
    assert said.code == 1
    assert "every step" not in said.out  # one of them has a reason of its own
    assert "one warp; more" in said.out
    assert said.err.splitlines() == ["tune: nothing.svg is not written: there is no time to draw"]


def test_ctrl_c_prints_what_there_is(
    ladder: Ladder, device: LadderDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = importlib.import_module("tuner.cli.ladder")
    monkeypatch.setattr(body, "stopping", lambda: nullcontext(lambda: len(device.fields) >= 3))
    said = ladder("--sweep", "n=1024..8192", "-q")
    assert said.code == 130
    assert "scale n=1024" in said.out
    assert "scale n=2048" in said.out
    assert "half: not timed: stopped" in said.out
    assert "time, by n" in said.out
    assert said.err.splitlines() == [
        "tune: stopped after 1 of 4 sizes; everything measured is kept; the same command goes on from there"
    ]


# -- what is refused


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--sweep", "q=1..4"), 2, ("no size 'q'",)),
        (("--sweep", "n=1..4", "--size", "n=4"), 2, ("--size and in --sweep",)),
        (("--step", "moer"), 2, ("no step 'moer'", "did you mean 'more'")),
        (("--against", "default"), 2, ("compares optimisation steps",)),
        (("--against", "toch"), 2, ("toch", "torch")),
        (("--against", "none", "--against", "torch"), 2, ("none",)),
        (("--dtype", "float32,float16"), 2, ("--dtype names several",)),
        (("--preset", "smal"), 2, ("small",)),
        (("--plot", "figure.pdf"), 2, (".svg",)),
        (("--plot", "."), 2, (".svg",)),
        (("--plot", "nowhere/figure.svg"), 2, ("nowhere",)),
    ],
)
def test_refused(
    ladder: Ladder, device: LadderDevice, arguments: tuple[str, ...], code: int, words: tuple[str, ...]
) -> None:
    assert_refused(ladder(*arguments), code, *words)
    assert device.prepared == []


def test_a_place_that_cannot_be_written_to_is_refused_before_the_sweep(
    ladder: Ladder, device: LadderDevice, tmp_path: Path
) -> None:
    (tmp_path / "story-sizes.svg").mkdir()
    assert_refused(ladder("--plot", "story.svg"), 2, "story-sizes.svg", "cannot write there")
    assert not (tmp_path / "story-roofline.svg").exists()  # it could have been written, and is left as it was
    assert device.prepared == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_only_be_read(ladder: Ladder, device: LadderDevice, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    assert_refused(ladder("--plot", "locked/story.svg"), 2, "Permission denied", "a folder of your own")
    assert device.prepared == []


def test_without_a_gpu(ladder: Ladder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "has_gpu", lambda: False)
    assert_refused(ladder("--device", "cuda"), 1, "no NVIDIA GPU")
    assert_refused(ladder(), 1, "no NVIDIA GPU", "scale")


# -- recordings


def test_recording(ladder: Ladder, tmp_path: Path) -> None:
    kernel = load_kernel("vector_add")
    path = tmp_path / "vector_add-made_up.json.gz"
    write_synthetic_recording(path, kernel, [kernel.problem({"n": n}) for n in (2**20, 2**21)], 60)
    said = ladder(
        "--sweep", "n=2**20..2**22", "--device", f"replay:{path}", "--against", "torch", of="vector_add"
    )
    assert said.code == 1  # one size was not recorded
    assert "has no times of what --against names" in said.err
    assert "vector_add n=2^20 on NVIDIA H200 [replayed]" in said.out
    assert "recorded samples" in said.out
    assert "does not hold" in said.out
    assert "time, by n" in said.out
    said = ladder("--sweep", "n=2**20..2**21", "--device", f"replay:{path}", "-q", "--json", of="vector_add")
    found = json.loads(said.out)
    assert found["replayed"] is True
    timed = [row for level in found["levels"] for c in level["contests"] for row in c["contestants"]]
    assert timed and all(row["rung"] for row in timed)
    assert_refused(ladder("--device", f"replay:{path}"), 1, "is a recording of vector_add, not of scale")


# -- figures


def words_of(path: str) -> str:
    return re.sub(r"\s+", " ", " ".join(re.findall(r">([^<>]+)</t", Path(path).read_text())))


def test_plots(ladder: Ladder, device: LadderDevice) -> None:
    pytest.importorskip("matplotlib")
    said = ladder("--sweep", "n=2048..4096", "-q", "--plot", "story.svg")
    assert said.code == 0, said.err
    roofline = words_of("story-roofline.svg")
    for word in (
        *("one warp", "more", "half", "torch (float32)", "scale on NVIDIA H200; cold, rested"),
        *("memory, measured: 4.4 TB/s", "vector units, float32, measured: 60 TFLOP/s"),
        *("arithmetic intensity", "n=4096"),
    ):
        assert word in roofline, word
    sizes = words_of("story-sizes.svg")
    for word in ("one warp", "cupy (float16)", "speed of light (float32)", "GB/s", "2048", "n, logarithmic"):
        assert word in sizes, word
    assert (
        ladder("--size", "n=4096", "--step", "more", "--against", "none", "-q", "--plot", "one.png").code == 0
    )
    assert Path("one-roofline.png").read_bytes().startswith(b"\x89PNG")
    assert not Path("one-sizes.png").exists()


def test_warm_caches_know_no_share_of_the_memory(ladder: Ladder, device: LadderDevice) -> None:
    pytest.importorskip("matplotlib")
    said = ladder(
        "--mode",
        "warm",
        "--sweep",
        "n=1024..2048",
        "--step",
        "more",
        "--against",
        "none",
        "-q",
        "--plot",
        "warm.svg",
    )
    assert said.code == 0, said.err
    assert "warm, rested: as asked" in said.out
    assert "of peak" not in said.out
    assert "speed of light" not in said.out
    assert "no limit to what is in the caches" in words_of("warm-roofline.svg")
    assert "speed of light" not in words_of("warm-sizes.svg")


def test_plot_without_matplotlib(
    ladder: Ladder, device: LadderDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert_refused(ladder("--plot", "story.svg"), 1, "pip install '.[plot]'")
    assert device.prepared == []


# -- through the real device and a process that pretends to measure


def test_with_a_measuring_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ladder: Ladder) -> None:
    kernel = scale_kernel(tmp_path / "plain", blocks=(32, 64), items=(1, 2))
    log = tmp_path / "log"
    monkeypatch.setenv("FAKE_LOG", str(log))

    def open_fake(*arguments: object) -> LocalDevice:
        return LocalDevice(Processes(0, 1, tmp_path / "cache", "tests.faults.fake_worker"))

    monkeypatch.setattr("tuner.cli.ladder.open_device", open_fake)
    said = ladder("--sweep", "n=1024..2048", "--json", "-q", of=str(kernel.file))
    assert said.code == 0, said.err
    first = [level["contests"][0]["contestants"][0] for level in json.loads(said.out)["levels"]]
    assert [one["contestant"] for one in first] == ["plain", "plain"]
    done = [line.partition(" ")[2] for line in log.read_text().splitlines()]
    assert done.count("setup 0") == 2  # once a size: no confirmation in another process
    assert done.count("race") == 2
