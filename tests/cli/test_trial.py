"""``tune trial``: the launches of a trial, and its sources one by one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.commands import assert_refused, said_by
from tests.faults.kernels import SOURCE, configuration, write_kernel
from tests.stored import GPU, make_run, make_trial
from tuner.children.nvrtc import compile_source
from tuner.database.database import Database
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import read_kernel
from tuner.kernel.render import render

SECOND = """
[[variants.plain.launches]]
template = "again.cu.j2"
entry = "again"
arguments = ["x"]
grid = ["2", "3"]
block = ["block_size", "2"]
shared_bytes = "4 * block_size"
"""
AGAIN = 'extern "C" __global__ void again(const float* x) {}\n'


@pytest.fixture
def kernel_file(tmp_path: Path) -> Path:
    """A kernel of two launches; trial 1 of the database is one of its, trial 2 has no source."""
    file = write_kernel(tmp_path / "own")
    (tmp_path / "own" / "again.cu.j2").write_text(AGAIN)
    file.write_text(file.read_text() + SECOND)
    kernel = read_kernel(file)
    problem, chosen = kernel.problem({"n": 1000}), configuration("ok", 64, 2)
    identity = KernelIdentity(kernel)
    run = replace(
        make_run(problem=problem),
        kernel_file=str(file),
        kernel_digest=identity.text,
        computation=identity.computation,
    )
    sources = tuple(source for source, _ in render(kernel, problem, GPU, chosen))
    trial = replace(
        make_trial(0),
        configuration=chosen,
        sources=sources,
        implementation=identity.implementation("plain", sources),
    )
    with Database.open(tmp_path / "results" / "tuning.db") as database:
        database.start_run(run)
        database.record(run.id, trial)
        database.record(
            run.id, replace(trial, number=1, configuration=configuration("ok", 32, 1), sources=())
        )
    return file


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_launches_come_from_the_kernels_file(kernel_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = said_by(capsys, "trial", "1").rows()
    assert rows["launch 1"] == "scale__ok: grid 8 x 1 x 1, block 64 x 1 x 1"
    assert rows["launch 2"] == "again: grid 2 x 3 x 1, block 64 x 2 x 1, 256 bytes of dynamic shared memory"
    assert "launches" not in rows
    said = json.loads(said_by(capsys, "trial", "1", "--json").out)
    assert [(launch["grid"], launch["block"]) for launch in said["launches"]] == [
        ([8, 1, 1], [64, 1, 1]),
        ([2, 3, 1], [64, 2, 1]),
    ]
    assert said["launches_note"] == ""


def test_launches_of_a_kernel_that_has_changed(kernel_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel_file.write_text(kernel_file.read_text().replace('grid = ["2", "3"]', 'grid = ["5"]'))
    rows = said_by(capsys, "trial", "1").rows()
    assert rows["launch 2"].startswith("again: grid 5 x 1 x 1")
    assert "changed" in rows["launches"]


@pytest.mark.parametrize("change", ["gone", "broken", "other values"])
def test_launches_that_are_not_known(
    kernel_file: Path, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = kernel_file.read_text()
    if change == "gone":
        kernel_file.unlink()
    else:
        kernel_file.write_text(text + "[" if change == "broken" else text.replace("block_size", "threads"))
    said = said_by(capsys, "trial", "1")
    assert said.code == 0
    rows = said.rows()
    assert "launch 1" not in rows
    assert rows["launches"].startswith("not known:")
    assert json.loads(said_by(capsys, "trial", "1", "--json").out)["launches"] == []


def test_launches_of_a_template_that_never_ends(
    kernel_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As those of a trial that took too long to compile."""
    endless = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    with Database.open(Path("results/tuning.db")) as database:
        run = database.trial(1).run
    kernel_file.with_name("scale.cu.j2").write_text(endless)
    identity = KernelIdentity(read_kernel(kernel_file))
    with Database.open(Path("results/tuning.db")) as database:
        changed = replace(run, id="b" * 32, kernel_digest=identity.text, computation=identity.computation)
        database.start_run(changed)
        database.record(
            changed.id, replace(make_trial(0), configuration=configuration("ok", 64, 2), sources=())
        )
    assert said_by(capsys, "trial", "3").rows()["launch 1"] == "scale__ok: grid 8 x 1 x 1, block 64 x 1 x 1"


def test_sources_are_told_apart(kernel_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = said_by(capsys, "trial", "1", "--source", "--launch", "1").out
    assert first.splitlines() == [
        line.replace("{{ fault }}", "ok").replace("{{ items }}", "2").replace("{{ block_size }}", "64")
        for line in SOURCE.splitlines()
    ]
    assert said_by(capsys, "trial", "1", "--source", "--launch", "2").out == AGAIN
    assert_refused(said_by(capsys, "trial", "1", "--source"), 2, "2 launches", "--launch 1", "--json")
    for source, entry in ((first, "scale__ok"), (AGAIN, "again")):
        assert compile_source(source, entry, "sm_90").cubin


def test_sources_that_are_not_there(kernel_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert_refused(said_by(capsys, "trial", "1", "--source", "--launch", "3"), 2, "launch 3", "2")
    assert_refused(said_by(capsys, "trial", "1", "--launch", "1"), 2, "--source")
    assert_refused(said_by(capsys, "trial", "1", "--source", "--json"), 2, "--source")
    none = said_by(capsys, "trial", "2", "--source")
    assert (none.code, none.out) == (0, "")
    assert "trial 2" in none.err
