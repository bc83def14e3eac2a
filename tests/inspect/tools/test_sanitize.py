"""``tune sanitize`` around a stand-in for the tool."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import Said, said_by
from tests.faults.bench_device import remember
from tests.faults.fake_tools import fake_sanitizer
from tests.faults.kernels import configuration, scale_kernel
from tuner.cli import sanitize as body
from tuner.database.database import Database
from tuner.devices.started import has_gpu
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.spec import KernelSpec

pytestmark = pytest.mark.usefixtures("forked_children")

GPU = ARCHITECTURES[90]
BEST = configuration("ok", 256, 2)

Run = Callable[..., Said]


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSpec:
    return scale_kernel(tmp_path / "kernel", faults=("ok", "bad"))


@pytest.fixture
def run(
    kernel: KernelSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run ``tune sanitize`` in an empty folder, with a GPU and a sanitizer that are none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{fake_sanitizer(tmp_path / 'tools').parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("tuner.cli.configuration.has_gpu", lambda: True)
    monkeypatch.setattr(body, "describe_gpu", lambda device="cuda": GPU)

    def call(*arguments: str, **word: object) -> Said:
        monkeypatch.setenv("FAKE_TOOL", json.dumps(word))
        return said_by(capsys, "sanitize", *arguments)

    return call


def test_a_clean_winner(run: Run, kernel: KernelSpec) -> None:
    with Database.open("results/tuning.db") as database:
        remember(database, kernel, kernel.problem({"n": 2**28}), BEST, 5e4)
    said = run(str(kernel.file), "--size", "n=2**28")
    assert said.code == 0
    for words in (
        "winner, trial 1",
        "memcheck",
        "racecheck",
        "synccheck",
        "clean: 3 runs",
        "results/sanitizer/scale-",
    ):
        assert words in said.out, words
    assert "compiling for 3 runs" in said.err and "initcheck" not in said.out
    (folder,) = Path("results/sanitizer").iterdir()
    assert {path.name for path in folder.iterdir()} == {
        f"{tool}-{name}.log"
        for tool in ("memcheck", "racecheck", "synccheck")
        for name in ("001", "self-check")
    }


def test_every_winner_of_a_kernel_once(run: Run, kernel: KernelSpec) -> None:
    other = configuration("bad", 64, 1)
    with Database.open("results/tuning.db") as database:
        for n, best in ((2**20, BEST), (2**24, BEST), (2**28, other)):
            remember(database, kernel, kernel.problem({"n": n}), best, 5e4)
    said = run(str(kernel.file), "--winners", "--edges", "1", "--tool", "memcheck")
    assert said.code == 0 and "2 winners" in said.out and "clean: 2 runs" in said.out


def test_no_winner_is_one_line(run: Run, kernel: KernelSpec) -> None:
    said = run(str(kernel.file), "--winners")
    assert said.code != 0 and "find one with" in said.err and said.err.count("\n") == 1


def test_findings_end_with_status_1_and_are_listed(run: Run, kernel: KernelSpec) -> None:
    said = run(
        str(kernel.file), "--config", "fault=bad", "--edges", "2", "-q", memcheck={"scale__bad": "finding"}
    )
    assert said.code == 1 and not said.err
    assert "FINDINGS in 2 of 2 runs, of one configuration" in said.out and "clean: 2 runs" in said.out
    assert "writes 4 bytes of global memory 1 byte behind the end of tensor y" in said.out
    assert "scale__bad" in said.out and ".log:2" in said.out


def test_json_has_every_verdict(run: Run, kernel: KernelSpec) -> None:
    said = run(
        str(kernel.file), "--sample", "10", "--tool", "racecheck,initcheck", "--edges", "1", "--json",
        racecheck={"scale__bad": "finding"}, initcheck={"scale__bad": "wrong"},
    )  # fmt: skip
    data = json.loads(said.out)
    assert said.code == 1 and data["clean"] is False and data["source"].startswith("a sample of 32")
    race, init = data["tools"]["racecheck"], data["tools"]["initcheck"]
    bad = sum(verdict["parameters"]["fault"] == "bad" for verdict in race["verdicts"])
    assert race["runs"] == 10 and 0 < race["failed"] == init["failed"] == bad < 10
    (finding,) = next(verdict["findings"] for verdict in race["verdicts"] if verdict["findings"])
    assert "nothing that orders them (508 times)" in finding["text"] and finding["kernel"] == "scale__bad"
    assert {verdict["outcome"] for verdict in init["verdicts"]} == {"ok", "wrong"}


def test_sizes_can_be_named(run: Run, kernel: KernelSpec) -> None:
    said = run(str(kernel.file), "--at", "n=77", "--at", "n=1000", "--tool", "memcheck", "--json")
    verdicts = json.loads(said.out)["tools"]["memcheck"]["verdicts"]
    assert said.code == 0 and [verdict["sizes"] for verdict in verdicts] == [{"n": 77}, {"n": 1000}]


def test_sizes_that_a_configuration_is_not_made_for_are_left_out(run: Run, tmp_path: Path) -> None:
    extra = '[variants.plain.constraints]\n"whole blocks" = "n % block_size == 0"\n'
    kernel = scale_kernel(tmp_path / "whole", extra=extra)
    said = run(str(kernel.file), "--at", "n=64", "--at", "n=65", "--tool", "memcheck")
    assert said.code == 0 and "whole blocks" in said.out and "clean: 1 run" in said.out
    only = run(str(kernel.file), "--at", "n=65", "--tool", "memcheck")
    assert only.code == 2 and "whole blocks" in only.err and "--at" in only.err
    default = run(str(kernel.file), "--tool", "memcheck", "--json")
    sizes = [v["sizes"]["n"] for v in json.loads(default.out)["tools"]["memcheck"]["verdicts"]]
    assert sizes and all(n % 32 == 0 for n in sizes)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--tool", "memchek"), "did you mean memcheck"),
        (("--sample", "3", "--config", "default"), "excludes"),
        (("--variant", "plain"), "add --sample"),
        (("--winners", "--sample", "3"), "excludes"),
        (("--at", "m=3"), "no size 'm'"),
        (("--sample", "3", "--variant", "other"), "no variant"),
        (("--config", "plain speed=3"), "no parameter 'speed'"),
    ],
)
def test_wrong_words_are_one_line(
    run: Run, kernel: KernelSpec, arguments: tuple[str, ...], words: str
) -> None:
    said = run(str(kernel.file), *arguments)
    assert said.code == 2 and words in said.err and said.err.count("\n") == 1 and not said.out
    assert not Path("results").exists()


def test_logs_never_replace_others(run: Run, kernel: KernelSpec) -> None:
    arguments = (str(kernel.file), "--tool", "memcheck", "--output", "logs", "-q")
    assert run(*arguments).code == 0 and (Path("logs") / "memcheck-001.log").is_file()
    again = run(*arguments)
    assert again.code == 2 and "logs is not an empty folder" in again.err


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ({"blind": True}, ("sees nothing wrong with a kernel that writes behind", "--no-self-check")),
        ({"refuses": "Device not supported"}, ("memcheck does not work here: Device not supported", "log: ")),
    ],
)
def test_a_tool_that_does_not_work_is_one_line(
    run: Run, kernel: KernelSpec, word: dict[str, object], words: tuple[str, ...]
) -> None:
    said = run(str(kernel.file), "-q", **word)
    assert said.code == 1 and said.err.count("\n") == 1 and not said.out
    for text in words:
        assert text in said.err


def test_the_self_check_can_be_left_out(run: Run, kernel: KernelSpec) -> None:
    assert run(str(kernel.file), "-q", "--no-self-check", blind=True).code == 0


def test_without_the_tool_nothing_is_started(
    run: Run, kernel: KernelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("tuner.inspect.tools.nvidia._folders", lambda tool: iter([]))
    monkeypatch.setattr(body, "describe_gpu", lambda device: pytest.fail("the GPU was asked"))
    said = run(str(kernel.file))
    assert said.code == 1 and "Compute Sanitizer (compute-sanitizer) is not installed" in said.err
    assert "--compute-sanitizer PATH" in said.err and said.err.count("\n") == 1
    for arguments, word in (
        (("gem",), "did you mean gemm?"),
        ((str(kernel.file), "--tool", "foo"), "no tool 'foo'"),
    ):
        said = run(*arguments)
        assert said.code == 2 and word in said.err


def test_where_nothing_compiles_there_is_nothing_to_run(run: Run, tmp_path: Path) -> None:
    broken = scale_kernel(tmp_path / "broken", source="this is not CUDA")
    said = run(str(broken.file), "-q")
    assert said.code == 1 and "nothing can be run" in said.err and "compile_error" in said.err


@pytest.mark.skipif(has_gpu(), reason="the process would find a GPU")
def test_the_process_itself_says_that_there_is_no_gpu(run: Run, kernel: KernelSpec) -> None:
    said = run(str(kernel.file), "-q", run=True)
    assert said.code == 1 and "no CUDA GPU can be used" in said.err and said.err.count("\n") == 1
