"""What identifies a kernel: wording does not count, what is computed and how it is done do."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.commands import said_by
from tests.faults.kernels import configuration, write_kernel, write_synthetic_recording
from tuner.database.database import Database
from tuner.database.records import Filters, WarmTime, Winner
from tuner.hardware.roofline import ARCHITECTURES
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import builtin_kernels, load_kernel, read_kernel
from tuner.kernel.render import render
from tuner.model import Configuration, Run, Status, Trial, Verification
from tuner.winners.current import KernelState, best_winners

GPU = ARCHITECTURES[90]


def identity(path: Path) -> KernelIdentity:
    return KernelIdentity(read_kernel(path))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_kernel(tmp_path / "kernel").resolve()


def implementation(path: Path) -> str:
    kernel = read_kernel(path)
    sources = [source for source, _ in render(kernel, kernel.problem(), GPU, configuration())]
    return KernelIdentity(kernel).implementation("plain", sources)


def test_a_copy_elsewhere_is_the_same_kernel(path: Path, tmp_path: Path) -> None:
    shutil.copytree(path.parent, tmp_path / "zz" / "deeper")
    copy = tmp_path / "zz" / "deeper" / path.name
    assert identity(copy).computation == identity(path).computation
    assert identity(copy).text == identity(path).text
    assert implementation(copy) == implementation(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda toml: edit(toml, "[problem]", "# a comment\n[problem]"),
        lambda toml: edit(toml.with_name("scale.cu.j2"), "{\n", "{  // why\n{# and how #}"),
        lambda toml: edit(toml, 'numpy = "2 * x"', 'numpy = "(2*x)"'),
    ],
)
def test_wording_does_not_count(path: Path, change: Callable[[Path], None]) -> None:
    before, done = identity(path), implementation(path)
    digests = before.computation, before.text
    change(path)
    assert (identity(path).computation, identity(path).text) == digests
    assert implementation(path) == done


def test_another_reference_computes_something_else(path: Path) -> None:
    before = identity(path)
    parts = dict(before.parts)
    edit(path, "2 * x", "3 * x")
    after = identity(path)
    assert {name for name in parts if after.parts[name] != parts[name]} == {"reference"}
    assert after.computation != before.computation


def test_another_template_computes_the_same_in_another_way(path: Path) -> None:
    before, done = identity(path), implementation(path)
    digests = before.computation, before.text
    edit(path.with_name("scale.cu.j2"), "2.0f * x[i]", "x[i] + x[i]")
    assert identity(path).computation == digests[0]
    assert identity(path).text != digests[1]
    assert implementation(path) != done


def test_the_same_source_launched_otherwise_is_another_implementation(path: Path) -> None:
    done = implementation(path)
    edit(path, "block = [", "shared_bytes = 1024\nblock = [")
    assert implementation(path) != done


def test_what_jinja_divides_counts(path: Path) -> None:
    edit(path.with_name("scale.cu.j2"), "{\n", "{\n{% set half = items // 2 %}\n")
    before = identity(path).text
    edit(path.with_name("scale.cu.j2"), "items // 2", "items // 4")
    assert identity(path).text != before


@pytest.mark.parametrize(
    "tag", ['{% include "parts/" ~ fault ~ ".j2" %}', '{% include "a.j2" if items == 1 else "b.j2" %}']
)
def test_templates_that_may_be_included_count(path: Path, tag: str) -> None:
    for name in ("a.j2", "b.j2"):
        path.with_name(name).write_text("// nothing\n")
    with path.with_name("scale.cu.j2").open("a") as file:
        file.write(tag)
    before = identity(path).text
    edit(path.with_name("b.j2"), "// nothing", "int something;")
    assert identity(path).text != before


@pytest.mark.parametrize("name", ["own.cuh", "{{ fault }}_own.cuh"])
def test_headers_count_where_they_are_included(path: Path, name: str) -> None:
    for header in ("own.cuh", "ok_own.cuh", "unused.cuh"):
        path.with_name(header).write_text('#include "deeper.cuh"\n')
    path.with_name("deeper.cuh").write_text("#define DEEP 1\n")
    edit(path.with_name("scale.cu.j2"), "extern", f'#include "{name}"\nextern')
    before, done = identity(path).text, implementation(path)
    edit(path.with_name("unused.cuh"), "#include", "int unused;\n#include")
    edit(path.with_name("deeper.cuh"), "#define", "// how deep\n#define")
    assert (identity(path).text, implementation(path)) == (before, done)
    edit(path.with_name("deeper.cuh"), "DEEP 1", "DEEP 2")
    assert identity(path).text != before
    assert implementation(path) != done


def test_the_name_of_a_source_does_not_count(path: Path) -> None:
    path.with_name("scale.cu.j2").rename(path.with_name("scale.cu"))
    edit(path, "scale.cu.j2", "scale.cu")
    before, done = identity(path).text, implementation(path)
    path.with_name("scale.cu").rename(path.with_name("times_two.cu"))
    edit(path, "scale.cu", "times_two.cu")
    assert (identity(path).text, implementation(path)) == (before, done)


PYTHON = "import helper\n\ndef expected(x):\n    return helper.factor * x\n"


@pytest.mark.parametrize(
    ("file", "text", "same"),
    [
        (
            "reference.py",
            '"""What is right."""\n' + PYTHON.replace("    return", '    "Twice."\n    return'),
            True,
        ),
        ("reference.py", PYTHON.replace("* x", "* x * 1"), False),
        ("helper.py", "factor = 2  # twice\n", True),
        ("helper.py", "factor = 3\n", False),
    ],
)
def test_a_python_reference_counts_with_what_it_imports(path: Path, file: str, text: str, same: bool) -> None:
    path.with_name("reference.py").write_text(PYTHON)
    path.with_name("helper.py").write_text("factor = 2\n")
    edit(path, 'numpy = "2 * x"', 'python = "reference.py:expected"')
    before = identity(path).computation
    path.with_name(file).write_text(text)
    assert (identity(path).computation == before) is same


def test_built_in_kernels_compute_different_things() -> None:
    kernels = builtin_kernels()
    assert len({KernelIdentity(load_kernel(name)).computation for name in kernels}) == len(kernels)


def remember(
    database: Database, path: Path, run_id: str, time_ns: float, *, legacy: bool = False, **changes: Any
) -> Run:
    """Write a run with a winner of the kernel as it is now, confirmed unless ``changes`` says otherwise."""
    kernel = read_kernel(path)
    own = KernelIdentity(kernel)
    run = Run(
        run_id, kernel.problem(), GPU, "cuda:0", 0, "random", 1, 1, kernel_file=str(path),
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


def test_a_template_that_never_ends_is_a_kernel_that_has_changed(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database names the file: it must not stop a program that looks at it."""
    with Database.open(tmp_path / "tuning.db") as database:
        remember(database, path, "a" * 32, 100.0)
        monkeypatch.setattr("tuner.kernel.identity.RENDER_S", 0.2)
        loops = "{% for i in range(99999) %}" * 4 + "{% endfor %}" * 4
        edit(path.with_name("scale.cu.j2"), "{\n", "{\n" + loops)
        began = time.monotonic()
        (only,) = best_winners(database, Filters()).rows
        assert only.state is KernelState.CHANGED
        assert 0.2 <= time.monotonic() - began < 5


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
    run = (
        "--kernel",
        str(path),
        "--device",
        f"replay:{recording}",
        "--trials",
        "5",
        "--db",
        str(tmp_path / "t.db"),
    )
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
        known = database.best_known(run.problem, GPU.name, run.conditions, own.computation)
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
                run_id, kernel.problem(), GPU, "replay:scale-H200", 0, "random", 5, 1,
                kernel_file=str(own.kernel.file), kernel_digest=own.text, computation=own.computation,
            )  # fmt: skip
            database.start_run(run)
            database.finish_run(run_id, "interrupted")
    command = ("--kernel", str(path), "--device", f"replay:{recording}", "--db", str(db), "--resume", "-q")
    assert said_by(capsys, *command).code == 0
    with Database.open(db) as database:
        assert database.run_state("a" * 32)["state"] == "finished"
        assert database.run_state("b" * 32)["state"] == "interrupted"


def test_a_kernel_with_the_name_of_a_built_in_one_falls_back_on_its_own_default(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    own, db, header = tmp_path / "saxpy.toml", tmp_path / "tuning.db", tmp_path / "tuned.hpp"
    shutil.copy(load_kernel("saxpy").file, own)
    values = "block_size = { values = [64, 128, 256, 512, 1024], default ="
    edit(own, f"{values} 256", f"{values} 64")
    kernel = read_kernel(own)
    configuration = Configuration.of("vectorized", kernel.variants["vectorized"].defaults)
    with Database.open(db) as database:
        run = Run("a" * 32, kernel.problem(), GPU, "cuda:0", 0, "random", 1, 1, kernel_file=str(own),
                  kernel_digest=identity(own).text, computation=identity(own).computation)  # fmt: skip
        database.start_run(run)
        trial = Trial(0, configuration, Status.OK, 9.0, 9.0, 9.0, (9.0,), verification=Verification(True))
        row = database.record(run.id, trial)
        database.record_winner(run.id, Winner(row, configuration, 9.0, row, 9.0, exportable=True))
    assert said_by(capsys, "export", "--db", str(db), "-o", str(header)).code == 0
    assert "default_configurations[] = {\n    {Variant::vectorized, 64," in header.read_text()


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
    assert gone.code == 1 and "name the kernel's .toml file" in gone.err
    arguments = ("--db", str(db), "--kernel", str(moved))
    assert said_by(capsys, "export", *arguments, "-o", str(header)).code == 0
    assert "is gone" not in header.read_text()
    (best,) = json.loads(said_by(capsys, "best", *arguments, "--json").out)
    assert best["kernel_state"] == "current"
    edit(moved.with_name("scale.cu.j2"), "2.0f * x[i]", "x[i] + x[i]")
    (best,) = json.loads(said_by(capsys, "best", *arguments, "--json").out)
    assert best["kernel_state"] == "changed"
