"""What `tune explain` says of stored rows, of which GPU, and of machine code."""

from __future__ import annotations

import os
import sysconfig
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.commands import assert_refused, said_by
from tests.faults.bench_device import remember
from tests.faults.kernels import configuration, scale_kernel, write_kernel
from tests.inspect.explain.explained import data, run
from tuner.children.nvrtc import compile_source
from tuner.core.conditions import Calibration, Conditions, Mode
from tuner.core.errors import DeviceError, TunerError
from tuner.database.database import Database
from tuner.inspect.explain import code
from tuner.inspect.explain.code import facts_of, read_code
from tuner.inspect.explain.explanation import explain as put_together
from tuner.inspect.tools.nvidia import NVDISASM, find
from tuner.kernel.roofline import ARCHITECTURES
from tuner.report.configurations import ChosenConfiguration

GPU = ARCHITECTURES[90]
pytestmark = pytest.mark.usefixtures("forked_children", "nowhere", "read_once")


# -- what is stored


def know(kernel_file: Path, **changes: Any) -> None:
    from tuner.kernel.load import read_kernel

    kernel = read_kernel(kernel_file)
    with Database.open("results/tuning.db") as database:
        remember(database, kernel, kernel.problem(), configuration("ok", 256, 2), 5e4, **changes)


def test_the_stored_winner_and_its_time(tmp_path: Path) -> None:
    path = write_kernel(tmp_path / "k").resolve()
    know(path)
    found = data(str(path))
    assert found["parameters"]["block_size"] == 256 and found["source"].startswith("winner")
    assert (found["time_ns"], found["mode"], found["regime"]) == (5e4, "cold", "rested")
    assert found["speed_of_light"] == pytest.approx(found["roofline"]["speed_of_light_ns"] / 5e4)
    text = run(str(path), "--full").output
    assert "50 us" in text and "(cold, rested)" in text
    # Another configuration has no time; the same one given by hand has.
    assert data(str(path), "--config", "block_size=64")["time_ns"] is None
    assert data(str(path), "--config", "block_size=256 items=2")["time_ns"] == 5e4
    assert data(str(path), "--config", "block_size=256 items=2", "--cc", "80")["time_ns"] is None
    assert data("--trial", "1")["parameters"]["block_size"] == 256


def test_what_is_amiss_comes_first(tmp_path: Path) -> None:
    """Two accesses that could be wider, say, stand above what is as it should be."""
    _, _, advice = run("vector_add", "--config", "vectorized vector_width=1", "--full").output.partition(
        "--- advice"
    )
    urgency = ("problem", "worth a try", "not known", "ok")
    verdicts = [line.split("  ")[0] for line in advice.strip().splitlines()[1:]]
    assert len(set(verdicts)) > 1
    assert verdicts == sorted(verdicts, key=urgency.index)


def test_warm_times_have_no_share_of_the_bandwidth(tmp_path: Path) -> None:
    path = write_kernel(tmp_path / "k").resolve()
    know(path, conditions=Conditions(Mode.WARM))
    found = data(str(path))
    assert found["time_ns"] == 5e4 and found["speed_of_light"] is None


def test_measured_ceilings_and_launches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU of this machine brings its calibration: what a copy reached, and what a launch costs."""
    path = write_kernel(tmp_path / "k").resolve()
    know(path)
    known = Calibration({"cold, rested": 0.01}, copy_bytes_per_s=4.0e12, launch_ns={"cold": 49e3})
    monkeypatch.setattr("tuner.cli.configuration._here", lambda device: (GPU, known))
    found = data(str(path), "--device", "cuda")
    assert found["roofline"]["measured_ceiling"] == {"name": "copy", "time_ns": pytest.approx(2.048)}
    assert any("launch latency decides" in note for note in found["notes"])
    text = run(str(path), "--device", "cuda", "--full").output
    assert "copy 4 TB/s on this GPU" in text and "launch latency decides" in text


# -- which GPU


def test_a_gpu_by_name(tmp_path: Path) -> None:
    path = write_kernel(tmp_path / "k").resolve()
    assert data(str(path), "--gpu", "a100")["cc"] == 80
    know(path, gpu=replace(GPU, name="NVIDIA A100 of our own", cc=80, sm_count=100))
    assert data(str(path), "--gpu", "a100")["gpu"] == "NVIDIA A100 of our own"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--gpu", "gtx"), "fits 0 of the known GPUs"),
        (("--gpu", "nvidia"), "of the known GPUs; "),
        (("--cc", "81"), "choose from: 75, 80"),
        (("--cc", "80", "--gpu", "t4"), "--gpu and --cc exclude each other"),
        (("--device", "replay"), "needs a GPU of this machine"),
        (("--device", "cuda"), "no NVIDIA GPU"),
    ],
)
def test_gpus_that_are_not(arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(TunerError) as caught:
        run("vector_add", *arguments)
    assert words in str(caught.value)


def test_a_gpu_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said and done without, unless it was asked for."""

    def broken(device: str) -> None:
        raise DeviceError("the driver is gone", "load it")

    monkeypatch.setattr("tuner.cli.configuration.has_gpu", lambda: True)
    monkeypatch.setattr("tuner.cli.configuration._here", broken)
    done = run("vector_add", "--full")
    assert "the driver is gone: going on without this machine's GPU" in done.stderr
    assert "typical" in done.stdout or "NVIDIA H200" in done.stdout
    with pytest.raises(DeviceError, match="the driver is gone"):
        run("vector_add", "--device", "cuda")


# -- machine code


def test_machine_code_where_there_is_a_disassembler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program stands in for ``nvdisasm``: its listing is read, and its failure is said."""
    kernel = scale_kernel(tmp_path / "k")
    listing = (
        ".text.scale__ok:\n  /*0000*/ LDG.E.128 R4, desc[UR4][R2.64] ;\n"
        "  /*0010*/ STG.E.128 desc[UR4][R8.64], R4 ;\n  /*0020*/ EXIT ;\n"
    )
    tool = tmp_path / "nvdisasm"
    (tmp_path / "listing").write_text(listing)
    tool.write_text(f"#!/bin/sh\nhead -c 4 \"$2\" | grep -q ELF && cat '{tmp_path / 'listing'}'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (read,) = read_code(kernel, kernel.problem(), GPU, configuration())
    assert read.facts is not None and read.note == ""
    assert read.facts.whole.global_bytes == 32
    tool.write_text("#!/bin/sh\necho 'nvdisasm fatal: too new' >&2; exit 3\n")
    (read,) = read_code(kernel, kernel.problem(), GPU, configuration())
    assert read.facts is None and read.note == f"{tool} failed: nvdisasm fatal: too new"
    explained = put_together(ChosenConfiguration(kernel, kernel.problem(), GPU, configuration()), (read,))
    assert explained.launches[0].under_way is None


def test_code_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compile_source('extern "C" __global__ void k(float* a) { a[0] = 1; }', "k", "sm_80")
    assert facts_of(compiled.cubin, "k", None) == (
        None,
        "no nvdisasm, so the code was not read: pip install nvidia-cuda-nvdisasm",
    )
    facts, note = facts_of(compiled.cubin, "k2", find(NVDISASM))
    assert facts is None and note == "no kernel k2 in the listing"
    monkeypatch.setattr(code, "DEADLINE_S", 1e-6)
    facts, note = facts_of(compiled.cubin, "k", find(NVDISASM))
    assert facts is None and note == "0 MiB of SASS were not read in 1e-06 s"


def test_where_the_disassembler_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the PATH, in its package, in a toolkit."""
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert find(NVDISASM).is_relative_to(sysconfig.get_paths()["purelib"])
    (tmp_path / "nvdisasm").write_text("")
    (tmp_path / "nvdisasm").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find(NVDISASM) == tmp_path / "nvdisasm"


def test_a_problem_beyond_the_gpus_memory_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("explain", "show"):
        said = said_by(capsys, command, "reduce", "--size", "n=2**40")
        assert_refused(said, 2, "needs 4.398 TB; an NVIDIA H200 has 141 GB; give smaller sizes")
