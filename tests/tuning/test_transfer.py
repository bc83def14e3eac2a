"""What a run learns from other tasks: other sizes, GPUs and texts of its kernel, other tools, and files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.faults.kernels import scale_kernel, write_synthetic_recording
from tests.faults.stub_device import StubDevice, good
from tests.sessions import run, sequence
from tuner.core.errors import UsageError
from tuner.core.model import Configuration
from tuner.database.database import Database
from tuner.formats.foreign import import_foreign, read_foreign
from tuner.kernel.spec import KernelSpec
from tuner.report.progress import heading
from tuner.tuning.history import sources_of
from tuner.tuning.state import State


def time_of(configuration: Configuration) -> float:
    """Return nanoseconds: the default is not the best, and an ``unroll`` other than 2 costs little."""
    values = configuration.values
    block, items, unroll = (float(values.get(name, 2)) for name in ("block_size", "items", "unroll"))
    return 100_000 * (1 + abs(block - 128) / 64 + 0.1 * abs(items - 3) + 0.01 * abs(unroll - 2))


def learning(kernel: KernelSpec, database: Database, **changes: Any) -> State:
    options = {"from_scratch": False, "sampler": "gp-ei", **changes}
    return run(kernel, database, StubDevice(answer=lambda one: good(time_of(one))), **options).state


def at(kernel: KernelSpec, database: Database, size: int, **changes: Any) -> State:
    return learning(kernel, database, problem=kernel.problem(sizes={"n": size}), **changes)


def fastest(database: Database, state: State) -> Configuration:
    return min(sequence(database, state.run.id), key=time_of)


def said(state: State) -> str:
    return "\n".join(heading(state, shown=set()))


def test_results_of_another_kernel_text_are_no_results_but_transfer(
    database: Database, kernel: KernelSpec, tmp_path: Path
) -> None:
    learning(kernel, database, trials=12)
    changed = tmp_path / "kernel" / "scale.cu.j2"
    changed.write_text(changed.read_text().replace("= ", "= 0 + ", 1))
    state = learning(kernel, database, trials=4)
    assert (state.known_before, bool(state.taught.results)) == (0, True)
    assert state.taught.of == {"an earlier text of the kernel"}


def test_other_sizes_transfer_and_their_winner_is_tried_first(database: Database, kernel: KernelSpec) -> None:
    first = at(kernel, database, 1 << 20, trials=30)
    assert first.taught.results == 0
    second = at(kernel, database, 1 << 21, trials=5)
    assert (second.taught.results, second.known_before) == (30, 0)
    assert second.taught.of == {"other problems"}
    assert sequence(database, second.run.id)[1] == fastest(database, first)
    assert at(kernel, database, 1 << 22, trials=2).taught.results == 35
    assert at(kernel, database, 1 << 22, trials=2, from_scratch=True).taught.results == 0


def test_nothing_is_said_to_be_transferred_to_a_sampler_that_learns_nothing(
    database: Database, kernel: KernelSpec
) -> None:
    at(kernel, database, 1 << 20, trials=8)
    state = at(kernel, database, 1 << 21, trials=2, sampler="random")
    assert (state.taught.results, state.taught.of) == (0, set())
    assert "guide the search" not in said(state)


def test_what_is_learnt_is_that_of_the_nearest_tasks_not_of_the_newest(
    database: Database, kernel: KernelSpec
) -> None:
    near = at(kernel, database, 1 << 20, trials=12)
    for size in range(1 << 16, (1 << 16) + 5):
        at(kernel, database, size, trials=8, from_scratch=True)
    state = at(kernel, database, 1 << 21, trials=3)
    assert sequence(database, state.run.id)[1] == fastest(database, near)
    assert state.taught.results == 12 + 8 + 8


@pytest.mark.parametrize("gained", [True, False])
def test_a_kernel_that_gains_or_loses_a_parameter_keeps_its_history(
    database: Database, tmp_path: Path, gained: bool
) -> None:
    """A missing parameter has its default; of a surplus one the results at its default count."""
    texts = ["", "[variants.plain.parameters.unroll]\nvalues = [1, 2, 4]\ndefault = 2\n"]
    before, after = (scale_kernel(tmp_path / f"k{i}", extra=texts[i is gained]) for i in (False, True))

    first = learning(before, database, trials=48)
    state = learning(after, database, trials=2)
    at_default = [one for one in sequence(database, first.run.id) if one.values.get("unroll", 2) == 2]
    assert state.taught.results == len(at_default) == 16
    best = min(at_default, key=time_of).values | {"unroll": 2}
    tried = sequence(database, state.run.id)[1]
    assert tried.values == {name: best[name] for name in tried.values}


# -- files


def cache_of(
    path: Path, name: str, time_of_: Callable[[int, int], float], device: str = "NVIDIA A100"
) -> Path:
    """Write what Kernel Tuner would of the kernel ``scale``, which is told no variant."""
    values = {"block_size": [32, 64, 128, 256], "items": [1, 2, 3, 4]}
    rows = {
        f"{block},{items}": {"block_size": block, "items": items, "time": time_of_(block, items)}
        for block in values["block_size"]
        for items in values["items"]
    }
    data = {
        "device_name": device, "kernel_name": name, "problem_size": [1024], "tune_params_keys": list(values),
        "tune_params": values, "objective": "time", "cache": rows,
    }  # fmt: skip
    path.write_text(json.dumps(data))
    return path


def odd(block: int, items: int) -> float:
    return 1.0 if (block, items) == (64, 3) else 2.0 + abs(block - 64) / 64 + abs(items - 3)


def taught_by(files: Sequence[Path], kernel: KernelSpec, database: Database, **changes: Any) -> State:
    database.sources = sources_of(files, kernel, "gp-ei")
    return learning(kernel, database, **changes)


def test_imported_results_teach_and_never_win(database: Database, kernel: KernelSpec, tmp_path: Path) -> None:
    file = cache_of(tmp_path / "a100.json", "scale", odd)
    import_foreign(database, read_foreign(file))
    state = learning(kernel, database, trials=4)
    first = [(one.values["block_size"], one.values["items"]) for one in sequence(database, state.run.id)[:2]]
    assert first[1] == (64, 3)
    assert (state.taught.results, state.taught.of) == (16, {"other tools"})
    assert state.best_before is None
    assert {trial.configuration.variant for trial in state.trials} == {"plain"}
    assert learning(kernel, database, trials=2, from_scratch=True).taught.results == 0


def test_files_teach_a_run_from_scratch_too(database: Database, kernel: KernelSpec, tmp_path: Path) -> None:
    cache = cache_of(tmp_path / "a100.json", "another_name", odd)
    with Database.open(tmp_path / "other.db") as other:
        best = fastest(other, at(kernel, other, 512, trials=20))
    problems = [kernel.problem(sizes={"n": 64})]
    own = write_synthetic_recording(tmp_path / "scale-H200.json.gz", kernel, problems, limit=20)
    for file, winner in [
        (cache, {"block_size": 64, "items": 3}),
        (tmp_path / "other.db", best.values),
        (own, {}),
    ]:
        state = taught_by([file], kernel, database, trials=3, from_scratch=True)
        assert state.taught.results >= 10
        assert winner.items() <= sequence(database, state.run.id)[1].values.items()


def test_a_file_on_a_gpu_of_another_vendor_teaches_nothing_and_that_is_said(
    database: Database, kernel: KernelSpec, tmp_path: Path
) -> None:
    file = cache_of(tmp_path / "mi.json", "scale", odd, device="AMD Instinct MI250X")
    state = taught_by([file], kernel, database, trials=2, from_scratch=True)
    assert state.taught.results == 0
    assert "no search is guided by scale x=1024 on AMD Instinct MI250X: a GPU of another vendor" in said(
        state
    )


def test_a_size_64_times_as_large_teaches_nothing(database: Database, kernel: KernelSpec) -> None:
    """What is fast for a few microseconds says little about milliseconds: the search would follow what misleads it."""
    at(kernel, database, 1 << 20, trials=12)
    assert at(kernel, database, 1 << 14, trials=2).taught.results == 0
    assert at(kernel, database, (1 << 14) + 1, trials=2).taught.results == 12


def test_files_that_cannot_teach_are_refused(kernel: KernelSpec, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text(
        cache_of(tmp_path / "a.json", "scale", odd)
        .read_text()
        .replace("items", "other")
        .replace("block_size", "b")
    )
    with Database.open(tmp_path / "empty.db"):
        pass
    failed = cache_of(tmp_path / "failed.json", "scale", lambda *_: "RuntimeFailedConfig")  # type: ignore[arg-type, return-value]
    for file, sampler, why in [
        (broken, "gp-ei", "none of its parameters"),
        (tmp_path, "gp-ei", "is a folder"),
        (tmp_path / "empty.db", "gp-ei", "no results of scale"),
        (failed, "gp-ei", "every result in it is a failure"),
        (tmp_path / "a.json", "tpe", "learns nothing"),
    ]:
        with pytest.raises(UsageError, match=why):
            sources_of([file], kernel, sampler)
