"""Stored results of a kernel whose file has changed: which still count, and which are said to be old."""

from __future__ import annotations

import json
import resource
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.commands import said_by
from tests.edited_kernels import GPU, edit, identity, implementation
from tests.faults.kernels import configuration, write_kernel, write_synthetic_recording
from tuner.core.model import Configuration, Run, RunOptions, Status, Trial, Verification
from tuner.database.database import Database
from tuner.database.records import Filters, WarmTime, Winner
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import load_kernel, read_kernel
from tuner.winners.contents import contents_of
from tuner.winners.current import Kernels, KernelState, best_winners, choose_winners


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_kernel(tmp_path / "kernel").resolve()


RANDOM = RunOptions(trials=1, sampler="random")


def remember(
    database: Database, path: Path, run_id: str, time_ns: float, *, legacy: bool = False, **changes: Any
) -> Run:
    """Write a run with a winner of the kernel as it is now, confirmed unless ``changes`` says otherwise."""
    kernel = read_kernel(path)
    own = KernelIdentity(kernel)
    run = Run(
        run_id, kernel.problem(), GPU, "cuda:0", RANDOM, kernel_file=str(path),
        kernel_digest=own.legacy if legacy else own.text, computation="" if legacy else own.computation,
    )  # fmt: skip
    database.start_run(run)
    trial = Trial(
        0, configuration(), Status.OK, time_ns, time_ns, time_ns, (time_ns,),
        verification=Verification(True), implementation="" if legacy else implementation(path),
    )  # fmt: skip
    row = database.record(run_id, trial)
    database.finish_run(run_id, "finished")
    won = {"exportable": True, **changes}
    database.record_winner(run_id, Winner(row, configuration(), time_ns, row, time_ns, **won))
    return run


def test_a_winner_of_an_earlier_text_is_no_longer_the_best(path: Path, tmp_path: Path) -> None:
    with Database.open(tmp_path / "tuning.db") as database:
        remember(database, path, "a" * 32, 100.0)
        edit(path.with_name("scale.cu.j2"), "2.0f * x[i]", "x[i] + x[i]")
        (only,) = best_winners(database, Filters()).rows
        assert only.state is KernelState.CHANGED
        remember(database, path, "b" * 32, 200.0)
        (best,) = best_winners(database, Filters()).rows
        assert (best.stored.run.id, best.state) == ("b" * 32, KernelState.CURRENT)
        edit(path.with_name("scale.cu.j2"), "{\n", "{  // a comment\n")
        (best,) = best_winners(database, Filters()).rows
        assert (best.stored.run.id, best.state) == ("b" * 32, KernelState.CURRENT)


@pytest.mark.parametrize(
    "endless", ["{% for i in range(99999) %}" * 4 + "{% endfor %}" * 4, "{{ 1 | round(10 ** 9, 'ceil') }}"]
)
def test_a_template_that_never_ends_is_a_kernel_that_has_changed(
    endless: str, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database names the file: it must not stop a program that looks at it, not even by one call of C code."""
    with Database.open(tmp_path / "tuning.db") as database:
        remember(database, path, "a" * 32, 100.0)
        monkeypatch.setattr("tuner.kernel.identity.RENDER_S", 0.2)
        edit(path.with_name("scale.cu.j2"), "{\n", "{\n" + endless)
        began = time.monotonic()
        (only,) = best_winners(database, Filters()).rows
        assert only.state is KernelState.CHANGED
        assert 0.2 <= time.monotonic() - began < 100


def test_what_a_reference_takes_to_be_read_is_bounded(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Database.open(tmp_path / "tuning.db") as database:
        remember(database, path, "a" * 32, 100.0)
        edit(path, 'numpy = "2 * x"', 'python = "r.py:f"')
        path.with_name("r.py").write_text("a\n" * 1_000_000)
        monkeypatch.setattr("tuner.kernel.templates.MEMORY_BYTES", 1 << 26)
        monkeypatch.setattr("tuner.kernel.identity.RENDER_S", 5.0)  # what has no memory left may hang, too
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        (only,) = best_winners(database, Filters()).rows
        assert only.state is KernelState.CHANGED
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 << 10


def test_a_header_leaves_out_what_has_changed(
    capsys: pytest.CaptureFixture[str], path: Path, tmp_path: Path
) -> None:
    db, header = tmp_path / "tuning.db", tmp_path / "tuned.hpp"
    with Database.open(db) as database:
        remember(database, path, "a" * 32, 100.0)
    assert said_by(capsys, "export", "--db", str(db), "-o", str(header)).code == 0
    header.unlink()
    edit(path, "2 * x", "3 * x")
    done = said_by(capsys, "export", "--db", str(db), "-o", str(header))
    assert done.code == 1
    assert "has changed" in done.err
    assert not header.exists()


def test_two_kernels_of_one_name_are_kept_apart(
    capsys: pytest.CaptureFixture[str], path: Path, tmp_path: Path
) -> None:
    other = write_kernel(tmp_path / "other").resolve()
    edit(other, "2 * x", "3 * x")
    db, header = tmp_path / "tuning.db", tmp_path / "tuned.hpp"
    with Database.open(db) as database:
        remember(database, path, "a" * 32, 100.0)
        remember(database, other, "b" * 32, 50.0)
        found = {w.stored.run.id[0]: w.state for w in best_winners(database, Filters()).rows}
    assert found == {"a": KernelState.CURRENT, "b": KernelState.CURRENT}
    refused = said_by(capsys, "export", "--db", str(db), "-o", str(header))
    assert refused.code == 1
    assert str(path) in refused.err
    assert said_by(capsys, "export", "--db", str(db), "--kernel", str(other), "-o", str(header)).code == 0
    assert "b" * 32 in header.read_text()
    assert "a" * 32 not in header.read_text()


def test_a_recording_of_another_computation_is_refused(
    capsys: pytest.CaptureFixture[str], path: Path, tmp_path: Path
) -> None:
    kernel = read_kernel(path)
    recording = write_synthetic_recording(tmp_path / "scale-H200.json.gz", kernel, [kernel.problem()])
    replayed = ("--device", f"replay:{recording}", "--trials", "5", "--db", str(tmp_path / "t.db"))
    run = ("--kernel", str(path), *replayed)
    assert said_by(capsys, *run).code == 0
    edit(path, "2 * x", "3 * x")
    refused = said_by(capsys, *run)
    assert refused.code == 1
    assert "reference" in refused.err


def test_runs_of_the_schema_before_keep_their_meaning(path: Path, tmp_path: Path) -> None:
    with Database.open(tmp_path / "tuning.db") as database:
        run = remember(database, path, "a" * 32, 100.0, legacy=True)
        (best,) = best_winners(database, Filters()).rows
        assert best.state is KernelState.CURRENT
        own = identity(path)
        now = replace(run, id="b" * 32, kernel_digest=own.text, computation=own.computation)
        assert database.earlier_trials(now) == []
        database.adopt_runs(run.problem.kernel, lambda: own.legacy, own.computation, own.text)
        assert [trial.time_ns for trial in database.earlier_trials(now)] == [100.0]
        assert database.check().problems == []
        known = database.best_known(replace(run, gpu=GPU, computation=own.computation))
        assert known == (configuration(), 100.0)
        database.adopt_runs(run.problem.kernel, lambda: "another text", "c", "t")
        assert [trial.time_ns for trial in database.earlier_trials(now)] == [100.0]


def test_a_merged_run_of_the_schema_before_is_of_the_same_kernel(
    capsys: pytest.CaptureFixture[str], path: Path, tmp_path: Path
) -> None:
    old, new, header = tmp_path / "old.db", tmp_path / "new.db", tmp_path / "tuned.hpp"
    with Database.open(old) as database:
        remember(database, path, "a" * 32, 100.0, legacy=True)
    with Database.open(new) as database:
        remember(database, path, "b" * 32, 200.0)
    assert said_by(capsys, "db", "merge", str(old), "--db", str(new)).code == 0
    with Database.open(new) as database:
        (best,) = best_winners(database, Filters()).rows
    assert best.stored.run.id == "a" * 32
    assert said_by(capsys, "export", "--db", str(new), "-o", str(header)).code == 0
    assert "a" * 32 in header.read_text()


def test_a_run_of_the_schema_before_is_compared_as_any_other(path: Path, tmp_path: Path) -> None:
    warm = WarmTime(90.0, None, None, None, "ambiguous", 1.0, 1.0, counts=True)

    def best(**filters: str) -> str:
        (found,) = best_winners(database, Filters(**filters)).rows
        return found.stored.run.id[0]

    with Database.open(tmp_path / "tuning.db") as database:
        remember(database, path, "a" * 32, 100.0, legacy=True)
        remember(database, path, "b" * 32, 90.0, exportable=False)
        assert best() == "a", "the other was not confirmed"
        remember(database, path, "c" * 32, 110.0, warm=warm)
        assert (best(), best(mode="cold")) == ("c", "a")


@pytest.mark.parametrize("adopted_first", [True, False])
def test_a_run_is_the_same_before_and_after_it_is_identified(
    path: Path, tmp_path: Path, adopted_first: bool
) -> None:
    paths = [tmp_path / name for name in ("identified.db", "before.db")]
    own = identity(path)
    with Database.open(paths[1]) as database:
        remember(database, path, "a" * 32, 100.0, legacy=True)
        database.backup(paths[0])
    with Database.open(paths[0]) as database:
        database.adopt_runs("scale", lambda: own.legacy, own.computation, own.text)
    into, other = paths if adopted_first else paths[::-1]
    with Database.open(into) as database:
        merged = database.merge(other)
        assert (merged.runs, merged.trials, merged.refused) == (0, 0, [])
        assert database.run("a" * 32).computation == own.computation
        assert database.check().problems == []


def test_a_run_goes_on_whatever_another_kernel_of_its_name_has_left(
    capsys: pytest.CaptureFixture[str], path: Path, tmp_path: Path
) -> None:
    other = write_kernel(tmp_path / "other").resolve()
    edit(other, "2 * x", "3 * x")
    kernel, db = read_kernel(path), tmp_path / "tuning.db"
    recording = write_synthetic_recording(tmp_path / "scale-H200.json.gz", kernel, [kernel.problem()])
    with Database.open(db) as database:
        for run_id, own in (("a" * 32, identity(path)), ("b" * 32, identity(other))):
            run = Run(
                run_id, kernel.problem(), GPU, "replay:scale-H200", replace(RANDOM, trials=5),
                kernel_file=str(own.kernel.file), kernel_digest=own.text, computation=own.computation,
            )  # fmt: skip
            database.start_run(run)
            database.finish_run(run_id, "interrupted")
    command = ("--kernel", str(path), "--device", f"replay:{recording}", "--db", str(db), "--resume", "-q")
    assert said_by(capsys, *command).code == 0
    with Database.open(db) as database:
        assert database.run_state("a" * 32)["state"] == "finished"
        assert database.run_state("b" * 32)["state"] == "interrupted"


def test_a_kernel_with_the_name_of_a_built_in_one_falls_back_on_its_own_default(tmp_path: Path) -> None:
    own = tmp_path / "saxpy.toml"
    shutil.copy(load_kernel("saxpy").file, own)
    values = "block_size = { values = [64, 128, 256, 512, 1024], default ="
    edit(own, f"{values} 256", f"{values} 64")
    kernel = read_kernel(own)
    configuration = Configuration.of("vectorized", kernel.variants["vectorized"].defaults)
    with Database.open(tmp_path / "tuning.db") as database:
        run = Run("a" * 32, kernel.problem(), GPU, "cuda:0", RANDOM, kernel_file=str(own),
                  kernel_digest=identity(own).text, computation=identity(own).computation)  # fmt: skip
        database.start_run(run)
        trial = Trial(0, configuration, Status.OK, 9.0, 9.0, 9.0, (9.0,), verification=Verification(True))
        row = database.record(run.id, trial)
        database.record_winner(run.id, Winner(row, configuration, 9.0, row, 9.0, exportable=True))
        contents = contents_of(choose_winners(database, Filters(), Kernels()).winners, Kernels())
    first = contents.configurations[contents.defaults[0]].configuration
    assert (first.variant, first.values["block_size"]) == ("vectorized", 64)


def test_a_kernel_that_was_moved_is_known_by_its_new_file(
    capsys: pytest.CaptureFixture[str], path: Path, tmp_path: Path
) -> None:
    db, header = tmp_path / "tuning.db", tmp_path / "tuned.hpp"
    with Database.open(db) as database:
        remember(database, path, "a" * 32, 100.0)
    moved = path.parent.rename(tmp_path / "moved") / path.name
    gone = said_by(capsys, "export", "--db", str(db), "-o", "-")
    assert gone.code == 0 and "its kernel's file is gone" in gone.out
    gone = said_by(capsys, "bundle", "--db", str(db), "-o", str(tmp_path / "b"), "--kernel", "scale")
    assert gone.code == 1 and "name the kernel by its .toml file" in gone.err
    arguments = ("--db", str(db), "--kernel", str(moved))
    assert said_by(capsys, "export", *arguments, "-o", str(header)).code == 0
    assert "is gone" not in header.read_text()
    (best,) = json.loads(said_by(capsys, "best", *arguments, "--json").out)
    assert best["kernel_state"] == "current"
    edit(moved.with_name("scale.cu.j2"), "2.0f * x[i]", "x[i] + x[i]")
    (best,) = json.loads(said_by(capsys, "best", *arguments, "--json").out)
    assert best["kernel_state"] == "changed"
