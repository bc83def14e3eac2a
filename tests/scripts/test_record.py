"""scripts/record.py: what it records is there, and it goes on where it was stopped; with a device of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts import record
from scripts.record_plans import PLANS, Plan, lattices, problem_of
from tests.faults.stub_device import StubDevice
from tuner.formats.recording import read_recording
from tuner.kernel.load import load_kernel
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace


@pytest.mark.parametrize("name", PLANS)
def test_every_lattice_has_configurations(name: str) -> None:
    """A parameter or value that the kernel does not have is an error."""
    kernel, gpu = load_kernel(name), ARCHITECTURES[90]
    recorded = 0
    for plan in PLANS[name]:
        problem = problem_of(kernel, plan.problems[0])
        for lattice in plan.lattices:
            if not kernel.usable_variants(problem, gpu)[1].get(lattice.variant):
                space = SearchSpace.from_kernel(kernel, problem, gpu, [lattice.variant], lattice.values)
                assert len(space) > 0
                recorded += 1
    assert recorded


def test_it_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = (
        "block_size=128,256 vector_width=4 items_per_thread=1 min_blocks=0 arrangement=striped load_hint=none"
    )
    few = lattices(f"vectorized {values} store_hint=none")
    monkeypatch.setitem(PLANS, "vector_add", (Plan(("n=1024", "n=2048", "n=4096"), few),))
    devices: list[StubDevice] = []

    def opened(*_: object) -> StubDevice:
        devices.append(StubDevice())
        return devices[-1]

    monkeypatch.setattr(record, "open_device", opened)

    def run(*words: str) -> list[int]:
        """Return the sizes that were recorded."""
        arguments = ["vector_add", "--out", str(tmp_path), "--db", str(tmp_path / "r.db"), *words]
        monkeypatch.setattr(sys, "argv", ["record.py", *arguments])
        record.main()
        assert devices[-1].closed
        return [problem.sizes["n"] for problem in devices[-1].prepared]

    seen: list[int] = []
    write = record._write

    def stop_after_the_first(*arguments: object, whole: bool) -> None:
        write(*arguments, whole=whole)  # type: ignore[arg-type]
        seen.append(len(seen))
        if len(seen) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(record, "_write", stop_after_the_first)
    with pytest.raises(KeyboardInterrupt):
        run()
    (partial,) = tmp_path.glob("*.partial.json.gz")
    assert run("--seconds", "0") == []
    assert run() == [2048, 4096]
    assert not partial.exists()
    (path,) = tmp_path.glob("*.json.gz")
    recording = read_recording(path)
    assert [one.problem.sizes["n"] for one in recording.problems] == [1024, 2048, 4096]
    assert [len(one.rows) for one in recording.problems] == [2, 2, 2]
    path.rename(partial)
    monkeypatch.setattr(record, "__version__", "0")
    assert run() == [1024, 2048, 4096]  # what another version has left does not count
